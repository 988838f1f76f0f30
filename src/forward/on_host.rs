//! Weights as f32 on the host, for whoever computes with them outside a forward pass.

use std::ops::Range;

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::RelativeTables;
use attnscope_compute::error::Result;
use attnscope_compute::ops::{Cpu, HostLinear, HostNorm};
use attnscope_compute::pace::Pace;
use attnscope_spec::{LinearSource, NormSource, RelativeSource};

use super::weights::{Fused, WeightReader, read_linear, read_linear_rows, read_norm};

/// Reads an affine map as f32, for comparing it with that of another checkpoint.
///
/// # Errors
/// When a tensor is missing or has another shape, or the pace stops it.
pub fn linear_on_host<'a>(
    tensors: &'a Tensors,
    source: &LinearSource,
    pace: &dyn Pace,
) -> Result<HostLinear<'a>> {
    read_linear(tensors, source, false, &Fused::default(), pace)
}

/// Reads a few outputs of an unfused affine map as f32: a token's row of the unembedding.
///
/// # Errors
/// When a tensor is missing or has another shape, or the pace stops it.
pub fn linear_rows_on_host<'a>(
    tensors: &'a Tensors,
    source: &LinearSource,
    rows: Range<usize>,
    pace: &dyn Pace,
) -> Result<HostLinear<'a>> {
    read_linear_rows(tensors, source, rows, false, pace)
}

/// Reads a norm as f32, its gain as it is applied.
///
/// # Errors
/// When a tensor is missing or has another shape.
pub fn norm_on_host<'a>(tensors: &'a Tensors, source: &NormSource) -> Result<HostNorm<'a>> {
    read_norm(tensors, source)
}

/// Reads learned vectors of distances, for comparing a head with that of another checkpoint.
///
/// # Errors
/// When a tensor is missing or has another shape, or the pace stops it.
pub fn relative_on_host(
    tensors: &Tensors,
    source: &RelativeSource,
    pace: &dyn Pace,
) -> Result<RelativeTables> {
    WeightReader::new(&Cpu, tensors, pace).relative(source)
}
