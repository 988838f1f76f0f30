//! Additions for formats that people read: tokens, findings, and a pooled map of every head.

use std::collections::BTreeMap;
use std::sync::Arc;

use attnscope_checks::stats::{HeadType, LayerReport};
use attnscope_checks::{Check, Finding, Status, Thresholds, Verdict};
use attnscope_compute::attention::{Pooled, RowSummary};
use attnscope_forward::Input;
use attnscope_prompt::Prompt;
use attnscope_run::Outcome;
use attnscope_spec::{Model, Stack};

use super::document::Report;
use super::run_findings::judge_run;

/// A report with what is shown beside its numbers.
#[derive(Debug)]
pub struct Readable {
    pub report: Report,
    /// One entry per prompt of the report.
    pub shown: Vec<Shown>,
}

/// Tokens, losses, findings and maps of one prompt.
#[derive(Debug)]
pub struct Shown {
    /// Text of each token: the encoder's if there is one.
    pub labels: Vec<String>,
    /// Text of the decoder's tokens, for encoder-decoder models.
    pub target_labels: Option<Vec<String>>,
    /// −log p of the token after each, in nats. // [position − 1]
    pub next_loss: Option<Vec<f32>>,
    pub verdicts: Vec<(&'static Check, Verdict)>,
    pub maps: Vec<LayerMaps>,
}

/// The pooled maps of a layer's heads.
#[derive(Debug)]
pub struct LayerMaps {
    pub stack: Stack,
    pub layer_idx: usize,
    /// Whether keys after a query are masked.
    pub is_causal: bool,
    pub heads: Vec<Pooled>,
    /// What kind of place each head looks at; none where no type fits.
    pub types: Vec<Option<HeadType>>,
}

/// Most maps shown cell by cell; if there are more, they are coarser, so that the file stays small enough to send.
pub(super) const MOST_FINE_MAPS: usize = 256;

/// Cells per side of a coarse map.
const COARSE_CELLS: usize = 32;

/// Memory for row summaries, which are kept until the checks have run.
const ROW_BYTES: usize = 256 << 20;

/// Most prompts run together, so that weights are read once for all of them.
const MOST_AT_ONCE: usize = 8;

impl Shown {
    /// Judges a finished run, and keeps the parts of its layers that are drawn.
    pub fn of(
        model: &Model,
        prompt: &Prompt,
        outcome: &Outcome,
        layers: &[Arc<LayerReport>],
        thresholds: &Thresholds,
    ) -> Self {
        let verdicts = judge_run(model, layers, outcome, thresholds);
        Self::judged(verdicts, prompt, outcome, layers)
    }

    /// Keeps the parts of a judged run that are drawn.
    pub fn judged(
        verdicts: Vec<(&'static Check, Verdict)>,
        prompt: &Prompt,
        outcome: &Outcome,
        layers: &[Arc<LayerReport>],
    ) -> Self {
        let n_heads: usize = layers.iter().map(|layer| layer.heads.len()).sum();
        let maps = layers.iter().map(|layer| LayerMaps {
            stack: layer.stack,
            layer_idx: layer.layer_idx,
            is_causal: layer.spec.mask.causal && !layer.spec.is_cross,
            heads: layer
                .heads
                .iter()
                .map(|head| {
                    if n_heads <= MOST_FINE_MAPS {
                        head.summary.pooled.clone()
                    } else {
                        coarser(&head.summary.pooled)
                    }
                })
                .collect(),
            types: layer.heads.iter().map(|head| head.kind).collect(),
        });
        let predictions = outcome.predictions.as_ref();
        Self {
            labels: prompt.given().labels.clone(),
            target_labels: prompt.source.as_ref().map(|_| prompt.labels.clone()),
            next_loss: predictions.and_then(|p| p.next_loss.clone()),
            verdicts,
            maps: maps.collect(),
        }
    }

    /// Returns the bytes of row summaries that a prompt holds until it is judged.
    pub fn bytes_until_judged(model: &Model, input: &Input) -> usize {
        let spec = &model.spec;
        let rows = spec.grids().into_iter().map(|grid| {
            let n_queries = match grid {
                Stack::Encoder => input.source.as_ref().map_or(0, |source| source.len()),
                _ => input.sequence.len(),
            };
            let heads = (0..spec.n_layers(grid)).map(|layer_idx| spec.n_heads(grid, layer_idx));
            heads.sum::<usize>() * n_queries
        });
        rows.sum::<usize>() * size_of::<RowSummary>()
    }

    /// Returns how many prompts to run together, if each holds up to `bytes_each` until it is judged.
    pub fn n_at_once(bytes_each: usize) -> usize {
        (ROW_BYTES / bytes_each.max(1)).clamp(1, MOST_AT_ONCE)
    }
}

/// Pools a map to at most [`COARSE_CELLS`] per side.
fn coarser(fine: &Pooled) -> Pooled {
    let mut coarse = Pooled::with_cells(fine.n_rows, fine.n_cols, COARSE_CELLS);
    for (row_idx, row) in fine.cells.chunks(fine.n_cols.max(1)).enumerate() {
        coarse.add_row(row_idx, row);
    }
    coarse.queries_per_cell *= fine.queries_per_cell;
    coarse.keys_per_cell *= fine.keys_per_cell;
    coarse
}

/// A finding, and the prompts on which it was made.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The finding on the prompt where it is furthest past its threshold.
    pub finding: &'a Finding,
    pub prompt: &'a str,
    pub n_prompts: usize,
    /// The last of the prompts.
    prompt_idx: usize,
}

/// Most findings shown per check before those of others: one check must not hide the rest.
const MOST_OF_A_CHECK: usize = 5;

/// Splits findings into the first ones of each check and the others, each in their order.
pub fn leading<'a>(findings: Vec<Found<'a>>) -> (Vec<Found<'a>>, Vec<Found<'a>>) {
    let mut n_of: BTreeMap<&str, usize> = BTreeMap::new();
    findings.into_iter().partition(|found| {
        let n = n_of.entry(found.finding.check).or_default();
        *n += 1;
        *n <= MOST_OF_A_CHECK
    })
}

impl Readable {
    /// Returns one finding per place over all prompts, the worst first.
    pub fn findings(&self) -> Vec<Found<'_>> {
        let mut all: BTreeMap<_, Found<'_>> = BTreeMap::new();
        let prompts = self.report.prompts.iter().zip(&self.shown);
        for (prompt_idx, (record, shown)) in prompts.enumerate() {
            let verdicts = shown.verdicts.iter().enumerate();
            let findings = verdicts.flat_map(|(nth, (_, verdict))| {
                verdict.findings.iter().map(move |finding| (nth, finding))
            });
            for (nth_check, finding) in findings {
                let place = &finding.place;
                let key = (
                    std::cmp::Reverse(finding.severity),
                    place.layer_idx,
                    place.grid(),
                    nth_check,
                    place.head_idx,
                );
                let new = Found {
                    finding,
                    prompt: &record.id,
                    n_prompts: 1,
                    prompt_idx,
                };
                all.entry(key)
                    .and_modify(|known| {
                        if finding.excess() > known.finding.excess() {
                            (known.finding, known.prompt) = (finding, &record.id);
                        }
                        known.n_prompts += usize::from(known.prompt_idx != prompt_idx);
                        known.prompt_idx = prompt_idx;
                    })
                    .or_insert(new);
            }
        }
        all.into_values().collect()
    }

    /// Returns each check's status over all prompts: fired if it fired on any; passed if it passed on any and fired on none.
    pub fn statuses(&self) -> Vec<(&'static Check, Status, &str)> {
        let mut all: Vec<(&'static Check, Status, &str)> = Vec::new();
        for shown in &self.shown {
            for (nth, (check, verdict)) in shown.verdicts.iter().enumerate() {
                match all.get_mut(nth) {
                    None => all.push((check, verdict.status, &verdict.why)),
                    Some(known) if verdict.status < known.1 => {
                        (known.1, known.2) = (verdict.status, &verdict.why);
                    }
                    Some(_) => {}
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarse_map_covers_the_same_range_as_the_fine_one() {
        let mut fine = Pooled::new(128, 60);
        let mut row = vec![0.0; 60];
        row[59] = 0.75;
        fine.add_row(127, &row);
        let coarse = coarser(&fine);
        assert_eq!((coarse.n_rows, coarse.n_cols), (32, 30));
        assert_eq!((coarse.queries_per_cell, coarse.keys_per_cell), (4, 2));
        assert_eq!(coarse.at(31, 29), 0.75);
        assert_eq!(coarse.at(0, 0), 0.0);
    }

    #[test]
    fn a_check_that_fires_everywhere_does_not_hide_other_checks() {
        use attnscope_checks::Severity;
        use attnscope_spec::Place;
        let of = |check| Finding {
            check,
            severity: Severity::Warning,
            place: Place::MODEL,
            value: 2.0,
            threshold: 1.0,
            unit: "",
            evidence: String::new(),
            advice: String::new(),
        };
        let mut findings = vec![of("score-explosion"); 9];
        findings.push(of("dead-head"));
        let found = findings.iter().map(|finding| Found {
            finding,
            prompt: "prompt",
            n_prompts: 1,
            prompt_idx: 0,
        });
        let (first, others) = leading(found.collect());
        assert_eq!((first.len(), others.len()), (MOST_OF_A_CHECK + 1, 4));
        assert_eq!(first[MOST_OF_A_CHECK].finding.check, "dead-head");
    }

    #[test]
    fn prompts_that_need_much_memory_run_alone() {
        assert_eq!(Shown::n_at_once(0), MOST_AT_ONCE);
        assert_eq!(Shown::n_at_once(ROW_BYTES / 3), 3);
        assert_eq!(Shown::n_at_once(usize::MAX), 1);
    }
}
