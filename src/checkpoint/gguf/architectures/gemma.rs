//! Gemma's models.

use super::architecture::{Architecture, Fixed, Quirk, Rotary};
use super::shared::*;
use crate::gguf::left_out::LeftOut;
use crate::gguf::{gemma2, gemma3n, gemma4};

/// Sorted by name.
pub(super) static GEMMA: &[Architecture] = &[
    Architecture {
        name: "gemma",
        // Published with this key and with that of later models; the activation is the same.
        activation: ("hidden_act", ACTIVATION.1),
        known: SCALE,
        quirks: &[Quirk::NormsPlusOne],
        ..PLAIN
    },
    Architecture {
        name: "gemma-embedding",
        fixed: &[("use_bidirectional_attention", Fixed::Flag(true))],
        quirks: &[Quirk::NormsPlusOne, Quirk::SeesBoth],
        ..GEMMA3
    },
    Architecture {
        name: "gemma2",
        model_type: None,
        special: Some(gemma2::gemma2),
        ..GEMMA3
    },
    Architecture {
        name: "gemma3",
        ..GEMMA3
    },
    Architecture {
        name: "gemma3n",
        top: &[
            ("token_embd", "model.embed_tokens"),
            ("per_layer_token_embd", "model.embed_tokens_per_layer"),
            ("per_layer_model_proj", "model.per_layer_model_projection"),
            ("per_layer_proj_norm", "model.per_layer_projection_norm"),
            // One for each residual stream except the active one: see `Placer::add_streams`.
            ("altup_proj", "model.altup_projections"),
            ("altup_unembd_proj", "model.altup_unembed_projections"),
            ("output_norm", "model.norm"),
            ("output", "lm_head"),
        ],
        names: &[
            FOUR_NORMS[0],
            FOUR_NORMS[1],
            FOUR_NORMS[2],
            ("inp_gate", "per_layer_input_gate"),
            ("proj", "per_layer_projection"),
            ("post_norm", "post_per_layer_input_norm"),
            ("altup_correct_coef", "altup.correction_coefs"),
            ("altup_correct_scale.weight", "altup.correct_output_scale"),
            ("altup_predict_coef", "altup.prediction_coefs"),
            ("altup_router", "altup.modality_router"),
            ("altup_router_norm", "altup.router_norm"),
            ("laurel_l", "laurel.linear_left"),
            ("laurel_r", "laurel.linear_right"),
            ("laurel_post_norm", "laurel.post_laurel_norm"),
        ],
        model_type: Some("gemma3n_text"),
        numbers: &[
            ("altup.num_inputs", "altup_num_inputs"),
            ("altup.active_idx", "altup_active_idx"),
            (
                "embedding_length_per_layer_input",
                "hidden_size_per_layer_input",
            ),
            ("attention.shared_kv_layers", "num_kv_shared_layers"),
        ],
        switches: &[
            ATTENTION_BIAS,
            ("altup_correct_scale", "altup.correct_output_scale"),
        ],
        activation: ACTIVATION,
        full_every: Some(5),
        known: &[SCALE[0], "feed_forward_length"],
        special: Some(gemma3n::gemma3n),
        ..PLAIN
    },
    Architecture {
        name: "gemma4",
        top: &[
            ("token_embd", "model.embed_tokens"),
            ("per_layer_token_embd", "model.embed_tokens_per_layer"),
            ("per_layer_model_proj", "model.per_layer_model_projection"),
            ("per_layer_proj_norm", "model.per_layer_projection_norm"),
            ("output_norm", "model.norm"),
            ("output", "lm_head"),
        ],
        names: &[
            FOUR_NORMS[0],
            FOUR_NORMS[1],
            FOUR_NORMS[2],
            ("inp_gate", "per_layer_input_gate"),
            ("proj", "per_layer_projection"),
            ("post_norm", "post_per_layer_input_norm"),
            ("layer_output_scale", "layer_scalar"),
            ("ffn_gate_inp", "router.proj"),
            ("ffn_gate_inp.scale", "router.scale"),
            // All experts of a layer in one tensor.
            ("ffn_gate_up_exps.weight", "experts.gate_up_proj"),
            ("ffn_down_exps.weight", "experts.down_proj"),
            ("ffn_down_exps.scale", "router.per_expert_scale"),
            ("pre_ffw_norm_2", "pre_feedforward_layernorm_2"),
            ("post_ffw_norm_1", "post_feedforward_layernorm_1"),
            ("post_ffw_norm_2", "post_feedforward_layernorm_2"),
        ],
        model_type: Some("gemma4_text"),
        numbers: &[
            ("final_logit_softcapping", "final_logit_softcapping"),
            EXPERTS[0],
            ("expert_used_count", "top_k_experts"),
            EXPERTS[2],
        ],
        switches: &[ATTENTION_BIAS, ("enable_moe_block", "router.proj.weight")],
        activation: ACTIVATION,
        rotary: Rotary::ByFactors,
        full_every: Some(6),
        known: &[SCALE[0], "attention.head_count_kv", "feed_forward_length"],
        special: Some(gemma4::gemma4),
        ..PLAIN
    },
];

const GEMMA3: Architecture = Architecture {
    names: FOUR_NORMS,
    model_type: Some("gemma3_text"),
    activation: ACTIVATION,
    known: SCALE,
    special: Some(gemma2::gemma3),
    left_out: LeftOut::Key(SCALE[0], SCALE_OF_SIZE.0, SCALE_OF_SIZE.1),
    quirks: &[Quirk::NormsPlusOne],
    ..PLAIN
};

const ACTIVATION: (&str, &str) = ("hidden_activation", "gelu_pytorch_tanh");
const SCALE: &[&str] = &["attention.scale"];
/// What files without a scale leave out.
const SCALE_OF_SIZE: (&str, &str) = (
    "the scale of scores",
    "that of the published models of this size",
);
