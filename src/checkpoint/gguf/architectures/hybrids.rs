//! Decoders whose layers mix tokens partly by something other than attention.

use super::architecture::{Architecture, Fixed, Fused, Quirk, Rotary, Table};
use super::shared::*;
use crate::gguf::left_out::LeftOut;
use crate::gguf::{hybrids, rework, special};

/// Sorted by name.
pub(super) static HYBRIDS: &[Architecture] = &[
    Architecture {
        name: "falcon-h1",
        top: WITH_LAST_NORM,
        names: BAMBA.names,
        model_type: Some("falcon_h1"),
        switches: &[
            BAMBA.switches[0],
            BAMBA.switches[1],
            ("mamba_rms_norm", "*mamba.norm.weight"),
            ("projectors_bias", "*mamba.out_proj.bias"),
        ],
        // llama.cpp supports only this order.
        fixed: &[("mamba_norm_before_gate", Fixed::Flag(false))],
        special: Some(hybrids::falcon_h1),
        left_out: LeftOut::SettingIf(
            hybrids::has_norm,
            "the order of gate and norm",
            "the gate first, as llama.cpp has it",
        ),
        ..PLAIN
    },
    GRANITE_HYBRID,
    Architecture {
        name: "jamba",
        top: WITH_LAST_NORM,
        names: &[
            ("ffn_norm", "pre_ff_layernorm"),
            ("ffn_gate", "feed_forward.gate_proj"),
            ("ffn_up", "feed_forward.up_proj"),
            ("ffn_down", "feed_forward.down_proj"),
            ("ffn_gate_inp", "feed_forward.router"),
            ("ssm_a", "mamba.A_log"),
            ("ssm_d", "mamba.D"),
            ("ssm_conv1d", "mamba.conv1d"),
            ("ssm_dt", "mamba.dt_proj"),
            ("ssm_in", "mamba.in_proj"),
            ("ssm_x", "mamba.x_proj"),
            ("ssm_dt_norm", "mamba.dt_layernorm"),
            ("ssm_b_norm", "mamba.b_layernorm"),
            ("ssm_c_norm", "mamba.c_layernorm"),
            ("ssm_out", "mamba.out_proj"),
        ],
        experts: ("feed_forward.experts", PLAIN_EXPERTS.1),
        numbers: &[EXPERTS[0], EXPERTS[1]],
        known: BY_LAYER,
        renames: &[NO_ROPE],
        special: Some(hybrids::jamba),
        quirks: &[Quirk::DecaysByChannel, Quirk::DerivesHeadWidth],
        ..PLAIN
    },
    LFM2,
    Architecture {
        name: "lfm2moe",
        experts: ("feed_forward.experts", PLAIN.experts.1),
        model_type: Some("lfm2_moe"),
        numbers: &[
            LFM2.numbers[0],
            EXPERTS[0],
            EXPERTS[1],
            EXPERTS[2],
            ("leading_dense_block_count", "num_dense_layers"),
        ],
        fixed: &[],
        special: Some(special::lfm2_moe),
        ..LFM2
    },
    NEMOTRON_H,
    Architecture {
        name: "nemotron_h_moe",
        model_type: Some(NEMOTRON_H.name),
        ..NEMOTRON_H
    },
    Architecture {
        name: "qwen35",
        fixed: TILED,
        ..QWEN35
    },
    Architecture {
        name: "qwen35moe",
        model_type: Some("qwen3_5_moe_text"),
        numbers: QWEN_NUMBERS,
        fixed: TILED,
        ..QWEN35
    },
    Architecture {
        name: "qwen3next",
        names: &[
            QWEN_EXPERTS[0],
            QWEN_EXPERTS[1],
            QWEN_EXPERTS[2],
            QWEN_EXPERTS[3],
            QWEN_EXPERTS[4],
            ("post_attention_norm", "post_attention_layernorm"),
            // These become one tensor: see `rework::delta_rule`.
            ("attn_qkv", "linear_attn.in_proj_qkv"),
            ("attn_gate", "linear_attn.in_proj_z"),
            // Older files store Hugging Face's tensor.
            ("ssm_in", "linear_attn.in_proj_qkvz"),
            ("ssm_ba", "linear_attn.in_proj_ba"),
            ("ssm_a", "linear_attn.A_log"),
            ("ssm_conv1d", "linear_attn.conv1d"),
            ("ssm_dt", "linear_attn.dt_bias"),
            ("ssm_norm", "linear_attn.norm"),
            ("ssm_out", "linear_attn.out_proj"),
        ],
        experts: PLAIN_EXPERTS,
        fused: Fused::AsIs,
        rework: Some(rework::delta_rule),
        model_type: Some("qwen3_next"),
        numbers: QWEN_NUMBERS,
        switches: &[ANY_ATTENTION_BIAS],
        // llama.cpp normalises the chosen experts' weights in all models of this kind.
        fixed: &[("norm_topk_prob", Fixed::Flag(true))],
        rotary: Rotary::Part,
        special: Some(hybrids::qwen3_next),
        quirks: &[Quirk::NormsPlusOne],
        ..PLAIN
    },
];

/// llama.cpp's converter puts the first value heads of all key heads first.
const TILED: &[(&str, Fixed)] = &[("linear_value_heads_are_tiled", Fixed::Flag(true))];

/// The text part of Qwen3.5.
const QWEN35: Architecture = Architecture {
    name: "qwen35",
    names: &[
        QWEN_EXPERTS[0],
        QWEN_EXPERTS[1],
        QWEN_EXPERTS[2],
        QWEN_EXPERTS[3],
        QWEN_EXPERTS[4],
        ("post_attention_norm", "post_attention_layernorm"),
        ("attn_qkv", "linear_attn.in_proj_qkv"),
        ("attn_gate", "linear_attn.in_proj_z"),
        ("ssm_alpha", "linear_attn.in_proj_a"),
        ("ssm_beta", "linear_attn.in_proj_b"),
        ("ssm_a", "linear_attn.A_log"),
        ("ssm_conv1d", "linear_attn.conv1d"),
        ("ssm_dt", "linear_attn.dt_bias"),
        ("ssm_norm", "linear_attn.norm"),
        ("ssm_out", "linear_attn.out_proj"),
    ],
    experts: PLAIN_EXPERTS,
    fused: Fused::AsIs,
    model_type: Some("qwen3_5_text"),
    switches: &[ANY_ATTENTION_BIAS],
    rotary: Rotary::Part,
    special: Some(hybrids::qwen3_5),
    quirks: &[Quirk::NormsPlusOne],
    ..PLAIN
};

const LFM2: Architecture = Architecture {
    name: "lfm2",
    top: &[
        ("token_embd", "model.embed_tokens"),
        ("token_embd_norm", "model.embedding_norm"),
        ("output_norm", "model.embedding_norm"),
        ("output", "lm_head"),
    ],
    names: &[
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
        ("ffn_gate_inp", "feed_forward.gate"),
        ("exp_probs_b", "feed_forward.expert_bias"),
    ],
    numbers: &[("shortconv.l_cache", "conv_L_cache")],
    switches: &[("conv_bias", "*conv.in_proj.bias")],
    fixed: &[("block_auto_adjust_ff_dim", Fixed::Flag(false))],
    eps: (PLAIN.eps.0, "norm_eps"),
    known: &[BY_LAYER[0]],
    special: Some(special::lfm2),
    ..PLAIN
};

/// Keys that may be a list with a value per layer.
const BY_LAYER: &[&str] = &["attention.head_count_kv", "feed_forward_length"];

/// In hybrids, the first layer may have no attention.
const ANY_ATTENTION_BIAS: (&str, &str) = ("attention_bias", "*self_attn.q_proj.bias");

const WITH_LAST_NORM: Table = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.final_layernorm"),
    ("output", "lm_head"),
];

const BAMBA: Architecture = Architecture {
    name: "bamba",
    top: WITH_LAST_NORM,
    names: &[
        ("ffn_norm", "pre_ff_layernorm"),
        ("ffn_gate", "feed_forward.gate_proj"),
        ("ffn_up", "feed_forward.up_proj"),
        ("ffn_down", "feed_forward.down_proj"),
        ("ssm_a", "mamba.A_log"),
        ("ssm_d", "mamba.D"),
        ("ssm_conv1d", "mamba.conv1d"),
        ("ssm_dt", "mamba.dt_bias"),
        ("ssm_in", "mamba.in_proj"),
        ("ssm_norm", "mamba.norm"),
        ("ssm_out", "mamba.out_proj"),
    ],
    switches: &[
        ANY_ATTENTION_BIAS,
        ("mlp_bias", "*feed_forward.up_proj.bias"),
    ],
    rotary: Rotary::Part,
    known: BY_LAYER,
    special: Some(hybrids::bamba),
    quirks: &[Quirk::HalvesAlternate, Quirk::DerivesHeadWidth],
    ..PLAIN
};

/// Granite 4.
pub(super) const GRANITE_HYBRID: Architecture = Architecture {
    name: "granitehybrid",
    // Without Granite's multipliers, it is a Bamba.
    variant: Some((&BAMBA, |has, states| {
        !states("attention.scale") && !has("ffn_gate_inp.weight")
    })),
    names: &[
        ("ffn_gate_inp", "block_sparse_moe.router.layer"),
        // These become one tensor: see `rework::granite`.
        ("ffn_gate", "shared_mlp.gate_proj"),
        ("ffn_up", "shared_mlp.up_proj"),
        ("ffn_gate_shexp", "shared_mlp.gate_proj"),
        ("ffn_up_shexp", "shared_mlp.up_proj"),
        ("ffn_down", "shared_mlp.output_linear"),
        ("ffn_down_shexp", "shared_mlp.output_linear"),
        ("ssm_a", "mamba.A_log"),
        ("ssm_d", "mamba.D"),
        ("ssm_conv1d", "mamba.conv1d"),
        ("ssm_dt", "mamba.dt_bias"),
        ("ssm_in", "mamba.in_proj"),
        ("ssm_norm", "mamba.norm"),
        ("ssm_out", "mamba.out_proj"),
    ],
    rework: Some(rework::granite),
    model_type: Some("granitemoehybrid"),
    numbers: GRANITE,
    switches: &[ANY_ATTENTION_BIAS],
    known: BY_LAYER,
    special: Some(hybrids::granite),
    quirks: &[Quirk::HalvesAlternate, Quirk::DerivesHeadWidth],
    ..PLAIN
};

const NEMOTRON_H: Architecture = Architecture {
    name: "nemotron_h",
    layers: "backbone.layers",
    top: &[
        ("token_embd", "backbone.embeddings"),
        ("output_norm", "backbone.norm_f"),
        ("output", "lm_head"),
    ],
    names: &[
        ("attn_norm", "norm"),
        ("attn_q", "mixer.q_proj"),
        ("attn_k", "mixer.k_proj"),
        ("attn_v", "mixer.v_proj"),
        ("attn_qkv", "mixer.qkv_proj"),
        ("attn_output", "mixer.o_proj"),
        ("ffn_up", "mixer.up_proj"),
        ("ffn_down", "mixer.down_proj"),
        ("ffn_gate_inp", "mixer.gate"),
        ("exp_probs_b", "mixer.gate.e_score_correction_bias"),
        ("ffn_up_shexp", "mixer.shared_experts.up_proj"),
        ("ffn_down_shexp", "mixer.shared_experts.down_proj"),
        ("ffn_latent_down", "mixer.fc1_latent_proj"),
        ("ffn_latent_up", "mixer.fc2_latent_proj"),
        ("ssm_a", "mixer.A_log"),
        ("ssm_d", "mixer.D"),
        ("ssm_conv1d", "mixer.conv1d"),
        ("ssm_dt", "mixer.dt_bias"),
        ("ssm_in", "mixer.in_proj"),
        ("ssm_norm", "mixer.norm"),
        ("ssm_out", "mixer.out_proj"),
    ],
    experts: ("mixer.experts", PLAIN_EXPERTS.1),
    numbers: &[
        ("expert_count", "n_routed_experts"),
        EXPERTS[1],
        EXPERTS[2],
        (
            "expert_shared_feed_forward_length",
            "moe_shared_expert_intermediate_size",
        ),
        ("expert_weights_scale", "routed_scaling_factor"),
        ("expert_group_count", "n_group"),
        ("expert_group_used_count", "topk_group"),
        ("moe_latent_size", "moe_latent_size"),
    ],
    switches: &[
        ("use_conv_bias", "*mixer.conv1d.bias"),
        ("use_bias", "*mixer.in_proj.bias"),
        ("mlp_bias", "*up_proj.bias"),
    ],
    fixed: &[
        ("mlp_hidden_act", Fixed::Word("relu2")),
        ("mamba_hidden_act", Fixed::Word("silu")),
    ],
    activation: NO_ACTIVATION,
    eps: (LAYER_NORM_EPS, "layer_norm_epsilon"),
    known: &[BY_LAYER[0], BY_LAYER[1], "expert_shared_count"],
    renames: &[("num_hidden_layers", ""), NO_ROPE],
    special: Some(hybrids::nemotron_h),
    left_out: LeftOut::Setting(
        "activations and the shortest step",
        "relu2, silu and 0, as llama.cpp has them",
    ),
    ..PLAIN
};
