//! All readable GGUF architectures, as differences from the usual names.

use super::architecture::{Architecture, Fused};
use super::hybrids::*;
use super::tables::*;

/// All readable architectures, sorted by name.
pub static ARCHITECTURES: &[Architecture] = &[
    Architecture {
        name: "apertus",
        own: &[
            ("attn_norm", "attention_layernorm"),
            ("ffn_norm", "feedforward_layernorm"),
        ],
        ..USUAL_WAY
    },
    Architecture {
        name: "arcee",
        halves_alternate: true,
        ..USUAL_WAY
    },
    BAMBA,
    Architecture {
        name: "bert",
        layers: "encoder.layer",
        top: BERT_TOP,
        own: &[
            ("attn_q", "attention.self.query"),
            ("attn_k", "attention.self.key"),
            ("attn_v", "attention.self.value"),
            ("attn_output", "attention.output.dense"),
            ("attn_output_norm", "attention.output.LayerNorm"),
            ("ffn_up", "intermediate.dense"),
            ("ffn_down", "output.dense"),
            ("layer_output_norm", "output.LayerNorm"),
        ],
        ..USUAL_WAY
    },
    Architecture {
        name: "bloom",
        layers: "transformer.h",
        top: &[
            ("token_embd", "transformer.word_embeddings"),
            ("token_embd_norm", "transformer.word_embeddings_layernorm"),
            ("output_norm", "transformer.ln_f"),
            ("output", "lm_head"),
        ],
        own: FALCON,
        fused: Fused::ByGroups,
        ..USUAL_WAY
    },
    Architecture {
        name: "chatglm",
        own: &[("ffn_up", "mlp.gate_up_proj")],
        ..USUAL_WAY
    },
    Architecture {
        name: "cohere2",
        ..USUAL_WAY
    },
    Architecture {
        name: "command-r",
        ..USUAL_WAY
    },
    Architecture {
        name: "dbrx",
        layers: "transformer.blocks",
        top: &[
            ("token_embd", "transformer.wte"),
            ("output_norm", "transformer.norm_f"),
            ("output", "lm_head"),
        ],
        own: &[
            ("attn_norm", "norm_attn_norm.norm_1"),
            ("attn_qkv", "norm_attn_norm.attn.Wqkv"),
            ("attn_output", "norm_attn_norm.attn.out_proj"),
            ("attn_output_norm", "norm_attn_norm.norm_2"),
            ("ffn_gate_inp", "ffn.router.layer"),
        ],
        // All experts of a projection in one tensor: see `stack_experts`.
        experts: ("ffn.experts.mlp", ["w1", "w2", "v1"]),
        fused: Fused::AsIs,
        ..USUAL_WAY
    },
    Architecture {
        name: "deepseek2",
        own: &[
            ("attn_q_a", "self_attn.q_a_proj"),
            ("attn_q_a_norm", "self_attn.q_a_layernorm"),
            ("attn_q_b", "self_attn.q_b_proj"),
            ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
            ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
            ("attn_kv_b", "self_attn.kv_b_proj"),
            // These become one tensor: see `join_latent`.
            ("attn_k_b", "self_attn.k_b_proj"),
            ("attn_v_b", "self_attn.v_b_proj"),
            ("ffn_gate_inp", "mlp.gate"),
            ("exp_probs_b", "mlp.gate.e_score_correction_bias"),
            ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
            ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
        ],
        experts: PLAIN_EXPERTS,
        ..USUAL_WAY
    },
    Architecture {
        // The converter's result for a BERT without segments.
        name: "distilbert",
        layers: "transformer.layer",
        top: BERT_TOP,
        own: &[
            ("attn_q", "attention.q_lin"),
            ("attn_k", "attention.k_lin"),
            ("attn_v", "attention.v_lin"),
            ("attn_output", "attention.out_lin"),
            ("attn_output_norm", "sa_layer_norm"),
            ("ffn_up", "ffn.lin1"),
            ("ffn_down", "ffn.lin2"),
            ("layer_output_norm", "output_layer_norm"),
        ],
        ..USUAL_WAY
    },
    Architecture {
        name: "ernie4_5",
        ..USUAL_WAY
    },
    Architecture {
        name: "ernie4_5-moe",
        own: &[
            ("ffn_gate_inp", "mlp.gate"),
            ("exp_probs_b", "mlp.moe_statics.e_score_correction_bias"),
            ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
            ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
        ],
        experts: PLAIN_EXPERTS,
        ..USUAL_WAY
    },
    Architecture {
        name: "eurobert",
        ..USUAL_WAY
    },
    Architecture {
        name: "exaone4",
        own: OUTPUT_NORMS,
        ..USUAL_WAY
    },
    Architecture {
        name: "falcon",
        layers: "transformer.h",
        top: &[
            ("token_embd", "transformer.word_embeddings"),
            ("output_norm", "transformer.ln_f"),
            ("output", "lm_head"),
        ],
        own: FALCON,
        fused: Fused::ByGroups,
        ..USUAL_WAY
    },
    FALCON_H1,
    Architecture {
        name: "gemma",
        norms_plus_one: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "gemma-embedding",
        own: FOUR_NORMS,
        norms_plus_one: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "gemma2",
        own: FOUR_NORMS,
        norms_plus_one: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "gemma3",
        own: FOUR_NORMS,
        norms_plus_one: true,
        ..USUAL_WAY
    },
    GEMMA3N,
    GEMMA4,
    Architecture {
        name: "glm4",
        own: &[
            ("ffn_up", "mlp.gate_up_proj"),
            ("post_attention_norm", "post_self_attn_layernorm"),
            ("post_ffw_norm", "post_mlp_layernorm"),
        ],
        ..USUAL_WAY
    },
    Architecture {
        name: "glm4moe",
        own: &[
            ("post_attention_norm", "post_attention_layernorm"),
            ("ffn_gate_inp", "mlp.gate"),
            ("exp_probs_b", "mlp.gate.e_score_correction_bias"),
            ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
            ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
        ],
        experts: PLAIN_EXPERTS,
        ..USUAL_WAY
    },
    Architecture {
        name: "gpt-oss",
        own: &[
            ("post_attention_norm", "post_attention_layernorm"),
            ("attn_sinks", "self_attn.sinks"),
            ("ffn_gate_inp", "mlp.router"),
        ],
        experts: PLAIN_EXPERTS,
        ..USUAL_WAY
    },
    Architecture {
        name: "gpt2",
        layers: "transformer.h",
        top: GPT2_TOP,
        own: GPT2,
        fused: Fused::AsIs,
        is_transposed: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "gptneox",
        layers: "gpt_neox.layers",
        top: &[
            ("token_embd", "gpt_neox.embed_in"),
            ("output_norm", "gpt_neox.final_layer_norm"),
            ("output", "embed_out"),
        ],
        own: &[
            ("attn_qkv", "attention.query_key_value"),
            ("attn_output", "attention.dense"),
            ("ffn_up", "mlp.dense_h_to_4h"),
            ("ffn_down", "mlp.dense_4h_to_h"),
        ],
        fused: Fused::ByGroups,
        ..USUAL_WAY
    },
    Architecture {
        name: "granite",
        halves_alternate: true,
        ..USUAL_WAY
    },
    GRANITE_HYBRID,
    Architecture {
        name: "granitemoe",
        own: &[("ffn_gate_inp", "block_sparse_moe.router.layer")],
        halves_alternate: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "hunyuan-dense",
        own: &[
            ("attn_q_norm", "self_attn.query_layernorm"),
            ("attn_k_norm", "self_attn.key_layernorm"),
        ],
        ..USUAL_WAY
    },
    JAMBA,
    Architecture {
        name: "lfm2",
        top: &[
            ("token_embd", "model.embed_tokens"),
            ("token_embd_norm", "model.embedding_norm"),
            ("output_norm", "model.embedding_norm"),
            ("output", "lm_head"),
        ],
        own: &[
            ("attn_norm", "operator_norm"),
            ("attn_q_norm", "self_attn.q_layernorm"),
            ("attn_k_norm", "self_attn.k_layernorm"),
            ("attn_output", "self_attn.out_proj"),
            ("shortconv.conv", "conv.conv"),
            ("shortconv.in_proj", "conv.in_proj"),
            ("shortconv.out_proj", "conv.out_proj"),
            ("ffn_norm", "ffn_norm"),
            ("ffn_gate", "feed_forward.w1"),
            ("ffn_up", "feed_forward.w3"),
            ("ffn_down", "feed_forward.w2"),
        ],
        ..USUAL_WAY
    },
    Architecture {
        name: "llama",
        halves_alternate: true,
        ..USUAL_WAY
    },
    LLAMA4,
    Architecture {
        name: "mistral3",
        halves_alternate: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "modern-bert",
        layers: "layers",
        top: &[
            ("token_embd", "embeddings.tok_embeddings"),
            ("token_embd_norm", "embeddings.norm"),
            ("output_norm", "final_norm"),
        ],
        own: &[
            ("attn_norm", "attn_norm"),
            ("attn_qkv", "attn.Wqkv"),
            ("attn_output", "attn.Wo"),
            ("ffn_norm", "mlp_norm"),
            ("ffn_up", "mlp.Wi"),
            ("ffn_down", "mlp.Wo"),
        ],
        fused: Fused::AsIs,
        ..USUAL_WAY
    },
    Architecture {
        name: "mpt",
        layers: "transformer.blocks",
        top: &[
            ("token_embd", "transformer.wte"),
            ("output_norm", "transformer.norm_f"),
            ("output", "lm_head"),
        ],
        own: &[
            ("attn_norm", "norm_1"),
            ("attn_qkv", "attn.Wqkv"),
            ("attn_output", "attn.out_proj"),
            ("ffn_norm", "norm_2"),
            ("ffn_up", "ffn.up_proj"),
            ("ffn_down", "ffn.down_proj"),
        ],
        fused: Fused::AsIs,
        ..USUAL_WAY
    },
    Architecture {
        name: "nemotron",
        norms_plus_one: true,
        ..USUAL_WAY
    },
    NEMOTRON_H,
    Architecture {
        name: "nemotron_h_moe",
        ..NEMOTRON_H
    },
    Architecture {
        name: "nomic-bert",
        layers: "encoder.layers",
        top: &[
            ("token_embd", "embeddings.word_embeddings"),
            ("token_types", "embeddings.token_type_embeddings"),
            ("token_embd_norm", "emb_ln"),
        ],
        own: &[
            ("attn_qkv", "attn.Wqkv"),
            ("attn_output", "attn.out_proj"),
            ("attn_output_norm", "norm1"),
            ("ffn_up", "mlp.fc11"),
            ("ffn_gate", "mlp.fc12"),
            ("ffn_down", "mlp.fc2"),
            ("layer_output_norm", "norm2"),
        ],
        fused: Fused::AsIs,
        ..USUAL_WAY
    },
    Architecture {
        name: "olmo",
        halves_alternate: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "olmo2",
        own: OUTPUT_NORMS,
        ..USUAL_WAY
    },
    Architecture {
        name: "olmoe",
        own: QWEN_EXPERTS,
        experts: PLAIN_EXPERTS,
        ..USUAL_WAY
    },
    Architecture {
        name: "phi2",
        top: &[
            ("token_embd", "model.embed_tokens"),
            ("output_norm", "model.final_layernorm"),
            ("output", "lm_head"),
        ],
        own: &[
            ("attn_output", "self_attn.dense"),
            ("ffn_up", "mlp.fc1"),
            ("ffn_down", "mlp.fc2"),
        ],
        ..USUAL_WAY
    },
    Architecture {
        name: "phi3",
        own: &[("ffn_up", "mlp.gate_up_proj")],
        fused: Fused::AsIs,
        ..USUAL_WAY
    },
    Architecture {
        name: "phimoe",
        ..USUAL_WAY
    },
    Architecture {
        name: "qwen2",
        ..USUAL_WAY
    },
    Architecture {
        name: "qwen2moe",
        own: QWEN_EXPERTS,
        experts: PLAIN_EXPERTS,
        ..USUAL_WAY
    },
    Architecture {
        name: "qwen2vl",
        ..USUAL_WAY
    },
    Architecture {
        name: "qwen3",
        ..USUAL_WAY
    },
    Architecture {
        name: "qwen3moe",
        own: QWEN_EXPERTS,
        experts: PLAIN_EXPERTS,
        ..USUAL_WAY
    },
    QWEN3_NEXT,
    Architecture {
        name: "qwen3vl",
        ..USUAL_WAY
    },
    Architecture {
        name: "qwen3vlmoe",
        own: QWEN_EXPERTS,
        experts: PLAIN_EXPERTS,
        ..USUAL_WAY
    },
    Architecture {
        name: "seed_oss",
        own: OUTPUT_NORMS,
        ..USUAL_WAY
    },
    Architecture {
        name: "smollm3",
        halves_alternate: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "stablelm",
        own: &[
            ("attn_q_norm", "self_attn.q_layernorm"),
            ("attn_k_norm", "self_attn.k_layernorm"),
        ],
        ..USUAL_WAY
    },
    Architecture {
        name: "starcoder",
        layers: "transformer.h",
        top: GPT2_TOP,
        own: GPT2,
        fused: Fused::AsIs,
        ..USUAL_WAY
    },
    Architecture {
        name: "starcoder2",
        own: &[("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")],
        ..USUAL_WAY
    },
    Architecture { name: "t5", ..T5 },
    Architecture {
        name: "t5encoder",
        ..T5
    },
];
