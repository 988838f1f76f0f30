//! Blenderbot: mBART without a norm on the embeddings, and positions from the first row on.

use attnscope_spec::DecoderInput;

use super::Family;
use super::reading::bart_like::{BartLike, Positions};

pub const FAMILY: Family = Family::translator("blenderbot", "Blenderbot", || BartLike {
    positions: Positions::Learned { n_rows_before: 0 },
    norms_before: true,
    norms_embedding: false,
    reads_again: DecoderInput::ShiftedForLabels,
    ..BartLike::PLAIN
});
