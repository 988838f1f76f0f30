//! Tensor names that several architectures share: the file's, and Hugging Face's.

use super::architecture::{Architecture, Fused, Table};

pub(super) const TOP: Table = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
];

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

pub(super) const USUAL_WAY: Architecture = Architecture {
    name: "",
    layers: "model.layers",
    top: TOP,
    own: &[],
    stacks: &[],
    fused: Fused::Apart,
    experts: ("block_sparse_moe.experts", ["w1", "w2", "w3"]),
    halves_alternate: false,
    norms_plus_one: false,
    is_transposed: false,
};

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

pub(super) const BERT_TOP: Table = &[
    ("token_embd", "embeddings.word_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"),
    ("position_embd", "embeddings.position_embeddings"),
    ("token_embd_norm", "embeddings.LayerNorm"),
];

/// Falcon's names, which BLOOM has too.
pub(super) const FALCON: Table = &[
    ("attn_qkv", "self_attention.query_key_value"),
    ("attn_output", "self_attention.dense"),
    ("attn_norm_2", "ln_attn"),
    ("ffn_up", "mlp.dense_h_to_4h"),
    ("ffn_down", "mlp.dense_4h_to_h"),
];

pub(super) const T5: Architecture = Architecture {
    layers: "",
    top: &[
        ("token_embd", "shared"),
        ("enc.output_norm", "encoder.final_layer_norm"),
        ("dec.output_norm", "decoder.final_layer_norm"),
        ("output", "lm_head"),
    ],
    stacks: &[
        (
            "enc.blk.",
            "encoder.block",
            &[
                ("attn_norm", "layer.0.layer_norm"),
                ("attn_q", "layer.0.SelfAttention.q"),
                ("attn_k", "layer.0.SelfAttention.k"),
                ("attn_v", "layer.0.SelfAttention.v"),
                ("attn_o", "layer.0.SelfAttention.o"),
                (
                    "attn_rel_b",
                    "layer.0.SelfAttention.relative_attention_bias",
                ),
                ("ffn_norm", "layer.1.layer_norm"),
                ("ffn_gate", "layer.1.DenseReluDense.wi_0"),
                ("ffn_up", "layer.1.DenseReluDense.wi"),
                ("ffn_down", "layer.1.DenseReluDense.wo"),
            ],
        ),
        (
            "dec.blk.",
            "decoder.block",
            &[
                ("attn_norm", "layer.0.layer_norm"),
                ("attn_q", "layer.0.SelfAttention.q"),
                ("attn_k", "layer.0.SelfAttention.k"),
                ("attn_v", "layer.0.SelfAttention.v"),
                ("attn_o", "layer.0.SelfAttention.o"),
                (
                    "attn_rel_b",
                    "layer.0.SelfAttention.relative_attention_bias",
                ),
                ("cross_attn_norm", "layer.1.layer_norm"),
                ("cross_attn_q", "layer.1.EncDecAttention.q"),
                ("cross_attn_k", "layer.1.EncDecAttention.k"),
                ("cross_attn_v", "layer.1.EncDecAttention.v"),
                ("cross_attn_o", "layer.1.EncDecAttention.o"),
                ("ffn_norm", "layer.2.layer_norm"),
                ("ffn_gate", "layer.2.DenseReluDense.wi_0"),
                ("ffn_up", "layer.2.DenseReluDense.wi"),
                ("ffn_down", "layer.2.DenseReluDense.wo"),
            ],
        ),
    ],
    ..USUAL_WAY
};
