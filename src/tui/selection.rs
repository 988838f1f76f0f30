//! The one selection that all panels share.

use attnscope_engine::model::Stack;
use attnscope_engine::place::Place;

/// A place in the model and in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    pub stack: Stack,
    pub layer_idx: usize,
    pub head_idx: usize,
    pub query_idx: usize,
    pub key_idx: usize,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            stack: Stack::Only,
            layer_idx: 0,
            head_idx: 0,
            query_idx: 0,
            key_idx: 0,
        }
    }
}

impl Selection {
    /// The selected head, without query and key.
    pub fn head(self) -> Place {
        Place::layer(self.stack, self.layer_idx).head(self.head_idx)
    }
}

/// Moves an index by some steps inside 0..n.
pub fn step(idx: usize, by: isize, n: usize) -> usize {
    idx.saturating_add_signed(by).min(n.saturating_sub(1))
}
