//! Tables of names that model types share, or that are long.

/// What Cosmos 3 calls its parts that see, and diffusers the maps of attention.
pub(super) const OF_COSMOS: &[(&str, &str)] = &[
    ("^blocks.", "visual.blocks."),
    ("^merger.", "visual.merger."),
    ("^patch_embed.", "visual.patch_embed."),
    ("^pos_embed.", "visual.pos_embed."),
    ("^deepstack_merger_list.", "visual.deepstack_merger_list."),
    ("^model.projector.", "model.multi_modal_projector."),
    (".to_q.", ".q_proj."),
    (".to_k.", ".k_proj."),
    (".to_v.", ".v_proj."),
    (".to_out.", ".o_proj."),
    (".norm_q.", ".q_norm."),
    (".norm_k.", ".k_norm."),
];

/// What models that search call the model inside, whose own names have changed too.
pub(super) const OF_SEARCH: &[(&str, &str)] = &[
    ("^vlm.language_model.model.", "model.language_model."),
    ("^vlm.model.", "model."),
    ("^vlm.", "model."),
];

/// What Hunyuan 4 calls its hyper-connections, sinks and gates.
pub(super) const OF_HY_V4: &[(&str, &str)] = &[
    (".hc_pre.hc_", ".hc_"),
    (".learnable_sink_param", ".sinks"),
    (".linear_gate", ".gate_proj"),
    (".hc_attn_layer.hc_", ".attn_hc."),
    (".hc_mlp_layer.hc_", ".ffn_hc."),
    (".hc_head_", ".hc_"),
];

/// What models that read pages call the encoder of Segment Anything inside.
pub(super) const OF_SAM_INSIDE: &[(&str, &str)] = &[
    ("sam_model.blocks.", "vision_tower.sam_encoder.layers."),
    (".norm1.", ".layer_norm1."),
    (".norm2.", ".layer_norm2."),
    (
        "sam_model.patch_embed.proj.",
        "vision_tower.sam_encoder.patch_embed.projection.",
    ),
    ("sam_model.", "vision_tower.sam_encoder."),
];

/// Tensors of Unlimited OCR's encoder, alone or before another one.
pub(super) const OF_SAM: &[(&str, &str)] = &[
    ("^blocks.", "layers."),
    ("^sam_encoder.blocks.", "sam_encoder.layers."),
    (".norm1.", ".layer_norm1."),
    (".norm2.", ".layer_norm2."),
    ("patch_embed.proj.", "patch_embed.projection."),
    ("^net_2.", "proj.conv1."),
    ("^net_3.", "proj.conv2."),
];

/// Keys of encoders of sound that are Whisper's.
pub(super) const KEYS_OF_HEARING: &[(&str, &str)] = &[
    ("hidden_size", "d_model"),
    ("num_hidden_layers", "encoder_layers"),
    ("num_attention_heads", "encoder_attention_heads"),
    ("intermediate_size", "encoder_ffn_dim"),
];

/// Tensors of encoders of sound that are Whisper's, without a decoder.
pub(super) const OF_HEARING: &[(&str, &str)] = &[
    ("^conv1.", "encoder.conv1."),
    ("^conv2.", "encoder.conv2."),
    ("^embed_positions.", "encoder.embed_positions."),
    ("^layers.", "encoder.layers."),
    ("^layer_norm.", "encoder.layer_norm."),
];

/// What PyTorch's own attention calls its maps of queries, keys and values.
pub(super) const OF_TORCH: &[(&str, &str)] = &[
    (".in_proj_weight", ".in_proj.weight"),
    (".in_proj_bias", ".in_proj.bias"),
];

/// What detectors call the maps of attention of their encoder of pictures.
pub(super) const OF_VIT: &[(&str, &str)] = &[
    (".attention.attention.query.", ".attention.q_proj."),
    (".attention.attention.key.", ".attention.k_proj."),
    (".attention.attention.value.", ".attention.v_proj."),
    (".attention.output.", ".attention.o_proj."),
];

/// What Gradium's runtime calls the parts of its backbone.
pub(super) const OF_GRADIUM: &[(&str, &str)] = &[
    (
        "^flow_lm.condition_provider.conditioners.transcript_in_segment.embed.",
        "model.embed_tokens.",
    ),
    ("^flow_lm.transformer.layers.", "model.layers."),
    ("^flow_lm.out_norm.", "model.norm."),
    (".self_attn.out_proj.", ".self_attn.o_proj."),
    (".linear1.", ".mlp.fc1."),
    (".linear2.", ".mlp.fc2."),
    (".norm1.", ".input_layernorm."),
    (".norm2.", ".post_attention_layernorm."),
];

/// What SeamlessM4T calls the parts of M2M-100 that read and write texts.
pub(super) const OF_SEAMLESS: &[(&str, &str)] = &[
    ("^shared.", "model.shared."),
    ("^text_decoder.", "model.decoder."),
    ("^text_encoder.", "model.encoder."),
    (".ffn.fc", ".fc"),
    (".ffn_layer_norm.", ".final_layer_norm."),
    (".cross_attention.", ".encoder_attn."),
    (".cross_attention_layer_norm.", ".encoder_attn_layer_norm."),
];

pub(super) const KEYS_OF_SEAMLESS: &[(&str, &str)] = &[("hidden_size", "d_model")];

/// What Kolibri calls its norms behind branches, and what its router adds.
pub(super) const OF_KOLIBRI: &[(&str, &str)] = &[
    (".post_attn_norm.", ".post_self_attn_layernorm."),
    (".post_ffn_norm.", ".post_mlp_layernorm."),
    (
        ".moe.router.expert_bias",
        ".mlp.gate.e_score_correction_bias",
    ),
];
