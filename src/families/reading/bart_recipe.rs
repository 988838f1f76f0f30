//! How families that use BART's names differ from it, as data.

use attnscope_spec::DecoderInput;

/// How a family of this kind differs from BART.
#[derive(Debug, Clone, Copy)]
pub struct BartLike {
    pub positions: Positions,
    /// Pre-norm, with a final norm after the last block; otherwise post-norm.
    pub norms_before: bool,
    pub norms_embedding: bool,
    /// The decoder normalises embeddings before it adds positions.
    pub norms_before_positions: bool,
    /// Keys of the vocabulary's size, and of the target's if it has its own.
    pub vocabulary: [&'static str; 2],
    pub shared_words: SharedWords,
    /// The stored matrix of an untied head.
    pub head: &'static str,
    /// No tensor shows that the head is tied, because there is no logit bias.
    pub tied_alone: bool,
    /// What the decoder reads when no target is given and none can be generated.
    pub reads_again: DecoderInput,
    /// The decoder's first token if the configuration names none.
    pub start_token: Option<&'static str>,
    /// Prefix of the base model's tensors inside a larger model.
    pub base: &'static str,
    /// Whether there is an encoder; otherwise the configuration states the decoder's sizes alone.
    pub encodes: bool,
    /// Whether a decoder saved alone keeps its attention to the output of another encoder, behind which it stands.
    pub is_behind: bool,
    /// Keys of the numbers of positions of encoder and decoder.
    pub n_ctx: [&'static str; 2],
    /// The activation if the configuration names none.
    pub activation: &'static str,
    /// Whether embeddings are scaled if the configuration does not say; `None` if they never are.
    pub scales: Option<bool>,
    /// Key of the widths of the encoder's two-sided windows.
    pub window: Option<&'static str>,
    /// Names of the encoder's attention maps, if they differ from the decoder's.
    pub of_encoder: Option<[&'static str; 4]>,
    /// A switch, off by default, for biases of attention maps; they have biases without it.
    pub attention_bias: Option<&'static str>,
    /// The final norm of a model with norms before its branches.
    pub last_norm: &'static str,
    pub names: LayerNames,
}

impl BartLike {
    /// Learned positions from the first row on, post-norm.
    pub const PLAIN: Self = Self {
        positions: Positions::Learned { n_rows_before: 0 },
        norms_before: false,
        norms_embedding: false,
        norms_before_positions: false,
        vocabulary: ["vocab_size", "decoder_vocab_size"],
        shared_words: SharedWords::Always,
        head: "lm_head.weight",
        tied_alone: false,
        reads_again: DecoderInput::ShiftedForLabels,
        start_token: None,
        base: "model.",
        encodes: true,
        is_behind: false,
        n_ctx: ["max_position_embeddings"; 2],
        activation: "gelu",
        scales: Some(false),
        window: None,
        of_encoder: None,
        attention_bias: None,
        last_norm: "layer_norm",
        names: LayerNames::USUAL,
    };
}

/// How positions are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions {
    /// A learned table; its first rows belong to no position.
    Learned { n_rows_before: usize },
    /// Sines and cosines, stored or computed.
    Sinusoid,
    /// Sines and cosines; positions count only tokens other than the padding token, from the index after it.
    SinusoidNotPad,
}

/// Whether encoder and decoder share a token table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedWords {
    Always,
    /// Unless this key is false.
    Unless(&'static str),
    Never,
}

/// Names inside a layer that differ between families.
#[derive(Debug, Clone, Copy)]
pub struct LayerNames {
    /// A tensor of the first layer that shows whether the encoder or decoder exists.
    pub probe: &'static str,
    /// Prefix of the feed-forward maps.
    pub mlp: &'static str,
    pub mlp_norm: &'static str,
    pub cross: &'static str,
    pub cross_norm: &'static str,
}

impl LayerNames {
    /// BART's own names.
    pub const USUAL: Self = Self {
        probe: "fc1.weight",
        mlp: "",
        mlp_norm: "final_layer_norm",
        cross: "encoder_attn",
        cross_norm: "encoder_attn_layer_norm",
    };
}
