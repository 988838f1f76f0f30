//! Token mixers that replace or accompany attention; they have no attention heads.

mod convolution;
mod delta_rule;
mod gated_recurrence;
mod lightning;
mod memory;
mod parts;
mod rows;
mod selective_scan;
mod short_convolution;
mod span_convolution;
mod state_space;
mod value_memory;

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::TokenMixer;

use self::convolution::ConvolutionWeights;
use self::delta_rule::DeltaRuleWeights;
use self::gated_recurrence::GatedRecurrenceWeights;
use self::lightning::LightningWeights;
use self::selective_scan::SelectiveScanWeights;
use self::span_convolution::SpanConvolutionWeights;
use self::state_space::StateSpaceWeights;
use self::value_memory::ValueMemoryWeights;
use super::context::BlockContext;
use super::weights::WeightReader;
pub(super) use memory::MixerMemory;
pub(crate) use rows::{each_copy, hide_padding, without_padding};
pub(crate) use short_convolution::read_kernel;

/// Weights of a mixer.
pub enum TokenMixerWeights<'a, O: Ops> {
    Convolution(ConvolutionWeights<'a, O>),
    SelectiveScan(SelectiveScanWeights<'a, O>),
    StateSpace(StateSpaceWeights<'a, O>),
    DeltaRule(DeltaRuleWeights<'a, O>),
    GatedRecurrence(GatedRecurrenceWeights<'a, O>),
    Lightning(LightningWeights<'a, O>),
    SpanConvolution(SpanConvolutionWeights<'a, O>),
    ValueMemory(ValueMemoryWeights<'a, O>),
}

impl<'a, O: Ops> TokenMixerWeights<'a, O> {
    /// # Errors
    /// As for [`WeightReader::linear`].
    pub(super) fn read(shelf: WeightReader<'a, O>, spec: &TokenMixer) -> Result<Self> {
        Ok(match spec {
            TokenMixer::Convolution(spec) => {
                Self::Convolution(ConvolutionWeights::read(shelf, spec)?)
            }
            TokenMixer::SelectiveScan(spec) => {
                Self::SelectiveScan(SelectiveScanWeights::read(shelf, spec)?)
            }
            TokenMixer::StateSpace(spec) => Self::StateSpace(StateSpaceWeights::read(shelf, spec)?),
            TokenMixer::DeltaRule(spec) => Self::DeltaRule(DeltaRuleWeights::read(shelf, spec)?),
            TokenMixer::GatedRecurrence(spec) => {
                Self::GatedRecurrence(GatedRecurrenceWeights::read(shelf, spec)?)
            }
            TokenMixer::Lightning(spec) => Self::Lightning(LightningWeights::read(shelf, spec)?),
            TokenMixer::SpanConvolution(spec) => {
                Self::SpanConvolution(SpanConvolutionWeights::read(shelf, spec)?)
            }
            TokenMixer::ValueMemory(spec) => {
                Self::ValueMemory(ValueMemoryWeights::read(shelf, spec)?)
            }
        })
    }
}

/// Fills `to` with a mixer's output. `memory` is its state after the tokens already processed. // from: [position, d_model]
pub(super) fn run_mixer<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &TokenMixer,
    weights: &TokenMixerWeights<'_, O>,
    from: &O::Buffer,
    memory: Option<&mut MixerMemory>,
    to: &mut O::Buffer,
) -> Result<()> {
    use TokenMixerWeights as Weights;
    // These treat padding like any other token.
    let real = if matches!(
        spec,
        TokenMixer::GatedRecurrence(_) | TokenMixer::SpanConvolution(_)
    ) {
        None
    } else {
        rows::without_padding(context, from)?
    };
    let from = real.as_ref().unwrap_or(from);
    match (spec, weights) {
        (TokenMixer::Convolution(spec), Weights::Convolution(weights)) => {
            convolution::run(context, spec, weights, from, memory, to)
        }
        (TokenMixer::SelectiveScan(spec), Weights::SelectiveScan(weights)) => {
            selective_scan::run(context, spec, weights, from, memory, to)
        }
        (TokenMixer::StateSpace(spec), Weights::StateSpace(weights)) => {
            state_space::run(context, spec, weights, from, memory, to)
        }
        (TokenMixer::DeltaRule(spec), Weights::DeltaRule(weights)) => {
            delta_rule::run(context, spec, weights, from, memory, to)
        }
        (TokenMixer::GatedRecurrence(spec), Weights::GatedRecurrence(weights)) => {
            gated_recurrence::run(context, spec, weights, from, memory, to)
        }
        (TokenMixer::Lightning(spec), Weights::Lightning(weights)) => {
            lightning::run(context, spec, weights, from, memory, to)
        }
        (TokenMixer::SpanConvolution(spec), Weights::SpanConvolution(weights)) => {
            span_convolution::run(context, spec, weights, from, to)
        }
        (TokenMixer::ValueMemory(spec), Weights::ValueMemory(weights)) => {
            value_memory::run(context, spec, weights, from, to)
        }
        _ => Ok(()),
    }
}
