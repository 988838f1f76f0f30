//! The convolutions that turn a spectrogram into rows, as data.

use attnscope_compute::ops::Activation;
use attnscope_prompt::SoundRule;

/// Convolutions over the frames of a spectrogram, one after another, each followed by an activation.
#[derive(Debug, Clone, PartialEq)]
pub struct SoundStem {
    pub rule: SoundRule,
    pub convolutions: Vec<StemConvolution>,
    pub activation: Activation,
}

/// A convolution over rows and all channels, zero-padded by half its width on both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct StemConvolution {
    /// [n_out, n_in, n_wide]
    pub weight: String,
    pub bias: Option<String>,
    pub n_in: usize,
    pub n_out: usize,
    /// Kernel width in rows: an odd number.
    pub n_wide: usize,
    /// Rows from one output to the next.
    pub stride: usize,
}

impl SoundStem {
    /// The tensors it reads, with their required shapes.
    pub fn tensors(&self) -> Vec<(&String, Vec<usize>)> {
        let each = self.convolutions.iter().flat_map(|one| {
            let weight = (&one.weight, vec![one.n_out, one.n_in, one.n_wide]);
            let bias = one.bias.as_ref().map(|bias| (bias, vec![one.n_out]));
            [Some(weight), bias].into_iter().flatten()
        });
        each.collect()
    }

    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        let each = self.convolutions.iter().map(|one| {
            let (n_in, n_out, wide, stride) = (one.n_in, one.n_out, one.n_wide, one.stride);
            format!("{n_in}→{n_out} over {wide} every {stride}")
        });
        let each: Vec<String> = each.collect();
        format!("{}, {}", each.join(", "), self.activation)
    }
}
