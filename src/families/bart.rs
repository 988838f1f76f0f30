//! BART: an encoder and a decoder with learned positions, norms after each branch and on the embeddings.

use attnscope_spec::DecoderInput;

use super::Family;
use super::reading::bart_like::{BartLike, Positions};

pub const FAMILY: Family = Family::translator("bart", "Bart", || BartLike {
    positions: Positions::Learned { n_rows_before: 2 },
    norms_before: false,
    norms_embedding: true,
    reads_again: DecoderInput::Shifted,
    ..BartLike::PLAIN
});
