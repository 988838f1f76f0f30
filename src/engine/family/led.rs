//! LED: BART whose encoder sees a window to both sides, as it runs where no token is named that sees all others.

use super::Family;
use super::reading::bart_like::{BartLike, Positions};
use crate::model::ReadsAgain;

pub const FAMILY: Family = Family::translator("led", "LED", || BartLike {
    positions: Positions::Learned { n_rows_before: 0 },
    norms_embedding: true,
    base: "led.",
    n_ctx: [
        "max_encoder_position_embeddings",
        "max_decoder_position_embeddings",
    ],
    scales: None,
    window: Some("attention_window"),
    reads_again: ReadsAgain::Shifted,
    ..BartLike::PLAIN
});
