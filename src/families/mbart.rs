//! mBART: BART with norms before the branches and after the last block.

use attnscope_spec::DecoderInput;

use super::Family;
use super::reading::bart_like::{BartLike, Positions};

pub const FAMILY: Family = Family::translator("mbart", "MBart", || BartLike {
    positions: Positions::Learned { n_rows_before: 2 },
    norms_before: true,
    norms_embedding: true,
    reads_again: DecoderInput::LastTokenFirst,
    start_token: Some("eos_token_id"),
    ..BartLike::PLAIN
});
