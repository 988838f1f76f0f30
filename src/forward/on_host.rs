//! Weights as f32 on the host, for computation outside a forward pass.

use std::ops::Range;

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::RelativeTables;
use attnscope_compute::error::Result;
use attnscope_compute::ops::{Cpu, HostLinear, HostNorm};
use attnscope_compute::pace::Pace;
use attnscope_spec::{LinearSource, NormSource, ProjectionSpec};

use super::norms::read_norm;
use super::weights::{Fused, WeightReader, read_linear, read_linear_rows};

/// Reads an affine map as f32, to compare it with another checkpoint's.
///
/// # Errors
/// When a tensor is missing or has the wrong shape, or the pace stops it.
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
/// When a tensor is missing or has the wrong shape, or the pace stops it.
pub fn linear_rows_on_host<'a>(
    tensors: &'a Tensors,
    source: &LinearSource,
    rows: Range<usize>,
    pace: &dyn Pace,
) -> Result<HostLinear<'a>> {
    read_linear_rows(tensors, source, rows, false, pace)
}

/// Reads a norm as f32, with the gain as it is applied.
///
/// # Errors
/// When a tensor is missing or has the wrong shape.
pub fn norm_on_host<'a>(tensors: &'a Tensors, source: &NormSource) -> Result<HostNorm<'a>> {
    read_norm(tensors, source)
}

/// Reads learned relative-position vectors, to compare a head with another checkpoint's.
///
/// # Errors
/// When a tensor is missing or has the wrong shape, or the pace stops it.
pub fn relative_on_host(
    tensors: &Tensors,
    maps: &ProjectionSpec,
    pace: &dyn Pace,
) -> Result<Option<RelativeTables>> {
    WeightReader::new(&Cpu, tensors, pace).distances(maps, None)
}
