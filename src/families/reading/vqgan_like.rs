//! Encoders of VQGANs: residual blocks of convolutions in levels of fewer and fewer places, between some of which all places attend to each
//! other. What maps their last states to codes is not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_prompt::Size;
use attnscope_spec::{
    BlockSpec, Chain, ChainStep, FeedForward, LinearSource, ModelSpec, MomentConvolution,
    NormSource, PlaneConvolution, ProjectionSpec,
};

use super::chained::{self, Chained, Pictures, activated, batch_norm, channels, same};
use super::hiera_like::by_stage;
use super::processor::Processor;
use super::{even_heads, linear, note_attention};

/// How a family of this kind differs from the others.
#[derive(Debug, Clone, Copy)]
pub struct VqganLike {
    pub names: Names,
    pub attends: Attends,
    /// The key of the number of heads; `None` if there is one, whose maps are stored as convolutions.
    pub n_heads: Option<&'static str>,
    /// The configuration's defaults: width of the first level, factors of the levels, blocks of each, width of what is given.
    pub base_channels: usize,
    pub multiplier: &'static [u64],
    pub n_blocks: usize,
    pub latent: usize,
    /// Set if the encoder may give a mean and a variance for each latent channel.
    pub doubles: bool,
    pub processor: Processor,
    /// How pictures are resized where no file says it, of how many pixels along a side a last place is made.
    pub size: fn(&mut Reader<'_>, usize) -> Result<Size>,
    /// The key of how many moments of a video become one, and its default: convolutions over them follow.
    pub moments: Option<(&'static str, usize)>,
    /// Keys of other parts, and of training.
    pub aside: &'static [&'static str],
}

/// Where the tensors of a level and of the blocks behind all levels are; `{}` stands for the number of a block.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    pub levels: &'static str,
    pub block: &'static str,
    pub attention: &'static str,
    pub norm: &'static str,
    pub middle: &'static str,
    pub middle_norm: &'static str,
    /// Queries, keys, values and outputs.
    pub maps: [&'static str; 4],
}

/// Names of the code that the others come from.
pub const NAMES: Names = Names {
    levels: "down",
    block: "block.{}",
    attention: "attn.{}",
    norm: "attn.{}.norm",
    middle: "mid",
    middle_norm: "attn_1.norm",
    maps: ["q", "k", "v", "proj_out"],
};

/// The levels whose blocks are each followed by attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attends {
    /// Those of as many rows as a key lists, for pictures with the side that another key states; both have a default.
    Sides([&'static str; 2], &'static [u64], usize),
    /// Those that a key lists, and its default.
    Levels(&'static str, &'static [u64]),
    Last,
}

/// Groups and epsilon of all group norms, and the epsilon of batch norms, which no key states.
const N_GROUPS: usize = 32;
const EPS: f64 = 1e-6;
const BATCH_EPS: f64 = 1e-5;

/// The key of the width of all levels with attention, where heads are counted.
const HIDDEN: &str = "hidden_size";

/// What the names of the encoder's tensors begin with.
const BASE: &str = "encoder.";

/// Reads a family of this kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: VqganLike,
) -> Result<ModelSpec> {
    like.aside.iter().for_each(|key| {
        reader.value(key);
    });
    let n_channels = channels(reader, "in_channels")?;
    let default = |key: &str| Origin::Default(key.to_owned());
    let mut size = |knob, key: &str, usual| reader.size_or(knob, key, usual, default(key));
    let first = size("d_embed", "base_channels", like.base_channels)?;
    let n_blocks = size("n_blocks", "num_res_blocks", like.n_blocks)?;
    let latent = size("d_latent", "latent_channels", like.latent)?;
    let n_heads = match like.n_heads {
        Some(key) => size("n_heads", key, 1)?,
        None => 1,
    };
    let n_moments = match like.moments {
        Some((key, usual)) => size("n_video_frames", key, usual)?,
        None => 1,
    };
    let widths: Vec<usize> = by_stage(reader, "channel_multiplier", like.multiplier)?
        .into_iter()
        .map(|by| first.saturating_mul(by))
        .collect();
    let doubles = like.doubles && reader.flag_or("doubles_latent", "double_latent", false)?;
    let attending = like.attending(reader, widths.len())?;
    let n_stored = checkpoint.tensors.len();
    if n_blocks.saturating_mul(widths.len()) > n_stored || n_moments > n_stored {
        let problem = format!("more blocks than the {n_stored} tensors that are stored");
        return Err(Error::config(reader.path(), "num_res_blocks", problem));
    }
    let side = 1usize << (widths.len() - 1).min(16);
    let size = (like.size)(reader, side)?;
    let mut made = Made {
        like,
        reader,
        n_heads,
        stack: Chained::new(n_channels),
    };
    made.stack
        .convolve(same(&format!("{BASE}conv_in"), first, 3));
    for (level, width) in widths.iter().copied().enumerate() {
        let at = format!("{BASE}{}.{level}", like.names.levels);
        for nth in 0..n_blocks {
            let name = |of: &str| format!("{at}.{}", of.replace("{}", &nth.to_string()));
            made.residual(&name(like.names.block), width)?;
            if attending[level] {
                made.attention([name(like.names.attention), name(like.names.norm)])?;
            }
        }
        if level + 1 < widths.len() {
            made.stack.convolve(PlaneConvolution {
                strides: [2; 2],
                padding: [0, 1],
                ..same(&format!("{at}.downsample.conv"), width, 3)
            });
        }
    }
    let at = format!("{BASE}{}", like.names.middle);
    let last = made.stack.width;
    made.residual(&format!("{at}.block_1"), last)?;
    let norm = format!("{at}.{}", like.names.middle_norm);
    made.attention([format!("{at}.attn_1"), norm])?;
    made.residual(&format!("{at}.block_2"), last)?;
    let norm = group_norm(&format!("{BASE}norm_out"), last);
    made.stack.extend(activated(norm, Activation::Silu));
    let n_out = if doubles { 2 * latent } else { latent };
    made.stack
        .convolve(same(&format!("{BASE}conv_out"), n_out, 3));
    if like.moments.is_some() {
        made.over_moments(n_moments, n_blocks);
    }
    let Made { stack, reader, .. } = made;
    let pictures = Pictures::plain(like.processor, size);
    stack.model(family, checkpoint, reader, pictures)
}

impl VqganLike {
    /// Which levels have attention.
    fn attending(&self, reader: &mut Reader<'_>, n: usize) -> Result<Vec<bool>> {
        Ok(match self.attends {
            Attends::Last => (0..n).map(|level| level + 1 == n).collect(),
            Attends::Levels(key, usual) => {
                let listed = reader.numbers(key)?.unwrap_or(usual.to_vec());
                (0..n)
                    .map(|level| listed.contains(&(level as u64)))
                    .collect()
            }
            Attends::Sides([listed, whole], usual, side) => {
                let listed = reader.numbers(listed)?.unwrap_or(usual.to_vec());
                let by = Origin::Default(whole.to_owned());
                let side = reader.size_or("picture_side", whole, side, by)?;
                let of = |level: usize| (side >> level.min(63)) as u64;
                (0..n).map(|level| listed.contains(&of(level))).collect()
            }
        })
    }
}

/// A group norm of a width.
fn group_norm(at: &str, width: usize) -> NormSource {
    chained::group_norm(at, (N_GROUPS, EPS), width)
}

/// A model in the making.
struct Made<'a, 'r> {
    like: VqganLike,
    reader: &'a mut Reader<'r>,
    n_heads: usize,
    stack: Chained,
}

impl Made<'_, '_> {
    /// Two convolutions behind norms, added to what they read.
    fn residual(&mut self, at: &str, n_out: usize) -> Result<()> {
        let n_in = self.stack.width;
        if let Some(width) = [n_in, n_out]
            .into_iter()
            .find(|n| !n.is_multiple_of(N_GROUPS))
        {
            let problem = format!("{N_GROUPS} groups do not divide a width of {width}");
            return Err(Error::config(self.reader.path(), "base_channels", problem));
        }
        let name = |name: &str| format!("{at}.{name}");
        let normed = |of: &str, width| activated(group_norm(&name(of), width), Activation::Silu);
        let convolved = |of: &str, n_in: usize, n_wide: usize| {
            let convolution = same(&name(of), n_out, n_wide);
            ChainStep::Convolution(PlaneConvolution {
                n_in,
                ..convolution
            })
        };
        let mut branch = normed("norm1", n_in).to_vec();
        branch.push(convolved("conv1", n_in, 3));
        branch.extend(normed("norm2", n_out));
        branch.push(convolved("conv2", n_out, 3));
        let beside = if n_in == n_out {
            Vec::new()
        } else {
            vec![convolved("nin_shortcut", n_in, 1)]
        };
        let chains = [branch, beside].map(|steps| Chain::plain(n_in, steps));
        self.stack.push(ChainStep::Sum(Box::new(chains)));
        Ok(())
    }

    /// Attention of all places to each other, and its norm.
    fn attention(&mut self, [at, norm]: [String; 2]) -> Result<()> {
        let width = self.stack.width;
        let d_head = match self.like.n_heads {
            Some(key) => {
                let stated = self
                    .reader
                    .value(HIDDEN)
                    .and_then(serde_json::Value::as_u64);
                if stated.is_some_and(|stated| stated != width as u64) {
                    let problem = format!("expected {width}, the width of a level with attention");
                    return Err(Error::config(self.reader.path(), HIDDEN, problem));
                }
                even_heads(self.reader, key, width, self.n_heads)?
            }
            None => width,
        };
        let attention = AttentionSpec::plain(self.n_heads, self.n_heads, d_head, false);
        if self.stack.is_empty() {
            note_attention(self.reader, &attention, Origin::Family);
        }
        let is_kernel = self.like.n_heads.is_none();
        let [q, k, v, o] = self.like.names.maps.map(|name| {
            let at = format!("{at}.{name}");
            let (weight, bias) = (format!("{at}.weight"), Some(format!("{at}.bias")));
            if is_kernel {
                LinearSource::of_patch(weight, bias, vec![width, 1, 1], width)
            } else {
                linear(&at, width, width, true)
            }
        });
        let maps = ProjectionSpec::plain(q, k, v, o);
        self.stack.block(BlockSpec {
            attn_pre: Some(group_norm(&norm, width)),
            ..BlockSpec::plain(attention, maps, FeedForward::None)
        });
        Ok(())
    }

    /// Convolutions over moments, all of which begin as the same: some leave half as many, and residual blocks follow.
    fn over_moments(&mut self, n_moments: usize, n_blocks: usize) {
        let said = "a picture is read as a video that stands still: each of {n} frames is this picture, and one shows what heads see";
        self.reader
            .remark(said.replace("{n}", &n_moments.to_string()));
        let width = self.stack.width;
        let moments = |at: String, [n_wide, stride]: [usize; 2]| {
            ChainStep::Moments(MomentConvolution {
                plane: PlaneConvolution {
                    n_in: width,
                    ..same(&at, width, 3)
                },
                n_wide,
                stride,
                padding: 2,
            })
        };
        self.stack.push(ChainStep::Repeat(n_moments));
        for nth in 0..n_moments.ilog2() {
            let at = format!("{BASE}time_conv.{nth}.conv.conv");
            self.stack.push(moments(at, [4, 2]));
            self.stack.push(ChainStep::Activation(Activation::Silu));
        }
        for nth in 0..n_blocks {
            let at = format!("{BASE}time_res_stack.{nth}");
            let norm = |name: &str| {
                let norm = batch_norm(&format!("{at}.{name}"), width, BATCH_EPS);
                activated(norm, Activation::Silu)
            };
            let mut branch = norm("norm1").to_vec();
            branch.push(moments(format!("{at}.conv1.conv"), [3, 1]));
            branch.extend(norm("norm2"));
            branch.push(moments(format!("{at}.conv2.conv"), [3, 1]));
            self.stack.push(ChainStep::residual(width, branch));
        }
    }
}
