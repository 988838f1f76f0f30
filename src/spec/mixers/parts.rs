//! Parts that several mixers share, and the type for listing the tensors that a mixer reads.

use attnscope_compute::kernels::recurrent::{GateOrder, NormGate};

use crate::norm_source::NormSource;
use crate::source::LinearSource;

/// One tensor or map that a mixer reads, with a short name.
#[derive(Debug, Clone, PartialEq)]
pub enum MixerPart<'a> {
    Map(&'static str, &'a LinearSource),
    Norm(&'static str, &'a NormSource),
    /// Any other tensor, with its shape.
    Tensor(&'static str, &'a str, Vec<usize>),
}

impl MixerPart<'_> {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Map(name, _) | Self::Norm(name, _) | Self::Tensor(name, ..) => name,
        }
    }
}

/// A norm combined with a gate, before the output map.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedNormSource {
    pub gain: String,
    /// Number of stored gains: one per channel, or one per channel of a group.
    pub n_stored: usize,
    pub order: GateOrder,
    /// What the gate's map becomes before it multiplies.
    pub gate: NormGate,
    /// Number of channels normalised together.
    pub width: usize,
    pub eps: f32,
}

impl GatedNormSource {
    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        let order = match self.order {
            GateOrder::NormFirst => "norm before the gate",
            GateOrder::GateFirst => "norm after the gate",
        };
        let gate = match self.gate {
            NormGate::Silu => "",
            NormGate::Sigmoid => ", gate through a sigmoid",
        };
        format!(
            "{order} over {} channels, eps {}{gate}",
            self.width, self.eps
        )
    }

    pub(super) fn part(&self) -> MixerPart<'_> {
        MixerPart::Tensor("norm", &self.gain, vec![self.n_stored])
    }
}

/// A depthwise causal convolution over a token and the tokens before it, or over the patches around each patch of a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortConvolution {
    /// Tensors of kernel weights, with the number of channels in each; those of the first channels come first. The last weight
    /// belongs to the token itself. // [channel, 1, token]
    pub kernels: Vec<(String, usize)>,
    /// [channel]
    pub bias: Option<String>,
    pub n_channels: usize,
    pub n_tokens: usize,
    /// Whether the kernel lies over as many rows as columns, with a patch in its middle; beyond a picture are zeros.
    /// // kernels: [channel, 1, row, column]
    pub over_grid: bool,
}

impl ShortConvolution {
    /// A convolution whose kernel is one tensor.
    pub fn whole(kernel: String, bias: Option<String>, n_channels: usize, n_tokens: usize) -> Self {
        Self {
            kernels: vec![(kernel, n_channels)],
            bias,
            n_channels,
            n_tokens,
            over_grid: false,
        }
    }

    /// Number of cached values: those of the earlier tokens that the kernel covers.
    pub fn n_kept(&self) -> usize {
        if self.over_grid {
            return 0;
        }
        self.n_tokens.saturating_sub(1) * self.n_channels
    }

    /// The stored tensors of the kernel, with their shapes.
    pub fn stored_kernels(&self) -> impl Iterator<Item = (&str, Vec<usize>)> {
        let kernels = self.kernels.iter();
        let sides = 1 + usize::from(self.over_grid);
        kernels.map(move |(name, n_channels)| {
            let shape = [vec![*n_channels, 1], vec![self.n_tokens; sides]].concat();
            (name.as_str(), shape)
        })
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let whats = ["kernel", "kernel.2", "kernel.3"];
        let kernels = whats.into_iter().zip(self.stored_kernels());
        let kernels = kernels.map(|(what, (name, shape))| MixerPart::Tensor(what, name, shape));
        let bias = self.bias.as_ref();
        let bias = bias.map(|bias| MixerPart::Tensor("kernel.bias", bias, vec![self.n_channels]));
        kernels.chain(bias).collect()
    }
}
