//! The default kind, and parts of tables that several kinds share.

use super::kind::Kind;

pub(super) const RMS: (&str, &str) = ("attention.layer_norm_rms_epsilon", "rms_norm_eps");
pub(super) const LAYER: &str = "attention.layer_norm_epsilon";

pub(super) const PLAIN: Kind = Kind {
    architecture: "",
    model_type: "",
    numbers: &[],
    switches: &[],
    fixed: &[],
    eps: RMS,
    rotates_in_part: false,
    full_every: None,
    divides: false,
    sees_both: false,
    requires_rope_parameters: false,
    known: &[],
    renames: &[],
    own: None,
};

pub(super) const EXPERTS: [(&str, &str); 3] = [
    ("expert_count", "num_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
];

pub(super) const GRANITE: &[(&str, &str)] = &[
    ("attention.scale", "attention_multiplier"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("logit_scale", "logits_scaling"),
    ("expert_count", "num_local_experts"),
    ("expert_used_count", "num_experts_per_tok"),
];

pub(super) const BIASES_OF_ATTENTION: [(&str, &str); 1] =
    [("attention_bias", "self_attn.q_proj.bias")];
