//! Marian: BART with sinusoidal positions and no norm on the embeddings; the translators of OPUS, of one vocabulary or two.

use super::Family;
use super::reading::bart_like::{BartLike, Positions, SharedWords};

pub const FAMILY: Family = Family::translator("marian", "Marian", || BartLike {
    positions: Positions::Sinusoid,
    start_token: Some("pad_token_id"),
    shared_words: SharedWords::Unless("share_encoder_decoder_embeddings"),
    ..BartLike::PLAIN
});
