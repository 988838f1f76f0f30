//! Heads over many prompts: how each statistic of a head spreads over them, and the places that excite the head most. Memory
//! does not depend on the number of prompts.

mod excited;
mod heads;
mod quantiles;
mod spread;
mod words;

pub use excited::{EXCITEMENT, Excited};
pub use heads::{AT_ONCE, HeadOver, MOST_PLACES, OverPrompts};
pub use spread::{Figures, Spread};
pub use words::{Labels, Mark, Words};
