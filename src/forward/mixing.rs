//! First half of a block: attention, a mixer in its place, or both.

use attnscope_compute::attention::HeadSummary;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockSpec, Mixer};

use super::block_weights::{BlockWeights, MixerWeights};
use super::context::BlockContext;
use super::heads::{Attending, run_heads};
use super::hook::Hooks;
use super::mixer::run_mixer;
use super::scratch::AttentionScratch;
use super::steps::nothing;

/// Results of the part of a block that mixes tokens.
pub(super) struct Mixed<O: Ops> {
    /// Per-head results; `None` where another mixer filled the output.
    pub heads: Option<Vec<HeadSummary>>,
    /// Output of a mixer parallel to attention. // [position, d_model]
    pub parallel: Option<O::Buffer>,
}

/// Fills `s.z` with the heads' Σ p·v, or `s.out` with the output of another mixer.
pub(super) fn mix<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    weights: &BlockWeights<'_, O>,
    resid: &O::Buffer,
    s: &mut AttentionScratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<Mixed<O>> {
    let mut mixed = Mixed {
        heads: None,
        parallel: None,
    };
    match (&spec.mixer, &weights.mixer) {
        (Mixer::Attention(own), MixerWeights::Attention(attention, o)) => {
            let of = Attending {
                attention: &own.attention,
                projections: &own.projections,
                exceptions: &own.exceptions,
                pre: &spec.attn_pre,
                weights: attention,
                o,
            };
            mixed.heads = Some(run_heads(context, of, resid, s, hooks)?);
            if let (Some(mixer), Some(weights)) = (&spec.parallel_mixer, &weights.parallel_mixer) {
                let from = if attention.pre.is_some() {
                    &s.normed
                } else {
                    resid
                };
                let mut out = O::Buffer::default();
                let memory = s.past.as_mut().map(|past| &mut past.mixed);
                run_mixer(context, mixer, weights, from, memory, &mut out)?;
                mixed.parallel = Some(out);
            }
        }
        (Mixer::Other(mixer), MixerWeights::Other { pre, weights }) => {
            let from = match pre {
                Some(norm) => {
                    context.ops.norm(resid, norm, &mut s.normed)?;
                    &s.normed
                }
                None => resid,
            };
            let memory = s.past.as_mut().map(|past| &mut past.mixed);
            run_mixer(context, mixer, weights, from, memory, &mut s.out)?;
        }
        _ => nothing(context.ops, resid, &mut s.out)?,
    }
    Ok(mixed)
}
