//! ESM: an encoder of proteins, norms before the branches, learned positions (1b) or rotation (2), masked tokens left out.

use super::reading::bert_like::{BertLike, Norms, Positions};
use super::{Family, roberta};

pub const FAMILY: Family = Family::encoder("esm", "Esm", || BertLike {
    positions: Positions::LearnedOrRotary,
    embed_norm: Some("embeddings.layer_norm"),
    embed_norm_if: Some("emb_layer_norm_before"),
    has_token_types: false,
    norms: Norms::Before {
        attention: "attention.LayerNorm",
        mlp: "LayerNorm",
        last: "encoder.emb_layer_norm_after",
    },
    drops_masked: Some("token_dropout"),
    activation: (None, "gelu"),
    must_be_off: &[(
        "is_folding_model",
        "the part that folds proteins is not read",
    )],
    ..roberta::like("esm.")
});
