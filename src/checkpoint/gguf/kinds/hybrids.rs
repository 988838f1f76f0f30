//! Hybrid models: some layers with token mixers other than attention, or two kinds of layers.

use super::kind::{Fixed, Kind};
use super::plain::{BIASES_OF_ATTENTION, EXPERTS, GRANITE, LAYER, PLAIN};
use super::renames::NO_ROPE;
use crate::gguf::{gemma3n, gemma4, hybrids, llama4};

/// Keys that may be a list with a value per layer.
const BY_LAYER: &[&str] = &["attention.head_count_kv", "feed_forward_length"];

pub(super) const BAMBA: Kind = Kind {
    architecture: "bamba",
    model_type: "bamba",
    rotates_in_part: true,
    divides: true,
    known: BY_LAYER,
    own: Some(hybrids::bamba),
    ..PLAIN
};

pub(super) const FALCON_H1: Kind = Kind {
    architecture: "falcon-h1",
    model_type: "falcon_h1",
    own: Some(hybrids::falcon_h1),
    ..PLAIN
};

pub(super) const GEMMA3N: Kind = Kind {
    architecture: "gemma3n",
    model_type: "gemma3n_text",
    numbers: &[
        ("altup.num_inputs", "altup_num_inputs"),
        ("altup.active_idx", "altup_active_idx"),
        (
            "embedding_length_per_layer_input",
            "hidden_size_per_layer_input",
        ),
        ("attention.shared_kv_layers", "num_kv_shared_layers"),
    ],
    full_every: Some(5),
    known: &[BY_LAYER[1]],
    renames: &[("hidden_act", "")],
    own: Some(gemma3n::gemma3n),
    ..PLAIN
};

pub(super) const GEMMA4: Kind = Kind {
    architecture: "gemma4",
    model_type: "gemma4_text",
    numbers: &[
        ("final_logit_softcapping", "final_logit_softcapping"),
        ("expert_count", "num_experts"),
        ("expert_used_count", "top_k_experts"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
    ],
    full_every: Some(6),
    known: BY_LAYER,
    renames: &[("hidden_act", "")],
    own: Some(gemma4::gemma4),
    ..PLAIN
};

pub(super) const GRANITE_HYBRID: Kind = Kind {
    architecture: "granitehybrid",
    model_type: "granitemoehybrid",
    numbers: GRANITE,
    divides: true,
    known: BY_LAYER,
    own: Some(hybrids::granite),
    ..PLAIN
};

pub(super) const JAMBA: Kind = Kind {
    architecture: "jamba",
    model_type: "jamba",
    numbers: &[EXPERTS[0], EXPERTS[1]],
    divides: true,
    known: BY_LAYER,
    renames: &[NO_ROPE],
    own: Some(hybrids::jamba),
    ..PLAIN
};

pub(super) const LLAMA4: Kind = Kind {
    architecture: "llama4",
    model_type: "llama4_text",
    numbers: &[
        ("expert_count", "num_local_experts"),
        ("expert_used_count", "num_experts_per_tok"),
    ],
    switches: &BIASES_OF_ATTENTION,
    own: Some(llama4::llama4),
    ..PLAIN
};

pub(super) const NEMOTRON_H: Kind = Kind {
    architecture: "nemotron_h",
    model_type: "nemotron_h",
    numbers: &[
        ("expert_count", "n_routed_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
        (
            "expert_shared_feed_forward_length",
            "moe_shared_expert_intermediate_size",
        ),
        ("expert_weights_scale", "routed_scaling_factor"),
        ("expert_group_count", "n_group"),
        ("expert_group_used_count", "topk_group"),
        ("moe_latent_size", "moe_latent_size"),
    ],
    fixed: &[
        ("mlp_hidden_act", Fixed::Word("relu2")),
        ("mamba_hidden_act", Fixed::Word("silu")),
    ],
    eps: (LAYER, "layer_norm_epsilon"),
    known: &[BY_LAYER[0], BY_LAYER[1], "expert_shared_count"],
    renames: &[("num_hidden_layers", ""), ("hidden_act", ""), NO_ROPE],
    own: Some(hybrids::nemotron_h),
    ..PLAIN
};

pub(super) const NEMOTRON_H_MOE: Kind = Kind {
    architecture: "nemotron_h_moe",
    ..NEMOTRON_H
};

pub(super) const QWEN3_NEXT: Kind = Kind {
    architecture: "qwen3next",
    model_type: "qwen3_next",
    numbers: &[
        EXPERTS[0],
        EXPERTS[1],
        EXPERTS[2],
        (
            "expert_shared_feed_forward_length",
            "shared_expert_intermediate_size",
        ),
    ],
    // llama.cpp normalises the chosen experts' weights in all models of this kind.
    fixed: &[("norm_topk_prob", Fixed::Flag(true))],
    rotates_in_part: true,
    own: Some(hybrids::qwen3_next),
    ..PLAIN
};
