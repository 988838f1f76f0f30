//! Decoders with attention in every layer and one feed-forward network.

use super::architecture::{Architecture, Fused, Quirk, Rotary};
use super::shared::*;
use crate::gguf::left_out::LeftOut;
use crate::gguf::{rework, special};

/// Sorted by name.
pub(super) static DECODERS: &[Architecture] = &[
    Architecture {
        name: "apertus",
        names: &[
            ("attn_norm", "attention_layernorm"),
            ("ffn_norm", "feedforward_layernorm"),
        ],
        rework: Some(rework::xielu),
        switches: &[ATTENTION_BIAS],
        activation: ("hidden_act", "xielu"),
        quirks: &[Quirk::StatesUnscaled],
        ..PLAIN
    },
    Architecture {
        name: "arcee",
        switches: BIASES,
        activation: ("hidden_act", "relu2"),
        quirks: &[Quirk::HalvesAlternate],
        ..PLAIN
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
        names: FALCON,
        fused: Fused::ByGroups,
        activation: NO_ACTIVATION,
        eps: (LAYER_NORM_EPS, "layer_norm_epsilon"),
        renames: &[NO_KV_HEADS, NO_ROPE],
        left_out: LeftOut::Setting("which values a branch is added to", "those before the norm"),
        quirks: &[Quirk::DerivesHeadWidth],
        ..PLAIN
    },
    Architecture {
        name: "chatglm",
        names: &[("ffn_up", "mlp.gate_up_proj")],
        model_type: Some("glm"),
        switches: &[ATTENTION_BIAS],
        rotary: Rotary::Part,
        ..PLAIN
    },
    Architecture {
        name: "cohere2",
        numbers: &[("logit_scale", "logit_scale")],
        switches: BIASES,
        eps: (LAYER_NORM_EPS, "layer_norm_eps"),
        full_every: Some(4),
        left_out: LeftOut::Key(
            "attention.sliding_window_pattern",
            "which layers see a window",
            "all but every fourth",
        ),
        quirks: &[Quirk::ListsLayers],
        ..PLAIN
    },
    Architecture {
        name: "command-r",
        model_type: Some("cohere"),
        numbers: &[("logit_scale", "logit_scale")],
        switches: &[ATTENTION_BIAS, QK_NORM],
        eps: (LAYER_NORM_EPS, "layer_norm_eps"),
        ..PLAIN
    },
    Architecture {
        name: "ernie4_5",
        switches: &[("use_bias", ATTENTION_BIAS.1)],
        ..PLAIN
    },
    Architecture {
        name: "exaone4",
        names: OUTPUT_NORMS,
        full_every: Some(4),
        ..PLAIN
    },
    Architecture {
        name: "falcon",
        layers: "transformer.h",
        top: &[
            ("token_embd", "transformer.word_embeddings"),
            ("output_norm", "transformer.ln_f"),
            ("output", "lm_head"),
        ],
        names: FALCON,
        fused: Fused::ByGroups,
        rework: Some(rework::falcon),
        switches: &[(
            "bias",
            "transformer.h.0.self_attention.query_key_value.bias",
        )],
        activation: NO_ACTIVATION,
        eps: (LAYER_NORM_EPS, "layer_norm_epsilon"),
        renames: &[("num_key_value_heads", "num_kv_heads")],
        special: Some(special::falcon),
        quirks: &[Quirk::DerivesHeadWidth],
        ..PLAIN
    },
    Architecture {
        // The rotation of images exists for halves alone.
        variant: Some((&GLM4_OF_IMAGES, |_, states| {
            states("rope.dimension_sections")
        })),
        ..GLM4
    },
    Architecture {
        name: "gpt2",
        layers: "transformer.h",
        top: GPT2_TOP,
        names: GPT2,
        fused: Fused::AsIs,
        settings: Some(special::gpt2),
        quirks: &[Quirk::Transposed],
        ..PLAIN
    },
    Architecture {
        name: "gptneox",
        layers: "gpt_neox.layers",
        top: &[
            ("token_embd", "gpt_neox.embed_in"),
            ("output_norm", "gpt_neox.final_layer_norm"),
            ("output", "embed_out"),
        ],
        names: &[
            ("attn_qkv", "attention.query_key_value"),
            ("attn_output", "attention.dense"),
            ("ffn_up", "mlp.dense_h_to_4h"),
            ("ffn_down", "mlp.dense_4h_to_h"),
        ],
        fused: Fused::ByGroups,
        model_type: Some("gpt_neox"),
        switches: &[(
            "attention_bias",
            "gpt_neox.layers.0.attention.query_key_value.bias",
        )],
        activation: ("hidden_act", "gelu"),
        eps: (LAYER_NORM_EPS, "layer_norm_eps"),
        rotary: Rotary::Part,
        renames: &[("partial_rotary_factor", "rotary_pct"), NO_KV_HEADS],
        special: Some(special::gpt_neox),
        left_out: LeftOut::Key("rope.freq_base", "the base of rotary positions", "10000"),
        quirks: &[Quirk::DerivesHeadWidth],
        ..PLAIN
    },
    Architecture {
        name: "granite",
        numbers: GRANITE,
        switches: BIASES,
        quirks: &[Quirk::HalvesAlternate],
        ..PLAIN
    },
    Architecture {
        name: "hunyuan-dense",
        names: &[
            ("attn_q_norm", "self_attn.query_layernorm"),
            ("attn_k_norm", "self_attn.key_layernorm"),
        ],
        model_type: Some("hunyuan_v1_dense"),
        switches: BIASES,
        ..PLAIN
    },
    Architecture {
        name: "jais2",
        switches: BIASES,
        activation: ("hidden_act", "relu2"),
        eps: (LAYER_NORM_EPS, "layer_norm_eps"),
        ..PLAIN
    },
    Architecture {
        name: "llama",
        special: Some(special::llama),
        left_out: LeftOut::ScalingOrWindow,
        quirks: &[Quirk::HalvesAlternate],
        ..PLAIN
    },
    Architecture {
        name: "mistral3",
        model_type: Some("mistral"),
        full_every: Some(0),
        known: &[
            "attention.temperature_scale",
            "rope.scaling.yarn_log_multiplier",
        ],
        special: Some(special::mistral3),
        quirks: &[Quirk::HalvesAlternate],
        ..PLAIN
    },
    Architecture {
        name: "mpt",
        layers: "transformer.blocks",
        top: &[
            ("token_embd", "transformer.wte"),
            ("output_norm", "transformer.norm_f"),
            ("output", "lm_head"),
        ],
        names: &[
            ("attn_norm", "norm_1"),
            ("attn_qkv", "attn.Wqkv"),
            ("attn_output", "attn.out_proj"),
            ("ffn_norm", "norm_2"),
            ("ffn_up", "ffn.up_proj"),
            ("ffn_down", "ffn.down_proj"),
        ],
        fused: Fused::AsIs,
        activation: NO_ACTIVATION,
        eps: (LAYER_NORM_EPS, "layer_norm_epsilon"),
        known: &["attention.clamp_kqv", "attention.max_alibi_bias"],
        renames: &[
            MPT_NAMES[0],
            MPT_NAMES[1],
            MPT_NAMES[2],
            MPT_NAMES[3],
            MPT_NAMES[4],
            MPT_NAMES[5],
            NO_ROPE,
        ],
        special: Some(special::mpt),
        left_out: LeftOut::Setting("the scale of scores", "1/sqrt(d_head)"),
        quirks: &[Quirk::DerivesHeadWidth],
        ..PLAIN
    },
    Architecture {
        name: "nemotron",
        switches: BIASES,
        activation: ("hidden_act", "relu2"),
        eps: (LAYER_NORM_EPS, "norm_eps"),
        rotary: Rotary::Part,
        quirks: &[Quirk::NormsPlusOne],
        ..PLAIN
    },
    Architecture {
        name: "olmo",
        numbers: &[("attention.clamp_kqv", "clip_qkv")],
        switches: &[ATTENTION_BIAS],
        eps: (LAYER_NORM_EPS, "norm_eps"),
        quirks: &[
            Quirk::HalvesAlternate,
            Quirk::BiasesInOrder,
            Quirk::DerivesHeadWidth,
        ],
        ..PLAIN
    },
    Architecture {
        name: "olmo2",
        names: OUTPUT_NORMS,
        switches: &[ATTENTION_BIAS],
        full_every: Some(0),
        special: Some(special::olmo2),
        ..PLAIN
    },
    Architecture {
        name: "phi2",
        top: &[
            ("token_embd", "model.embed_tokens"),
            ("output_norm", "model.final_layernorm"),
            ("output", "lm_head"),
        ],
        names: &[
            ("attn_output", "self_attn.dense"),
            ("ffn_up", "mlp.fc1"),
            ("ffn_down", "mlp.fc2"),
        ],
        model_type: Some("phi"),
        activation: ("hidden_act", "gelu_new"),
        eps: (LAYER_NORM_EPS, "layer_norm_eps"),
        rotary: Rotary::Part,
        quirks: &[Quirk::DerivesHeadWidth],
        ..PLAIN
    },
    Architecture {
        name: "phi3",
        names: &[("ffn_up", "mlp.gate_up_proj")],
        fused: Fused::AsIs,
        rotary: Rotary::PartIfSmaller,
        special: Some(special::phi3),
        quirks: &[Quirk::DerivesHeadWidth],
        ..PLAIN
    },
    Architecture {
        name: "qwen2",
        special: Some(special::window_of_some_layers),
        left_out: LeftOut::ScalingOrWindow,
        ..PLAIN
    },
    Architecture {
        name: "qwen2vl",
        model_type: Some("qwen2"),
        left_out: LeftOut::ScalingOrWindow,
        ..PLAIN
    },
    Architecture {
        name: "qwen3",
        switches: &[ATTENTION_BIAS],
        special: Some(special::window_of_some_layers),
        left_out: LeftOut::ScalingOrWindow,
        ..PLAIN
    },
    Architecture {
        name: "qwen3vl",
        model_type: Some("qwen3"),
        switches: &[ATTENTION_BIAS],
        left_out: LeftOut::ScalingOrWindow,
        ..PLAIN
    },
    Architecture {
        name: "seed_oss",
        names: OUTPUT_NORMS,
        switches: &[
            BIASES[0],
            ("attention_out_bias", "self_attn.o_proj.bias"),
            BIASES[1],
        ],
        ..PLAIN
    },
    Architecture {
        name: "smollm3",
        switches: BIASES,
        left_out: LeftOut::Setting("which layers have no positions", "every fourth"),
        quirks: &[Quirk::HalvesAlternate],
        ..PLAIN
    },
    Architecture {
        name: "stablelm",
        names: &[
            ("attn_q_norm", "self_attn.q_layernorm"),
            ("attn_k_norm", "self_attn.k_layernorm"),
        ],
        switches: &[
            ("use_qkv_bias", ATTENTION_BIAS.1),
            ("qk_layernorm", "self_attn.q_layernorm.norms.0.weight"),
        ],
        eps: (LAYER_NORM_EPS, "layer_norm_eps"),
        rotary: Rotary::Part,
        special: Some(special::stablelm),
        quirks: &[Quirk::NormPerHead, Quirk::DerivesHeadWidth],
        ..PLAIN
    },
    Architecture {
        name: "starcoder",
        layers: "transformer.h",
        top: GPT2_TOP,
        names: GPT2,
        fused: Fused::AsIs,
        model_type: Some("gpt_bigcode"),
        activation: ("activation_function", "gelu_pytorch_tanh"),
        eps: (LAYER_NORM_EPS, "layer_norm_epsilon"),
        renames: &[
            ("num_hidden_layers", "n_layer"),
            ("num_attention_heads", "n_head"),
            ("hidden_size", "n_embd"),
            ("intermediate_size", "n_inner"),
            ("max_position_embeddings", "n_positions"),
            NO_KV_HEADS,
            NO_ROPE,
        ],
        special: Some(special::starcoder),
        quirks: &[Quirk::DerivesHeadWidth],
        ..PLAIN
    },
    Architecture {
        name: "starcoder2",
        names: &[("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")],
        switches: &[("use_bias", ATTENTION_BIAS.1)],
        activation: ("hidden_act", "gelu_pytorch_tanh"),
        eps: (LAYER_NORM_EPS, "norm_epsilon"),
        special: Some(special::window),
        left_out: LeftOut::Key("attention.sliding_window", "a window", "none"),
        quirks: &[Quirk::DerivesHeadWidth],
        ..PLAIN
    },
];

const GLM4: Architecture = Architecture {
    name: "glm4",
    names: &[
        ("ffn_up", "mlp.gate_up_proj"),
        ("post_attention_norm", "post_self_attn_layernorm"),
        ("post_ffw_norm", "post_mlp_layernorm"),
    ],
    switches: BIASES,
    rotary: Rotary::Part,
    ..PLAIN
};

/// The language model of GLM-4V.
static GLM4_OF_IMAGES: Architecture = Architecture {
    quirks: &[Quirk::NeighboursApart],
    ..GLM4
};
