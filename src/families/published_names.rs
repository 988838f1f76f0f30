//! The tables of names that published files have in place of those of transformers, by model type.

use super::mistral_large4_text;
use super::published_parts::{
    KEYS_OF_HEARING, KEYS_OF_SEAMLESS, OF_COSMOS, OF_GRADIUM, OF_HEARING, OF_HY_V4, OF_KOLIBRI,
    OF_SAM, OF_SAM_INSIDE, OF_SEAMLESS, OF_SEARCH, OF_TORCH, OF_VIT,
};

/// Names, and what becomes of them.
type Names = &'static [(&'static str, &'static str)];

/// The names of one model type: theirs first, then what its family reads.
pub(super) struct Published {
    pub model_type: &'static str,
    pub keys: Names,
    /// Parts of names of tensors, replaced one after another; `^` stands for the beginning of a name.
    pub tensors: Names,
}

/// A model type whose tensors alone have other names.
const fn renamed(model_type: &'static str, tensors: Names) -> Published {
    Published {
        model_type,
        keys: &[],
        tensors,
    }
}

/// Every model type with names of its own, sorted by type.
pub(super) const PUBLISHED: &[Published] = &[
    Published {
        model_type: "audioflamingo3_encoder",
        keys: KEYS_OF_HEARING,
        tensors: OF_HEARING,
    },
    Published {
        model_type: "axk2",
        keys: &[],
        tensors: &[
            (".q_gate_proj.", ".q_b_proj."),
            ("layernorm.mlp.fc1.", "layernorm.W_down."),
            ("layernorm.mlp.fc2.", "layernorm.W_up."),
        ],
    },
    Published {
        model_type: "bailing_hybrid",
        keys: &[
            ("num_expert_group", "n_group"),
            ("moe_renormalize", "norm_topk_prob"),
            ("num_shared_experts", "n_shared_experts"),
            ("num_experts", "n_routed_experts"),
            ("num_experts_per_token", "num_experts_per_tok"),
        ],
        tensors: &[
            (".word_embeddings.", ".embed_tokens."),
            (".attention.dense.", ".self_attn.o_proj."),
            (".attention.f_proj.", ".self_attn.forget_gate.f_proj."),
            (".attention.dt_bias", ".self_attn.forget_gate.dt_bias"),
            (".attention.A_log", ".self_attn.forget_gate.A_log"),
            (".attention.", ".self_attn."),
            (".gate.expert_bias", ".gate.e_score_correction_bias"),
        ],
    },
    renamed("bridgetower_vision_model", OF_TORCH),
    Published {
        model_type: "clvp_decoder",
        keys: &[],
        tensors: &[("input_embeds_layer.", "embed_tokens.")],
    },
    renamed("cohere_asr", super::cohere_asr::PUBLISHED),
    renamed("colmodernvbert", OF_SEARCH),
    renamed("colpali", OF_SEARCH),
    renamed("colqwen2", OF_SEARCH),
    renamed("cosmos3_edge", OF_COSMOS),
    Published {
        model_type: "cosmos3_edge_text",
        keys: &[],
        tensors: &[
            (".mlp.fc1.", ".mlp.up_proj."),
            (".mlp.fc2.", ".mlp.down_proj."),
        ],
    },
    renamed("cosmos3_omni", OF_COSMOS),
    renamed("d_fine", super::rt_detr::PUBLISHED),
    Published {
        model_type: "decision_transformer",
        keys: &[("hidden_size", "n_embd")],
        tensors: &[("^encoder.", "transformer.")],
    },
    renamed("deepseek_ocr2", OF_SAM_INSIDE),
    Published {
        model_type: "deepseek_v4",
        keys: &[],
        tensors: super::deepseek_v4::PUBLISHED,
    },
    renamed("deimv2", super::rt_detr::PUBLISHED),
    Published {
        model_type: "dia",
        keys: &[],
        tensors: &[("encoder.embedding.", "encoder.embed_tokens.")],
    },
    Published {
        model_type: "dia_encoder",
        keys: &[],
        tensors: &[("^embedding.", "embed_tokens.")],
    },
    Published {
        model_type: "dots3_note_vision_encoder",
        keys: &[
            ("embed_dim", "hidden_size"),
            ("num_heads", "num_attention_heads"),
            ("capacity_factor", "num_experts_per_tok"),
            ("router_scale", "router_scaling_factor"),
        ],
        tensors: &[],
    },
    Published {
        model_type: "ernie4_5_vl_moe_text",
        keys: &[],
        tensors: &[
            (".text_moe.gate.moe_statics.", ".moe_statics."),
            (".text_moe.gate.", ".router."),
            (".text_moe.", "."),
        ],
    },
    Published {
        model_type: "exaone",
        keys: &[
            ("num_layers", "num_hidden_layers"),
            ("layer_norm_epsilon", "rms_norm_eps"),
            ("activation_function", "hidden_act"),
        ],
        tensors: &[
            ("^transformer.wte.", "model.embed_tokens."),
            ("^transformer.h.", "model.layers."),
            ("^transformer.ln_f.", "model.norm."),
            (".attn.attention.", ".self_attn."),
            (".out_proj.", ".o_proj."),
            (".ln_1.", ".input_layernorm."),
            (".ln_2.", ".post_attention_layernorm."),
            (".c_fc_0.", ".gate_proj."),
            (".c_fc_1.", ".up_proj."),
            (".c_proj.", ".down_proj."),
        ],
    },
    Published {
        model_type: "flint",
        keys: &[],
        tensors: &[(".softmax_offset", ".sinks")],
    },
    Published {
        model_type: "glm5_next_text",
        keys: &[],
        tensors: &[
            (".forget_gate.", "."),
            (".hc_attn_", ".attn_hc."),
            (".hc_ffn_", ".ffn_hc."),
        ],
    },
    renamed("gradium_phonon_tts", OF_GRADIUM),
    Published {
        model_type: "hy_v4",
        keys: &[],
        tensors: OF_HY_V4,
    },
    Published {
        model_type: "hy_v4_vl_text",
        keys: &[],
        tensors: OF_HY_V4,
    },
    Published {
        model_type: "inkling_mm_model",
        keys: &[],
        tensors: &[
            (
                "^model.llm.embed_norm.",
                "model.language_model.embed_tokens.embed_norm.",
            ),
            ("^model.llm.embed.", "model.language_model.embed_tokens."),
            ("^model.llm.unembed.", "lm_head."),
            ("^model.llm.", "model.language_model."),
            (".shared_w2_weight", ".down_proj"),
            (".experts.w2_weight", ".experts.down_proj"),
            (".mlp.w2_md.", ".mlp.down_proj."),
            (".mlp.gate.bias", ".mlp.gate.e_score_correction_bias"),
            (".attn.wq_du.", ".self_attn.q_proj."),
            (".attn.wk_dv.", ".self_attn.k_proj."),
            (".attn.wv_dv.", ".self_attn.v_proj."),
            (".attn.wr_du.", ".self_attn.r_proj."),
            (".attn.wo_ud.", ".self_attn.o_proj."),
            (".attn.", ".self_attn."),
            ("_sconv.weight", "_sconv.conv1d.weight"),
            (".mlp_norm.", ".post_attention_layernorm."),
            (".attn_norm.", ".input_layernorm."),
        ],
    },
    Published {
        model_type: "inkling_text",
        keys: &[
            ("sconv_kernel_size", "conv_kernel_size"),
            ("model_max_length", "max_position_embeddings"),
        ],
        tensors: &[],
    },
    Published {
        model_type: "kimi_k25",
        keys: &[],
        tensors: &[("model.blocks.", "model.layers.")],
    },
    renamed("kolibri1", OF_KOLIBRI),
    Published {
        model_type: "lara_mini",
        keys: &[],
        tensors: &[(".linear_attn.out_norm.", ".linear_attn.norm.")],
    },
    Published {
        model_type: "lfm3",
        keys: &[],
        tensors: &[(".self_attn.gate_proj.", ".self_attn.g_proj.")],
    },
    Published {
        model_type: "longcat_flash",
        keys: &[
            ("ffn_hidden_size", "intermediate_size"),
            ("expert_ffn_hidden_size", "moe_intermediate_size"),
            ("moe_topk", "num_experts_per_tok"),
        ],
        tensors: &[],
    },
    renamed("lw_detr", OF_VIT),
    Published {
        model_type: "lxmert",
        // All counts of layers are one value there.
        keys: &[
            ("num_hidden_layers", "n_layers_of_all"),
            ("l_layers", "num_hidden_layers"),
        ],
        tensors: &[],
    },
    Published {
        model_type: "mistral_large4",
        keys: &[],
        tensors: mistral_large4_text::NAMES_OF_WHOLE,
    },
    Published {
        model_type: "mistral_large4_text",
        keys: &[],
        tensors: mistral_large4_text::NAMES,
    },
    Published {
        model_type: "molmo2_text",
        keys: &[
            ("qkv_bias", "attention_bias"),
            ("layer_norm_eps", "rms_norm_eps"),
        ],
        tensors: &[
            ("transformer.blocks.", "layers."),
            ("transformer.ln_f.", "norm."),
            ("transformer.wte.", "wte."),
            ("wte.new_embedding", "image_tokens.weight"),
            ("wte.embedding", "embed_tokens.weight"),
            (".attn_norm.", ".input_layernorm."),
            (".ff_norm.", ".post_attention_layernorm."),
            (".att_proj.", ".qkv_proj."),
            (".attn_out.", ".o_proj."),
            (".ff_out.", ".down_proj."),
            (".ff_proj.", ".gate_up_proj."),
        ],
    },
    Published {
        model_type: "moss_transcribe_diarize_audio",
        keys: KEYS_OF_HEARING,
        tensors: OF_HEARING,
    },
    Published {
        model_type: "nemo_speechlm",
        keys: &[],
        tensors: &[
            ("^llm.model.embed_tokens.", "model.embeddings."),
            ("^llm.model.norm.", "model.norm_f."),
            ("^llm.model.", "model."),
            ("^llm.lm_head.", "lm_head."),
            (".mixer._fp32_params.", ".mixer."),
        ],
    },
    Published {
        model_type: "ovis2_vision",
        keys: &[],
        tensors: &[
            ("^transformer.", ""),
            ("embeddings.patch_embedding.", "embeddings.patch_embed."),
        ],
    },
    Published {
        model_type: "pix2struct",
        keys: &[],
        tensors: &[
            ("^decoder.layer.", "decoder.block."),
            ("^decoder.lm_head.", "lm_head."),
            (
                ".encoder_decoder_attention.attention.query.",
                ".layer.1.EncDecAttention.q.",
            ),
            (
                ".encoder_decoder_attention.attention.key.",
                ".layer.1.EncDecAttention.k.",
            ),
            (
                ".encoder_decoder_attention.attention.value.",
                ".layer.1.EncDecAttention.v.",
            ),
            (
                ".encoder_decoder_attention.attention.output.",
                ".layer.1.EncDecAttention.o.",
            ),
            (
                ".encoder_decoder_attention.layer_norm.",
                ".layer.1.layer_norm.",
            ),
        ],
    },
    Published {
        model_type: "pix2struct_text_model",
        keys: &[("hidden_size", "d_model")],
        tensors: &[
            ("^layer.", "decoder.block."),
            ("^embed_tokens.", "decoder.embed_tokens."),
            ("^final_layer_norm.", "decoder.final_layer_norm."),
            (".self_attention.layer_norm.", ".layer.0.layer_norm."),
            (
                ".self_attention.attention.query.",
                ".layer.0.SelfAttention.q.",
            ),
            (
                ".self_attention.attention.key.",
                ".layer.0.SelfAttention.k.",
            ),
            (
                ".self_attention.attention.value.",
                ".layer.0.SelfAttention.v.",
            ),
            (
                ".self_attention.attention.output.",
                ".layer.0.SelfAttention.o.",
            ),
            (".self_attention.attention.", ".layer.0.SelfAttention."),
            (".mlp.DenseReluDense.", ".layer.2.DenseReluDense."),
            (".mlp.layer_norm.", ".layer.2.layer_norm."),
        ],
    },
    renamed("pp_doclayout_v2", super::rt_detr::PUBLISHED),
    renamed("pp_doclayout_v3", super::rt_detr::PUBLISHED),
    renamed("pp_doclayout_v4", super::rt_detr::PUBLISHED),
    Published {
        model_type: "pp_formulanet_text",
        keys: &[],
        tensors: &[
            ("^layers.", "decoder.layers."),
            ("^embed_tokens.", "decoder.embed_tokens."),
            ("^embed_positions.", "decoder.embed_positions."),
            ("^layernorm_embedding.", "decoder.layernorm_embedding."),
            ("^layer_norm.", "decoder.layer_norm."),
        ],
    },
    Published {
        model_type: "qianfan_ocr",
        keys: &[],
        tensors: &[("model.encoder.layers.", "model.layers.")],
    },
    Published {
        model_type: "qianfan_ocr_vision",
        keys: &[],
        tensors: &[("^layers.", "encoder.layer.")],
    },
    Published {
        model_type: "qwen2_audio_encoder",
        keys: KEYS_OF_HEARING,
        tensors: OF_HEARING,
    },
    Published {
        model_type: "qwen3_omni_moe_talker_text",
        keys: &[],
        tensors: &[
            ("codec_embedding.", "embed_tokens."),
            ("codec_head.", "lm_head."),
        ],
    },
    renamed("rt_detr", super::rt_detr::PUBLISHED),
    renamed("rt_detr_v2", super::rt_detr::PUBLISHED),
    Published {
        model_type: "sapiens2",
        keys: &[],
        tensors: super::sapiens2::PUBLISHED,
    },
    Published {
        model_type: "sarvam_moe",
        keys: &[
            ("num_experts", "n_routed_experts"),
            ("num_shared_experts", "n_shared_experts"),
            ("use_qkv_bias", "attention_bias"),
        ],
        tensors: &[
            (".word_embeddings.", ".embed_tokens."),
            (".attention.dense.", ".self_attn.o_proj."),
            (".attention.query_key_value.", ".self_attn.qkv_proj."),
            (".attention.query_layernorm.", ".self_attn.q_norm."),
            (".attention.key_layernorm.", ".self_attn.k_norm."),
            (".gate.expert_bias", ".gate.e_score_correction_bias"),
        ],
    },
    Published {
        model_type: "seamless_m4t",
        keys: KEYS_OF_SEAMLESS,
        tensors: OF_SEAMLESS,
    },
    Published {
        model_type: "seamless_m4t_v2",
        keys: KEYS_OF_SEAMLESS,
        tensors: OF_SEAMLESS,
    },
    renamed("step3p5_vision", OF_TORCH),
    Published {
        model_type: "step3p7",
        keys: &[],
        tensors: &[
            (".moe.gate.weight", ".mlp.gate.weight"),
            (".moe.router_bias", ".mlp.gate.e_score_correction_bias"),
            (".moe.", ".mlp.experts."),
            (".share_expert.", ".mlp.shared_experts."),
        ],
    },
    Published {
        model_type: "timesfm2_5",
        keys: &[],
        tensors: &[(".mlp.ff0.", ".mlp.fc1."), (".mlp.ff1.", ".mlp.fc2.")],
    },
    Published {
        model_type: "tipsv2_text_model",
        keys: &[],
        tensors: &[
            ("text_encoder.", "text_model."),
            ("transformer.resblocks.", "encoder.layers."),
            (".ln_1.", ".layer_norm1."),
            (".ln_2.", ".layer_norm2."),
            (".attn.in_proj_weight", ".self_attn.in_proj.weight"),
            (".attn.in_proj_bias", ".self_attn.in_proj.bias"),
            (".attn.out_proj.", ".self_attn.out_proj."),
            (".mlp.c_fc.", ".mlp.fc1."),
            (".mlp.c_proj.", ".mlp.fc2."),
            ("ln_final.", "final_layer_norm."),
            ("token_embedding.", "embeddings.token_embedding."),
        ],
    },
    Published {
        model_type: "ultrabert",
        keys: &[],
        tensors: &[
            ("^ultrabert.", "model."),
            ("^cls.weight", "head.decoder.weight"),
        ],
    },
    renamed("unlimited_ocr", OF_SAM_INSIDE),
    renamed("unlimited_ocr_sam_vision_model", OF_SAM),
    renamed("unlimited_ocr_vision", OF_SAM),
    Published {
        model_type: "unlimited_ocr_vision_encoder",
        keys: &[],
        tensors: &[("^transformer.", "encoder.")],
    },
    Published {
        model_type: "videomae",
        keys: &[],
        tensors: &[(".q_bias", ".query.bias"), (".v_bias", ".value.bias")],
    },
    Published {
        model_type: "voxtral_encoder",
        keys: KEYS_OF_HEARING,
        tensors: OF_HEARING,
    },
];
