//! Tensor names of models whose layers mix tokens partly by something other than attention.

use super::architecture::{Architecture, Fused, Table};
use super::tables::{FOUR_NORMS, PLAIN_EXPERTS, QWEN_EXPERTS, USUAL_WAY};

/// Bamba's names, also used by files of Granite 4.
pub(super) const BAMBA: Architecture = Architecture {
    name: "bamba",
    top: WITH_LAST_NORM,
    own: &[
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
    halves_alternate: true,
    ..USUAL_WAY
};

const WITH_LAST_NORM: Table = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.final_layernorm"),
    ("output", "lm_head"),
];

pub(super) const FALCON_H1: Architecture = Architecture {
    name: "falcon-h1",
    halves_alternate: false,
    ..BAMBA
};

pub(super) const GEMMA3N: Architecture = Architecture {
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
    own: &[
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
    ..USUAL_WAY
};

pub(super) const GEMMA4: Architecture = Architecture {
    name: "gemma4",
    top: &[
        ("token_embd", "model.embed_tokens"),
        ("per_layer_token_embd", "model.embed_tokens_per_layer"),
        ("per_layer_model_proj", "model.per_layer_model_projection"),
        ("per_layer_proj_norm", "model.per_layer_projection_norm"),
        ("output_norm", "model.norm"),
        ("output", "lm_head"),
    ],
    own: &[
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
    ..USUAL_WAY
};

pub(super) const GRANITE_HYBRID: Architecture = Architecture {
    name: "granitehybrid",
    own: &[
        ("ffn_gate_inp", "block_sparse_moe.router.layer"),
        // These become one tensor: see `joined`.
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
    halves_alternate: true,
    ..USUAL_WAY
};

pub(super) const JAMBA: Architecture = Architecture {
    name: "jamba",
    top: WITH_LAST_NORM,
    own: &[
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
    ..USUAL_WAY
};

pub(super) const LLAMA4: Architecture = Architecture {
    name: "llama4",
    own: &[
        ("ffn_gate", "feed_forward.gate_proj"),
        ("ffn_up", "feed_forward.up_proj"),
        ("ffn_down", "feed_forward.down_proj"),
        ("ffn_gate_inp", "feed_forward.router"),
        ("ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"),
        ("ffn_up_shexp", "feed_forward.shared_expert.up_proj"),
        ("ffn_down_shexp", "feed_forward.shared_expert.down_proj"),
    ],
    experts: ("feed_forward.experts", PLAIN_EXPERTS.1),
    ..USUAL_WAY
};

pub(super) const NEMOTRON_H: Architecture = Architecture {
    name: "nemotron_h",
    layers: "backbone.layers",
    top: &[
        ("token_embd", "backbone.embeddings"),
        ("output_norm", "backbone.norm_f"),
        ("output", "lm_head"),
    ],
    own: &[
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
    ..USUAL_WAY
};

pub(super) const QWEN3_NEXT: Architecture = Architecture {
    name: "qwen3next",
    own: &[
        QWEN_EXPERTS[0],
        QWEN_EXPERTS[1],
        QWEN_EXPERTS[2],
        QWEN_EXPERTS[3],
        QWEN_EXPERTS[4],
        ("post_attention_norm", "post_attention_layernorm"),
        // These become one tensor: see `joined`.
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
    norms_plus_one: true,
    ..USUAL_WAY
};
