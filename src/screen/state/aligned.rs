//! The tokens of two prompts laid side by side: which position of one stands for which of the other.

use attnscope_prompt::Prompt;
use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Positions of A and of B that stand for each other, in order; `None` where a token is on one side only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Aligned {
    pub pairs: Vec<[Option<usize>; 2]>,
    /// Whether both sides have as many tokens, each pair at one position.
    pub is_plain: bool,
}

impl Aligned {
    /// Tokens that are equal stand for each other; of tokens that were replaced, the first for the first.
    pub fn of(a: &[u32], b: &[u32]) -> Self {
        let mut pairs = Vec::new();
        for op in capture_diff_slices(Algorithm::Patience, a, b) {
            match op {
                DiffOp::Equal {
                    old_index,
                    new_index,
                    len,
                } => pairs.extend((0..len).map(|i| [Some(old_index + i), Some(new_index + i)])),
                DiffOp::Delete {
                    old_index, old_len, ..
                } => pairs.extend((0..old_len).map(|i| [Some(old_index + i), None])),
                DiffOp::Insert {
                    new_index, new_len, ..
                } => pairs.extend((0..new_len).map(|i| [None, Some(new_index + i)])),
                DiffOp::Replace {
                    old_index,
                    old_len,
                    new_index,
                    new_len,
                } => pairs.extend((0..old_len.max(new_len)).map(|i| {
                    let old = (i < old_len).then_some(old_index + i);
                    [old, (i < new_len).then_some(new_index + i)]
                })),
            }
        }
        Self::of_pairs(pairs)
    }

    fn of_pairs(pairs: Vec<[Option<usize>; 2]>) -> Self {
        let is_plain = pairs.iter().all(|[a, b]| a == b);
        Self { pairs, is_plain }
    }

    /// The tokens of two prompts, and of what their encoders were given.
    pub fn of_prompts(a: &Prompt, b: &Prompt) -> [Self; 2] {
        [
            Self::of(&a.tokens, &b.tokens),
            Self::of(&a.given().tokens, &b.given().tokens),
        ]
    }

    /// The position on the other side that stands for one; the nearest before it where it has none.
    pub fn other(&self, idx: usize, is_of_b: bool) -> usize {
        if self.is_plain {
            return idx;
        }
        let (here, there) = (usize::from(is_of_b), usize::from(!is_of_b));
        let mut nearest = 0;
        for pair in &self.pairs {
            nearest = pair[there].unwrap_or(nearest);
            if pair[here] == Some(idx) {
                return nearest;
            }
        }
        nearest
    }

    /// The position of A that stands for one of B.
    pub fn of_b(&self, idx: usize) -> Option<usize> {
        if self.is_plain {
            return Some(idx);
        }
        let pair = self.pairs.iter().find(|[_, b]| *b == Some(idx))?;
        pair[0]
    }

    /// How many pairs hold one token on both sides, as equal or replaced.
    pub fn n_paired(&self) -> usize {
        self.pairs
            .iter()
            .filter(|[a, b]| a.is_some() && b.is_some())
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inserted_token_shifts_what_follows() {
        let aligned = Aligned::of(&[1, 2, 3], &[1, 9, 2, 3]);
        assert_eq!(
            aligned.pairs,
            [
                [Some(0), Some(0)],
                [None, Some(1)],
                [Some(1), Some(2)],
                [Some(2), Some(3)]
            ]
        );
        assert!(!aligned.is_plain);
        assert_eq!((aligned.other(1, false), aligned.other(2, true)), (2, 1));
        // What has no counterpart stands where the token before it stands.
        assert_eq!(aligned.other(1, true), 0);
    }

    #[test]
    fn replaced_tokens_stand_for_each_other_one_by_one() {
        let aligned = Aligned::of(&[1, 2, 3, 4], &[1, 7, 8, 4]);
        assert!(aligned.is_plain);
        assert_eq!(aligned.n_paired(), 4);
        let aligned = Aligned::of(&[1, 2, 3, 4], &[1, 7, 4]);
        assert_eq!(aligned.pairs[2], [Some(2), None]);
        assert_eq!(aligned.other(3, false), 2);
    }
}
