//! FSMT: the translators of fairseq's WMT19, of two vocabularies; sines as positions, norms after the branches.

use super::Family;
use super::reading::bart_like::{BartLike, Positions, SharedWords};

pub const FAMILY: Family = Family::translator("fsmt", "FSMT", || BartLike {
    positions: Positions::SinusoidNotPad,
    vocabulary: ["src_vocab_size", "tgt_vocab_size"],
    shared_words: SharedWords::Never,
    head: "decoder.output_projection.weight",
    tied_alone: true,
    activation: "relu",
    scales: Some(true),
    ..BartLike::PLAIN
});
