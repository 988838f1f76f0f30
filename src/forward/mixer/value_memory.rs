//! A memory of values beside attention: the values themselves, and a convolution of them over positions.

use std::borrow::Cow;

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::mixers::ValueMemorySpec;

use super::rows::each_copy;
use crate::conformer::{Kernel, over_positions};
use crate::context::BlockContext;
use crate::weights::WeightReader;

/// The weights of a memory of values.
pub struct ValueMemoryWeights<'a, O: Ops> {
    values: O::Linear<'a>,
    /// [channel, n_wide]
    kernel: Cow<'a, [f32]>,
}

impl<'a, O: Ops> ValueMemoryWeights<'a, O> {
    /// # Errors
    /// As for [`WeightReader::linear`].
    pub(super) fn read(shelf: WeightReader<'a, O>, spec: &ValueMemorySpec) -> Result<Self> {
        let kernel = shelf.tensors.expect(&spec.kernel, &spec.kernel_shape())?;
        Ok(Self {
            values: shelf.linear(&spec.values)?,
            kernel: kernel.widen()?,
        })
    }
}

/// Fills `to` with what the memory gives. // from: [position, what attention reads]
pub(super) fn run<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &ValueMemorySpec,
    weights: &ValueMemoryWeights<'_, O>,
    from: &O::Buffer,
    to: &mut O::Buffer,
) -> Result<()> {
    let (ops, n) = (context.ops, spec.values.n_out());
    let mut mapped = O::Buffer::default();
    ops.linear(from, &weights.values, &mut mapped, context.pace)?; // [position, channel]
    let values = ops.get(&mapped)?.values.into_owned();
    let kernel = Kernel {
        weights: &weights.kernel,
        n_wide: spec.n_wide,
        n_before: spec.n_before,
    };
    // Each channel begins with its value.
    let sums = each_copy(context, values.len() / n.max(1), None, |rows, _| {
        let of_copy = &values[rows.start * n..rows.end * n];
        over_positions(&kernel, n, of_copy, of_copy.to_vec())
    });
    ops.put_own(sums, n, to)
}
