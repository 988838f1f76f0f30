//! The convolutions that turn a spectrogram into rows, as data.

use attnscope_compute::ops::Activation;
use attnscope_prompt::SoundRule;

use super::embed::Sines;
use super::norm_source::NormSource;
use super::planes::PlaneConvolution;
use super::source::LinearSource;

/// Convolutions over the frames of a spectrogram, one after another, each followed by an activation.
#[derive(Debug, Clone, PartialEq)]
pub struct SoundStem {
    pub rule: SoundRule,
    /// Convolutions over frames and bands as a plane, before all others. Then a row holds the bands of all channels.
    pub planes: Vec<PlaneConvolution>,
    /// Whether bands are rows of the plane, and frames its columns, and not the other way.
    pub has_bands_first: bool,
    /// Set if each place of the plane becomes a row.
    pub places: Option<Box<StemPlaces>>,
    /// Set if frames pass through all convolutions in chunks, each by itself.
    pub chunks: Option<StemChunks>,
    /// A map of each frame, before the convolutions over rows; the activation follows.
    pub first: Option<LinearSource>,
    pub convolutions: Vec<StemConvolution>,
    pub activation: Activation,
    /// What follows the convolutions, if the rows are not those of the residual yet.
    pub end: Option<Box<StemEnd>>,
}

/// Learned rows before those of a plane's places, and positions, which are added to all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StemPlaces {
    /// One row each. // [1, 1, width]
    pub firsts: Vec<String>,
    /// [1, n_rows, width]
    pub positions: String,
    pub n_rows: usize,
    pub width: usize,
}

/// Frames that pass through convolutions together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StemChunks {
    pub n_frames: usize,
    /// When the last chunk, which may have fewer frames, is lengthened with zeros; its rows beyond the sound are left out.
    pub lengthened: Lengthened,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lengthened {
    Never,
    /// Unless it is the only one.
    BehindOthers,
    Always,
}

/// Sines and cosines added to the rows of each chunk, whose first is at some position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StemSines {
    pub order: Sines,
    pub first: usize,
    /// Multiplies rows before.
    pub scale: f32,
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
    pub sines: Option<StemSines>,
}

impl StemEnd {
    /// A map to the width of the residual.
    pub fn map(projection: LinearSource) -> Self {
        Self {
            norm: None,
            projection: Some(projection),
            n_pooled: 1,
            positions: Vec::new(),
            sines: None,
        }
    }
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
    /// Set if there are twice as many outputs, of which the second half gates the first through a sigmoid, in place of an activation.
    pub is_gated: bool,
    /// Kernel width in rows.
    pub n_wide: usize,
    /// Rows from one output to the next.
    pub stride: usize,
    /// Zeros before the first row, and behind the last.
    pub padding: [usize; 2],
    pub norm: Option<StemNorm>,
    /// Follows in place of the activation of the stem.
    pub activation: Option<Activation>,
    /// A norm over all rows and channels together, behind the activation.
    pub last_norm: Option<NormSource>,
}

impl StemConvolution {
    /// Number of outputs before any gate.
    pub fn n_mapped(&self) -> usize {
        if self.is_gated {
            2 * self.n_out
        } else {
            self.n_out
        }
    }
}

impl SoundStem {
    /// A stem without convolutions.
    pub fn plain(rule: SoundRule, activation: Activation) -> Self {
        Self {
            rule,
            planes: Vec::new(),
            has_bands_first: false,
            places: None,
            chunks: None,
            first: None,
            convolutions: Vec::new(),
            activation,
            end: None,
        }
    }

    /// The tensors it reads, with their required shapes.
    pub fn tensors(&self) -> Vec<(&String, Vec<usize>)> {
        let each = self.convolutions.iter().flat_map(|one| {
            let n_out = one.n_mapped();
            let weight = (&one.weight, vec![n_out, one.n_in, one.n_wide]);
            let norm = one.norm.as_ref().map(StemNorm::source);
            let norms = norm.into_iter().chain(&one.last_norm);
            let of_norm = norms.flat_map(|norm| norm.gain.iter().chain(&norm.bias));
            let vectors = one.bias.iter().chain(of_norm);
            let vectors = vectors.map(move |name| (name, vec![n_out]));
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
        let planes = self.planes.iter().flat_map(PlaneConvolution::tensors);
        let places = self.places.iter().flat_map(|places| {
            let firsts = places.firsts.iter();
            let firsts = firsts.map(|name| (name, vec![1, 1, places.width]));
            let shape = vec![1, places.n_rows, places.width];
            firsts.chain([(&places.positions, shape)])
        });
        planes.chain(each).chain(around).chain(places).collect()
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
                _ if one.is_gated => ", gated".to_owned(),
                None => String::new(),
                Some(activation) => format!(", {activation}"),
            };
            let last = match one.last_norm {
                None => "",
                Some(_) => ", all normed",
            };
            format!("{n_in}→{n_out} over {wide} every {stride}{norm}{activation}{last}")
        });
        let turned = self.has_bands_first.then(|| "bands × frames".to_owned());
        let planes = self.planes.iter().map(PlaneConvolution::words);
        let planes = turned.into_iter().chain(planes);
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
        let in_chunks = match self.chunks {
            None => String::new(),
            Some(chunks) => format!(", in chunks of {} frames", chunks.n_frames),
        };
        let sines = self.end.as_ref().and_then(|end| end.sines);
        let sines = match sines {
            None => String::new(),
            Some(sines) => format!(", sines from {}, rows times {}", sines.first, sines.scale),
        };
        let end: String = positions
            .map(|around| {
                format!(
                    ", positions of {} rows in {} groups",
                    around.n_wide, around.n_groups
                )
            })
            .collect();
        let all = each.join(", ");
        format!("{all}, {}{end}{means}{in_chunks}{sines}", self.activation)
    }
}
