//! A gated short convolution, as data.

use super::parts::{MixerPart, ShortConvolution};
use crate::source::LinearSource;

/// A convolution between two gates: out(c · conv(b · x)).
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolutionSpec {
    pub b: LinearSource,
    pub c: LinearSource,
    pub x: LinearSource,
    pub convolution: ShortConvolution,
    pub o: LinearSource,
}

impl ConvolutionSpec {
    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let maps = [("b", &self.b), ("c", &self.c), ("x", &self.x)];
        let mut parts = Vec::from(maps.map(|(name, map)| MixerPart::Map(name, map)));
        parts.extend(self.convolution.parts());
        parts.push(MixerPart::Map("o", &self.o));
        parts
    }
}
