//! What the block of a Conformer has besides attention and one feed-forward layer, as data.

use attnscope_compute::ops::{Activation, NormKind};

use super::feed_forward::MlpSpec;
use super::norm_source::NormSource;
use super::source::LinearSource;

/// A Conformer block (Gulati et al. 2020, arXiv 2005.08100): a feed-forward layer before attention, and a convolution between
/// attention and the block's own feed-forward layer. Each is added to the residual.
#[derive(Debug, Clone, PartialEq)]
pub struct ConformerSpec {
    /// Set if the block reads what the layers before it make of labels.
    pub guess: Option<LabelGuess>,
    /// The norm and the layer before attention.
    pub before_norm: Option<NormSource>,
    pub before: MlpSpec,
    /// A norm of the output of the layer before attention.
    pub before_out: Option<NormSource>,
    /// Multiplies the output of the layer before attention.
    pub before_scale: f32,
    /// Multiplies the residual that this output is added to.
    pub before_factor: f32,
    /// A norm of the residual that this layer was added to.
    pub before_post: Option<NormSource>,
    /// `None` where it makes fewer rows, behind the block.
    pub convolution: Option<ConvolutionModule>,
    /// A norm at the end of the block, behind all others.
    pub last: Option<NormSource>,
}

/// back(softmax(labels(x))): what a classifier of labels says of each row, added to the residual that it reads.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelGuess {
    pub labels: LinearSource,
    pub back: LinearSource,
}

/// out(act(norm(mixed(conv(glu(expand(norm(x)))))))), where the convolution runs over positions, each channel for itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolutionModule {
    pub pre: Option<NormSource>,
    /// Maps to twice the channels: values, then what gates them.
    pub expand: LinearSource,
    /// Added to values and to what gates them, besides the bias of the map. // [1, channel, 1] each
    pub gate_biases: Option<[String; 2]>,
    /// The function of gates, often a sigmoid.
    pub gate: Activation,
    /// [channel, 1, n_wide]
    pub kernel: String,
    /// [channel]
    pub kernel_bias: Option<String>,
    pub n_channels: usize,
    pub n_wide: usize,
    /// Number of earlier positions that a kernel covers.
    pub n_before: usize,
    /// Maps the channels of each position to each other, behind the convolution.
    pub mixed: Option<LinearSource>,
    pub norm: ChannelNorm,
    pub activation: Activation,
    pub out: LinearSource,
    /// Multiplies the output.
    pub scale: f32,
    /// Multiplies the residual that the output is added to.
    pub resid_factor: f32,
    /// A norm of the residual that the output was added to.
    pub post: Option<NormSource>,
}

/// The norm behind a convolution over positions.
#[derive(Debug, Clone, PartialEq)]
pub enum ChannelNorm {
    None,
    /// Of each row.
    Row(NormSource),
    /// By the mean and the variance of each channel that were stored in training.
    Stored {
        /// Gain, bias, mean, variance. // [channel]
        tensors: [String; 4],
        eps: f64,
    },
}

impl ConvolutionModule {
    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        let norm = match &self.norm {
            ChannelNorm::Row(norm) if norm.kind == NormKind::LayerNorm => "rows normed",
            ChannelNorm::Row(_) => "rows scaled",
            ChannelNorm::Stored { .. } => "channels normed by stored values",
            ChannelNorm::None => "no norm",
        };
        let mixed = match self.mixed {
            Some(_) => ", channels mixed",
            None => "",
        };
        format!(
            "{} positions with {} before{mixed}, {norm}, {} gated by {}",
            self.n_wide, self.n_before, self.activation, self.gate
        )
    }

    /// The maps, mutable.
    pub fn linears_mut(&mut self) -> impl Iterator<Item = &mut LinearSource> {
        [&mut self.expand, &mut self.out]
            .into_iter()
            .chain(&mut self.mixed)
    }

    /// The norms, mutable.
    pub fn norms_mut(&mut self) -> impl Iterator<Item = &mut NormSource> {
        let of_rows = match &mut self.norm {
            ChannelNorm::Row(norm) => Some(norm),
            ChannelNorm::Stored { .. } | ChannelNorm::None => None,
        };
        self.pre.iter_mut().chain(&mut self.post).chain(of_rows)
    }

    /// The tensors that are neither maps nor norms, with their shapes.
    pub fn vectors(&self) -> Vec<(&String, Vec<usize>)> {
        let mut all = vec![(&self.kernel, vec![self.n_channels, 1, self.n_wide])];
        all.extend(
            self.kernel_bias
                .iter()
                .map(|bias| (bias, vec![self.n_channels])),
        );
        let biases = self.gate_biases.iter().flatten();
        all.extend(biases.map(|bias| (bias, vec![1, self.n_channels, 1])));
        if let ChannelNorm::Stored { tensors, .. } = &self.norm {
            all.extend(tensors.iter().map(|name| (name, vec![self.n_channels])));
        }
        all
    }

    /// The norms, in the order in which they run.
    pub fn norms(&self) -> impl Iterator<Item = &NormSource> {
        let of_rows = match &self.norm {
            ChannelNorm::Row(norm) => Some(norm),
            ChannelNorm::Stored { .. } | ChannelNorm::None => None,
        };
        self.pre.iter().chain(of_rows).chain(&self.post)
    }
}

impl ConformerSpec {
    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        let residual = |factor: f32| match factor {
            1.0 => String::new(),
            factor => format!("{factor} · residual + "),
        };
        let guess = match &self.guess {
            None => String::new(),
            Some(guess) => format!("a guess of {} labels, ", guess.labels.n_out()),
        };
        let normed = match self.before_out {
            Some(_) => "normed ",
            None => "",
        };
        let order = match (&self.before_norm, &self.last) {
            (Some(_), _) => "",
            (None, Some(_)) => ", norms behind, and one at the end",
            (None, None) => ", norms behind",
        };
        let convolution = match &self.convolution {
            Some(module) => format!(
                ", {}{} · {}",
                residual(module.resid_factor),
                module.scale,
                module.words()
            ),
            None => String::new(),
        };
        format!(
            "{guess}{}{} · {normed}feed-forward before{convolution}{order}",
            residual(self.before_factor),
            self.before_scale,
        )
    }

    /// The maps, mutable.
    pub fn linears_mut(&mut self) -> impl Iterator<Item = &mut LinearSource> {
        let module = self.convolution.iter_mut();
        let guess = self.guess.iter_mut();
        let guess = guess.flat_map(|guess| [&mut guess.labels, &mut guess.back]);
        [&mut self.before.up, &mut self.before.down]
            .into_iter()
            .chain(module.flat_map(ConvolutionModule::linears_mut))
            .chain(guess)
    }

    /// The norms, mutable.
    pub fn norms_mut(&mut self) -> impl Iterator<Item = &mut NormSource> {
        let module = self.convolution.iter_mut();
        let own = [
            &mut self.before_norm,
            &mut self.before_out,
            &mut self.before_post,
            &mut self.last,
        ];
        own.into_iter()
            .flatten()
            .chain(module.flat_map(ConvolutionModule::norms_mut))
    }
}
