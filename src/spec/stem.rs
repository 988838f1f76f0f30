//! The convolutions that turn a spectrogram into rows, as data.

use attnscope_compute::ops::Activation;
use attnscope_prompt::SoundRule;

use super::planes::PlaneConvolution;
use super::source::{LinearSource, NormSource};

/// Convolutions over the frames of a spectrogram, one after another, each followed by an activation.
#[derive(Debug, Clone, PartialEq)]
pub struct SoundStem {
    pub rule: SoundRule,
    /// Convolutions over frames and bands as a plane, before all others. Then a row holds the bands of all channels.
    pub planes: Vec<PlaneConvolution>,
    /// A map of each frame, before the convolutions over rows; the activation follows.
    pub first: Option<LinearSource>,
    pub convolutions: Vec<StemConvolution>,
    pub activation: Activation,
    /// What follows the convolutions, if the rows are not those of the residual yet.
    pub end: Option<Box<StemEnd>>,
}

/// What turns the rows of the last convolution into those of the residual: a norm, a map, and positions from the rows around each.
#[derive(Debug, Clone, PartialEq)]
pub struct StemEnd {
    pub norm: Option<NormSource>,
    pub projection: Option<LinearSource>,
    /// Rows whose mean becomes one row of the residual.
    pub n_pooled: usize,
    /// One after another; the activated output of the last is added to the row.
    pub positions: Vec<AroundRows>,
}

/// A convolution in groups over the rows around each row, zero-padded by half its width, and then activated. It has an
/// output for each row of the residual.
#[derive(Debug, Clone, PartialEq)]
pub struct AroundRows {
    pub kernel: AroundKernel,
    /// [width]
    pub bias: String,
    /// Normalises the output, before its activation.
    pub norm: Option<NormSource>,
    pub width: usize,
    pub n_wide: usize,
    pub n_groups: usize,
}

/// How the kernel of a convolution over the rows around each is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AroundKernel {
    /// As it is. // [width, width / n_groups, n_wide]
    Whole(String),
    /// By length and direction: gains are the lengths of its slices, one for each place in the width.
    ByLength {
        /// [1, 1, n_wide]
        gains: String,
        /// [width, width / n_groups, n_wide]
        directions: String,
    },
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
    /// Follows in place of the activation of the stem.
    pub activation: Option<Activation>,
    /// A norm over all rows and channels together, behind the activation.
    pub last_norm: Option<NormSource>,
}

impl SoundStem {
    /// The tensors it reads, with their required shapes.
    pub fn tensors(&self) -> Vec<(&String, Vec<usize>)> {
        let each = self.convolutions.iter().flat_map(|one| {
            let weight = (&one.weight, vec![one.n_out, one.n_in, one.n_wide]);
            let norm = one.norm.as_ref().map(StemNorm::source);
            let norms = norm.into_iter().chain(&one.last_norm);
            let of_norm = norms.flat_map(|norm| norm.gain.iter().chain(&norm.bias));
            let vectors = one.bias.iter().chain(of_norm);
            let vectors = vectors.map(|name| (name, vec![one.n_out]));
            [weight].into_iter().chain(vectors)
        });
        let positions = self.end.iter().flat_map(|end| &end.positions);
        let around = positions.flat_map(|around| {
            let whole = vec![
                around.width,
                around.width / around.n_groups.max(1),
                around.n_wide,
            ];
            let kernel = match &around.kernel {
                AroundKernel::Whole(weight) => vec![(weight, whole)],
                AroundKernel::ByLength { gains, directions } => {
                    vec![(gains, vec![1, 1, around.n_wide]), (directions, whole)]
                }
            };
            kernel
                .into_iter()
                .chain([(&around.bias, vec![around.width])])
        });
        let planes = self.planes.iter().flat_map(|plane| {
            let bias = plane.bias.iter().map(|bias| (bias, vec![plane.n_out]));
            [(&plane.weight, plane.shape())].into_iter().chain(bias)
        });
        planes.chain(each).chain(around).collect()
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
            let activation = match one.activation {
                None => String::new(),
                Some(activation) => format!(", {activation}"),
            };
            let last = match one.last_norm {
                None => "",
                Some(_) => ", all normed",
            };
            format!("{n_in}→{n_out} over {wide} every {stride}{norm}{activation}{last}")
        });
        let planes = self.planes.iter().map(PlaneConvolution::words);
        let first = self
            .first
            .iter()
            .map(|map| format!("{}→{}", map.n_in, map.n_out()));
        let each: Vec<String> = planes.chain(first).chain(each).collect();
        let n_pooled = self.end.as_ref().map_or(1, |end| end.n_pooled);
        let means = match n_pooled {
            0 | 1 => String::new(),
            n => format!(", means of {n}"),
        };
        let positions = self.end.iter().flat_map(|end| &end.positions);
        let end: String = positions
            .map(|around| {
                format!(
                    ", positions of {} rows in {} groups",
                    around.n_wide, around.n_groups
                )
            })
            .collect();
        format!("{}, {}{end}{means}", each.join(", "), self.activation)
    }
}
