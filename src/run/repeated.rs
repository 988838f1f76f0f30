//! Scores previous-token, duplicate-token and induction heads on repeated random tokens, independently of any text.

use std::ops::ControlFlow;

use attnscope_checks::stats::LayerReport;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Input, Sequence};
use attnscope_spec::{BlockSpec, Model, Stack};

use super::job::{Job, Options};
use super::observer::{Observer, Progress};
use super::pipeline::run_all;

/// Number of sequences r‖r; `MOST_TOKENS` is the longest r. As in TransformerLens's demo, but with ids of the whole vocabulary.
const N_SEQUENCES: usize = 8;

const MOST_TOKENS: usize = 50;
const SEED: u64 = 0;

/// Mean attention of the second copy in r‖r to the previous token, the token's earlier copy, and the token after that copy.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stripes {
    pub previous: f64,
    pub duplicate: f64,
    pub induction: f64,
}

/// Stripes of every head of a causal single-stack model; `None` for other models, or if the context is too short for a copy.
///
/// // [layer, head]
///
/// # Errors
/// When the model cannot run, or the run is stopped.
pub fn stripes<O: Ops>(
    ops: &O,
    model: &Model,
    pace: &dyn Pace,
) -> Result<Option<Vec<Vec<Stripes>>>> {
    let spec = &model.spec;
    let is_causal = spec
        .main_stack()
        .blocks()
        .iter()
        .filter_map(BlockSpec::attention)
        .any(|own| own.mask.causal);
    let room = spec.n_ctx.map_or(MOST_TOKENS, |n_ctx| n_ctx / 2);
    let n = MOST_TOKENS.min(room).min(spec.d_vocab / 2);
    if !is_causal || spec.is_encoder_decoder() || n < 4 {
        return Ok(None);
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let inputs: Vec<Input> = (0..N_SEQUENCES)
        .map(|_| {
            // All tokens of r differ: a repeat within r would add a second earlier copy.
            let once: Vec<u32> = random.choose_multiple(0..spec.d_vocab as u32, n);
            let tokens = once.repeat(2);
            Input {
                source: None,
                sequence: Sequence {
                    positions: spec.positions.positions(&tokens, None),
                    tokens,
                    real: None,
                    picture: None,
                    ..Sequence::default()
                },
            }
        })
        .collect();
    let mut sums: Vec<Sums> = inputs
        .iter()
        .map(|_| Sums {
            n,
            layers: Vec::new(),
        })
        .collect();
    let jobs = inputs.iter().zip(&mut sums).map(|(input, observer)| Job {
        input,
        observer,
        tap: None,
    });
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    run_all(ops, model, jobs.collect(), options, pace)?;
    let mut mean: Vec<Vec<Stripes>> = sums[0]
        .layers
        .iter()
        .map(|heads| vec![Stripes::default(); heads.len()])
        .collect();
    for of_sequence in &sums {
        for (into, heads) in mean.iter_mut().zip(&of_sequence.layers) {
            for (into, head) in into.iter_mut().zip(heads) {
                into.previous += head.previous / N_SEQUENCES as f64;
                into.duplicate += head.duplicate / N_SEQUENCES as f64;
                into.induction += head.induction / N_SEQUENCES as f64;
            }
        }
    }
    Ok(Some(mean))
}

/// Stripes summed over the second copy of one sequence, layer by layer.
struct Sums {
    n: usize,
    layers: Vec<Vec<Stripes>>,
}

impl Observer for Sums {
    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        if report.stack == Stack::Only {
            let heads = report.heads.iter().map(|head| {
                let second = &head.summary.rows[self.n..];
                let mean = |mass: &dyn Fn(&attnscope_compute::attention::RowSummary) -> f32| {
                    second.iter().map(|row| f64::from(mass(row))).sum::<f64>() / second.len() as f64
                };
                Stripes {
                    previous: mean(&|row| row.previous_mass),
                    duplicate: mean(&|row| row.duplicate_mass),
                    induction: mean(&|row| row.induction_mass),
                }
            });
            self.layers.push(heads.collect());
        }
        ControlFlow::Continue(())
    }
}
