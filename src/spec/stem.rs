//! The convolutions that turn a spectrogram into rows, as data.

use attnscope_compute::ops::Activation;
use attnscope_prompt::SoundRule;

use super::source::{LinearSource, NormSource};

/// Convolutions over the frames of a spectrogram, one after another, each followed by an activation.
#[derive(Debug, Clone, PartialEq)]
pub struct SoundStem {
    pub rule: SoundRule,
    pub convolutions: Vec<StemConvolution>,
    pub activation: Activation,
    /// What follows the convolutions, if the rows are not those of the residual yet.
    pub end: Option<Box<StemEnd>>,
}

/// What turns the rows of the last convolution into those of the residual: a norm, a map, and positions from the rows around each.
#[derive(Debug, Clone, PartialEq)]
pub struct StemEnd {
    pub norm: Option<NormSource>,
    pub projection: LinearSource,
    pub positions: AroundRows,
}

/// A convolution in groups over the rows around each row, zero-padded by half its width; its activated output is added to the row.
/// The kernel is stored by length and direction: `gains` are the lengths of its slices, one for each place in the width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AroundRows {
    /// [1, 1, n_wide]
    pub gains: String,
    /// [width, width / n_groups, n_wide]
    pub directions: String,
    /// [width]
    pub bias: String,
    pub width: usize,
    pub n_wide: usize,
    pub n_groups: usize,
}

/// A norm of the output of a convolution, before its activation.
#[derive(Debug, Clone, PartialEq)]
pub enum StemNorm {
    /// Of each row.
    Row(NormSource),
    /// Of each channel over all rows.
    Channel(NormSource),
}

impl StemNorm {
    pub fn source(&self) -> &NormSource {
        match self {
            Self::Row(norm) | Self::Channel(norm) => norm,
        }
    }
}

/// A convolution over rows and all channels.
#[derive(Debug, Clone, PartialEq)]
pub struct StemConvolution {
    /// [n_out, n_in, n_wide]
    pub weight: String,
    pub bias: Option<String>,
    pub n_in: usize,
    pub n_out: usize,
    /// Kernel width in rows: an odd number if it is padded.
    pub n_wide: usize,
    /// Rows from one output to the next.
    pub stride: usize,
    /// Zero-padded by half its width on both sides.
    pub is_padded: bool,
    pub norm: Option<StemNorm>,
}

impl SoundStem {
    /// The tensors it reads, with their required shapes.
    pub fn tensors(&self) -> Vec<(&String, Vec<usize>)> {
        let each = self.convolutions.iter().flat_map(|one| {
            let weight = (&one.weight, vec![one.n_out, one.n_in, one.n_wide]);
            let norm = one.norm.as_ref().map(StemNorm::source);
            let of_norm = norm
                .into_iter()
                .flat_map(|norm| norm.gain.iter().chain(&norm.bias));
            let vectors = one.bias.iter().chain(of_norm);
            let vectors = vectors.map(|name| (name, vec![one.n_out]));
            [weight].into_iter().chain(vectors)
        });
        let around = self.end.iter().flat_map(|end| {
            let around = &end.positions;
            let of_group = around.width / around.n_groups.max(1);
            [
                (&around.gains, vec![1, 1, around.n_wide]),
                (
                    &around.directions,
                    vec![around.width, of_group, around.n_wide],
                ),
                (&around.bias, vec![around.width]),
            ]
        });
        each.chain(around).collect()
    }

    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        let each = self.convolutions.iter().map(|one| {
            let (n_in, n_out, wide, stride) = (one.n_in, one.n_out, one.n_wide, one.stride);
            let norm = match one.norm {
                None => "",
                Some(StemNorm::Row(_)) => ", rows normed",
                Some(StemNorm::Channel(_)) => ", channels normed",
            };
            format!("{n_in}→{n_out} over {wide} every {stride}{norm}")
        });
        let each: Vec<String> = each.collect();
        let end = self.end.as_ref().map(|end| {
            let around = &end.positions;
            format!(
                ", positions of {} rows in {} groups",
                around.n_wide, around.n_groups
            )
        });
        format!(
            "{}, {}{}",
            each.join(", "),
            self.activation,
            end.unwrap_or_default()
        )
    }
}
