//! Buffers that tell settings: masks, cosines and sines of rotary positions, slopes of ALiBi.

use attnscope_compute::error::Result;

use super::super::Facts;
use super::stack::{Entry, Stack};

const MASKS: [&str; 9] = [
    "tril",
    "triu",
    "mask",
    "causal",
    "bias",
    "subsequent",
    "future",
    "trimask",
    "triangle",
];
/// Larger masks are judged by their names.
const LARGEST_MASK: usize = 1 << 24;

/// What buffers tell.
#[derive(Debug, Default)]
pub struct Buffers {
    /// Names of all buffers.
    pub names: Vec<String>,
    /// The positions that a causal mask covers, and its name.
    pub causal: Option<(usize, String)>,
    pub rotary: Option<Rotary>,
    /// The number of ALiBi's slopes, and their name.
    pub slopes: Option<(usize, String)>,
}

/// What stored cosines, sines or frequencies tell.
#[derive(Debug)]
pub struct Rotary {
    pub name: String,
    pub d_rotary: usize,
    pub theta: Option<f64>,
    pub interleaved: Option<bool>,
}

/// Whether a word names a mask.
pub fn is_of_mask(word: &str) -> bool {
    word != "bias" && MASKS.contains(&word)
}

impl Buffers {
    /// Takes the buffers out of the entries.
    ///
    /// # Errors
    /// When a mask is not causal, or the file cannot be read.
    pub fn take(facts: &Facts<'_>, stack: &mut Stack) -> Result<Self> {
        let mut found = Self::default();
        for entries in [&mut stack.layer, &mut stack.outside] {
            let mut kept = Vec::new();
            for entry in std::mem::take(entries) {
                if found.add(facts, &entry)? {
                    found.names.push(entry.template.clone());
                } else {
                    kept.push(entry);
                }
            }
            *entries = kept;
        }
        Ok(found)
    }

    fn add(&mut self, facts: &Facts<'_>, entry: &Entry) -> Result<bool> {
        let last = entry.words.last().map(String::as_str).unwrap_or_default();
        if let [n_rows, n_columns] = entry.trimmed()
            && n_rows == n_columns
            && entry.has_word(&MASKS)
            && last != "weight"
        {
            if !is_causal(facts, &entry.first, *n_rows)? {
                let problem = "holds a mask that is not causal, which is not read".to_owned();
                return Err(facts.at(&entry.first, problem));
            }
            let covers = self
                .causal
                .as_ref()
                .map_or(*n_rows, |(n, _)| *n.min(n_rows));
            self.causal = Some((covers, entry.first.clone()));
            return Ok(true);
        }
        if entry.has_word(&["slopes", "slope"]) && entry.trimmed().len() == 1 {
            self.slopes = Some((entry.trimmed()[0], entry.first.clone()));
            return Ok(true);
        }
        if last == "bias" && entry.has_word(&["masked"]) || is_count(facts, entry)? {
            return Ok(true);
        }
        let is_rotary = entry.has_word(&["cos", "sin", "freqs", "freq", "rope", "rotary"]);
        if !is_rotary || last == "weight" {
            return Ok(false);
        }
        if self.rotary.is_none() && !entry.has_word(&["sin"]) {
            self.rotary = rotary(facts, entry)?;
        }
        Ok(true)
    }
}

/// Whether the values are the whole numbers from 0 on, as code stores its positions.
fn is_count(facts: &Facts<'_>, entry: &Entry) -> Result<bool> {
    let Some(view) = facts.tensors.get(&entry.first) else {
        return Ok(false);
    };
    if entry.trimmed().len() != 1 {
        return Ok(false);
    }
    let whole = view.whole_numbers()?;
    Ok(whole.is_some_and(|values| {
        values
            .iter()
            .enumerate()
            .all(|(idx, value)| *value == idx as f64)
    }))
}

/// Whether every row has one value up to its own position and another one behind it.
fn is_causal(facts: &Facts<'_>, name: &str, n: usize) -> Result<bool> {
    let Some(view) = facts.tensors.get(name) else {
        return Ok(false);
    };
    if n < 2 || n.saturating_mul(n) > LARGEST_MASK {
        return Ok(true);
    }
    let values: Vec<f64> = match view.whole_numbers()? {
        Some(whole) => whole,
        None => view
            .widen()?
            .iter()
            .map(|value| f64::from(*value))
            .collect(),
    };
    let (Some(seen), Some(hidden)) = (values.first(), values.get(1)) else {
        return Ok(false);
    };
    Ok(seen != hidden
        && values.chunks(n).enumerate().all(|(query, row)| {
            let (before, behind) = row.split_at((query + 1).min(row.len()));
            before.iter().all(|v| v == seen) && behind.iter().all(|v| v == hidden)
        }))
}

fn rotary(facts: &Facts<'_>, entry: &Entry) -> Result<Option<Rotary>> {
    let Some(view) = facts.tensors.get(&entry.first) else {
        return Ok(None);
    };
    let Some(&width) = entry.shape.last() else {
        return Ok(None);
    };
    let values = view.widen()?.into_owned();
    let whole: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
    let mut frequencies = match entry.trimmed() {
        [_] => whole,
        // The cosines of the second position are those of the frequencies themselves.
        _ => whole
            .iter()
            .skip(width)
            .take(width)
            .map(|v| v.acos())
            .collect(),
    };
    if frequencies.len() != width {
        return Ok(None);
    }
    let is_alike = |a: f64, b: f64| (a - b).abs() < 1e-6;
    let half = width / 2;
    let mut interleaved = None;
    if width >= 4 && width.is_multiple_of(2) && entry.trimmed().len() > 1 {
        let halves = (0..half).all(|idx| is_alike(frequencies[idx], frequencies[idx + half]));
        let pairs = (0..half).all(|idx| is_alike(frequencies[2 * idx], frequencies[2 * idx + 1]));
        if halves {
            interleaved = Some(false);
            frequencies.truncate(half);
        } else if pairs {
            interleaved = Some(true);
            frequencies = frequencies.into_iter().step_by(2).collect();
        }
    }
    Ok(Some(Rotary {
        name: entry.first.clone(),
        d_rotary: 2 * frequencies.len(),
        theta: base_of(&frequencies),
        interleaved,
    }))
}

/// The base of frequencies that form a geometric series from 1. Small angles are hardly told by their cosines: the first steps count.
fn base_of(frequencies: &[f64]) -> Option<f64> {
    let n = frequencies.len() as f64;
    let (first, second) = (frequencies.first()?, frequencies.get(1)?);
    if (first - 1.0).abs() > 1e-4 || *second <= 0.0 {
        return None;
    }
    let theta = second.powf(-n);
    let digits = 10f64.powi(2 - theta.log10().floor() as i32);
    let theta = (theta * digits).round() / digits;
    let is_even = frequencies.iter().enumerate().all(|(idx, frequency)| {
        let expected = theta.powf(-(idx as f64) / n);
        (frequency - expected).abs() < 1e-3
    });
    (theta > 1.0 && is_even).then_some(theta)
}
