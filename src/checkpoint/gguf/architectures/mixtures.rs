//! Decoders with attention in every layer and a mixture of experts.

use super::architecture::{Architecture, Fixed, Fused, Quirk, Rotary, Table};
use super::hybrids::GRANITE_HYBRID;
use super::shared::*;
use crate::gguf::left_out::LeftOut;
use crate::gguf::{llama4, rework, special};

/// Sorted by name.
pub(super) static MIXTURES: &[Architecture] = &[
    Architecture {
        name: "afmoe",
        names: &[
            ("post_attention_norm", "post_attention_layernorm"),
            ("ffn_norm", "pre_mlp_layernorm"),
            ("post_ffw_norm", "post_mlp_layernorm"),
            ("attn_gate", "self_attn.gate_proj"),
            ("ffn_gate_inp", "mlp.router.gate"),
            ("exp_probs_b", "mlp.expert_bias"),
            SIGMOID_EXPERTS[2],
            SIGMOID_EXPERTS[3],
            SIGMOID_EXPERTS[4],
        ],
        experts: PLAIN_EXPERTS,
        numbers: &[
            EXPERTS[0],
            EXPERTS[1],
            EXPERTS[2],
            ("expert_shared_count", "num_shared_experts"),
            ("leading_dense_block_count", "num_dense_layers"),
            ("expert_weights_scale", "route_scale"),
        ],
        switches: &[ATTENTION_BIAS],
        fixed: &[("mup_enabled", Fixed::Flag(true))],
        full_every: Some(4),
        special: Some(special::afmoe),
        left_out: LeftOut::Setting(
            "the factor of embeddings and which layers see everything",
            "the root of their width and every fourth, as llama.cpp has them",
        ),
        ..PLAIN
    },
    Architecture {
        name: "dbrx",
        layers: "transformer.blocks",
        top: &[
            ("token_embd", "transformer.wte"),
            ("output_norm", "transformer.norm_f"),
            ("output", "lm_head"),
        ],
        names: &[
            ("attn_norm", "norm_attn_norm.norm_1"),
            ("attn_qkv", "norm_attn_norm.attn.Wqkv"),
            ("attn_output", "norm_attn_norm.attn.out_proj"),
            ("attn_output_norm", "norm_attn_norm.norm_2"),
            ("ffn_gate_inp", "ffn.router.layer"),
        ],
        experts: ("ffn.experts.mlp", ["w1", "w2", "v1"]),
        fused: Fused::AsIs,
        activation: NO_ACTIVATION,
        eps: (LAYER_NORM_EPS, ""),
        known: &["attention.clamp_kqv"],
        renames: &MPT_NAMES,
        special: Some(special::dbrx),
        quirks: &[Quirk::StacksExperts, Quirk::DerivesHeadWidth],
        ..PLAIN
    },
    Architecture {
        name: "deepseek2",
        names: &[
            ("attn_q_a", "self_attn.q_a_proj"),
            ("attn_q_a_norm", "self_attn.q_a_layernorm"),
            ("attn_q_b", "self_attn.q_b_proj"),
            ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
            ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
            ("attn_kv_b", "self_attn.kv_b_proj"),
            // These become one tensor: see `rework::latent`.
            ("attn_k_b", "self_attn.k_b_proj"),
            ("attn_v_b", "self_attn.v_b_proj"),
            ("ffn_gate_inp", "mlp.gate"),
            ("exp_probs_b", "mlp.gate.e_score_correction_bias"),
            ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
            ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
        ],
        experts: PLAIN_EXPERTS,
        rework: Some(rework::latent),
        model_type: Some("deepseek_v3"),
        numbers: LATENT_EXPERTS,
        switches: &[("attention_bias", "self_attn.kv_a_proj_with_mqa.bias")],
        known: &["rope.scaling.yarn_log_multiplier"],
        special: Some(special::deepseek),
        quirks: &[Quirk::HeadsInParts],
        ..PLAIN
    },
    Architecture {
        name: "dots1",
        names: SIGMOID_EXPERTS,
        experts: PLAIN_EXPERTS,
        numbers: LATENT_EXPERTS,
        switches: &[ATTENTION_BIAS],
        special: Some(special::weighed_experts),
        ..PLAIN
    },
    Architecture {
        name: "ernie4_5-moe",
        names: &[
            ("ffn_gate_inp", "mlp.gate"),
            ("exp_probs_b", "mlp.moe_statics.e_score_correction_bias"),
            ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
            ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
        ],
        experts: PLAIN_EXPERTS,
        model_type: Some("ernie4_5_moe"),
        numbers: &[
            ("expert_count", "moe_num_experts"),
            ("expert_used_count", "moe_k"),
            EXPERTS[2],
            ("leading_dense_block_count", "moe_layer_start_index"),
            ("interleave_moe_layer_step", "moe_layer_interval"),
        ],
        switches: &[("use_bias", ATTENTION_BIAS.1)],
        known: &["expert_shared_count"],
        special: Some(special::ernie_experts),
        quirks: &[Quirk::BiasIsRow],
        ..PLAIN
    },
    Architecture {
        name: "exaone-moe",
        names: &[
            SIGMOID_EXPERTS[0],
            ("exp_probs_b", "mlp.e_score_correction_bias"),
            SIGMOID_EXPERTS[2],
            SIGMOID_EXPERTS[3],
            SIGMOID_EXPERTS[4],
        ],
        experts: PLAIN_EXPERTS,
        model_type: Some("exaone_moe"),
        numbers: &[
            EXPERTS[0],
            EXPERTS[1],
            EXPERTS[2],
            ("expert_shared_count", "num_shared_experts"),
            LATENT_EXPERTS[4],
            LATENT_EXPERTS[5],
            LATENT_EXPERTS[6],
            LATENT_EXPERTS[7],
        ],
        full_every: Some(4),
        special: Some(special::weighed_experts),
        ..PLAIN
    },
    Architecture {
        name: "glm4moe",
        names: &[
            ("post_attention_norm", "post_attention_layernorm"),
            SIGMOID_EXPERTS[0],
            SIGMOID_EXPERTS[1],
            SIGMOID_EXPERTS[2],
            SIGMOID_EXPERTS[3],
            SIGMOID_EXPERTS[4],
        ],
        experts: PLAIN_EXPERTS,
        model_type: Some("glm4_moe"),
        numbers: LATENT_EXPERTS,
        switches: &[ATTENTION_BIAS, QK_NORM],
        rotary: Rotary::Part,
        special: Some(special::weighed_experts),
        ..PLAIN
    },
    Architecture {
        name: "gpt-oss",
        names: &[
            ("post_attention_norm", "post_attention_layernorm"),
            ("attn_sinks", "self_attn.sinks"),
            ("ffn_gate_inp", "mlp.router"),
        ],
        experts: PLAIN_EXPERTS,
        model_type: Some("gpt_oss"),
        numbers: &[
            LOCAL_EXPERTS[0],
            LOCAL_EXPERTS[1],
            ("expert_feed_forward_length", "intermediate_size"),
        ],
        switches: BIASES,
        full_every: Some(2),
        special: Some(special::gpt_oss),
        left_out: LeftOut::KeyIf(
            special::has_yarn,
            "rope.scaling.yarn_truncate",
            "whether the ends of yarn's band are rounded",
            "as they are, as in all published models; llama.cpp rounds them",
        ),
        quirks: &[Quirk::StatesUnscaled],
        ..PLAIN
    },
    Architecture {
        name: "granitemoe",
        // With a shared expert, the tensors have the names of Granite 4.
        variant: Some((&GRANITE_HYBRID, |has, _| has("ffn_up_shexp.weight"))),
        names: &[("ffn_gate_inp", "block_sparse_moe.router.layer")],
        numbers: GRANITE,
        switches: BIASES,
        quirks: &[Quirk::HalvesAlternate],
        ..PLAIN
    },
    Architecture {
        name: "hunyuan-moe",
        names: &[
            ("attn_q_norm", "self_attn.query_layernorm"),
            ("attn_k_norm", "self_attn.key_layernorm"),
            ("ffn_gate_inp", "mlp.gate.wg"),
            ("ffn_gate_shexp", "mlp.shared_mlp.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_mlp.up_proj"),
            ("ffn_down_shexp", "mlp.shared_mlp.down_proj"),
        ],
        experts: PLAIN_EXPERTS,
        model_type: Some("hunyuan_v1_moe"),
        numbers: &[
            EXPERTS[0],
            ("expert_used_count", "moe_topk"),
            ("expert_shared_feed_forward_length", "intermediate_size"),
            ("expert_shared_count", "num_shared_expert"),
        ],
        switches: &[ATTENTION_BIAS],
        special: Some(special::width_of_experts),
        ..PLAIN
    },
    Architecture {
        name: "llama4",
        names: &[
            ("ffn_gate", "feed_forward.gate_proj"),
            ("ffn_up", "feed_forward.up_proj"),
            ("ffn_down", "feed_forward.down_proj"),
            ("ffn_gate_inp", "feed_forward.router"),
            ("ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"),
            ("ffn_up_shexp", "feed_forward.shared_expert.up_proj"),
            ("ffn_down_shexp", "feed_forward.shared_expert.down_proj"),
        ],
        experts: ("feed_forward.experts", PLAIN_EXPERTS.1),
        model_type: Some("llama4_text"),
        numbers: &LOCAL_EXPERTS,
        switches: &[ATTENTION_BIAS],
        special: Some(llama4::llama4),
        left_out: LeftOut::Setting(
            "the width of chunks and which layers see everything",
            "8192 and every fourth, as in all published models",
        ),
        ..PLAIN
    },
    Architecture {
        name: "minimax-m2",
        names: &[("exp_probs_b", "block_sparse_moe.e_score_correction_bias")],
        model_type: Some("minimax_m2"),
        numbers: &LOCAL_EXPERTS,
        rotary: Rotary::Part,
        special: Some(special::minimax_m2),
        ..PLAIN
    },
    Architecture {
        name: "olmoe",
        names: QWEN_EXPERTS,
        experts: PLAIN_EXPERTS,
        numbers: &EXPERTS,
        switches: &[ATTENTION_BIAS],
        fixed: &[("norm_topk_prob", Fixed::Flag(false))],
        ..PLAIN
    },
    Architecture {
        name: "phimoe",
        numbers: &LOCAL_EXPERTS,
        switches: &[ATTENTION_BIAS, ("lm_head_bias", "lm_head.bias")],
        // The router's jitter in the published models.
        fixed: &[("router_jitter_noise", Fixed::Number(0.01))],
        special: Some(special::phi3),
        left_out: LeftOut::Setting(
            "the jitter of the router",
            "0.01, as in all published models",
        ),
        ..PLAIN
    },
    Architecture {
        name: "qwen2moe",
        names: QWEN_EXPERTS,
        experts: PLAIN_EXPERTS,
        model_type: Some("qwen2_moe"),
        numbers: QWEN_NUMBERS,
        switches: &[("qkv_bias", ATTENTION_BIAS.1)],
        fixed: &[("norm_topk_prob", Fixed::Flag(false))],
        ..PLAIN
    },
    Architecture {
        name: "qwen3moe",
        ..QWEN3_MOE
    },
    Architecture {
        name: "qwen3vlmoe",
        ..QWEN3_MOE
    },
];

const QWEN3_MOE: Architecture = Architecture {
    names: QWEN_EXPERTS,
    experts: PLAIN_EXPERTS,
    model_type: Some("qwen3_moe"),
    numbers: &EXPERTS,
    switches: BIASES,
    // llama.cpp normalises the chosen experts' weights in all models of this kind.
    fixed: &[("norm_topk_prob", Fixed::Flag(true))],
    ..PLAIN
};

/// Experts chosen by sigmoids, beside a shared one.
const SIGMOID_EXPERTS: Table = &[
    ("ffn_gate_inp", "mlp.gate"),
    ("exp_probs_b", "mlp.gate.e_score_correction_bias"),
    ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
    ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
];

const LATENT_EXPERTS: Table = &[
    ("expert_count", "n_routed_experts"),
    EXPERTS[1],
    EXPERTS[2],
    ("expert_shared_count", "n_shared_experts"),
    ("expert_group_count", "n_group"),
    ("expert_group_used_count", "topk_group"),
    ("expert_weights_scale", "routed_scaling_factor"),
    ("leading_dense_block_count", "first_k_dense_replace"),
    ("attention.q_lora_rank", "q_lora_rank"),
    ("attention.kv_lora_rank", "kv_lora_rank"),
];
