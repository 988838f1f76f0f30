//! What a model is made of, as data: its blocks, in order, and what stands around them.

pub use super::decoder_start::{DecoderStart, Forced, ReadsAgain};
use super::difference::DifferenceSource;
use super::embed_spec::EmbedSpec;
use super::exception::Exceptions;
use super::feed_forward::{FeedForward, MlpSpec};
use super::global_tokens::GlobalMaps;
use super::labels::Labels;
use super::mixer::TokenMixer;
use super::narrow::NarrowBranch;
use super::probed::ProbeSpec;
pub use super::projected::{LatentSpec, RelativeSource};
use super::recurrent::Recurrence;
use super::rows::{BlockRow, KeySharing, RowSpec};
use super::source::{LinearSource, NormSource, TableSource};
use super::timing::Timing;
use super::token_branch::TokenBranch;
use crate::attention::AttentionSpec;
use crate::checkpoint::Knob;
use crate::ops::Activation;
use crate::place::Stack;
use crate::prompt::{Limits, Look, PositionRule, Starts};

/// Queries, keys, values and output of one attention.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectionSpec {
    pub q: LinearSource,
    pub k: LinearSource,
    pub v: LinearSource,
    pub o: LinearSource,
    /// Norms of queries and keys before rope: over each head where their width is d_head, else over all of them.
    pub q_norm: Option<NormSource>,
    pub k_norm: Option<NormSource>,
    /// A norm of values over each head.
    pub v_norm: Option<NormSource>,
    pub latent: Option<Box<LatentSpec>>,
    /// Queries, keys and values are brought between −clip and clip.
    pub clip: Option<f32>,
    /// Learned sink logits. // [head]
    pub sinks: Option<String>,
    /// The norms of queries and keys come after rope, not before it.
    pub norms_after_rope: bool,
    /// Learned values of a bias by buckets that only this attention has. // [bucket, head]
    pub bucket_values: Option<TableSource>,
    /// Learned vectors of distances.
    pub relative: Option<Box<RelativeSource>>,
    /// A map of the input whose sigmoid multiplies what heads find, value by value. // [n_heads · d_value]
    pub gate: Option<LinearSource>,
    /// What the second half of heads finds is taken away from what the first half finds.
    pub difference: Option<Box<DifferenceSource>>,
    /// Keys and values are those of another layer, or left for others.
    pub shared: Option<Box<KeySharing>>,
    /// Maps of the tokens that see all others, where an attention has such.
    pub global: Option<Box<GlobalMaps>>,
}

impl ProjectionSpec {
    pub fn plain(q: LinearSource, k: LinearSource, v: LinearSource, o: LinearSource) -> Self {
        Self {
            q,
            k,
            v,
            o,
            q_norm: None,
            k_norm: None,
            v_norm: None,
            latent: None,
            clip: None,
            sinks: None,
            norms_after_rope: false,
            bucket_values: None,
            relative: None,
            gate: None,
            difference: None,
            shared: None,
            global: None,
        }
    }

    /// Whether keys and values are those of an earlier layer.
    pub fn takes_keys(&self) -> bool {
        matches!(self.shared.as_deref(), Some(KeySharing::Taken { .. }))
    }

    /// Whether each head has rows and columns of its own in the maps: not through a latent vector, nor with a partner.
    pub fn is_by_head(&self) -> bool {
        self.latent.is_none() && self.difference.is_none()
    }
}

/// A branch's attention to the encoder's output.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossSpec {
    pub attention: AttentionSpec,
    pub projections: ProjectionSpec,
    pub pre: Option<NormSource>,
    /// On what is added, before it is added.
    pub out: Option<NormSource>,
    pub post: Option<NormSource>,
    pub exceptions: Exceptions,
}

impl CrossSpec {
    /// One without norms.
    pub fn plain(attention: AttentionSpec, projections: ProjectionSpec) -> Self {
        Self {
            attention,
            projections,
            pre: None,
            out: None,
            post: None,
            exceptions: Exceptions::default(),
        }
    }
}

/// Attention of a block's tokens to each other.
#[derive(Debug, Clone, PartialEq)]
pub struct SelfSpec {
    pub attention: AttentionSpec,
    pub projections: ProjectionSpec,
    pub exceptions: Exceptions,
}

/// What lets the tokens of a block see each other.
#[derive(Debug, Clone, PartialEq)]
pub enum Mixer {
    /// Softmax attention.
    Attention(Box<SelfSpec>),
    /// Anything else.
    Other(Box<TokenMixer>),
    /// Nothing: the block has a feed-forward layer only.
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
    /// What mixes the tokens beside attention: it reads the same norm, and what it adds is added to what attention adds.
    pub beside: Option<Box<TokenMixer>>,
    pub attn_pre: Option<NormSource>,
    pub attn_out: Option<NormSource>,
    pub attn_post: Option<NormSource>,
    pub cross: Option<Box<CrossSpec>>,
    pub feed_forward: FeedForward,
    pub mlp_pre: Option<NormSource>,
    pub mlp_out: Option<NormSource>,
    pub mlp_post: Option<NormSource>,
    /// Both branches read the block's input.
    pub is_parallel: bool,
    /// Multiplies what attention and what the feed-forward layer adds.
    pub branch_scales: [f32; 2],
    /// Multiplies what each of the two is added to.
    pub resid_factors: [f32; 2],
    /// A branch is added to its normed input, not to the residual before the norm.
    pub adds_to_normed: bool,
    /// What is added beside what attention adds: its normed input, and a narrow map of it.
    pub narrow: Option<Box<NarrowBranch>>,
    /// What the block adds last, for the token alone.
    pub by_token: Option<Box<TokenBranch>>,
    /// A stored number that multiplies the residual at the end of the block. // [1]
    pub resid_scale: Option<String>,
    /// A row holds more than the residual that the block works on.
    pub row: Option<Box<BlockRow>>,
}

impl BlockSpec {
    /// A block without norms, one branch after the other.
    pub fn plain(
        attention: AttentionSpec,
        projections: ProjectionSpec,
        feed_forward: FeedForward,
    ) -> Self {
        Self::mixed(Mixer::attention(attention, projections), feed_forward)
    }

    /// A block whose branches, attention and feed-forward, each have a norm behind their sum with the residual.
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

    /// A block without norms, whose tokens are mixed by anything.
    pub fn mixed(mixer: Mixer, feed_forward: FeedForward) -> Self {
        Self {
            mixer,
            beside: None,
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
            adds_to_normed: false,
            narrow: None,
            by_token: None,
            resid_scale: None,
            row: None,
        }
    }

    /// Its self-attention; `None` where something else mixes its tokens.
    pub fn own(&self) -> Option<&SelfSpec> {
        match &self.mixer {
            Mixer::Attention(own) => Some(own),
            Mixer::Other(_) | Mixer::None => None,
        }
    }

    /// Its self-attention, to be changed; `None` where something else mixes its tokens.
    pub fn own_mut(&mut self) -> Option<&mut SelfSpec> {
        match &mut self.mixer {
            Mixer::Attention(own) => Some(own),
            Mixer::Other(_) | Mixer::None => None,
        }
    }

    /// What mixes its tokens without attention, in its place or beside it.
    pub fn other_mixer(&self) -> Option<&TokenMixer> {
        match &self.mixer {
            Mixer::Attention(_) => self.beside.as_deref(),
            Mixer::Other(mixer) => Some(mixer),
            Mixer::None => None,
        }
    }

    /// Whether its tokens are mixed by attention alone, whose heads write what they find as it is.
    pub fn only_attends(&self) -> bool {
        let plain = |own: &SelfSpec| own.projections.gate.is_none();
        self.own().is_some_and(plain) && self.beside.is_none()
    }

    /// The attention of its tokens to each other; `None` where something else mixes them.
    pub fn attention(&self) -> Option<&AttentionSpec> {
        Some(&self.own()?.attention)
    }
}

/// What runs one after another on a residual stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Layers {
    Blocks(Vec<BlockSpec>),
    /// A recurrent network, which is one layer.
    Recurrent(Recurrence),
}

/// What turns the embeddings of a text into its last residual.
#[derive(Debug, Clone, PartialEq)]
pub struct StackSpec {
    pub stack: Stack,
    pub embed: EmbedSpec,
    pub layers: Layers,
    /// Learned values of a bias by buckets, shared by all blocks. // [bucket, head]
    pub bucket_values: Option<TableSource>,
    pub final_norm: Option<NormSource>,
    /// A row holds more than one residual.
    pub rows: Option<Box<RowSpec>>,
}

/// What stands between the last residual and the unembedding.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformSpec {
    pub dense: LinearSource,
    pub activation: Option<Activation>,
    pub norm: Option<NormSource>,
}

/// From the last residual to logits.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadSpec {
    pub transform: Option<TransformSpec>,
    pub unembed: LinearSource,
    /// A second map, of the second token, where outputs are the mean of both maps.
    pub second: Option<LinearSource>,
    /// Multiplies the products, before the bias of `extra_bias`.
    pub scale: f32,
    /// cap · tanh(logit / cap).
    pub softcap: Option<f32>,
    /// Added to the logits last. // [d_vocab]
    pub extra_bias: Option<String>,
    /// What its outputs stand for, where they are no words.
    pub labels: Option<Box<Labels>>,
    /// What makes one row of all tokens before the head's map.
    pub probe: Option<Box<ProbeSpec>>,
}

impl HeadSpec {
    pub fn plain(unembed: LinearSource) -> Self {
        Self {
            transform: None,
            unembed,
            second: None,
            scale: 1.0,
            softcap: None,
            extra_bias: None,
            labels: None,
            probe: None,
        }
    }
}

/// A whole model, and how its configuration was read.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    pub family: &'static str,
    pub d_model: usize,
    pub d_vocab: usize,
    /// Positions the model has; `None` when nothing limits them.
    pub n_ctx: Option<usize>,
    pub positions: PositionRule,
    /// One stack, or encoder and decoder.
    pub stacks: Vec<StackSpec>,
    pub head: Option<HeadSpec>,
    /// The head predicts the next token, so a text has a loss.
    pub is_causal_lm: bool,
    /// Set for models of two stacks.
    pub decoder_start: Option<DecoderStart>,
    /// How cross-attention tells the time of a token.
    pub timing: Option<Timing>,
    pub knobs: Vec<Knob>,
    pub unread_keys: Vec<String>,
}

impl StackSpec {
    /// The only stack of a model.
    pub fn only(embed: EmbedSpec, blocks: Vec<BlockSpec>, final_norm: Option<NormSource>) -> Self {
        Self {
            stack: Stack::Only,
            embed,
            layers: Layers::Blocks(blocks),
            bucket_values: None,
            final_norm,
            rows: None,
        }
    }

    /// Its blocks; none where it is a recurrent network.
    pub fn blocks(&self) -> &[BlockSpec] {
        match &self.layers {
            Layers::Blocks(blocks) => blocks,
            Layers::Recurrent(_) => &[],
        }
    }

    /// Its blocks, to be changed; none where it is a recurrent network.
    pub fn blocks_mut(&mut self) -> &mut [BlockSpec] {
        match &mut self.layers {
            Layers::Blocks(blocks) => blocks,
            Layers::Recurrent(_) => &mut [],
        }
    }

    /// Its recurrent network; `None` where it has blocks.
    pub fn recurrence(&self) -> Option<&Recurrence> {
        match &self.layers {
            Layers::Blocks(_) => None,
            Layers::Recurrent(recurrence) => Some(recurrence),
        }
    }

    /// Its recurrent network, to be changed; `None` where it has blocks.
    pub fn recurrence_mut(&mut self) -> Option<&mut Recurrence> {
        match &mut self.layers {
            Layers::Blocks(_) => None,
            Layers::Recurrent(recurrence) => Some(recurrence),
        }
    }
}

impl ModelSpec {
    /// A model of one stack that counts positions from 0; its width is that of its table of tokens.
    pub fn of_one_stack(family: &'static str, stack: StackSpec, head: Option<HeadSpec>) -> Self {
        Self {
            family,
            d_model: stack.embed.tokens.width,
            d_vocab: stack.embed.tokens.n_rows,
            n_ctx: None,
            positions: PositionRule::Index,
            stacks: vec![stack],
            head,
            is_causal_lm: false,
            decoder_start: None,
            timing: None,
            knobs: Vec::new(),
            unread_keys: Vec::new(),
        }
    }

    /// The stack whose last residual the head reads: the only one, or the decoder.
    pub fn main_stack(&self) -> &StackSpec {
        &self.stacks[self.stacks.len() - 1]
    }

    /// Width of the last hidden state.
    pub fn d_hidden(&self) -> usize {
        match self.main_stack().recurrence() {
            Some(Recurrence::Writer(writer)) => writer.combine.n_out(),
            _ => self.d_model,
        }
    }

    /// Width of what the layers of a stack read: tokens as they are embedded, where a recurrent network follows.
    pub fn d_input(&self, stack: &StackSpec) -> usize {
        match stack.layers {
            Layers::Recurrent(_) => stack.embed.tokens.width,
            Layers::Blocks(_) => match &stack.rows {
                Some(rows) => rows.width(),
                None => self.d_model,
            },
        }
    }

    pub fn is_encoder_decoder(&self) -> bool {
        self.stacks.len() == 2
    }

    /// Whether positions are added to embeddings, from as many rows as there are.
    pub fn stores_positions(&self) -> bool {
        let mut stacks = self.stacks.iter();
        stacks.any(|stack| stack.embed.positions.is_some())
    }

    /// Positions that a decoder stores, where they are counted from the first row, or from one after it.
    fn n_ctx_of_decoder(&self) -> Option<usize> {
        let decoder = self.main_stack().embed.positions.as_ref();
        let n_rows = decoder.filter(|_| self.is_encoder_decoder())?.n_rows()?;
        match self.positions {
            PositionRule::Index => Some(n_rows),
            PositionRule::Shifted { by } => Some(n_rows.saturating_sub(by)),
            _ => None,
        }
    }

    /// How a picture becomes tokens, where the model reads pictures.
    pub fn look(&self) -> Option<Look> {
        let patches = self.stacks[0].embed.patches.as_ref();
        patches.map(|patches| patches.look)
    }

    /// What a prompt may be.
    pub fn limits(&self) -> Limits {
        let hears = self.stacks[0].embed.sound.as_deref();
        let sound = hears.map(|stem| stem.rule);
        Limits {
            d_vocab: if sound.is_some() {
                self.d_vocab
            } else {
                self.stacks[0].embed.tokens.n_rows
            },
            d_vocab_target: self
                .decoder_start
                .as_ref()
                .filter(|start| start.has_own_vocabulary)
                .map(|_| self.d_vocab),
            n_ctx: self.n_ctx,
            n_ctx_target: self.n_ctx_of_decoder(),
            is_n_ctx_hard: self.stores_positions(),
            positions: self.positions,
            start_token: self.decoder_start.as_ref().map(|start| start.start_token),
            look: self.look(),
            starts: self
                .decoder_start
                .as_ref()
                .map_or(Starts::NONE, DecoderStart::starts),
            sound,
        }
    }
}
