//! What changes the output of a norm: the sigmoid of a small feed-forward layer of itself, and a norm of its own for the first rows.

use attnscope_compute::error::Result;
use attnscope_compute::ops::{Activation, Ops};
use attnscope_spec::{MlpSpec, NormSource};

use super::block_weights::MlpWeights;
use super::context::BlockContext;
use super::mlp::run_mlp;
use super::scratch::MlpScratch;
use super::weights::WeightReader;

/// The layer behind a norm, and its weights.
pub struct NormGate<'a, O: Ops> {
    spec: MlpSpec,
    weights: MlpWeights<'a, O>,
}

impl<'a, O: Ops> NormGate<'a, O> {
    /// Reads the layer behind a norm, if there is one.
    ///
    /// # Errors
    /// As for [`WeightReader::linear`].
    pub(super) fn read(
        shelf: WeightReader<'a, O>,
        norm: &Option<NormSource>,
    ) -> Result<Option<Self>> {
        let Some(spec) = norm.as_ref().and_then(|norm| norm.gate.as_deref()) else {
            return Ok(None);
        };
        Ok(Some(Self {
            weights: MlpWeights::read(shelf, spec)?,
            spec: spec.clone(),
        }))
    }
}

/// Multiplies the output of a norm by its gate, if it has one. // normed: [position, d_model]
///
/// # Errors
/// When the pace stops it, or the device fails.
pub(super) fn open_norm<O: Ops>(
    context: &BlockContext<'_, O>,
    gate: Option<&NormGate<'_, O>>,
    normed: &mut O::Buffer,
) -> Result<()> {
    let Some(NormGate { spec, weights }) = gate else {
        return Ok(());
    };
    let (mut scratch, mut factors) = (MlpScratch::default(), O::Buffer::default());
    run_mlp(context, spec, weights, normed, &mut scratch, &mut factors)?;
    context.ops.activate(Activation::Sigmoid, &mut factors)?;
    context.ops.multiply(normed, &factors)
}

/// Gives the first rows of each copy of a sequence what a norm of their own makes of them. // resid, normed: [position, d_model]
///
/// # Errors
/// When the device fails.
pub(super) fn norm_firsts<O: Ops>(
    context: &BlockContext<'_, O>,
    firsts: Option<&(usize, O::Norm<'_>)>,
    resid: &O::Buffer,
    normed: &mut O::Buffer,
) -> Result<()> {
    let Some((n, norm)) = firsts else {
        return Ok(());
    };
    let (ops, mut own) = (context.ops, O::Buffer::default());
    ops.norm(resid, norm, &mut own)?;
    let own = ops.get(&own)?;
    let (width, mut values) = (own.width, ops.get(normed)?.values.into_owned());
    let n_values = (context.sequence.len() * width).max(1);
    let copies = values.chunks_mut(n_values).zip(own.values.chunks(n_values));
    for (to, from) in copies {
        let n = (n * width).min(to.len());
        to[..n].copy_from_slice(&from[..n]);
    }
    drop(own);
    ops.put_own(values, width, normed)
}
