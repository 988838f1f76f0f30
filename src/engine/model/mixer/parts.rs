//! The tensors of a mixer by name, for lists that treat all mixers alike.

use std::borrow::Cow;

use crate::error::Result;
use crate::kernels::recurrent::{GateOrder, GatedNorm};
use crate::model::source::{LinearSource, NormSource};
use crate::model::weights::Shelf;
use crate::ops::Ops;

/// One thing that a mixer reads, under a short name.
#[derive(Debug, Clone, PartialEq)]
pub enum MixerPart<'a> {
    Map(&'static str, &'a LinearSource),
    Norm(&'static str, &'a NormSource),
    /// A tensor that is neither, with its shape.
    Tensor(&'static str, &'a str, Vec<usize>),
}

/// A norm beside a gate, before the map of the output.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedNormSource {
    pub gain: String,
    /// Values that are stored: as many as there are channels, or as one group has.
    pub n_stored: usize,
    pub order: GateOrder,
    /// Channels that are normed together.
    pub width: usize,
    pub eps: f32,
}

impl GatedNormSource {
    /// What it computes, for comparisons.
    pub fn words(&self) -> String {
        let order = match self.order {
            GateOrder::NormFirst => "norm before the gate",
            GateOrder::GateFirst => "norm after the gate",
        };
        format!("{order} over {} channels, eps {}", self.width, self.eps)
    }

    /// # Errors
    /// When the gain is missing or has another shape.
    pub(super) fn read<'a, O: Ops>(&self, shelf: Shelf<'a, O>) -> Result<Cow<'a, [f32]>> {
        shelf.vector(&self.gain, self.n_stored)
    }

    pub(super) fn with<'g>(&self, gain: &'g [f32]) -> GatedNorm<'g> {
        GatedNorm {
            order: self.order,
            width: self.width,
            eps: self.eps,
            gain,
        }
    }

    pub(super) fn part(&self) -> MixerPart<'_> {
        MixerPart::Tensor("norm", &self.gain, vec![self.n_stored])
    }
}
