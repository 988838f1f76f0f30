//! Which attention was a checkpoint trained with? Its losses under every hypothesis.

use super::kept::Kept;
use super::observer::{Observer, Progress};
use super::pipeline::{Options, run};
use super::rerun::next_losses;
use super::what_if::{Change, changed};
use crate::attention::{Mask, Scale, SoftmaxAxis};
use crate::checks::{Factors, Hypothesis, Probed, TrainingProbe};
use crate::error::{Error, Result};
use crate::model::{BlockSpec, Input, Model, ModelSpec, Sequence};
use crate::ops::Ops;
use crate::pace::Pace;
use crate::place::Place;
use crate::stats::LayerReport;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Tokens that are read at most, over all prompts: enough for small gains to show.
const MOST_TOKENS: usize = 4096;
/// For layer inputs of all prompts together, so that a change in a late layer costs only what follows it.
const KEEP_BYTES: usize = 256 << 20;

/// What is told of the work: hypotheses done, of how many.
pub type Told<'a> = &'a mut dyn FnMut(usize, usize);

/// # Errors
/// When the model cannot be run, or the run is stopped.
pub fn probe_training<O: Ops>(
    ops: &O,
    model: &Model,
    inputs: &[Input],
    told: Told<'_>,
    pace: &dyn Pace,
) -> Result<Probed<TrainingProbe>> {
    let spec = &model.spec;
    if !spec.is_causal_lm || spec.is_encoder_decoder() || spec.head.is_none() {
        return Ok(Probed::Not(
            "only a decoder that predicts the next token has a loss to compare".to_owned(),
        ));
    }
    let mut n_tokens = 0;
    let inputs: Vec<&Input> = inputs
        .iter()
        .take_while(|input| {
            let is_room = n_tokens == 0 || n_tokens + input.sequence.len() <= MOST_TOKENS;
            n_tokens += input.sequence.len();
            is_room
        })
        .collect();
    let Some(declared) = Declared::of(spec) else {
        let reason = "no layer has softmax attention whose training could be asked for";
        return Ok(Probed::Not(reason.to_owned()));
    };
    let plan = plan(spec, declared);
    let mut kept = Vec::new();
    let bytes_each = KEEP_BYTES / inputs.len().max(1);
    for input in &inputs {
        kept.push(keep(ops, model, input, bytes_each, pace)?);
    }
    let mut hypotheses = Vec::new();
    for (nth, (layer_idx, factors)) in plan.iter().enumerate() {
        told(nth, plan.len());
        let supposed = model.with_spec(suppose(spec, &declared.factors, *layer_idx, factors));
        let mut losses = Vec::new();
        for (input, kept) in inputs.iter().zip(&kept) {
            let from = layer_idx.map(|layer_idx| (&**kept, layer_idx));
            losses.extend(next_losses(ops, &supposed, input, from, pace)?);
        }
        hypotheses.push(Hypothesis {
            layer_idx: *layer_idx,
            factors: *factors,
            losses,
        });
    }
    Ok(Probed::Ran(TrainingProbe {
        hypotheses,
        unigram_loss: unigram_loss(&inputs),
        copy_loss: copy_loss(ops, model, inputs.first().copied(), pace)?,
    }))
}

/// Tokens of a text that is said twice.
const MOST_COPIED: usize = 128;

/// Mean loss on the second copy of a text said twice; NaN where there is no room for it.
fn copy_loss<O: Ops>(
    ops: &O,
    model: &Model,
    input: Option<&Input>,
    pace: &dyn Pace,
) -> Result<f64> {
    let Some(input) = input else {
        return Ok(f64::NAN);
    };
    let room = model.spec.n_ctx.map_or(usize::MAX, |n_ctx| n_ctx / 2);
    let n = input.sequence.len().min(MOST_COPIED).min(room);
    if n == 0 {
        return Ok(f64::NAN);
    }
    let tokens = input.sequence.tokens[..n].repeat(2);
    let twice = Input {
        source: None,
        sequence: Sequence {
            positions: model.spec.positions.positions(&tokens, None),
            tokens,
            real: None,
        },
    };
    let losses = next_losses(ops, model, &twice, None, pace)?;
    // The first token of the second copy cannot be foreseen.
    let second = losses.iter().skip(n).map(|loss| f64::from(*loss));
    Ok(second.sum::<f64>() / (losses.len().saturating_sub(n)) as f64)
}

/// Layer inputs of the declared model.
fn keep<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    keep_bytes: usize,
    pace: &dyn Pace,
) -> Result<Arc<Kept>> {
    let mut holder = Holder(None);
    let options = Options {
        keep_bytes: Some(keep_bytes),
        predicts: false,
    };
    run(ops, model, input, options, &mut holder, None, pace)?;
    holder.0.ok_or(Error::Cancelled)
}

struct Holder(Option<Arc<Kept>>);

impl Observer for Holder {
    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn layer(&mut self, _: LayerReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn keeping(&mut self, kept: &Arc<Kept>) {
        self.0 = Some(kept.clone());
    }
}

/// What the configuration declares, by the first layer that has attention.
#[derive(Debug, Clone, Copy)]
struct Declared {
    factors: Factors,
    d_head: usize,
}

impl Declared {
    /// `None` where no layer has attention of its own.
    fn of(spec: &ModelSpec) -> Option<Self> {
        let mut all = spec.main_stack().blocks().iter().filter_map(BlockSpec::own);
        let first = &all.clone().next()?.attention;
        let has_norms = all.any(|own| own.projections.q_norm.is_some());
        Some(Self {
            factors: Factors {
                axis: first.softmax_axis,
                scale: first.scale,
                causal: first.mask.causal,
                qk_norm: has_norms.then_some(true),
            },
            d_head: first.d_head,
        })
    }
}

/// Every hypothesis to try: all factors in all layers, then one factor in one layer. The declared one comes first.
fn plan(spec: &ModelSpec, declared: Declared) -> Vec<(Option<usize>, Factors)> {
    let Declared {
        factors: declared,
        d_head,
    } = declared;
    let mut scales = vec![declared.scale];
    for scale in [Scale::InvSqrtD, Scale::One, Scale::InvD] {
        let is_known = |known: &Scale| (known.factor(d_head) - scale.factor(d_head)).abs() < 1e-6;
        if !scales.iter().any(is_known) {
            scales.push(scale);
        }
    }
    let axes = match declared.axis {
        SoftmaxAxis::Keys => [SoftmaxAxis::Keys, SoftmaxAxis::Queries],
        SoftmaxAxis::Queries => [SoftmaxAxis::Queries, SoftmaxAxis::Keys],
    };
    let masks: &[bool] = if declared.causal {
        &[true, false]
    } else {
        &[false, true]
    };
    let norms: &[Option<bool>] = match declared.qk_norm {
        Some(_) => &[Some(true), Some(false)],
        None => &[None],
    };
    let mut everywhere = Vec::new();
    for qk_norm in norms {
        for causal in masks {
            for scale in &scales {
                for axis in axes {
                    everywhere.push(Factors {
                        axis,
                        scale: *scale,
                        causal: *causal,
                        qk_norm: *qk_norm,
                    });
                }
            }
        }
    }
    let n_changed = |factors: &Factors| {
        usize::from(factors.axis != declared.axis)
            + usize::from(factors.scale != declared.scale)
            + usize::from(factors.causal != declared.causal)
            + usize::from(factors.qk_norm != declared.qk_norm)
    };
    let n_layers = spec.main_stack().blocks().len();
    let in_one_layer = (0..n_layers)
        .filter(|_| n_layers > 1)
        .flat_map(|layer_idx| {
            let single = everywhere.iter().filter(|factors| n_changed(factors) == 1);
            single
                .map(move |factors| (Some(layer_idx), *factors))
                .collect::<Vec<_>>()
        });
    let in_one_layer: Vec<(Option<usize>, Factors)> = in_one_layer.collect();
    everywhere
        .into_iter()
        .map(|factors| (None, factors))
        .chain(in_one_layer)
        .collect()
}

/// The spec that a hypothesis supposes: what it shares with the declared one stays as every layer has it.
fn suppose(
    spec: &ModelSpec,
    declared: &Factors,
    layer_idx: Option<usize>,
    factors: &Factors,
) -> ModelSpec {
    let place = Place {
        layer_idx,
        ..Place::MODEL
    };
    let mut supposed = spec.clone();
    if factors.axis != declared.axis {
        supposed = changed(&supposed, place, Change::SoftmaxAxis(factors.axis));
    }
    if factors.scale != declared.scale {
        supposed = changed(&supposed, place, Change::Scale(factors.scale));
    }
    if factors.causal != declared.causal {
        let mask = Mask {
            causal: factors.causal,
            window: None,
        };
        supposed = changed(&supposed, place, Change::Mask(mask));
    }
    if factors.qk_norm == Some(false) {
        supposed = changed(&supposed, place, Change::QkNorm(false));
    }
    supposed
}

/// The entropy of the tokens that are predicted, in nats: what guessing by their frequencies would lose.
fn unigram_loss(inputs: &[&Input]) -> f64 {
    let mut counts = std::collections::BTreeMap::<u32, usize>::new();
    for input in inputs {
        let tokens = &input.sequence.tokens;
        for (idx, token) in tokens.iter().enumerate().skip(1) {
            if input.sequence.is_real(idx) && input.sequence.is_real(idx - 1) {
                *counts.entry(*token).or_default() += 1;
            }
        }
    }
    let n: usize = counts.values().sum();
    let share = |count: &usize| *count as f64 / n as f64;
    -counts
        .values()
        .map(|count| share(count) * share(count).ln())
        .sum::<f64>()
}
