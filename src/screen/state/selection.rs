//! The selection that all panels share.

use attnscope_spec::{Place, Stack};

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

/// Moves an index by some steps within 0..n.
pub fn step(idx: usize, by: isize, n: usize) -> usize {
    idx.saturating_add_signed(by).min(n.saturating_sub(1))
}

/// Moves an index by some steps within 0..n, then to the next one that `serves`: in the same direction first, then back.
pub fn step_to(idx: usize, by: isize, n: usize, serves: impl FnMut(usize) -> bool) -> usize {
    let here = step(idx, by, n);
    let (before, after) = ((0..here).rev(), here + 1..n);
    let rest: Vec<usize> = if by < 0 {
        before.chain(after).collect()
    } else {
        after.chain(before).collect()
    };
    let mut serves = serves;
    let mut all = std::iter::once(here).chain(rest);
    all.find(|idx| serves(*idx)).unwrap_or(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_that_do_not_serve_are_skipped_onward_first() {
        let serves = |idx: usize| [1, 4].contains(&idx);
        assert_eq!(step_to(1, 1, 6, serves), 4);
        assert_eq!(step_to(4, 1, 6, serves), 4);
        assert_eq!(step_to(4, -1, 6, serves), 1);
        assert_eq!(step_to(0, 0, 6, serves), 1);
        assert_eq!(step_to(2, 1, 6, |_| false), 3);
    }
}
