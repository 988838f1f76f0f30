//! Encoders, and the translators of T5.

use super::architecture::{Architecture, Fixed, Fused, Quirk, Table};
use super::shared::*;
use crate::gguf::left_out::LeftOut;
use crate::gguf::{rework, special};

/// Sorted by name.
pub(super) static ENCODERS: &[Architecture] = &[
    Architecture {
        name: "bert",
        variant: Some((&DISTILBERT, |has, _| !has("token_types.weight"))),
        layers: "encoder.layer",
        top: BERT_TOP,
        names: &[
            ("attn_q", "attention.self.query"),
            ("attn_k", "attention.self.key"),
            ("attn_v", "attention.self.value"),
            ("attn_output", "attention.output.dense"),
            ("attn_output_norm", "attention.output.LayerNorm"),
            ("ffn_up", "intermediate.dense"),
            ("ffn_down", "output.dense"),
            ("layer_output_norm", "output.LayerNorm"),
        ],
        activation: ("hidden_act", "gelu"),
        eps: (LAYER_NORM_EPS, "layer_norm_eps"),
        special: Some(special::bert),
        left_out: LeftOut::Setting("the activation", "gelu"),
        quirks: &[Quirk::SeesBoth, Quirk::DerivesHeadWidth],
        ..PLAIN
    },
    Architecture {
        name: "eurobert",
        switches: BIASES,
        // Files have no head.
        fixed: &[("architectures", Fixed::Words(&["EuroBertModel"]))],
        quirks: &[Quirk::SeesBoth],
        ..PLAIN
    },
    Architecture {
        name: "modern-bert",
        layers: "layers",
        top: &[
            ("token_embd", "embeddings.tok_embeddings"),
            ("token_embd_norm", "embeddings.norm"),
            ("output_norm", "final_norm"),
        ],
        names: &[
            ("attn_norm", "attn_norm"),
            ("attn_qkv", "attn.Wqkv"),
            ("attn_output", "attn.Wo"),
            ("ffn_norm", "mlp_norm"),
            ("ffn_up", "mlp.Wi"),
            ("ffn_down", "mlp.Wo"),
        ],
        fused: Fused::AsIs,
        model_type: Some("modernbert"),
        switches: &[
            ("attention_bias", "layers.0.attn.Wqkv.bias"),
            ("mlp_bias", "layers.0.mlp.Wi.bias"),
            ("norm_bias", "final_norm.bias"),
        ],
        activation: NO_ACTIVATION,
        eps: (LAYER_NORM_EPS, "norm_eps"),
        renames: &[("rope_theta", "global_rope_theta"), NO_KV_HEADS],
        special: Some(special::modern_bert),
        quirks: &[Quirk::SeesBoth, Quirk::DerivesHeadWidth],
        ..PLAIN
    },
    Architecture {
        name: "nomic-bert",
        layers: "encoder.layers",
        top: &[
            ("token_embd", "embeddings.word_embeddings"),
            ("token_types", "embeddings.token_type_embeddings"),
            ("token_embd_norm", "emb_ln"),
        ],
        names: &[
            ("attn_qkv", "attn.Wqkv"),
            ("attn_output", "attn.out_proj"),
            ("attn_output_norm", "norm1"),
            ("ffn_up", "mlp.fc11"),
            ("ffn_gate", "mlp.fc12"),
            ("ffn_down", "mlp.fc2"),
            ("layer_output_norm", "norm2"),
        ],
        fused: Fused::AsIs,
        model_type: Some("nomic_bert"),
        eps: (LAYER_NORM_EPS, "layer_norm_eps"),
        special: Some(special::bert),
        quirks: &[Quirk::SeesBoth],
        ..PLAIN
    },
    Architecture { name: "t5", ..T5 },
    Architecture {
        name: "t5encoder",
        fixed: &[
            T5.fixed[0],
            ("architectures", Fixed::Words(&["T5EncoderModel"])),
        ],
        quirks: &[Quirk::SeesBoth],
        ..T5
    },
];

const BERT_TOP: Table = &[
    ("token_embd", "embeddings.word_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"),
    ("position_embd", "embeddings.position_embeddings"),
    ("token_embd_norm", "embeddings.LayerNorm"),
];

/// What the converter makes of a DistilBERT: a BERT without segments.
const DISTILBERT: Architecture = Architecture {
    name: "distilbert",
    layers: "transformer.layer",
    top: BERT_TOP,
    names: &[
        ("attn_q", "attention.q_lin"),
        ("attn_k", "attention.k_lin"),
        ("attn_v", "attention.v_lin"),
        ("attn_output", "attention.out_lin"),
        ("attn_output_norm", "sa_layer_norm"),
        ("ffn_up", "ffn.lin1"),
        ("ffn_down", "ffn.lin2"),
        ("layer_output_norm", "output_layer_norm"),
    ],
    activation: ("activation", "gelu"),
    eps: (LAYER_NORM_EPS, ""),
    renames: &[
        ("num_hidden_layers", "n_layers"),
        ("num_attention_heads", "n_heads"),
        ("hidden_size", "dim"),
        ("intermediate_size", "hidden_dim"),
        NO_KV_HEADS,
        NO_ROPE,
    ],
    left_out: LeftOut::Setting("the activation", "gelu"),
    quirks: &[Quirk::SeesBoth, Quirk::DerivesHeadWidth],
    ..PLAIN
};

const T5: Architecture = Architecture {
    layers: "",
    top: &[
        ("token_embd", "shared"),
        ("enc.output_norm", "encoder.final_layer_norm"),
        ("dec.output_norm", "decoder.final_layer_norm"),
        ("output", "lm_head"),
    ],
    stacks: &[
        (
            "enc.blk.",
            "encoder.block",
            &[
                ("attn_norm", "layer.0.layer_norm"),
                ("attn_q", "layer.0.SelfAttention.q"),
                ("attn_k", "layer.0.SelfAttention.k"),
                ("attn_v", "layer.0.SelfAttention.v"),
                ("attn_o", "layer.0.SelfAttention.o"),
                (
                    "attn_rel_b",
                    "layer.0.SelfAttention.relative_attention_bias",
                ),
                ("ffn_norm", "layer.1.layer_norm"),
                ("ffn_gate", "layer.1.DenseReluDense.wi_0"),
                ("ffn_up", "layer.1.DenseReluDense.wi"),
                ("ffn_down", "layer.1.DenseReluDense.wo"),
            ],
        ),
        (
            "dec.blk.",
            "decoder.block",
            &[
                ("attn_norm", "layer.0.layer_norm"),
                ("attn_q", "layer.0.SelfAttention.q"),
                ("attn_k", "layer.0.SelfAttention.k"),
                ("attn_v", "layer.0.SelfAttention.v"),
                ("attn_o", "layer.0.SelfAttention.o"),
                (
                    "attn_rel_b",
                    "layer.0.SelfAttention.relative_attention_bias",
                ),
                ("cross_attn_norm", "layer.1.layer_norm"),
                ("cross_attn_q", "layer.1.EncDecAttention.q"),
                ("cross_attn_k", "layer.1.EncDecAttention.k"),
                ("cross_attn_v", "layer.1.EncDecAttention.v"),
                ("cross_attn_o", "layer.1.EncDecAttention.o"),
                ("ffn_norm", "layer.2.layer_norm"),
                ("ffn_gate", "layer.2.DenseReluDense.wi_0"),
                ("ffn_up", "layer.2.DenseReluDense.wi"),
                ("ffn_down", "layer.2.DenseReluDense.wo"),
            ],
        ),
    ],
    rework: Some(rework::t5),
    // The format has no key for the distance beyond which all keys share the last bucket.
    fixed: &[("relative_attention_max_distance", Fixed::Number(128.0))],
    activation: NO_ACTIVATION,
    eps: (LAYER_NORM_EPS, "layer_norm_epsilon"),
    renames: &[
        ("num_hidden_layers", "num_layers"),
        ("num_attention_heads", "num_heads"),
        ("hidden_size", "d_model"),
        ("intermediate_size", "d_ff"),
        ("head_dim", "d_kv"),
        ("max_position_embeddings", ""),
        NO_KV_HEADS,
        NO_ROPE,
    ],
    special: Some(special::t5),
    left_out: LeftOut::Setting("from which distance keys share a bucket", "128"),
    ..PLAIN
};
