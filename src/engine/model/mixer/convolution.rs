//! A gated convolution over a few tokens.

use super::memory::MixerMemory;
use super::parts::MixerPart;
use super::rows::each_copy;
use super::short_convolution::{Kernel, ShortConvolution};
use crate::error::Result;
use crate::model::context::BlockContext;
use crate::model::source::LinearSource;
use crate::model::weights::Shelf;
use crate::ops::Ops;

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

/// The weights of a gated convolution.
pub struct ConvolutionWeights<'a, O: Ops> {
    b: O::Linear<'a>,
    c: O::Linear<'a>,
    x: O::Linear<'a>,
    kernel: Kernel<'a>,
    o: O::Linear<'a>,
}

impl<'a, O: Ops> ConvolutionWeights<'a, O> {
    /// # Errors
    /// As for [`Shelf::linear`].
    pub(super) fn read(shelf: Shelf<'a, O>, spec: &ConvolutionSpec) -> Result<Self> {
        Ok(Self {
            b: shelf.linear(&spec.b)?,
            c: shelf.linear(&spec.c)?,
            x: shelf.linear(&spec.x)?,
            kernel: spec.convolution.read(shelf)?,
            o: shelf.linear(&spec.o)?,
        })
    }
}

/// Fills `to` with what the convolution adds. // from: [position, d_model]
pub(super) fn run<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &ConvolutionSpec,
    weights: &ConvolutionWeights<'_, O>,
    from: &O::Buffer,
    memory: Option<&mut MixerMemory>,
    to: &mut O::Buffer,
) -> Result<()> {
    let (ops, pace) = (context.ops, context.pace);
    let (mut b, mut c, mut x) = Default::default();
    ops.linear(from, &weights.b, &mut b, pace)?; // [position, channel]
    ops.linear(from, &weights.c, &mut c, pace)?;
    ops.linear(from, &weights.x, &mut x, pace)?;
    ops.multiply(&mut x, &b)?;
    let gated = ops.get(&x)?;
    let n = spec.convolution.n_channels;
    let mixed = each_copy(
        context,
        gated.values.len() / n.max(1),
        memory,
        |rows, kept| {
            let values = &gated.values[rows.start * n..rows.end * n];
            weights.kernel.run(&mut kept.tail, values)
        },
    );
    ops.put(&mixed, n, &mut b)?; // [position, channel]
    ops.multiply(&mut b, &c)?;
    ops.linear(&b, &weights.o, to, pace) // [position, d_model]
}
