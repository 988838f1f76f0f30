//! Encoders of pictures with convolutions before, between and behind their layers: a stack in the making.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_prompt::{PicturePreprocessing, Size};
use attnscope_spec::{
    BlockRow, BlockSpec, Chain, ChainStep, EmbedSpec, Joining, MergeSpec, ModelSpec, NormSource,
    PatchLayout, PatchMap, PatchSpec, PlaneConvolution, StackSpec, TableSource,
};

use super::processor::{Processor, preprocessing};

/// The steps and blocks of a stack, in order.
pub struct Chained {
    n_channels: usize,
    /// Width of what the last step gives.
    pub width: usize,
    /// Widths of what is kept for later steps.
    kept: Vec<usize>,
    /// What the steps behind the last block read.
    begun: Chain,
    /// What stands before the first block.
    first: Option<Chain>,
    blocks: Vec<BlockSpec>,
}

impl Chained {
    /// A stack that begins with the channels of a picture, or with rows of this width.
    pub fn new(n_channels: usize) -> Self {
        Self {
            n_channels,
            width: n_channels,
            kept: Vec::new(),
            begun: Chain::plain(n_channels, Vec::new()),
            first: None,
            blocks: Vec::new(),
        }
    }

    pub fn push(&mut self, step: ChainStep) {
        self.begun.steps.push(step);
        (self.width, self.kept) = (self.begun.n_out(), self.begun.left());
    }

    pub fn extend(&mut self, steps: impl IntoIterator<Item = ChainStep>) {
        steps.into_iter().for_each(|step| self.push(step));
    }

    /// A convolution, with this number of outputs and the number of inputs that there are.
    pub fn convolve(&mut self, convolution: PlaneConvolution) {
        self.push(ChainStep::Convolution(PlaneConvolution {
            n_in: self.width,
            ..convolution
        }));
    }

    /// Whether no layer is there yet.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub fn block(&mut self, block: BlockSpec) {
        self.end_chain();
        let n_kept = self.kept.iter().sum();
        let row = (n_kept > 0).then(|| {
            Box::new(BlockRow {
                d_model: self.width,
                streams: None,
                n_kept,
                beside: false,
                shortcut: None,
                join: None,
            })
        });
        self.blocks.push(BlockSpec { row, ..block });
    }

    /// Puts the steps so far before the first block, or behind the last.
    fn end_chain(&mut self) {
        let next = Chain {
            kept: self.kept.clone(),
            ..Chain::plain(self.width, Vec::new())
        };
        let chain = std::mem::replace(&mut self.begun, next);
        match self.blocks.last_mut() {
            None => self.first = Some(chain),
            Some(last) if !chain.steps.is_empty() => {
                last.merge = Some(Box::new(MergeSpec {
                    rows: None,
                    joining: Joining::Chain(Box::new(chain)),
                    behind: None,
                    places: None,
                }));
            }
            Some(_) => {}
        }
    }

    /// The whole model, whose last hidden states are what the last step gives.
    ///
    /// # Errors
    /// When the processor's file has a value that is impossible, or no picture holds a place.
    pub fn model(
        self,
        family: &'static str,
        checkpoint: &Checkpoint,
        reader: &mut Reader<'_>,
        pictures: Pictures,
    ) -> Result<ModelSpec> {
        let n_channels = self.n_channels;
        let (chain, blocks, d_model) = self.ended();
        let embed = pictures.embedding(checkpoint, reader, n_channels, chain)?;
        let stack = StackSpec::only(embed, blocks, None);
        Ok(ModelSpec {
            d_model,
            ..ModelSpec::of_one_stack(family, stack, None)
        })
    }

    /// The whole model, of which the first step reads rows of a table in place of channels.
    pub fn of_tokens(self, family: &'static str, tokens: TableSource) -> ModelSpec {
        let (chain, blocks, d_model) = self.ended();
        let embed = EmbedSpec {
            chain: Some(Box::new(chain)),
            ..EmbedSpec::plain(tokens)
        };
        let stack = StackSpec::only(embed, blocks, None);
        ModelSpec {
            d_model,
            ..ModelSpec::of_one_stack(family, stack, None)
        }
    }

    /// What stands before the first block, the blocks, and the width of what is given.
    fn ended(mut self) -> (Chain, Vec<BlockSpec>, usize) {
        self.end_chain();
        (self.first.unwrap_or(self.begun), self.blocks, self.width)
    }
}

/// The pictures that such an encoder takes.
#[derive(Debug, Clone, Copy)]
pub struct Pictures {
    pub processor: Processor,
    /// How they are resized where no file says it.
    pub size: Size,
    /// What the model itself subtracts and divides by.
    pub then: ([f32; 3], [f32; 3]),
}

impl Pictures {
    pub const fn plain(processor: Processor, size: Size) -> Self {
        Self {
            processor,
            size,
            then: ([0.0; 3], [1.0; 3]),
        }
    }

    /// How a picture becomes the places of the first layer.
    fn embedding(
        self,
        checkpoint: &Checkpoint,
        reader: &mut Reader<'_>,
        n_channels: usize,
        chain: Chain,
    ) -> Result<EmbedSpec> {
        let convolutions: Vec<&PlaneConvolution> = convolutions_of(&chain).collect();
        let patch = convolutions
            .iter()
            .map(|one| one.strides[0])
            .product::<usize>()
            .max(1);
        // Convolutions with zeros on all sides round up.
        let rounds_up = patch > 1
            && convolutions
                .iter()
                .all(|one| one.padding[0] > 0 || one.n_wide == 1);
        let (margin, overlap) = if rounds_up { (patch / 2, 1) } else { (0, 0) };
        let plain = PicturePreprocessing {
            n_channels,
            rescale: 1.0 / 255.0,
            margin,
            overlap,
            ..PicturePreprocessing::of_patches([patch; 2])
        };
        let preprocessing = preprocessing(checkpoint, reader, self.processor, plain, self.size)?;
        let grid = preprocessing.fixed_size().map(|size| chain.to(size));
        if grid.is_some_and(|grid| grid.contains(&0)) {
            let problem = "expected pictures that hold at least one place of the first layer";
            return Err(Error::config(reader.path(), "image_size", problem));
        }
        let n_tokens = grid.map_or(1, |[rows, columns]| rows * columns);
        let by = Origin::Derived("the size of pictures".to_owned());
        reader.note("n_tokens", n_tokens, by);
        let first = convolutions.first().map(|one| one.weight.clone());
        let tokens = TableSource {
            tensor: first.unwrap_or_default(),
            n_rows: n_tokens,
            width: chain.n_out(),
        };
        let (mean, std) = self.then;
        let spec = PatchSpec {
            preprocessing: preprocessing.then(mean, std),
            map: PatchMap::Chain(Box::new(chain)),
            value_norm: None,
            row_norm: None,
            layout: PatchLayout::ChannelsFirst,
            n_frames: 1,
            firsts: Vec::new(),
            positions: None,
            lines: None,
        };
        Ok(EmbedSpec {
            patches: Some(Box::new(spec)),
            ..EmbedSpec::plain(tokens)
        })
    }
}

/// The convolutions that all places pass, one after another.
fn convolutions_of(chain: &Chain) -> impl Iterator<Item = &PlaneConvolution> {
    chain.steps.iter().filter_map(|step| match step {
        ChainStep::Convolution(convolution) => Some(convolution),
        _ => None,
    })
}

/// The number of channels of a picture.
///
/// # Errors
/// When it is none of a picture's.
pub fn channels(reader: &mut Reader<'_>, key: &str) -> Result<usize> {
    let n = reader.size_or("n_channels", key, 3, Origin::Default(key.to_owned()))?;
    if [1, 3].contains(&n) {
        return Ok(n);
    }
    let problem = format!("expected 1 channel, grey, or 3 colours, found {n}");
    Err(Error::config(reader.path(), key, problem))
}

/// A convolution with a bias over `n_wide` × `n_wide` places, at each of them, with zeros around; its number of inputs is that of what
/// stands before it.
pub fn same(at: &str, n_out: usize, n_wide: usize) -> PlaneConvolution {
    PlaneConvolution {
        weight: format!("{at}.weight"),
        bias: Some(format!("{at}.bias")),
        n_in: 0,
        n_out,
        is_by_channel: false,
        is_line: false,
        apart: 1,
        n_wide,
        strides: [1; 2],
        padding: [n_wide / 2; 2],
        is_activated: false,
    }
}

/// A convolution with a bias over `n_wide` rows, at each of them, with zeros before and behind.
pub fn line(at: &str, n_out: usize, n_wide: usize) -> PlaneConvolution {
    PlaneConvolution {
        is_line: true,
        ..same(at, n_out, n_wide)
    }
}

/// A norm of groups of channels over all places.
pub fn group_norm(at: &str, (n_groups, eps): (usize, f64), width: usize) -> NormSource {
    NormSource {
        groups: Some(n_groups),
        bias: Some(format!("{at}.bias")),
        ..NormSource::new(NormKind::Fixed, eps, width, Some(format!("{at}.weight")))
    }
}

/// A norm of each channel by what training measured.
pub fn batch_norm(at: &str, width: usize, eps: f64) -> NormSource {
    let stored = |what: &str| format!("{at}.{what}");
    NormSource {
        bias: Some(stored("bias")),
        statistics: Some(["running_mean", "running_var"].map(stored)),
        ..NormSource::new(NormKind::Fixed, eps, width, Some(stored("weight")))
    }
}

/// A norm and an activation behind it.
pub fn activated(norm: NormSource, activation: Activation) -> [ChainStep; 2] {
    [
        ChainStep::Norm(Box::new(norm)),
        ChainStep::Activation(activation),
    ]
}
