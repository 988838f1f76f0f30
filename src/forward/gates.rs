//! Gates of heads: factors of what the heads of an attention give, computed from the attention's input.

use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::recurrent::softplus;
use attnscope_compute::ops::{Activation, Ops};
use attnscope_spec::{GateFunction, ProjectionSpec};

/// Turns the outputs of a gate's map into one factor for each value of each head. // gate: [position, n_heads · d_value]
///
/// # Errors
/// When the device fails.
pub(super) fn open_gates<O: Ops>(
    ops: &O,
    attention: &AttentionSpec,
    spec: &ProjectionSpec,
    gate: &mut O::Buffer,
) -> Result<()> {
    if spec.gate_function == GateFunction::Sigmoid {
        ops.activate(Activation::Sigmoid, gate)?;
    }
    let width = attention.n_heads * attention.d_value;
    let host = ops.get(gate)?;
    let is_by_head = host.width != width;
    if spec.gate_function == GateFunction::Sigmoid && !is_by_head {
        return Ok(());
    }
    let mut values = host.values.into_owned();
    if spec.gate_function == GateFunction::Softplus {
        values.iter_mut().for_each(|v| *v = softplus(*v));
    }
    if is_by_head {
        let repeated = values
            .iter()
            .flat_map(|v| std::iter::repeat_n(*v, attention.d_value));
        values = repeated.collect();
    }
    ops.put(&values, width, gate)
}
