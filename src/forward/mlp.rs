//! A dense feed-forward layer, or one expert.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{GateRule, MlpSpec};

use super::around::read_by;
use super::block_weights::MlpWeights;
use super::context::BlockContext;
use super::grid_maps::convolve_hidden;
use super::scratch::MlpScratch;
use super::sparsity::cut_off;
use super::steps::normed_in_place;

/// Computes down(act(up x)), with a convolution over patches before the activation if there is one, or the gated form.
pub(super) fn run_mlp<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &MlpSpec,
    weights: &MlpWeights<'_, O>,
    from: &O::Buffer,
    s: &mut MlpScratch<O>,
    to: &mut O::Buffer,
) -> Result<()> {
    let (ops, pace) = (context.ops, context.pace);
    let mut around = O::Buffer::default();
    let read = read_by(context, &spec.up, from, &mut around)?;
    ops.linear(read, &weights.up, &mut s.hidden, pace)?; // [position, d_mlp]
    if let Some(convolution) = spec.convolution.as_deref() {
        convolve_hidden(context, convolution, &mut s.hidden)?;
    }
    match (&weights.gate, spec.gate_rule) {
        (Some(gate), GateRule::Product | GateRule::Limited { .. }) => {
            ops.linear(from, gate, &mut s.gate, pace)?; // [position, d_mlp]
            if let Some(share) = spec.sparsity {
                cut_off(ops, share, &mut s.gate)?;
            }
            ops.activate(spec.activation, &mut s.gate)?;
            if let GateRule::Limited { limit } = spec.gate_rule {
                ops.clip(&mut s.gate, limit)?;
                ops.clip(&mut s.hidden, limit)?;
            }
            ops.multiply(&mut s.hidden, &s.gate)?;
        }
        (Some(gate), GateRule::LimitedBefore { limit }) => {
            ops.linear(from, gate, &mut s.gate, pace)?; // [position, d_mlp]
            ops.lower(&mut s.gate, limit)?;
            ops.activate(spec.activation, &mut s.gate)?;
            ops.clip(&mut s.hidden, limit)?;
            ops.multiply(&mut s.hidden, &s.gate)?;
        }
        (Some(gate), GateRule::Clamped { limit, alpha }) => {
            ops.linear(from, gate, &mut s.gate, pace)?; // [position, d_mlp]
            ops.clamped_gate(&mut s.hidden, &s.gate, limit, alpha)?;
        }
        (None, _) => match weights.learned {
            Some(learned) => learned.apply(ops, &mut s.hidden)?,
            None => ops.activate(spec.activation, &mut s.hidden)?,
        },
    }
    normed_in_place(
        ops,
        weights.hidden_norm.as_ref(),
        &mut s.hidden,
        &mut s.gate,
    )?;
    let read = read_by(context, &spec.down, &s.hidden, &mut around)?;
    ops.linear(read, &weights.down, to, pace)?; // [position, d_model]
    match spec.out_activation {
        Some(activation) => ops.activate(activation, to),
        None => Ok(()),
    }
}
