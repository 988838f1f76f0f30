//! Arrays: `.npz` and safetensors with ids, and log-probabilities of tokens or of the whole vocabulary.

use attnscope_checkpoint::captured::Captured;
use attnscope_compare::logprobs::{ScoredPrompt, ScoredToken};
use attnscope_compute::error::Result;
use attnscope_run::TokenLogProb;

use super::assembled::{forget_first, prompt};
use super::records::LOGPROBS;

const IDS: &[&str] = &["ids", "input_ids", "token_ids", "tokens", "sequences"];
const MASK: &str = "attention_mask";
/// Scores of the whole vocabulary before their softmax.
const LOGITS: &str = "logits";

/// Likeliest tokens kept of a whole distribution.
const N_TOP: usize = 64;

/// The part of a name behind the prompt's own.
fn part(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

/// Whether names are those of ids and of what is said of them, and of nothing else that a trace has.
pub(super) fn are_logprobs<'a>(names: impl Iterator<Item = &'a str> + Clone) -> bool {
    let is = |known: &[&str]| names.clone().any(|name| known.contains(&part(name).1));
    let is_of_trace = |name: &str| {
        name.contains("attn")
            || name.contains("hook_")
            || name.contains("pattern")
            || name.contains("resid")
    };
    is(IDS) && (is(LOGPROBS) || is(&[LOGITS])) && !names.clone().any(is_of_trace)
}

/// Reads the prompts of a file; `chosen` names the array of log-probabilities where there are several.
///
/// # Errors
/// When an array is missing, or shapes do not fit each other.
pub(super) fn prompts(captured: &Captured, chosen: Option<&str>) -> Result<Vec<ScoredPrompt>> {
    let names = captured.names();
    let mut prefixes: Vec<&str> = Vec::new();
    for name in &names {
        let (prefix, own) = part(name);
        if IDS.contains(&own) && !prefixes.contains(&prefix) {
            prefixes.push(prefix);
        }
    }
    let mut all = Vec::new();
    for prefix in prefixes {
        let full = |own: &str| {
            if prefix.is_empty() {
                own.to_owned()
            } else {
                format!("{prefix}/{own}")
            }
        };
        let find = |known: &[&str]| {
            known
                .iter()
                .map(|own| full(own))
                .find(|name| captured.contains(name))
        };
        let Some(ids) = find(IDS) else { continue };
        let columns: Vec<String> = match chosen {
            Some(chosen) => vec![full(chosen)],
            None => {
                let known = LOGPROBS.iter().chain(&[LOGITS]).map(|own| full(own));
                known.filter(|name| captured.contains(name)).collect()
            }
        };
        let values = match columns.as_slice() {
            [one] if captured.contains(one) => one,
            [one] => {
                return Err(captured.at(one, "expected log-probabilities of this name, found none"));
            }
            [] => {
                return Err(captured.at(
                    &ids,
                    "expected log-probabilities or logits beside these ids, found none",
                ));
            }
            several => {
                let problem = format!(
                    "expected one array of log-probabilities, found {}: choose one with FILE#NAME",
                    several.join(", ")
                );
                return Err(captured.at(&ids, &problem));
            }
        };
        let name = if prefix.is_empty() { "prompt" } else { prefix };
        all.extend(of_arrays(captured, (&ids, values, &full(MASK)), name)?);
    }
    Ok(all)
}

fn of_arrays(
    captured: &Captured,
    (ids, values, mask): (&str, &str, &str),
    name: &str,
) -> Result<Vec<ScoredPrompt>> {
    let not_ids = || captured.at(ids, "expected token ids, whole numbers from 0");
    let all_ids = captured.whole_numbers(ids)?.ok_or_else(not_ids)?;
    let shape = captured.shape(ids).unwrap_or_default();
    let (n_batch, n) = match shape.as_slice() {
        [n] => (1, *n),
        [n_batch, n] => (*n_batch, *n),
        _ => {
            return Err(captured.at(
                ids,
                &format!("expected ids [token] or [batch, token], found shape {shape:?}"),
            ));
        }
    };
    let mask = if captured.contains(mask) {
        captured.numbers(mask)?
    } else {
        None
    };
    let mask = mask.filter(|mask| mask.len() == all_ids.len());
    let array = captured.array(values)?;
    let rows = array.values.len() / n_batch.max(1);
    let is_batch_first = array.shape.first() == Some(&n_batch) || n_batch == 1;
    let axes: &[usize] = if array.shape.len() > 1
        && array.shape[0] == n_batch
        && (shape.len() == 2 || array.shape.len() == 3)
    {
        &array.shape[1..]
    } else {
        &array.shape
    };
    let (n_rows, d_vocab) = match axes {
        [n_rows] => (*n_rows, None),
        [n_rows, 1] => (*n_rows, None),
        [n_rows, d_vocab] => (*n_rows, Some(*d_vocab)),
        _ => (0, None),
    };
    let fits = is_batch_first && n_rows * d_vocab.unwrap_or(1) == rows && n_rows <= n && n_rows > 0;
    if !fits {
        let problem = format!(
            "expected at most one row for each of {n_batch} × {n} tokens, found shape {:?}",
            array.shape
        );
        return Err(captured.at(values, &problem));
    }
    let mut prompts = Vec::new();
    for batch_idx in 0..n_batch {
        let own = &all_ids[batch_idx * n..(batch_idx + 1) * n];
        let own: Vec<u32> = own
            .iter()
            .map(|id| u32::try_from(*id).unwrap_or(u32::MAX))
            .collect();
        let said = &array.values[batch_idx * rows..(batch_idx + 1) * rows];
        let mut tokens: Vec<ScoredToken> = match d_vocab {
            None => {
                let before = n - n_rows;
                let token = |(idx, id): (usize, &u32)| ScoredToken {
                    id: Some(*id),
                    logprob: idx.checked_sub(before).map(|idx| f64::from(said[idx])),
                    ..ScoredToken::default()
                };
                own.iter().enumerate().map(token).collect()
            }
            // Row i has what may stand at i + 1, as logits have.
            Some(d_vocab) => {
                let token = |(idx, id): (usize, &u32)| {
                    let row = idx
                        .checked_sub(1)
                        .and_then(|idx| said.chunks(d_vocab).nth(idx));
                    row.map_or_else(
                        || ScoredToken {
                            id: Some(*id),
                            ..ScoredToken::default()
                        },
                        |row| of_row(*id, row),
                    )
                };
                own.iter().enumerate().map(token).collect()
            }
        };
        if let Some(mask) = &mask {
            let mut idx = batch_idx * n;
            tokens.retain(|_| {
                idx += 1;
                mask[idx - 1] != 0.0
            });
        }
        forget_first(&mut tokens);
        let name = if n_batch == 1 {
            name.to_owned()
        } else {
            format!("{name}.{batch_idx}")
        };
        prompts.push(prompt(name, tokens));
    }
    Ok(prompts)
}

/// A token from logits or log-probabilities of the whole vocabulary; both give the same after a softmax.
fn of_row(id: u32, row: &[f32]) -> ScoredToken {
    let said = TokenLogProb::of_logits(row, id, N_TOP);
    ScoredToken {
        id: Some(id),
        logprob: said.logprob.filter(|_| (id as usize) < row.len()),
        top: said.top,
        ..ScoredToken::default()
    }
}
