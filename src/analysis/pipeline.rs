//! A prompt through the model, layer by layer, under an observer that can stop it. Batch and screen both run this.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::first_nonfinite::{NonFinite, find, in_tensors};
use super::kept::Kept;
use super::layer::{HeadReport, LayerReport};
use super::predictions::{Predictions, Scan};
use super::tap::Tap;
use super::watch::Watch;
use crate::attention::AttentionSpec;
use crate::error::{Error, Result};
use crate::model::{
    BlockRun, BlockWeights, Hook, Model, ModelSpec, Scratch, Sequence, Stack, embed, final_hidden,
    logits_in_chunks, run_block,
};
use crate::ops::Ops;
use crate::stats::{self, HeadEvidence, LayerEvidence, Values};

/// Memory for kept layer inputs unless something else is asked for: 256 MiB.
pub const KEEP_BYTES: usize = 256 << 20;

/// What a run is to do beside running.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Memory for layer inputs, so that heads can be looked at later; `None` keeps none.
    pub keep_bytes: Option<usize>,
    /// Whether to predict tokens, for models that can.
    pub predicts: bool,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Embedding,
    /// This layer runs now.
    Layer(usize),
    Predictions,
}

/// Hears of a run as it goes, and can stop it.
pub trait Observer {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()>;
    fn layer(&mut self, report: LayerReport) -> ControlFlow<()>;
    /// Called once, before the first layer, with where layer inputs will be kept.
    fn keeping(&mut self, _: &Arc<Kept>) {}
    /// Called once, when the first NaN or infinity appears.
    fn nonfinite(&mut self, _: &NonFinite) {}
}

/// Hears of nothing and stops nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn layer(&mut self, _: LayerReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// What is left of a run beside its layers.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub predictions: Option<Predictions>,
    pub nonfinite: Option<NonFinite>,
}

/// Runs a prompt through the model.
///
/// # Errors
/// When it was stopped, a tensor is not as the spec says, the device fails, or the tap cannot keep a value.
pub fn run<O: Ops>(
    ops: &O,
    model: &Model,
    sequence: &Sequence,
    options: Options,
    observer: &mut dyn Observer,
    mut tap: Option<&mut dyn Tap>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Outcome> {
    let spec = &model.spec;
    let stack = spec.main_stack();
    let kept = options.keep_bytes.map(|budget| {
        Arc::new(Kept::plan(
            stack.blocks.len(),
            sequence.len() * spec.d_model,
            budget,
        ))
    });
    if let Some(kept) = &kept {
        observer.keeping(kept);
    }
    go_on(observer.progress(Progress::Embedding))?;
    let mut scratch = Scratch::<O>::default();
    let (mut resid, mut hidden) = (O::Buffer::default(), O::Buffer::default());
    embed(ops, model, stack, sequence, &mut hidden, &mut resid)?; // [position, d_model]

    let mut outcome = Outcome::default();
    for (layer_idx, block) in stack.blocks.iter().enumerate() {
        go_on(observer.progress(Progress::Layer(layer_idx)))?;
        if stop() {
            return Err(Error::Cancelled);
        }
        let keeps_input = kept.as_ref().is_some_and(|kept| kept.wants(layer_idx));
        let layer_tap: Option<&mut dyn Tap> = match &mut tap {
            Some(tap) => Some(&mut **tap),
            None => None,
        };
        let mut watch = Watch::new(
            layer_idx,
            keeps_input,
            outcome.nonfinite.is_none(),
            layer_tap,
        );
        let weights = BlockWeights::read(ops, &model.checkpoint.tensors, block)?;
        let ran = run_block(
            ops,
            block,
            &weights,
            sequence,
            &mut resid,
            &mut scratch,
            &mut watch,
            stop,
        )?;
        drop(weights);
        if let (Some(kept), Some(input)) = (&kept, watch.input.take()) {
            kept.put(layer_idx, input);
        }
        if let Some(found) = watch.nonfinite.take() {
            let found = NonFinite {
                tensor: guilty_tensor(model, layer_idx, found.hook),
                ..found
            };
            observer.nonfinite(&found);
            outcome.nonfinite = Some(found);
        }
        let report = report(
            stack.stack,
            layer_idx,
            &block.attention,
            ran,
            &watch,
            sequence,
        );
        if let Some(tap) = &mut tap {
            tap.end_of_layer(layer_idx)?;
        }
        go_on(observer.layer(report))?;
    }

    let wants_logits = tap
        .as_ref()
        .is_some_and(|tap| tap.wants(stack.blocks.len(), Hook::Logits));
    let predicts = options.predicts && spec.head.is_some();
    if !wants_logits && !predicts {
        return Ok(outcome);
    }
    go_on(observer.progress(Progress::Predictions))?;
    final_hidden(ops, model, stack, &resid, &mut hidden)?; // [position, d_model]
    match &spec.head {
        Some(head) => {
            let mut scan = Scan::new(targets(spec, sequence));
            logits_in_chunks(
                ops,
                model,
                head,
                &hidden,
                sequence.len(),
                |range, logits| {
                    if stop() {
                        return Err(Error::Cancelled);
                    }
                    scan.add(&range, logits);
                    if outcome.nonfinite.is_none()
                        && let Some(element) = find(logits)
                    {
                        let found = NonFinite {
                            layer_idx: stack.blocks.len(),
                            hook: Hook::Logits,
                            position_idx: element / range.len(),
                            column_idx: range.start + element % range.len(),
                            value: logits[element],
                            tensor: guilty_tensor(model, stack.blocks.len(), Hook::Logits),
                        };
                        observer.nonfinite(&found);
                        outcome.nonfinite = Some(found);
                    }
                    match &mut tap {
                        Some(tap) if wants_logits => tap.logits(range, logits),
                        _ => Ok(()),
                    }
                },
            )?;
            // A pair counts when both its tokens are real: padding is neither context nor label.
            let is_counted = |i: usize| sequence.is_real(i) && sequence.is_real(i + 1);
            outcome.predictions = Some(scan.finish(spec.is_causal_lm, is_counted));
        }
        None => {
            if let Some(tap) = &mut tap {
                tap.logits(0..spec.d_model, &ops.get(&hidden)?.values)?;
            }
        }
    }
    Ok(outcome)
}

fn go_on(flow: ControlFlow<()>) -> Result<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Cancelled),
    }
}

/// The token that follows each position, where the model predicts it.
fn targets(spec: &ModelSpec, sequence: &Sequence) -> Vec<Option<u32>> {
    let next = |i: usize| {
        sequence
            .tokens
            .get(i + 1)
            .copied()
            .filter(|_| spec.is_causal_lm)
    };
    (0..sequence.len()).map(next).collect()
}

/// A tensor that holds a NaN itself, among those that could have brought one to this place.
fn guilty_tensor(model: &Model, layer_idx: usize, hook: Hook) -> Option<(String, usize)> {
    let needed = model.spec.needed_tensors();
    let stack = model.spec.main_stack();
    if hook == Hook::Logits {
        // After the last block only the final norm and the head have run; the head may be the embedding.
        let norm = stack
            .final_norm
            .iter()
            .flat_map(|n| n.gain.iter().chain(&n.bias));
        let transform = model
            .spec
            .head
            .iter()
            .filter_map(|head| head.transform.as_ref());
        let transform = transform.flat_map(|(dense, _, norm)| {
            let dense = std::iter::once(&dense.weight).chain(&dense.bias);
            dense.chain(&norm.gain).chain(&norm.bias)
        });
        let unembed = model.spec.head.iter().map(|head| &head.unembed);
        let unembed = unembed.flat_map(|l| std::iter::once(&l.weight).chain(&l.bias));
        let names = norm.chain(transform).chain(unembed);
        return in_tensors(&model.checkpoint.tensors, names.map(String::as_str));
    }
    let block = &stack.blocks[layer_idx];
    let of_block = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let names: Vec<String> = match hook {
        // Before the first block only the embedding has run.
        Hook::ResidPre => {
            let first = of_block(&[&block.q.weight]);
            needed
                .iter()
                .map(|(name, _)| (*name).to_owned())
                .take_while(|name| !first.contains(name))
                .collect()
        }
        _ => {
            let linears = [
                &block.q,
                &block.k,
                &block.v,
                &block.o,
                &block.mlp.up,
                &block.mlp.down,
            ];
            let linears = linears.into_iter().chain(&block.mlp.gate);
            let norms = [&block.attn_pre, &block.attn_out, &block.attn_post]
                .into_iter()
                .chain([&block.mlp_pre, &block.mlp_out, &block.mlp_post])
                .flatten();
            let of_linears = linears.flat_map(|l| std::iter::once(&l.weight).chain(&l.bias));
            let of_norms = norms.flat_map(|n| n.gain.iter().chain(&n.bias));
            of_linears.chain(of_norms).cloned().collect()
        }
    };
    in_tensors(&model.checkpoint.tensors, names.iter().map(String::as_str))
}

fn report(
    stack: Stack,
    layer_idx: usize,
    spec: &AttentionSpec,
    ran: BlockRun,
    watch: &Watch<'_>,
    sequence: &Sequence,
) -> LayerReport {
    let heads: Vec<HeadReport> = ran
        .heads
        .into_iter()
        .zip(&ran.head_output_norms)
        .map(|(summary, output_norms)| {
            let evidence = HeadEvidence {
                summary: &summary,
                output_norms,
                resid_norms: &watch.resid_pre,
                scale: spec.scale.factor(spec.d_head),
                d_head: spec.d_head,
            };
            HeadReport {
                stats: stats::of_head(&evidence),
                summary,
            }
        })
        .collect();
    let real = |norms: &[f32]| -> Vec<f32> {
        norms
            .iter()
            .enumerate()
            .filter(|(i, _)| sequence.is_real(*i))
            .map(|(_, norm)| *norm)
            .collect()
    };
    let evidence = LayerEvidence {
        resid_pre: &real(&watch.resid_pre),
        attn_out: &real(&watch.attn_out),
        mlp_out: &real(&watch.mlp_out),
        resid_post: &real(&watch.resid_post),
    };
    let of_heads: Vec<Values> = heads.iter().map(|head| head.stats.clone()).collect();
    LayerReport {
        stack,
        layer_idx,
        stats: stats::of_layer(&of_heads, &evidence),
        heads,
    }
}
