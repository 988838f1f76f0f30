//! Reads a probe of other code's model: how far each module's output moved when the input changed.

use std::collections::BTreeMap;

use attnscope_checkpoint::captured::{Array, Captured};
use attnscope_checks::{
    FutureProbe, Influence, InvarianceProbe, LabelsProbe, Movement, OrderProbe, Probed, Probes,
    Reordered, Worst,
};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::Place;

use super::hearing;

/// Relative movements up to this are rounding: other rows and shapes change the order of sums. Our own choice.
const TOLERANCE: f64 = 1e-5;
const PADDING_TOLERANCE: f64 = 1e-4;
/// Reordered tokens change the order of sums.
const ORDER_TOLERANCE: f64 = 1e-5;
/// Movements count only above this multiple of the difference between two identical runs.
const TIMES_NOISE: f64 = 10.0;

pub(super) fn is_part(name: &str) -> bool {
    name.starts_with("probe.")
}

/// # Errors
/// When the arrays contradict each other.
pub(crate) fn read(captured: &Captured) -> Result<Probes> {
    let said = |key: &str| captured.metadata.get(key).map(String::as_str);
    let modules: Vec<String> = json(captured, "attnscope.modules")?.unwrap_or_default();
    let noise: f64 = said("attnscope.noise")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0.0);
    let reader = Reader {
        captured,
        modules,
        noise,
    };
    let skipped = |kind: &str, otherwise: &str| {
        let reason = said(&format!("attnscope.{kind}.skipped"));
        reason.map_or(otherwise.to_owned(), |reason| {
            format!("not probed: {reason}")
        })
    };
    let future = match reader.movements("future", TOLERANCE)? {
        None => Probed::Not(skipped("future", "the probe changed no later tokens")),
        Some(moved) => Probed::Ran(reader.future(moved)?),
    };
    let cases_of = |kind: &str| json(captured, &format!("attnscope.{kind}.cases"));
    let padding_cases = cases_of("padding")?;
    let unequal_cases = cases_of("unequal")?;
    let length_cases = cases_of("length")?;
    let cache_cases = cases_of("cache")?;
    let case = |cases: &Option<Vec<String>>, idx: usize| {
        let name = cases.as_ref().and_then(|cases| cases.get(idx)).cloned();
        name.unwrap_or_else(|| format!("case {idx}"))
    };
    let name_padding = |idx: usize| format!("padding, {}", case(&padding_cases, idx));
    let padding = reader.at_the_output("padding", PADDING_TOLERANCE, &name_padding, &skipped)?;
    let batch = reader.invariance(
        "batch",
        TOLERANCE,
        &|_| "beside other rows".to_owned(),
        &skipped,
    )?;
    let name_unequal = |idx: usize| format!("padding, {}", case(&unequal_cases, idx));
    let unequal = reader.at_the_output("unequal", PADDING_TOLERANCE, &name_unequal, &skipped)?;
    let order = reader.order()?;
    let context = match reader.context(order.as_ref())? {
        Some(context) => context,
        None => Probed::Not(skipped("order", "the probe replaced no tokens")),
    };
    let nonfinite = reader.nonfinite()?;
    let is_lost = nonfinite
        .as_ref()
        .is_some_and(|module| module.reaches_output);
    let mut probes = Probes {
        future,
        padding: with_unequal(padding, unequal, &batch),
        batch,
        repeat: reader.invariance(
            "repeat",
            PADDING_TOLERANCE,
            &|_| "a second pass over the prompt".to_owned(),
            &skipped,
        )?,
        length: reader.at_the_output(
            "length",
            PADDING_TOLERANCE,
            &|idx| case(&length_cases, idx),
            &skipped,
        )?,
        cache: reader.at_the_output(
            "cache",
            PADDING_TOLERANCE,
            &|idx| format!("with a cache, {}", case(&cache_cases, idx)),
            &skipped,
        )?,
        order: match order {
            Some(probe) => Probed::Ran(probe),
            None => Probed::Not(skipped("order", "the probe shuffled no tokens")),
        },
        context,
        labels: match reader.labels()? {
            Some(probe) => Probed::Ran(probe),
            None => Probed::Not(skipped("labels", "the probe computed no losses")),
        },
        documents: reader.invariance(
            "documents",
            TOLERANCE,
            &|idx| format!("document {} changed", idx),
            &skipped,
        )?,
        training: Probed::Not("a probe holds no weights: check the checkpoint itself".to_owned()),
        weights: Probed::Not("a probe holds no weights: check the checkpoint itself".to_owned()),
        nonfinite,
        sampled: captured.metadata.get("attnscope.sampled").cloned(),
    };
    if is_lost {
        hearing::undecide_all(&mut probes, captured);
    }
    Ok(probes)
}

/// Adds the probe of rows with unequal padding to that of one padded row. It is left out if rows depend on their neighbours, or
/// if one padded row already moves, because it would only repeat that.
fn with_unequal(
    padding: Probed<InvarianceProbe>,
    unequal: Probed<InvarianceProbe>,
    batch: &Probed<InvarianceProbe>,
) -> Probed<InvarianceProbe> {
    let moves = |probe: &InvarianceProbe| probe.cases.iter().any(|(_, moved)| moved.is_some());
    let is_told = matches!(batch, Probed::Ran(probe) if moves(probe));
    match (padding, unequal) {
        (Probed::Ran(mut padding), Probed::Ran(unequal)) => {
            if !moves(&padding) && !is_told {
                // Report only the row that moved most.
                let worst = unequal
                    .cases
                    .into_iter()
                    .filter(|(_, moved)| moved.is_some());
                let amount = |moved: &Option<Movement>| moved.as_ref().map_or(0.0, |m| m.amount);
                padding
                    .cases
                    .extend(worst.max_by(|a, b| amount(&a.1).total_cmp(&amount(&b.1))));
                padding.largest = padding.largest.max(unequal.largest);
            }
            Probed::Ran(padding)
        }
        (Probed::Not(_), Probed::Ran(unequal)) if !is_told => Probed::Ran(unequal),
        (padding, _) => padding,
    }
}

pub(super) fn json(captured: &Captured, key: &str) -> Result<Option<Vec<String>>> {
    let Some(text) = captured.metadata.get(key) else {
        return Ok(None);
    };
    let parsed = serde_json::from_str(text);
    let wrong = |e: serde_json::Error| {
        Error::config(
            &captured.path,
            key,
            format!("expected a JSON list of strings ({e})"),
        )
    };
    parsed.map(Some).map_err(wrong)
}

/// Loss of predicting each token by its frequency in the text, in nats per token.
fn unigram_loss(tokens: &[u64]) -> f64 {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for token in tokens {
        *counts.entry(*token).or_default() += 1;
    }
    let n = tokens.len().max(1) as f64;
    let shares = counts.values().map(|count| *count as f64 / n);
    shares.map(|share| -share * share.ln()).sum()
}

pub(super) struct Reader<'a> {
    pub captured: &'a Captured,
    /// In the order in which they finish their forward pass.
    pub modules: Vec<String>,
    noise: f64,
}

/// Movement of each module, relative to its largest value. // [module, case]
struct Moved {
    n_cases: usize,
    amounts: Vec<f64>,
    tolerance: f64,
}

impl Moved {
    /// First module that moved in the given case, or in any case.
    fn first(&self, modules: &[String], case_idx: Option<usize>) -> Option<Movement> {
        let rows = self.amounts.chunks(self.n_cases);
        rows.zip(modules).find_map(|(row, module)| {
            let cases = row
                .iter()
                .enumerate()
                .filter(|(idx, _)| case_idx.is_none_or(|wanted| wanted == *idx));
            let amount = cases.map(|(_, amount)| *amount).fold(0.0, f64::max);
            (amount > self.tolerance).then(|| Movement {
                place: Place::MODEL,
                name: Some(module.clone()),
                amount,
            })
        })
    }
}

impl Reader<'_> {
    fn movements(&self, kind: &str, tolerance: f64) -> Result<Option<Moved>> {
        let name = format!("probe.{kind}.moved");
        if !self.captured.contains(&name) {
            return Ok(None);
        }
        let Array { shape, values } = self.captured.array(&name)?;
        let sizes = self.captured.array(&format!("probe.{kind}.size"))?;
        let n_modules = self.modules.len();
        let (&[n_rows, n_cases], [n_sizes]) = (shape.as_slice(), sizes.shape.as_slice()) else {
            return Err(self.captured.at(
                &name,
                &format!("expected [module, case], found shape {shape:?}"),
            ));
        };
        if n_rows != n_modules || *n_sizes != n_modules || n_cases == 0 {
            let problem = format!(
                "expected {n_modules} modules as in attnscope.modules, found shape {shape:?}"
            );
            return Err(self.captured.at(&name, &problem));
        }
        let relative = values
            .chunks(n_cases)
            .zip(&sizes.values)
            .flat_map(|(row, size)| {
                row.iter()
                    .map(move |moved| match (f64::from(*moved), f64::from(*size)) {
                        // −1 marks outputs that cannot be compared.
                        (moved, _) if moved < 0.0 => 0.0,
                        (moved, size) if size > 0.0 => moved / size,
                        (moved, _) => moved,
                    })
            });
        // The repeated pass is what measures this noise.
        let noise = if kind == "repeat" {
            0.0
        } else {
            TIMES_NOISE * self.noise
        };
        Ok(Some(Moved {
            n_cases,
            amounts: relative.collect(),
            tolerance: self.rounding(kind).max(tolerance).max(noise),
        }))
    }

    fn future(&self, moved: Moved) -> Result<FutureProbe> {
        let cuts = self
            .captured
            .whole_numbers("probe.future.cuts")?
            .unwrap_or_default();
        let cuts: Vec<usize> = cuts.into_iter().map(|cut| cut as usize).collect();
        let mut influence = Influence::default();
        let mut worst: Option<Worst> = None;
        let name = "probe.future.influence";
        if self.captured.contains(name) {
            let Array { shape, values } = self.captured.array(name)?;
            let &[n_rows, n_positions] = shape.as_slice() else {
                return Err(self.captured.at(
                    name,
                    &format!("expected [cut, position], found shape {shape:?}"),
                ));
            };
            if n_rows != cuts.len() {
                return Err(self.captured.at(
                    name,
                    &format!("expected {} cuts, found {n_rows}", cuts.len()),
                ));
            }
            let largest = self.output_size()?;
            let values: Vec<f32> = values.iter().map(|value| value / largest).collect();
            for (cut, row) in cuts.iter().zip(values.chunks(n_positions.max(1))) {
                // All tokens after the cut were changed, so positions up to the cut must not move.
                for (position_idx, amount) in row.iter().enumerate().take(cut + 1) {
                    let amount = f64::from(*amount);
                    if amount > moved.tolerance && worst.is_none_or(|worst| amount > worst.amount) {
                        worst = Some(Worst {
                            changed: cut + 1,
                            moved: position_idx,
                            amount,
                        });
                    }
                }
            }
            influence = Influence {
                changed: cuts.iter().map(|cut| cut + 1).collect(),
                n_positions,
                moved: values,
            };
        }
        Ok(FutureProbe {
            tolerance: moved.tolerance,
            first_pattern: None,
            first_residual: moved.first(&self.modules, None),
            worst,
            influence,
        })
    }

    /// Relative movement that rounding may cause in the dtype of the modules' outputs: a few steps of its mantissa.
    fn resolution(&self) -> f64 {
        let dtype = self.captured.metadata.get("attnscope.dtype");
        match dtype.map(String::as_str) {
            Some("bfloat16") => 4e-2,
            Some("float16") => 5e-3,
            _ => 0.0,
        }
    }

    /// Tolerance for rounding: runs of another shape sum in another order, runs of the same shape do not.
    fn rounding(&self, kind: &str) -> f64 {
        let has_other_shape = ["padding", "unequal", "batch", "length", "cache"].contains(&kind);
        if has_other_shape {
            self.resolution()
        } else {
            0.0
        }
    }

    /// Index of the module whose output is the model's output.
    pub fn output_idx(&self) -> usize {
        let output = self.captured.metadata.get("attnscope.output");
        let at = output.and_then(|output| self.modules.iter().rposition(|module| module == output));
        at.unwrap_or(self.modules.len().saturating_sub(1))
    }

    /// Largest value of the module that the influence map describes.
    fn output_size(&self) -> Result<f32> {
        let sizes = self.captured.array("probe.future.size")?;
        let size = sizes.values.get(self.output_idx());
        Ok(size.copied().filter(|size| *size > 0.0).unwrap_or(1.0))
    }

    /// Keeps only cases in which the model's output moves too: an inner module may give other values for other shapes without
    /// any effect on the output.
    fn at_the_output(
        &self,
        kind: &str,
        tolerance: f64,
        name: &dyn Fn(usize) -> String,
        skipped: &dyn Fn(&str, &str) -> String,
    ) -> Result<Probed<InvarianceProbe>> {
        let mut probed = self.invariance(kind, tolerance, name, skipped)?;
        let (Probed::Ran(probe), Some(moved)) = (&mut probed, self.movements(kind, tolerance)?)
        else {
            return Ok(probed);
        };
        let at = self.output_idx() * moved.n_cases;
        for (case_idx, (_, first)) in probe.cases.iter_mut().enumerate() {
            let amount = moved.amounts.get(at + case_idx).copied().unwrap_or(0.0);
            if amount <= moved.tolerance {
                *first = None;
            }
        }
        Ok(probed)
    }

    fn order(&self) -> Result<Option<OrderProbe>> {
        let (Some(moved), Some(mixer)) = (
            self.movements("order", ORDER_TOLERANCE)?,
            self.captured.metadata.get("attnscope.mixer"),
        ) else {
            return Ok(None);
        };
        let contents = self.captured.array("probe.order.content")?.values;
        let sizes = self.captured.array("probe.order.size")?.values;
        if contents.len() != self.modules.len() {
            let problem = format!(
                "expected {} modules as in attnscope.modules, found {}",
                self.modules.len(),
                contents.len()
            );
            return Err(self.captured.at("probe.order.content", &problem));
        }
        let part = |idx: usize| {
            let row = moved
                .amounts
                .get(idx * moved.n_cases..(idx + 1) * moved.n_cases);
            let content = f64::from(contents[idx]).max(0.0);
            let size = sizes.get(idx).copied().map_or(0.0, f64::from);
            Reordered {
                name: self.modules.get(idx).cloned(),
                place: Place::MODEL,
                by_order: row.unwrap_or_default().iter().copied().fold(0.0, f64::max),
                by_content: if size > 0.0 { content / size } else { content },
            }
        };
        let Some(first) = self.modules.iter().position(|module| module == mixer) else {
            return Ok(None);
        };
        Ok(Some(OrderProbe {
            tolerance: moved.tolerance,
            resolution: self.resolution(),
            first: part(first),
            output: part(self.output_idx()),
            declares_none: self
                .captured
                .metadata
                .get("attnscope.positions")
                .is_some_and(|said| said == "none"),
        }))
    }

    fn labels(&self) -> Result<Option<LabelsProbe>> {
        let name = "probe.labels.losses";
        if !self.captured.contains(name) {
            return Ok(None);
        }
        let Array { shape, values } = self.captured.array(name)?;
        let &[3, n] = shape.as_slice() else {
            let problem = format!("expected [3, position], found shape {shape:?}");
            return Err(self.captured.at(name, &problem));
        };
        let of = |offset: usize| values[offset * n..(offset + 1) * n].to_vec();
        let tokens = self.captured.whole_numbers("tokens")?.unwrap_or_default();
        Ok(Some(LabelsProbe {
            losses: [of(0), of(1), of(2)],
            unigram_loss: unigram_loss(&tokens),
        }))
    }

    fn invariance(
        &self,
        kind: &str,
        tolerance: f64,
        name: &dyn Fn(usize) -> String,
        skipped: &dyn Fn(&str, &str) -> String,
    ) -> Result<Probed<InvarianceProbe>> {
        let Some(moved) = self.movements(kind, tolerance)? else {
            return Ok(Probed::Not(skipped(kind, "the probe did not try it")));
        };
        let cases =
            (0..moved.n_cases).map(|idx| (name(idx), moved.first(&self.modules, Some(idx))));
        Ok(Probed::Ran(InvarianceProbe {
            tolerance: moved.tolerance,
            cases: cases.collect(),
            largest: moved.amounts.iter().copied().fold(0.0, f64::max),
        }))
    }
}
