//! The first half of a block: attention, what stands in its place, and what runs beside it.

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

/// What mixed the tokens of a block.
pub(super) struct Mixed<O: Ops> {
    /// What heads told; `None` where something else left its output.
    pub heads: Option<Vec<HeadSummary>>,
    /// What a mixer beside attention adds. // [position, d_model]
    pub beside: Option<O::Buffer>,
}

/// Fills `s.z` with what heads find, or `s.out` with what another mixer makes of the tokens.
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
        beside: None,
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
            if let (Some(beside), Some(weights)) = (&spec.beside, &weights.beside) {
                let from = if attention.pre.is_some() {
                    &s.normed
                } else {
                    resid
                };
                let mut out = O::Buffer::default();
                let memory = s.past.as_mut().map(|past| &mut past.mixed);
                run_mixer(context, beside, weights, from, memory, &mut out)?;
                mixed.beside = Some(out);
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
