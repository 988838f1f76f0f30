//! One block: its token mixer, its feed-forward layer, and the norms and factors around both.

use attnscope_compute::attention::AttentionSpec;

use super::added_convolution::AddedConvolution;
use super::bottleneck::Bottleneck;
use super::conformer::ConformerSpec;
use super::feed_forward::{FeedForward, MlpSpec};
use super::merge::MergeSpec;
use super::mixers::TokenMixer;
use super::norm_source::NormSource;
use super::patches::MomentRows;
use super::projection::ProjectionSpec;
use super::quirks::{LastMixer, NarrowBranch, SumWeights, TokenBranch};
use super::rows::BlockRow;
use super::self_attention::{Exceptions, SelfSpec};
use super::source::TableSource;

/// Cross-attention: a decoder block's attention to the encoder's output.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossSpec {
    pub attention: AttentionSpec,
    pub projections: ProjectionSpec,
    pub pre: Option<NormSource>,
    /// Applied to the output before it is added to the residual.
    pub out: Option<NormSource>,
    pub post: Option<NormSource>,
    pub exceptions: Exceptions,
    /// One softmax sees the encoder's tokens and the block's own: the maps and the input are those of self-attention, and the outputs of both
    /// are summed before the norm of self-attention's output.
    pub shares_softmax: bool,
}

impl CrossSpec {
    /// Cross-attention without norms.
    pub fn plain(attention: AttentionSpec, projections: ProjectionSpec) -> Self {
        Self {
            attention,
            projections,
            pre: None,
            out: None,
            post: None,
            exceptions: Exceptions::default(),
            shares_softmax: false,
        }
    }
}

/// How a block mixes its tokens.
#[derive(Debug, Clone, PartialEq)]
pub enum Mixer {
    /// Softmax attention.
    Attention(Box<SelfSpec>),
    /// A mixer without softmax attention.
    Other(Box<TokenMixer>),
    /// The block does not mix tokens: it has a feed-forward layer only.
    None,
}

impl Mixer {
    /// Softmax attention without exceptions.
    pub fn attention(attention: AttentionSpec, projections: ProjectionSpec) -> Self {
        Self::Attention(Box::new(SelfSpec {
            attention,
            projections,
            exceptions: Exceptions::default(),
        }))
    }
}

/// One block. Each branch may have a norm before it, on its output, and on the residual after the addition.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockSpec {
    pub mixer: Mixer,
    /// A second mixer in parallel with attention: it reads the same normed input, and both outputs are summed.
    pub parallel_mixer: Option<Box<TokenMixer>>,
    pub attn_pre: Option<NormSource>,
    pub attn_out: Option<NormSource>,
    pub attn_post: Option<NormSource>,
    pub cross: Option<Box<CrossSpec>>,
    pub feed_forward: FeedForward,
    pub mlp_pre: Option<NormSource>,
    pub mlp_out: Option<NormSource>,
    pub mlp_post: Option<NormSource>,
    /// Attention and feed-forward layer both read the block's input (parallel block).
    pub is_parallel: bool,
    /// Factors applied to the attention output and to the feed-forward output.
    pub branch_scales: [f32; 2],
    /// Factors applied to the residual before each of the two outputs is added.
    pub resid_factors: [f32; 2],
    /// Stored weights of the two sums, which come after the factors.
    pub sums: [Option<Box<SumWeights>>; 2],
    /// Adds each branch to its normed input instead of the residual before the norm.
    pub adds_to_normed: bool,
    /// Convolutions over a few tokens of what attention and feed-forward layer give, before it is added.
    pub convolutions: Option<Box<[AddedConvolution; 2]>>,
    /// A mixer that reads what attention and feed-forward layer give, and alone adds to the residual.
    pub last_mixer: Option<Box<LastMixer>>,
    /// A low-rank branch added together with the attention output (LAuReL).
    pub narrow: Option<Box<NarrowBranch>>,
    /// A branch that depends on the token id, added at the end of the block.
    pub by_token: Option<Box<TokenBranch>>,
    /// Name of a stored factor that multiplies the residual at the end of the block. // [1]
    pub resid_scale: Option<String>,
    /// Set for the block of a Conformer, which has a feed-forward layer before attention and a convolution behind it.
    pub conformer: Option<Box<ConformerSpec>>,
    /// Set if the branches add to a narrower residual than the stack's.
    pub bottleneck: Option<Box<Bottleneck>>,
    /// Set if a row holds more than the residual that the block works on.
    pub row: Option<Box<BlockRow>>,
    /// Set for the last block of a stage: how the rows of the next stage are made of those of this one.
    pub merge: Option<Box<MergeSpec>>,
    /// Learned rows that stand before all others in the next block and those behind it.
    pub joined: Option<Box<TableSource>>,
    /// Rows of the moments of a video, which are added to those of their patches behind the block.
    pub moments: Option<Box<MomentRows>>,
}

impl BlockSpec {
    /// A sequential block (attention, then feed-forward) without norms.
    pub fn plain(
        attention: AttentionSpec,
        projections: ProjectionSpec,
        feed_forward: FeedForward,
    ) -> Self {
        Self::mixed(Mixer::attention(attention, projections), feed_forward)
    }

    /// A post-norm block: a norm after each addition to the residual.
    pub fn post_norm(
        attention: AttentionSpec,
        projections: ProjectionSpec,
        mlp: MlpSpec,
        [attn_post, mlp_post]: [Option<NormSource>; 2],
    ) -> Self {
        Self {
            attn_post,
            mlp_post,
            ..Self::plain(attention, projections, FeedForward::Dense(Box::new(mlp)))
        }
    }

    /// A block without norms, with any mixer.
    pub fn mixed(mixer: Mixer, feed_forward: FeedForward) -> Self {
        Self {
            mixer,
            parallel_mixer: None,
            attn_pre: None,
            attn_out: None,
            attn_post: None,
            cross: None,
            feed_forward,
            mlp_pre: None,
            mlp_out: None,
            mlp_post: None,
            is_parallel: false,
            branch_scales: [1.0; 2],
            resid_factors: [1.0; 2],
            sums: [None, None],
            adds_to_normed: false,
            convolutions: None,
            last_mixer: None,
            narrow: None,
            by_token: None,
            resid_scale: None,
            conformer: None,
            bottleneck: None,
            row: None,
            merge: None,
            joined: None,
            moments: None,
        }
    }

    /// The block's self-attention, if that is its mixer.
    pub fn own(&self) -> Option<&SelfSpec> {
        match &self.mixer {
            Mixer::Attention(own) => Some(own),
            Mixer::Other(_) | Mixer::None => None,
        }
    }

    /// The block's self-attention, mutable, if that is its mixer.
    pub fn own_mut(&mut self) -> Option<&mut SelfSpec> {
        match &mut self.mixer {
            Mixer::Attention(own) => Some(own),
            Mixer::Other(_) | Mixer::None => None,
        }
    }

    /// The block's self-attention, if that is its mixer, and cross-attention that shares its softmax.
    pub fn of_one_softmax_mut(&mut self) -> impl Iterator<Item = &mut AttentionSpec> {
        let own = match &mut self.mixer {
            Mixer::Attention(own) => Some(&mut own.attention),
            Mixer::Other(_) | Mixer::None => None,
        };
        let cross = self.cross.as_deref_mut();
        let merged = cross.filter(|cross| cross.shares_softmax);
        own.into_iter()
            .chain(merged.map(|cross| &mut cross.attention))
    }

    /// The mixer that is not softmax attention, used instead of attention, in parallel with it or behind it.
    pub fn other_mixer(&self) -> Option<&TokenMixer> {
        match &self.mixer {
            Mixer::Attention(_) => {
                let last = self.last_mixer.as_ref().map(|last| &last.mixer);
                self.parallel_mixer.as_deref().or(last)
            }
            Mixer::Other(mixer) => Some(mixer),
            Mixer::None => None,
        }
    }

    /// Cross-attention whose softmax sees the block's own tokens too.
    pub fn merged(&self) -> Option<&CrossSpec> {
        self.cross.as_deref().filter(|cross| cross.shares_softmax)
    }

    /// Cross-attention that has maps of its own.
    pub fn cross_apart(&self) -> Option<&CrossSpec> {
        self.cross.as_deref().filter(|cross| !cross.shares_softmax)
    }

    /// Whether what a branch gives, or its keys and values, depend on the tokens just before, or around, through convolutions.
    pub fn convolves(&self) -> bool {
        let of_keys = |own: &SelfSpec| own.projections.kv_convolutions.is_some();
        let is_around = self.feed_forward.mixes_rows();
        is_around || self.convolutions.is_some() || self.own().is_some_and(of_keys)
    }

    /// Width of what attention and feed-forward layer add, in a stack of this width.
    pub fn d_added(&self, d_model: usize) -> usize {
        let bottleneck = self.bottleneck.as_deref();
        bottleneck.map_or(d_model, |of| of.into.map.n_out())
    }

    /// The spec of the block's self-attention, if that is its mixer.
    pub fn attention(&self) -> Option<&AttentionSpec> {
        Some(&self.own()?.attention)
    }
}
