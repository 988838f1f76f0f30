//! The usual architecture, from which all entries differ, and tables that several of them share.

use super::architecture::{Architecture, Fused, Rotary, Table};
use crate::gguf::left_out::LeftOut;

/// Llama's names, and the settings that most models have.
pub(super) const PLAIN: Architecture = Architecture {
    name: "",
    variant: None,
    layers: "model.layers",
    top: &[
        ("token_embd", "model.embed_tokens"),
        ("output_norm", "model.norm"),
        ("output", "lm_head"),
    ],
    names: &[],
    stacks: &[],
    experts: ("block_sparse_moe.experts", ["w1", "w2", "w3"]),
    fused: Fused::Apart,
    rework: None,
    model_type: None,
    numbers: &[],
    switches: &[],
    fixed: &[],
    activation: ("hidden_act", "silu"),
    eps: ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    rotary: Rotary::Whole,
    full_every: None,
    known: &[],
    renames: &[],
    settings: None,
    special: None,
    left_out: LeftOut::Nothing,
    quirks: &[],
};

/// Names of a layer's parts in Llama.
pub const USUAL: Table = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "block_sparse_moe.gate"),
];

/// The four norms of a layer in Gemma 2 and 3.
pub(super) const FOUR_NORMS: Table = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Norms of models that normalise only the outputs of attention and feed-forward.
pub(super) const OUTPUT_NORMS: Table = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Experts, shared expert and router of Qwen's models.
pub(super) const QWEN_EXPERTS: Table = &[
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
];

/// Experts inside the feed-forward block, by their usual names.
pub(super) const PLAIN_EXPERTS: (&str, [&str; 3]) =
    ("mlp.experts", ["gate_proj", "down_proj", "up_proj"]);

pub(super) const GPT2_TOP: Table = &[
    ("token_embd", "transformer.wte"),
    ("position_embd", "transformer.wpe"),
    ("output_norm", "transformer.ln_f"),
    ("output", "lm_head"),
];

pub(super) const GPT2: Table = &[
    ("attn_norm", "ln_1"),
    ("attn_qkv", "attn.c_attn"),
    ("attn_output", "attn.c_proj"),
    ("ffn_norm", "ln_2"),
    ("ffn_up", "mlp.c_fc"),
    ("ffn_down", "mlp.c_proj"),
];

/// Falcon's names, which BLOOM has too.
pub(super) const FALCON: Table = &[
    ("attn_qkv", "self_attention.query_key_value"),
    ("attn_output", "self_attention.dense"),
    ("attn_norm_2", "ln_attn"),
    ("ffn_up", "mlp.dense_h_to_4h"),
    ("ffn_down", "mlp.dense_4h_to_h"),
];

/// Key of the epsilon of norms that subtract the mean.
pub(super) const LAYER_NORM_EPS: &str = "attention.layer_norm_epsilon";

/// No activation in the configuration.
pub(super) const NO_ACTIVATION: (&str, &str) = ("", "");

/// No rotary embedding: omits the file's base, which does not apply.
pub(super) const NO_ROPE: (&str, &str) = ("rope_theta", "");

/// No number of key/value heads, in models that have one for each head or another key for them.
pub(super) const NO_KV_HEADS: (&str, &str) = ("num_key_value_heads", "");

/// Names that MPT and DBRX have for usual keys.
pub(super) const MPT_NAMES: [(&str, &str); 6] = [
    ("num_hidden_layers", "n_layers"),
    ("num_attention_heads", "n_heads"),
    ("hidden_size", "d_model"),
    ("max_position_embeddings", "max_seq_len"),
    ("intermediate_size", ""),
    NO_KV_HEADS,
];

pub(super) const ATTENTION_BIAS: (&str, &str) = ("attention_bias", "self_attn.q_proj.bias");
pub(super) const QK_NORM: (&str, &str) = ("use_qk_norm", "self_attn.q_norm.weight");
pub(super) const BIASES: Table = &[ATTENTION_BIAS, ("mlp_bias", "mlp.up_proj.bias")];

pub(super) const EXPERTS: [(&str, &str); 3] = [
    ("expert_count", "num_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
];

/// Experts of models that call them local.
pub(super) const LOCAL_EXPERTS: [(&str, &str); 2] =
    [("expert_count", "num_local_experts"), EXPERTS[1]];

/// Experts of Qwen's models with a shared expert.
pub(super) const QWEN_NUMBERS: Table = &[
    EXPERTS[0],
    EXPERTS[1],
    EXPERTS[2],
    (
        "expert_shared_feed_forward_length",
        "shared_expert_intermediate_size",
    ),
];

pub(super) const GRANITE: Table = &[
    ("attention.scale", "attention_multiplier"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("logit_scale", "logits_scaling"),
    LOCAL_EXPERTS[0],
    LOCAL_EXPERTS[1],
];
