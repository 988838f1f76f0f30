//! XLM-RoBERTa XL: RoBERTa with norms before the branches, and none on the embeddings.

use super::reading::bert_like::{BertLike, Norms};
use super::{Family, roberta};

pub const FAMILY: Family = Family::encoder("xlm-roberta-xl", "XLMRobertaXL", || BertLike {
    embed_norm: None,
    eps: 1e-5,
    norms: Norms::Before {
        attention: "attention.self_attn_layer_norm",
        mlp: "LayerNorm",
        last: "encoder.LayerNorm",
    },
    ..roberta::like("roberta.")
});
