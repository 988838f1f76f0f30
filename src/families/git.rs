//! GIT: BERT that looks back alone. What it makes of pictures is not read: it is run on text.

use super::Family;
use super::reading::bert_like::BertLike;
use super::reading::masked_head::MaskedHead;

pub const FAMILY: Family = Family::encoder("git", "Git", || BertLike {
    always_decodes: true,
    has_token_types: false,
    ..BertLike::plain(
        "git.",
        MaskedHead {
            dense: None,
            norm: "",
            decoder: "output",
            bias: "output.bias",
            activation: None,
        },
    )
});
