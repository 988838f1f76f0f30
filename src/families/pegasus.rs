//! Pegasus: mBART with sinusoidal positions and no norm on the embeddings.

use attnscope_spec::DecoderInput;

use super::Family;
use super::reading::bart_like::{BartLike, Positions};

pub const FAMILY: Family = Family::translator("pegasus", "Pegasus", || BartLike {
    positions: Positions::Sinusoid,
    norms_before: true,
    norms_embedding: false,
    reads_again: DecoderInput::ShiftedForLabels,
    ..BartLike::PLAIN
});
