//! A norm whose output is multiplied by the sigmoid of a small feed-forward layer of itself.

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
