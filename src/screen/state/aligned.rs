//! Alignment of the tokens of two prompts: which position of one corresponds to which of the other.

use attnscope_prompt::Prompt;
use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Corresponding positions of A and B, in order; `None` where only one side has the token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Aligned {
    pub pairs: Vec<[Option<usize>; 2]>,
    /// Whether both sides have equally many tokens, paired position by position.
    pub is_plain: bool,
}

impl Aligned {
    /// Aligns equal tokens; pairs replaced tokens in order, the first with the first.
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

    /// Aligns the tokens of two prompts, and the inputs of their encoders.
    pub fn of_prompts(a: &Prompt, b: &Prompt) -> [Self; 2] {
        [
            Self::of(&a.tokens, &b.tokens),
            Self::of(&a.given().tokens, &b.given().tokens),
        ]
    }

    /// The corresponding position on the other side, or that of the nearest earlier token that has one.
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

    /// The position in A that corresponds to one in B.
    pub fn of_b(&self, idx: usize) -> Option<usize> {
        if self.is_plain {
            return Some(idx);
        }
        let pair = self.pairs.iter().find(|[_, b]| *b == Some(idx))?;
        pair[0]
    }

    /// Number of positions present on both sides, with equal or replaced tokens.
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
    fn an_inserted_token_shifts_the_tokens_after_it() {
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
        // A token without a counterpart maps to the position of the token before it.
        assert_eq!(aligned.other(1, true), 0);
    }

    #[test]
    fn replaced_tokens_are_paired_in_order() {
        let aligned = Aligned::of(&[1, 2, 3, 4], &[1, 7, 8, 4]);
        assert!(aligned.is_plain);
        assert_eq!(aligned.n_paired(), 4);
        let aligned = Aligned::of(&[1, 2, 3, 4], &[1, 7, 4]);
        assert_eq!(aligned.pairs[2], [Some(2), None]);
        assert_eq!(aligned.other(3, false), 2);
    }
}
