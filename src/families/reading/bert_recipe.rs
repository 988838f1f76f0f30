//! How families that derive from BERT differ from it, as data.

use super::masked_head::MaskedHead;

/// How a family of this kind differs from BERT.
#[derive(Debug, Clone, Copy)]
pub struct BertLike {
    /// Prefix of the base model's tensors inside a larger model.
    pub base: &'static str,
    pub head: MaskedHead,
    /// Positions count only tokens other than the padding token, from the index after it.
    pub counts_not_pad: bool,
    /// The padding token of a family that ignores the key; `None` if the key counts.
    pub pad: Option<usize>,
    pub widens: Option<Widening>,
    pub norms: Norms,
    /// Epsilon of the norms, if the configuration does not state it.
    pub eps: f64,
    /// The norm of embeddings; `None` if there is none.
    pub embed_norm: Option<&'static str>,
    /// A switch; if it is off, embeddings are not normalised.
    pub embed_norm_if: Option<&'static str>,
    pub has_token_types: bool,
    pub positions: Positions,
    pub names: Names,
    /// A switch; if it is off, queries, keys and values have no biases.
    pub qkv_bias: Option<&'static str>,
    /// A switch that multiplies embeddings by √d_model.
    pub rescales: Option<&'static str>,
    /// A switch that zeroes the embeddings of mask tokens and scales up the others.
    pub drops_masked: Option<&'static str>,
    /// Key of the widths of two-sided windows: one for all layers, or one per layer.
    pub window: Option<&'static str>,
    /// The key of the activation, if any, and its default.
    pub activation: (Option<&'static str>, &'static str),
    /// Whether `is_decoder` makes attention causal; otherwise the class ignores it.
    pub may_decode: bool,
    /// Attention is causal whatever the configuration says.
    pub always_decodes: bool,
    /// Switches that would make it a different model, and why.
    pub must_be_off: &'static [(&'static str, &'static str)],
}

/// A map from narrow embeddings to the width of the residual.
#[derive(Debug, Clone, Copy)]
pub struct Widening {
    /// The key of the narrow width.
    pub key: &'static str,
    pub map: &'static str,
    /// The map exists even if both widths are equal.
    pub is_always: bool,
    /// The key of the width of the head's token table, if it differs.
    pub head_key: Option<&'static str>,
}

/// Placement of the norms.
#[derive(Debug, Clone, Copy)]
pub enum Norms {
    /// After the residual sum of each branch.
    After,
    /// Before each branch, and a final norm after the last block.
    Before {
        attention: &'static str,
        mlp: &'static str,
        last: &'static str,
    },
}

/// How positions are encoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Positions {
    /// Learned rows, added to the embeddings.
    Learned,
    /// Rotary embedding in interleaved pairs.
    Rotary,
    /// Rotary embedding by halves, with its parameters in the configuration; and the default base.
    RotaryOf(f64),
    /// Learned rows or rotary embedding by halves; a key decides.
    LearnedOrRotary,
    /// Learned rows, and a learned bias by distance bucket under this name.
    LearnedAndBuckets(&'static str),
}

/// Names of a block's maps and norms.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// Prefix of the layer number.
    pub layers: &'static str,
    pub q: &'static str,
    pub k: &'static str,
    pub v: &'static str,
    pub o: &'static str,
    pub attn_norm: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    pub mlp_norm: &'static str,
}

impl Names {
    /// BERT's own names.
    pub const BERT: Self = Self {
        layers: "encoder.layer",
        q: "attention.self.query",
        k: "attention.self.key",
        v: "attention.self.value",
        o: "attention.output.dense",
        attn_norm: "attention.output.LayerNorm",
        up: "intermediate.dense",
        down: "output.dense",
        mlp_norm: "output.LayerNorm",
    };
}

impl BertLike {
    /// Plain BERT under the given names.
    pub const fn plain(base: &'static str, head: MaskedHead) -> Self {
        Self {
            base,
            head,
            counts_not_pad: false,
            pad: None,
            widens: None,
            norms: Norms::After,
            eps: 1e-12,
            embed_norm: Some("embeddings.LayerNorm"),
            embed_norm_if: None,
            has_token_types: true,
            positions: Positions::Learned,
            names: Names::BERT,
            qkv_bias: None,
            rescales: None,
            drops_masked: None,
            window: None,
            activation: (Some("hidden_act"), "gelu"),
            may_decode: true,
            always_decodes: false,
            must_be_off: &[],
        }
    }
}
