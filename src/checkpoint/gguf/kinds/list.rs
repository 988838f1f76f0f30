//! All kinds of models whose metadata are converted by tables.

use super::hybrids::*;
use super::kind::{Fixed, Kind};
use super::plain::{BIASES_OF_ATTENTION, EXPERTS, GRANITE, LAYER, PLAIN, RMS};
use super::renames::{GPT2_NAMES, NO_ROPE, T5_NAMES};
use crate::gguf::special;

const BIASES: &[(&str, &str)] = &[BIASES_OF_ATTENTION[0], ("mlp_bias", "mlp.up_proj.bias")];

const LATENT_EXPERTS: &[(&str, &str)] = &[
    ("expert_count", "n_routed_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_shared_count", "n_shared_experts"),
    ("expert_group_count", "n_group"),
    ("expert_group_used_count", "topk_group"),
    ("expert_weights_scale", "routed_scaling_factor"),
    ("leading_dense_block_count", "first_k_dense_replace"),
    ("attention.q_lora_rank", "q_lora_rank"),
    ("attention.kv_lora_rank", "kv_lora_rank"),
];

/// All kinds that are converted by tables, sorted by architecture.
static KINDS: &[Kind] = &[
    Kind {
        architecture: "apertus",
        model_type: "apertus",
        switches: &BIASES_OF_ATTENTION,
        fixed: &[("hidden_act", Fixed::Word("xielu"))],
        requires_rope_parameters: true,
        ..PLAIN
    },
    Kind {
        architecture: "arcee",
        model_type: "arcee",
        switches: BIASES,
        fixed: &[("hidden_act", Fixed::Word("relu2"))],
        ..PLAIN
    },
    BAMBA,
    Kind {
        architecture: "bert",
        model_type: "bert",
        fixed: &[("hidden_act", Fixed::Word("gelu"))],
        eps: (LAYER, "layer_norm_eps"),
        divides: true,
        sees_both: true,
        own: Some(special::bert),
        ..PLAIN
    },
    Kind {
        architecture: "bloom",
        model_type: "bloom",
        eps: (LAYER, "layer_norm_epsilon"),
        divides: true,
        renames: &[("num_key_value_heads", ""), ("hidden_act", ""), NO_ROPE],
        ..PLAIN
    },
    Kind {
        architecture: "chatglm",
        model_type: "glm",
        switches: &BIASES_OF_ATTENTION,
        rotates_in_part: true,
        ..PLAIN
    },
    Kind {
        architecture: "cohere2",
        model_type: "cohere2",
        numbers: &[("logit_scale", "logit_scale")],
        switches: BIASES,
        eps: (LAYER, "layer_norm_eps"),
        full_every: Some(4),
        ..PLAIN
    },
    Kind {
        architecture: "command-r",
        model_type: "cohere",
        numbers: &[("logit_scale", "logit_scale")],
        switches: &[
            ("attention_bias", "self_attn.q_proj.bias"),
            ("use_qk_norm", "self_attn.q_norm.weight"),
        ],
        eps: (LAYER, "layer_norm_eps"),
        ..PLAIN
    },
    Kind {
        architecture: "dbrx",
        model_type: "dbrx",
        eps: (LAYER, ""),
        divides: true,
        known: &["attention.clamp_kqv"],
        renames: &[
            ("num_hidden_layers", "n_layers"),
            ("num_attention_heads", "n_heads"),
            ("hidden_size", "d_model"),
            ("max_position_embeddings", "max_seq_len"),
            ("intermediate_size", ""),
            ("num_key_value_heads", ""),
            ("hidden_act", ""),
        ],
        own: Some(special::dbrx),
        ..PLAIN
    },
    Kind {
        architecture: "deepseek2",
        model_type: "deepseek_v3",
        numbers: LATENT_EXPERTS,
        known: &["expert_shared_count", "leading_dense_block_count"],
        own: Some(special::deepseek),
        ..PLAIN
    },
    Kind {
        architecture: "distilbert",
        model_type: "distilbert",
        fixed: &[("activation", Fixed::Word("gelu"))],
        eps: (LAYER, ""),
        divides: true,
        sees_both: true,
        renames: &[
            ("num_hidden_layers", "n_layers"),
            ("num_attention_heads", "n_heads"),
            ("hidden_size", "dim"),
            ("intermediate_size", "hidden_dim"),
            ("num_key_value_heads", ""),
            ("hidden_act", ""),
            NO_ROPE,
        ],
        ..PLAIN
    },
    Kind {
        architecture: "ernie4_5",
        model_type: "ernie4_5",
        switches: &[("use_bias", "self_attn.q_proj.bias")],
        ..PLAIN
    },
    Kind {
        architecture: "ernie4_5-moe",
        model_type: "ernie4_5_moe",
        numbers: &[
            ("expert_count", "moe_num_experts"),
            ("expert_used_count", "moe_k"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("leading_dense_block_count", "moe_layer_start_index"),
            ("interleave_moe_layer_step", "moe_layer_interval"),
        ],
        switches: &[("use_bias", "self_attn.q_proj.bias")],
        known: &["expert_shared_count"],
        own: Some(special::ernie_experts),
        ..PLAIN
    },
    Kind {
        architecture: "eurobert",
        model_type: "eurobert",
        switches: BIASES,
        sees_both: true,
        own: Some(special::eurobert),
        ..PLAIN
    },
    Kind {
        architecture: "exaone4",
        model_type: "exaone4",
        full_every: Some(4),
        ..PLAIN
    },
    Kind {
        architecture: "falcon",
        model_type: "falcon",
        eps: (LAYER, "layer_norm_epsilon"),
        divides: true,
        renames: &[("num_key_value_heads", "num_kv_heads"), ("hidden_act", "")],
        own: Some(special::falcon),
        ..PLAIN
    },
    FALCON_H1,
    GEMMA3N,
    GEMMA4,
    Kind {
        architecture: "glm4",
        model_type: "glm4",
        switches: BIASES,
        rotates_in_part: true,
        ..PLAIN
    },
    Kind {
        architecture: "glm4moe",
        model_type: "glm4_moe",
        numbers: LATENT_EXPERTS,
        switches: &[
            ("attention_bias", "self_attn.q_proj.bias"),
            ("use_qk_norm", "self_attn.q_norm.weight"),
        ],
        rotates_in_part: true,
        known: &["expert_shared_count", "leading_dense_block_count"],
        own: Some(special::weighed_experts),
        ..PLAIN
    },
    Kind {
        architecture: "gpt-oss",
        model_type: "gpt_oss",
        numbers: &[
            ("expert_count", "num_local_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "intermediate_size"),
        ],
        switches: BIASES,
        full_every: Some(2),
        requires_rope_parameters: true,
        ..PLAIN
    },
    Kind {
        architecture: "gptneox",
        model_type: "gpt_neox",
        fixed: &[("hidden_act", Fixed::Word("gelu"))],
        eps: (LAYER, "layer_norm_eps"),
        rotates_in_part: true,
        divides: true,
        renames: &[
            ("partial_rotary_factor", "rotary_pct"),
            ("num_key_value_heads", ""),
        ],
        own: Some(special::gpt_neox),
        ..PLAIN
    },
    Kind {
        architecture: "granite",
        model_type: "granite",
        numbers: GRANITE,
        switches: BIASES,
        ..PLAIN
    },
    GRANITE_HYBRID,
    Kind {
        architecture: "granitemoe",
        model_type: "granitemoe",
        numbers: GRANITE,
        switches: BIASES,
        ..PLAIN
    },
    Kind {
        architecture: "hunyuan-dense",
        model_type: "hunyuan_v1_dense",
        switches: BIASES,
        ..PLAIN
    },
    JAMBA,
    Kind {
        architecture: "lfm2",
        model_type: "lfm2",
        numbers: &[("shortconv.l_cache", "conv_L_cache")],
        fixed: &[("block_auto_adjust_ff_dim", Fixed::Flag(false))],
        eps: (RMS.0, "norm_eps"),
        known: &["attention.head_count_kv"],
        own: Some(special::lfm2),
        ..PLAIN
    },
    LLAMA4,
    Kind {
        architecture: "mistral3",
        model_type: "mistral",
        full_every: Some(0),
        known: &["attention.temperature_scale"],
        own: Some(special::mistral3),
        ..PLAIN
    },
    Kind {
        architecture: "modern-bert",
        model_type: "modernbert",
        eps: (LAYER, "norm_eps"),
        divides: true,
        sees_both: true,
        renames: &[
            ("rope_theta", "global_rope_theta"),
            ("num_key_value_heads", ""),
            ("hidden_act", ""),
        ],
        own: Some(special::modern_bert),
        ..PLAIN
    },
    Kind {
        architecture: "mpt",
        model_type: "mpt",
        eps: (LAYER, "layer_norm_epsilon"),
        divides: true,
        known: &["attention.clamp_kqv", "attention.max_alibi_bias"],
        renames: &[
            ("num_hidden_layers", "n_layers"),
            ("num_attention_heads", "n_heads"),
            ("hidden_size", "d_model"),
            ("max_position_embeddings", "max_seq_len"),
            ("intermediate_size", ""),
            ("num_key_value_heads", ""),
            ("hidden_act", ""),
            NO_ROPE,
        ],
        own: Some(special::mpt),
        ..PLAIN
    },
    Kind {
        architecture: "nemotron",
        model_type: "nemotron",
        switches: BIASES,
        fixed: &[("hidden_act", Fixed::Word("relu2"))],
        eps: (LAYER, "norm_eps"),
        rotates_in_part: true,
        ..PLAIN
    },
    NEMOTRON_H,
    NEMOTRON_H_MOE,
    Kind {
        architecture: "nomic-bert",
        model_type: "nomic_bert",
        fixed: &[("hidden_act", Fixed::Word("silu"))],
        eps: (LAYER, "layer_norm_eps"),
        sees_both: true,
        own: Some(special::bert),
        ..PLAIN
    },
    Kind {
        architecture: "olmo",
        model_type: "olmo",
        numbers: &[("attention.clamp_kqv", "clip_qkv")],
        switches: &BIASES_OF_ATTENTION,
        divides: true,
        eps: (LAYER, "norm_eps"),
        ..PLAIN
    },
    Kind {
        architecture: "olmo2",
        model_type: "olmo2",
        full_every: Some(0),
        switches: &BIASES_OF_ATTENTION,
        ..PLAIN
    },
    Kind {
        architecture: "olmoe",
        model_type: "olmoe",
        numbers: &EXPERTS,
        switches: &BIASES_OF_ATTENTION,
        fixed: &[("norm_topk_prob", Fixed::Flag(false))],
        ..PLAIN
    },
    Kind {
        architecture: "phi2",
        model_type: "phi",
        fixed: &[("hidden_act", Fixed::Word("gelu_new"))],
        eps: (LAYER, "layer_norm_eps"),
        rotates_in_part: true,
        divides: true,
        ..PLAIN
    },
    Kind {
        architecture: "phimoe",
        model_type: "phimoe",
        numbers: &[
            ("expert_count", "num_local_experts"),
            ("expert_used_count", "num_experts_per_tok"),
        ],
        switches: &[BIASES_OF_ATTENTION[0], ("lm_head_bias", "lm_head.bias")],
        own: Some(special::phimoe),
        ..PLAIN
    },
    Kind {
        architecture: "qwen2moe",
        model_type: "qwen2_moe",
        numbers: &[
            EXPERTS[0],
            EXPERTS[1],
            EXPERTS[2],
            (
                "expert_shared_feed_forward_length",
                "shared_expert_intermediate_size",
            ),
        ],
        switches: &[("qkv_bias", "self_attn.q_proj.bias")],
        fixed: &[("norm_topk_prob", Fixed::Flag(false))],
        ..PLAIN
    },
    Kind {
        architecture: "qwen2vl",
        model_type: "qwen2",
        ..PLAIN
    },
    Kind {
        architecture: "qwen3moe",
        model_type: "qwen3_moe",
        numbers: &EXPERTS,
        switches: BIASES,
        // llama.cpp normalises the chosen experts' weights in all models of this kind.
        fixed: &[("norm_topk_prob", Fixed::Flag(true))],
        ..PLAIN
    },
    QWEN3_NEXT,
    Kind {
        architecture: "qwen3vl",
        model_type: "qwen3",
        switches: &BIASES_OF_ATTENTION,
        ..PLAIN
    },
    Kind {
        architecture: "qwen3vlmoe",
        model_type: "qwen3_moe",
        numbers: &EXPERTS,
        switches: BIASES,
        fixed: &[("norm_topk_prob", Fixed::Flag(true))],
        ..PLAIN
    },
    Kind {
        architecture: "seed_oss",
        model_type: "seed_oss",
        switches: &[
            ("attention_bias", "self_attn.q_proj.bias"),
            ("attention_out_bias", "self_attn.o_proj.bias"),
            ("mlp_bias", "mlp.up_proj.bias"),
        ],
        ..PLAIN
    },
    Kind {
        architecture: "smollm3",
        model_type: "smollm3",
        switches: BIASES,
        ..PLAIN
    },
    Kind {
        architecture: "stablelm",
        model_type: "stablelm",
        switches: &[("use_qkv_bias", "self_attn.q_proj.bias")],
        eps: (LAYER, "layer_norm_eps"),
        rotates_in_part: true,
        divides: true,
        own: Some(special::stablelm),
        ..PLAIN
    },
    Kind {
        architecture: "starcoder",
        model_type: "gpt_bigcode",
        fixed: &[("activation_function", Fixed::Word("gelu_pytorch_tanh"))],
        eps: (LAYER, "layer_norm_epsilon"),
        divides: true,
        renames: GPT2_NAMES,
        own: Some(special::starcoder),
        ..PLAIN
    },
    Kind {
        architecture: "t5",
        eps: (LAYER, "layer_norm_epsilon"),
        renames: T5_NAMES,
        own: Some(special::t5),
        ..PLAIN
    },
    Kind {
        architecture: "t5encoder",
        eps: (LAYER, "layer_norm_epsilon"),
        renames: T5_NAMES,
        sees_both: true,
        own: Some(special::t5),
        ..PLAIN
    },
];

impl Kind {
    /// Finds the kind of an architecture, if a table describes it.
    pub fn of(architecture: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.architecture == architecture)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_sorted_by_known_architectures() {
        assert!(KINDS.is_sorted_by_key(|kind| kind.architecture));
        let named =
            |kind: &Kind| crate::gguf::architectures::Architecture::named(kind.architecture);
        assert!(KINDS.iter().all(|kind| named(kind).is_some()));
    }
}
