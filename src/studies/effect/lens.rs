//! Logit lens: predictions of the model if it ended after each layer (nostalgebraist 2020).

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_spec::Model;

use super::capture::Base;
use super::judged::head_of;
use super::logit_rows::{Wanted, rows_of};

/// Number of rows read at a time, over all depths.
const ROWS_AT_ONCE: usize = 4096;

/// Prediction at one position from the residual after some layers.
#[derive(Debug, Clone)]
pub struct LensRow {
    /// Number of layers that have run: 0 is the embedding.
    pub depth: usize,
    pub position_idx: usize,
    /// The next token, or the token itself in models that are not causal.
    pub target: Option<u32>,
    /// Rank of the target among all tokens, from 1.
    pub rank: Option<usize>,
    pub probability: Option<f64>,
    /// KL(last layer ‖ this depth), in nats.
    pub kl: f64,
    /// Most likely tokens with their probabilities.
    pub top: Vec<(u32, f64)>,
}

/// Applies the final norm and LM head to the residual of every depth at some positions. Rows are sorted by position, then depth.
///
/// # Errors
/// When the model predicts no tokens, a tensor contradicts the spec, or the pace stops it.
pub fn lens<O: Ops>(
    ops: &O,
    model: &Model,
    (input, base): (&Input, &Base),
    (positions, n_top): (&[usize], usize),
    pace: &dyn Pace,
    mut each: impl FnMut(&[LensRow]),
) -> Result<Vec<LensRow>> {
    let head = head_of(model)?;
    let main = model.spec.main_stack();
    let n_layers = main.n_layers();
    // The last residual comes first, because the others are compared with it.
    let mut residuals = vec![base.last.values.as_slice()];
    for layer_idx in 0..n_layers {
        let rows = base.input(main.stack, layer_idx)?;
        residuals.push(&rows.values);
    }
    let tokens = &input.sequence.tokens;
    let target = |idx: usize| {
        let at = if model.spec.is_causal_lm {
            idx + 1
        } else {
            idx
        };
        let token = tokens.get(at).copied();
        token.filter(|token| (*token as usize) < head.unembed.n_out())
    };
    let at_once = (ROWS_AT_ONCE / residuals.len()).max(1);
    let mut all = Vec::with_capacity(positions.len() * residuals.len());
    for block in positions.chunks(at_once) {
        let wanted = Wanted {
            targets: block.iter().map(|idx| target(*idx)).collect(),
            n_top,
            ranks: true,
        };
        let rows = rows_of(ops, model, head, (&residuals, block), (&wanted, None), pace)?;
        let start = all.len();
        for (at, position_idx) in block.iter().enumerate() {
            let last = &rows[at];
            for depth in 0..=n_layers {
                let residual_idx = if depth == n_layers { 0 } else { depth + 1 };
                let row = &rows[residual_idx * block.len() + at];
                let probability = |logit: f32| (f64::from(logit) - row.log_sum_exp()).exp();
                let target = wanted.targets[at];
                all.push(LensRow {
                    depth,
                    position_idx: *position_idx,
                    target,
                    rank: target.map(|_| row.n_above + 1),
                    probability: target.map(|_| probability(row.target)),
                    kl: match residual_idx {
                        0 => 0.0,
                        _ => row.divergence_from(last),
                    },
                    top: row
                        .top
                        .iter()
                        .map(|(id, logit)| (*id, probability(*logit)))
                        .collect(),
                });
            }
        }
        each(&all[start..]);
    }
    Ok(all)
}
