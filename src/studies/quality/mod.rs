//! Translation quality: BLEU of a model's output, and alignment error of its attention.

mod alignment;
mod bleu;
mod looks;
mod tokenise;

pub use alignment::{AlignmentErrors, GoldAlignment, parse_alignment};
pub use bleu::{Bleu, BleuCounts};
pub use looks::{Links, WordMap, links};
pub use tokenise::tokenise_13a;
