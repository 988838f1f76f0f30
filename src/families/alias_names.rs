//! The table of aliases: model types, the families that read them, and their own defaults.

/// A model type that a family with another name reads.
pub(super) struct Alias {
    /// The model type in a configuration.
    pub name: &'static str,
    pub family: &'static str,
    /// Values of absent keys, if the family's defaults differ.
    pub absent: &'static [(&'static str, Held)],
    /// Knobs with a fixed value, whatever the configuration says.
    pub always: &'static [(&'static str, bool)],
    /// Switches of parts that the family does not have.
    pub off: &'static [&'static str],
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Held {
    Number(f64),
    Count(u64),
    Flag(bool),
    Word(&'static str),
    /// The value of another key, or this token.
    TokenOf(&'static str, u64),
}

impl Alias {
    const fn plain(name: &'static str, family: &'static str) -> Self {
        Self {
            name,
            family,
            absent: &[],
            always: &[],
            off: &[],
        }
    }
}

pub(super) const THETA: &str = "rope_theta";

/// The text part of Qwen2-VL.
const QWEN2_VL: Alias = Alias {
    absent: &[
        (THETA, Held::Number(1e6)),
        ("rms_norm_eps", Held::Number(1e-5)),
    ],
    ..Alias::plain("", "qwen2")
};

/// The text part of PaddleOCR-VL.
const PADDLEOCR_VL: Alias = Alias {
    absent: &[
        (THETA, Held::Number(5e5)),
        ("rms_norm_eps", Held::Number(1e-5)),
        ("head_dim", Held::Count(128)),
        ("tie_word_embeddings", Held::Flag(true)),
    ],
    off: &["use_bias"],
    ..Alias::plain("", "llama")
};

/// The encoder of Nemotron's transcriptions: the one of its diarisation, with norms of queries and keys.
const NEMOTRON_TRANSCRIBE: Alias = Alias {
    always: &[("qk_norm", true)],
    absent: &[("partial_rotary_factor", Held::Number(0.5))],
    ..Alias::plain(
        "nemotron3_5_transcribe_asr_audio",
        "nemotron3_diarization_audio",
    )
};

/// The texts of SeamlessM4T, which M2M-100 reads.
const SEAMLESS: Alias = Alias {
    absent: &[
        ("activation_function", Held::Word("relu")),
        ("decoder_start_token_id", Held::Count(3)),
        ("eos_token_id", Held::Count(3)),
        ("pad_token_id", Held::Count(0)),
        ("scale_embedding", Held::Flag(true)),
    ],
    ..Alias::plain("seamless_m4t", "m2m_100")
};

/// The transformers of Pocket TTS's codec.
const POCKET: Alias = Alias {
    absent: &[("hidden_act", Held::Word("gelu_pytorch_tanh"))],
    ..Alias::plain("pocket_tts_audio_tokenizer", "mimi")
};

/// Every alias, sorted by name.
pub(super) const ALIASES: &[Alias] = &[
    Alias::plain("align_text_model", "bert"),
    Alias::plain("altclip_vision_model", "clip_vision_model"),
    Alias {
        off: &["output_vocab_size"],
        ..Alias::plain("apertus1p5_text", "apertus")
    },
    Alias {
        always: &[("pools_pairs", true)],
        ..Alias::plain("audioflamingo3_encoder", "whisper")
    },
    Alias {
        absent: &[("layer_norm_eps", Held::Number(1e-6))],
        ..Alias::plain("blip_2_vision_model", "blip_vision_model")
    },
    Alias {
        absent: &[
            ("layer_norm_eps", Held::Number(1e-5)),
            ("type_vocab_size", Held::Count(1)),
        ],
        ..Alias::plain("bridgetower_text_model", "roberta")
    },
    Alias::plain("camembert", "roberta"),
    Alias::plain("chinese_clip_text_model", "bert"),
    Alias::plain("chinese_clip_vision_model", "clip_vision_model"),
    Alias {
        absent: &[("type_vocab_size", Held::Count(1))],
        ..Alias::plain("clap_text_model", "roberta")
    },
    Alias::plain("clipseg_text_model", "clip_text_model"),
    Alias::plain("clipseg_vision_model", "clip_vision_model"),
    Alias::plain("cohere_compass_vision", "qwen3_vl_vision"),
    Alias {
        absent: &[
            ("hidden_size", Held::Count(1152)),
            ("num_attention_heads", Held::Count(16)),
            ("intermediate_size", Held::Count(4304)),
            ("num_hidden_layers", Held::Count(27)),
        ],
        ..Alias::plain("cosmos3_edge_vision", "siglip2_vision_model")
    },
    Alias::plain("d_fine", "rt_detr"),
    Alias::plain("deepseek_ocr2_sam_vision_model", "sam_vision_model"),
    Alias::plain("deimv2", "rt_detr"),
    Alias {
        absent: &[
            ("enable_moe_block", Held::Flag(true)),
            ("attention_k_eq_v", Held::Flag(true)),
            ("hidden_size_per_layer_input", Held::Count(0)),
        ],
        ..Alias::plain("diffusion_gemma_text", "gemma4_text")
    },
    Alias {
        absent: &[
            (THETA, Held::Number(1e6)),
            ("rms_norm_eps", Held::Number(1e-5)),
        ],
        ..Alias::plain("emu3_text_model", "llama")
    },
    Alias {
        absent: &[
            (THETA, Held::Number(5e5)),
            ("rms_norm_eps", Held::Number(1e-5)),
        ],
        ..Alias::plain("evolla", "llama")
    },
    Alias {
        absent: &[
            (THETA, Held::Number(5e5)),
            ("rms_norm_eps", Held::Number(1e-5)),
        ],
        ..Alias::plain("exaone", "llama")
    },
    Alias {
        absent: &[("num_key_value_heads", Held::Count(8))],
        ..Alias::plain("exaone4_5_vision", "qwen2_5_vl_vision")
    },
    Alias {
        off: &["pre_norm"],
        ..Alias::plain("flaubert", "xlm")
    },
    Alias::plain("flava_image_model", "vit"),
    Alias {
        absent: &[
            ("hidden_size_per_layer_input", Held::Count(0)),
            ("sliding_window", Held::Count(1024)),
            ("max_position_embeddings", Held::Count(262_144)),
        ],
        ..Alias::plain("gemma4_unified_text", "gemma4_text")
    },
    Alias {
        absent: &[("attention_bias", Held::Flag(true))],
        always: &[("qk_norm", false)],
        ..Alias::plain("glm4v_moe_text", "glm4_moe")
    },
    Alias::plain("glm4v_moe_vision", "glm4v_vision"),
    Alias::plain("glm5_next", "glm5_next_text"),
    Alias::plain("got_ocr2_vision", "sam_vision_model"),
    Alias {
        absent: &[("hidden_act", Held::Word("gelu"))],
        always: &[("joined_qkv", true)],
        ..Alias::plain("gradium_phonon_tts", "pocket_tts")
    },
    Alias::plain("granite4_vision_text", "granite"),
    Alias {
        absent: &[
            ("rms_norm_eps", Held::Number(1e-5)),
            ("tie_word_embeddings", Held::Flag(true)),
            ("embedding_multiplier", Held::Number(12.0)),
            ("logits_scaling", Held::Number(4.0)),
            ("residual_multiplier", Held::Number(0.263)),
            ("attention_multiplier", Held::Number(0.015_625)),
        ],
        ..Alias::plain("granite_docling_text", "granite")
    },
    Alias {
        absent: &[("image_size", Held::Count(512))],
        ..Alias::plain("granite_docling_vision", "siglip_vision_model")
    },
    Alias {
        off: &["cat_hidden_layers"],
        ..Alias::plain("granite_speech_plus_encoder", "granite_speech_encoder")
    },
    Alias::plain("groupvit_text_model", "clip_text_model"),
    Alias::plain("hunyuan_vl", "hunyuan_v1_dense"),
    Alias::plain("hunyuan_vl_text", "hunyuan_v1_dense"),
    Alias {
        off: &["quant_mode"],
        ..Alias::plain("ibert", "roberta")
    },
    Alias {
        absent: &[
            ("hidden_size", Held::Count(1152)),
            ("num_attention_heads", Held::Count(16)),
        ],
        ..Alias::plain("idefics3_vision", "idefics2_vision")
    },
    Alias::plain("inkling_mm_model", "inkling_text"),
    Alias {
        absent: &[("layer_norm_eps", Held::Number(1e-6))],
        ..Alias::plain("instructblip_vision_model", "blip_vision_model")
    },
    Alias::plain("instructblipvideo_qformer", "instructblip_qformer"),
    Alias {
        absent: &[("layer_norm_eps", Held::Number(1e-6))],
        ..Alias::plain("instructblipvideo_vision_model", "blip_vision_model")
    },
    Alias {
        off: &["qkv_bias", "bias"],
        absent: &[
            ("head_dim", Held::Number(128.0)),
            ("rms_norm_eps", Held::Number(1e-5)),
        ],
        ..Alias::plain("internlm3", "llama")
    },
    Alias {
        off: &["use_sliding_window", "clip_qkv"],
        absent: &[
            ("head_dim", Held::Number(128.0)),
            ("rms_norm_eps", Held::Number(1e-5)),
        ],
        ..Alias::plain("iquestcoder", "llama")
    },
    Alias::plain("kimi_k2", "deepseek_v3"),
    Alias::plain("kosmos_2_vision_model", "clip_vision_model"),
    Alias::plain("luke", "roberta"),
    Alias::plain("metaclip_2_text_model", "clip_text_model"),
    Alias::plain("metaclip_2_vision_model", "clip_vision_model"),
    Alias::plain("mimi_decoder", "mimi"),
    Alias::plain("mimi_encoder", "mimi"),
    Alias::plain("minicpmv4_6_vision", "minicpm_ocr_vision"),
    Alias::plain("minicpmv4_7_vision", "minicpm_ocr_vision"),
    Alias::plain("mlcd", "mlcd_vision_model"),
    Alias::plain("moss_transcribe_diarize_audio", "whisper"),
    Alias::plain("muse_spark_vision", "muse_glimmer_vision"),
    Alias::plain("musicgen_melody_decoder", "musicgen_decoder"),
    Alias {
        off: &["use_prompt"],
        ..Alias::plain("mvp", "bart")
    },
    NEMOTRON_TRANSCRIBE,
    Alias {
        name: "nemotron3_5_transcribe_word_timestamp",
        always: &[("qk_norm", true), ("reads_rows", true)],
        ..NEMOTRON_TRANSCRIBE
    },
    Alias::plain("neucodec", "xcodec2"),
    Alias::plain("ovis2_vision", "aimv2_vision_model"),
    Alias::plain("owlv2_text_model", "owlvit_text_model"),
    Alias::plain("owlv2_vision_model", "owlvit_vision_model"),
    Alias {
        name: "paddleocr_vl",
        ..PADDLEOCR_VL
    },
    Alias {
        name: "paddleocr_vl_text",
        ..PADDLEOCR_VL
    },
    Alias::plain("pe_audio_video_encoder", "pe_audio_encoder"),
    Alias::plain("pe_video_encoder", "pe_audio_encoder"),
    Alias::plain("phi4_multimodal", "phi3"),
    Alias::plain("phi4_multimodal_vision", "siglip_vision_model"),
    Alias {
        absent: &[
            ("scale_embedding", Held::Flag(true)),
            ("decoder_start_token_id", Held::TokenOf("bos_token_id", 0)),
        ],
        ..Alias::plain("plbart", "bart")
    },
    POCKET,
    Alias {
        name: "pocket_tts_audio_tokenizer_decoder",
        ..POCKET
    },
    Alias {
        name: "pocket_tts_audio_tokenizer_encoder",
        ..POCKET
    },
    Alias::plain("pp_doclayout_v2", "rt_detr"),
    Alias::plain("pp_doclayout_v3", "rt_detr"),
    Alias::plain("pp_doclayout_v4", "rt_detr"),
    Alias {
        absent: &[("image_size", Held::Count(512))],
        ..Alias::plain("pp_formulanet_vision", "sam_vision_model")
    },
    Alias::plain("qianfan_ocr_vision", "internvl_vision"),
    Alias {
        absent: &[(THETA, Held::Number(1e6))],
        ..Alias::plain("qwen2_5_omni_talker", "qwen2")
    },
    Alias {
        absent: &[
            (THETA, Held::Number(1e6)),
            ("tie_word_embeddings", Held::Flag(true)),
        ],
        ..Alias::plain("qwen2_5_omni_text", "qwen2")
    },
    Alias::plain("qwen2_5_omni_vision_encoder", "qwen2_5_vl_vision"),
    Alias {
        name: "qwen2_5_vl",
        ..QWEN2_VL
    },
    Alias {
        name: "qwen2_5_vl_text",
        ..QWEN2_VL
    },
    Alias {
        always: &[("pools_pairs", true)],
        ..Alias::plain("qwen2_audio_encoder", "whisper")
    },
    Alias {
        name: "qwen2_vl",
        ..QWEN2_VL
    },
    Alias {
        name: "qwen2_vl_text",
        ..QWEN2_VL
    },
    Alias::plain("qwen3_5_moe_vision", "qwen3_vl_vision"),
    Alias::plain("qwen3_5_vision", "qwen3_vl_vision"),
    Alias {
        absent: &[
            (THETA, Held::Number(1e6)),
            ("norm_topk_prob", Held::Flag(true)),
        ],
        ..Alias::plain("qwen3_omni_moe_text", "qwen3_moe")
    },
    Alias::plain("qwen3_omni_moe_vision_encoder", "qwen3_vl_vision"),
    Alias {
        absent: &[(THETA, Held::Number(5e5))],
        always: &[("normalises_experts", true)],
        ..Alias::plain("qwen3_vl_moe_text", "qwen3_moe")
    },
    Alias::plain("qwen3_vl_moe_vision", "qwen3_vl_vision"),
    Alias {
        absent: &[(THETA, Held::Number(5e5))],
        ..Alias::plain("qwen3_vl_text", "qwen3")
    },
    Alias::plain("qwen4_exp_vision", "qwen3_vl_vision"),
    Alias::plain("rt_detr_v2", "rt_detr"),
    Alias::plain("sam3_lite_text_detr_encoder", "sam3_detr_encoder"),
    Alias::plain("sam3_lite_text_mask_decoder", "sam3_mask_decoder"),
    Alias::plain("sam_hq_vision_model", "sam_vision_model"),
    SEAMLESS,
    Alias {
        name: "seamless_m4t_v2",
        ..SEAMLESS
    },
    Alias::plain("siglip2_text_model", "siglip_text_model"),
    Alias {
        absent: &[("image_size", Held::Count(512))],
        ..Alias::plain("slanext_vision", "sam_vision_model")
    },
    Alias {
        absent: &[
            ("hidden_size", Held::Count(1152)),
            ("num_attention_heads", Held::Count(16)),
        ],
        ..Alias::plain("smolvlm_vision", "idefics2_vision")
    },
    Alias::plain("splinter", "bert"),
    Alias::plain("unlimited_ocr_sam_vision_model", "sam_vision_model"),
    Alias::plain("visual_bert", "bert"),
    Alias::plain("voxtral_encoder", "whisper"),
    Alias::plain("xclip_text_model", "clip_text_model"),
];
