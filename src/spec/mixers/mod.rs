//! Token mixers other than softmax attention, as data: one file each.

mod convolution;
mod delta_rule;
mod gated_recurrence;
mod lightning;
mod parts;
mod selective_scan;
mod span_convolution;
mod state_space;
mod value_memory;

pub use convolution::ConvolutionSpec;
pub use delta_rule::DeltaRuleSpec;
pub use gated_recurrence::{GateNames, GatedRecurrenceSpec};
pub use lightning::{Decays, LightningSpec};
pub use parts::{GatedNormSource, MixerPart, ShortConvolution};
pub use selective_scan::{ScanHead, SelectiveScanSpec};
pub use span_convolution::SpanConvolutionSpec;
pub use state_space::StateSpaceSpec;
pub use value_memory::ValueMemorySpec;

use super::source::LinearSource;

/// A token mixer other than softmax attention.
#[derive(Debug, Clone, PartialEq)]
pub enum TokenMixer {
    /// A gated convolution over a few tokens.
    Convolution(Box<ConvolutionSpec>),
    /// The selective scan of Mamba.
    SelectiveScan(Box<SelectiveScanSpec>),
    /// The state space of Mamba-2.
    StateSpace(Box<StateSpaceSpec>),
    /// The gated delta rule.
    DeltaRule(Box<DeltaRuleSpec>),
    /// The real-gated linear recurrent unit.
    GatedRecurrence(Box<GatedRecurrenceSpec>),
    /// Linear attention whose weights decay with distance.
    Lightning(Box<LightningSpec>),
    /// A convolution whose kernels depend on a span of tokens.
    SpanConvolution(Box<SpanConvolutionSpec>),
    /// The values of the attention beside it, and a convolution of them.
    ValueMemory(Box<ValueMemorySpec>),
}

impl TokenMixer {
    /// Name shown in lists and panels.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Convolution(_) => "convolution",
            Self::SelectiveScan(_) => "selective scan (Mamba)",
            Self::StateSpace(_) => "state space (Mamba-2)",
            Self::DeltaRule(_) => "gated delta rule",
            Self::GatedRecurrence(_) => "gated linear recurrence (RG-LRU)",
            Self::Lightning(_) => "lightning attention",
            Self::SpanConvolution(_) => "span-based dynamic convolution",
            Self::ValueMemory(_) => "memory of values (SAN-M)",
        }
    }

    /// Every tensor that the mixer reads, with its role.
    pub fn parts(&self) -> Vec<MixerPart<'_>> {
        match self {
            Self::Convolution(spec) => spec.parts(),
            Self::SelectiveScan(spec) => spec.parts(),
            Self::StateSpace(spec) => spec.parts(),
            Self::DeltaRule(spec) => spec.parts(),
            Self::GatedRecurrence(spec) => spec.parts(),
            Self::Lightning(spec) => spec.parts(),
            Self::SpanConvolution(spec) => spec.parts(),
            Self::ValueMemory(spec) => spec.parts(),
        }
    }

    /// The mixer's affine maps.
    pub fn linears(&self) -> Vec<&LinearSource> {
        let parts = self.parts().into_iter();
        parts
            .filter_map(|part| match part {
                MixerPart::Map(_, linear) => Some(linear),
                MixerPart::Norm(..) | MixerPart::Tensor(..) => None,
            })
            .collect()
    }

    /// The mixer's affine maps, mutable.
    pub fn linears_mut(&mut self) -> Vec<&mut LinearSource> {
        match self {
            Self::Convolution(spec) => {
                vec![&mut spec.b, &mut spec.c, &mut spec.x, &mut spec.o]
            }
            Self::SelectiveScan(spec) => {
                let heads = spec.heads.iter_mut();
                let inner = heads.flat_map(ScanHead::linears_mut);
                let outer = [&mut spec.x, &mut spec.gate, &mut spec.o];
                inner.chain(outer).collect()
            }
            Self::StateSpace(spec) => {
                let inner = [&mut spec.b, &mut spec.c, &mut spec.steps];
                let outer = [&mut spec.gate, &mut spec.x, &mut spec.o];
                inner.into_iter().chain(outer).collect()
            }
            Self::DeltaRule(spec) => {
                let narrow = [&mut spec.narrow_gate, &mut spec.narrow_steps];
                let inner = [&mut spec.strength, &mut spec.steps, &mut spec.gate];
                let outer = [&mut spec.q, &mut spec.k, &mut spec.v, &mut spec.o];
                let narrow = narrow.into_iter().filter_map(|map| map.as_deref_mut());
                narrow.chain(inner).chain(outer).collect()
            }
            Self::GatedRecurrence(spec) => vec![&mut spec.x, &mut spec.y, &mut spec.o],
            Self::Lightning(spec) => {
                let inner = [&mut spec.q, &mut spec.k, &mut spec.v];
                let outer = [&mut spec.gate, &mut spec.o];
                inner.into_iter().chain(outer).collect()
            }
            Self::ValueMemory(spec) => vec![&mut spec.values],
            Self::SpanConvolution(spec) => {
                let inner = [&mut spec.pointwise, &mut spec.kernel];
                let outer = [&mut spec.q, &mut spec.values, &mut spec.o];
                inner.into_iter().chain(outer).collect()
            }
        }
    }

    /// Number of values cached after `n_tokens` tokens; bounded, however long the text is.
    pub fn n_kept(&self, n_tokens: usize) -> usize {
        let (convolution, n_state) = match self {
            Self::Convolution(spec) => (&spec.convolution, 0),
            Self::SelectiveScan(spec) => (&spec.convolution, spec.n_channels() * spec.d_state),
            Self::StateSpace(spec) => (&spec.convolution, spec.n_inner() * spec.d_state),
            Self::DeltaRule(spec) => {
                let heads = spec.heads;
                let n_state = heads.n_value_heads * heads.d_key * heads.d_value;
                (&spec.convolution, n_state)
            }
            Self::GatedRecurrence(spec) => (&spec.convolution, spec.n_channels),
            Self::Lightning(spec) => return spec.n_kept(n_tokens),
            // It reads tokens on both sides, so that nothing can be kept of those before.
            Self::SpanConvolution(_) | Self::ValueMemory(_) => return 0,
        };
        convolution.n_kept() + n_state
    }

    /// Whether it mixes neighbours on both sides, padding among them, so that no padding leaves a text as it was.
    pub fn reads_both_sides(&self) -> bool {
        match self {
            Self::SpanConvolution(_) | Self::ValueMemory(_) => true,
            Self::Convolution(spec) => spec.convolution.over_grid,
            _ => false,
        }
    }

    /// Whether padding before a text changes its outputs: because padding is not masked, or because a bias makes masked inputs
    /// nonzero.
    pub fn reads_padding(&self) -> bool {
        let mut convolved: Vec<&LinearSource> = match self {
            Self::Convolution(spec) => vec![&spec.x],
            Self::SelectiveScan(spec) => vec![&spec.x],
            Self::StateSpace(spec) => vec![&spec.x, &spec.b, &spec.c],
            Self::DeltaRule(spec) => vec![&spec.q, &spec.k, &spec.v],
            Self::ValueMemory(spec) => vec![&spec.values],
            Self::GatedRecurrence(_) | Self::SpanConvolution(_) => return true,
            Self::Lightning(spec) => return spec.decays.are_rounded,
        };
        convolved.retain(|linear| linear.bias.is_some());
        !convolved.is_empty()
    }

    /// Settings, other than tensor shapes, in which mixers of one kind can differ.
    pub fn knobs(&self) -> String {
        match self {
            Self::Convolution(_) => String::new(),
            Self::SelectiveScan(spec) => spec.activation.to_string(),
            Self::StateSpace(spec) => {
                let (heads, groups, [from, to]) = (spec.n_heads, spec.n_groups, spec.step_limits);
                let norm = match &spec.norm {
                    None => "no norm".to_owned(),
                    Some(norm) => norm.words(),
                };
                format!(
                    "{heads} heads in {groups} groups, {}, steps from {from} to {to}, {norm}",
                    spec.activation
                )
            }
            Self::DeltaRule(spec) => {
                let heads = spec.heads;
                format!(
                    "{} key heads of {}, {} value heads of {}, {}, strength up to {}, decays by {}, value heads {}, {}",
                    heads.n_key_heads,
                    heads.d_key,
                    heads.n_value_heads,
                    heads.d_value,
                    spec.activation,
                    spec.strength_scale,
                    if heads.by_channel { "channel" } else { "head" },
                    if heads.is_tiled { "tiled" } else { "grouped" },
                    spec.norm.words()
                )
            }
            Self::GatedRecurrence(spec) => {
                format!("{} blocks, {}", spec.n_blocks, spec.activation)
            }
            Self::ValueMemory(spec) => {
                format!("{} positions with {} before", spec.n_wide, spec.n_before)
            }
            Self::SpanConvolution(spec) => {
                format!("{} heads over {} tokens", spec.n_heads, spec.n_wide)
            }
            Self::Lightning(spec) => {
                let Decays {
                    n_block, slopes, ..
                } = &spec.decays;
                let heads = format!("{} heads of {}", spec.n_heads, spec.d_head);
                let slopes: Vec<String> = slopes.iter().map(f32::to_string).collect();
                format!(
                    "{heads}, blocks of {n_block}, {}, slopes {}",
                    spec.activation,
                    slopes.join(" ")
                )
            }
        }
    }
}
