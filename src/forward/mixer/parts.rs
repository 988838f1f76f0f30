//! Reads a mixer's tensors by name.

use std::borrow::Cow;

use attnscope_compute::error::Result;
use attnscope_compute::kernels::recurrent::GatedNorm;
use attnscope_compute::ops::Ops;
use attnscope_spec::mixers::GatedNormSource;

use crate::weights::WeightReader;

/// # Errors
/// When the gain is missing or has the wrong shape.
pub(super) fn read_gain<'a, O: Ops>(
    norm: &GatedNormSource,
    shelf: WeightReader<'a, O>,
) -> Result<Cow<'a, [f32]>> {
    shelf.vector(&norm.gain, norm.n_stored)
}

pub(super) fn with_gain<'g>(norm: &GatedNormSource, gain: &'g [f32]) -> GatedNorm<'g> {
    GatedNorm {
        order: norm.order,
        gate: norm.gate,
        width: norm.width,
        eps: norm.eps,
        gain,
    }
}
