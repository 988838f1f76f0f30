//! How well a translator translates: BLEU of what it writes, and the alignment error of where it looks.

mod alignment;
mod bleu;
mod looks;
mod tokenise;

pub use alignment::{AlignmentErrors, GoldAlignment, parse_alignment};
pub use bleu::{Bleu, BleuCounts};
pub use looks::{Links, WordMap, links};
pub use tokenise::tokenise_13a;
