//! Blenderbot, small: BART whose decoder norms its embeddings before it adds positions.

use super::Family;
use super::reading::bart_like::BartLike;

pub const FAMILY: Family = Family::translator("blenderbot-small", "BlenderbotSmall", || BartLike {
    norms_embedding: true,
    norms_before_positions: true,
    ..BartLike::PLAIN
});
