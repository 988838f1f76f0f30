//! What a probe of somebody else's model recorded: how far each module moved when the input was changed.

use crate::checkpoint::captured::{Array, Captured};
use crate::checks::{
    FutureProbe, Influence, InvarianceProbe, Movement, Place, Probed, Probes, Worst,
};
use crate::error::{Error, Result};

/// Movements up to here, relative to the largest value, are rounding: other rows and shapes add in another order. Ours.
const TOLERANCE: f64 = 1e-5;
const PADDING_TOLERANCE: f64 = 1e-4;
/// Two runs that should be the same differ by this much at most before a movement means something.
const TIMES_NOISE: f64 = 10.0;

pub(super) fn is_part(name: &str) -> bool {
    name.starts_with("probe.")
}

/// # Errors
/// When the arrays do not fit together.
pub(super) fn read(captured: &Captured) -> Result<Probes> {
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
    let padding_cases: Vec<String> = json(captured, "attnscope.padding.cases")?.unwrap_or_default();
    let name_padding = |idx: usize| {
        let case = padding_cases
            .get(idx)
            .cloned()
            .unwrap_or_else(|| format!("case {idx}"));
        format!("padding, {case}")
    };
    Ok(Probes {
        future,
        padding: reader.invariance("padding", PADDING_TOLERANCE, &name_padding, &skipped)?,
        batch: reader.invariance(
            "batch",
            TOLERANCE,
            &|_| "beside other rows".to_owned(),
            &skipped,
        )?,
        documents: reader.invariance(
            "documents",
            TOLERANCE,
            &|idx| format!("document {} changed", idx),
            &skipped,
        )?,
        training: Probed::Not("a probe holds no weights: check the checkpoint itself".to_owned()),
    })
}

fn json(captured: &Captured, key: &str) -> Result<Option<Vec<String>>> {
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

struct Reader<'a> {
    captured: &'a Captured,
    /// In the order in which they finish.
    modules: Vec<String>,
    noise: f64,
}

/// How far modules moved, relative to their largest values. // [module, case]
struct Moved {
    n_cases: usize,
    amounts: Vec<f64>,
    tolerance: f64,
}

impl Moved {
    /// The first module that moved in a case, or in any.
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
                        // −1 says that the two cannot be compared.
                        (moved, _) if moved < 0.0 => 0.0,
                        (moved, size) if size > 0.0 => moved / size,
                        (moved, _) => moved,
                    })
            });
        Ok(Some(Moved {
            n_cases,
            amounts: relative.collect(),
            tolerance: tolerance.max(TIMES_NOISE * self.noise),
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
                // Everything after the cut was changed: it and what comes before it may not move.
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

    /// The largest value of the module that the influence map describes.
    fn output_size(&self) -> Result<f32> {
        let sizes = self.captured.array("probe.future.size")?;
        let output = self.captured.metadata.get("attnscope.output");
        let at = output.and_then(|output| self.modules.iter().rposition(|module| module == output));
        let size = sizes
            .values
            .get(at.unwrap_or(sizes.values.len().saturating_sub(1)));
        Ok(size.copied().filter(|size| *size > 0.0).unwrap_or(1.0))
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
