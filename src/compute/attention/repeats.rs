//! Which earlier keys have the query's token, and which follow one: the keys that duplicate-token and induction heads attend to.

use std::collections::HashMap;

/// For each position, the last earlier position with the same token.
#[derive(Debug, Clone, Default)]
pub struct Repeats {
    earlier: Vec<Option<u32>>,
}

impl Repeats {
    pub fn of(tokens: &[u32]) -> Self {
        Self::of_real(tokens, None)
    }

    /// Finds repeats among real tokens; padding is ignored, whatever its token id.
    pub fn of_real(tokens: &[u32], real: Option<&[bool]>) -> Self {
        let is_real = |at: u32| real.is_none_or(|real| real.get(at as usize) == Some(&true));
        let mut last: HashMap<u32, u32> = HashMap::new();
        let positions = tokens.iter().zip(0u32..);
        let earlier = positions.map(|(token, at)| {
            if is_real(at) {
                last.insert(*token, at)
            } else {
                None
            }
        });
        Self {
            earlier: earlier.collect(),
        }
    }

    /// Earlier keys with the query's token, nearest first.
    pub fn before(&self, query_idx: usize) -> impl Iterator<Item = usize> + '_ {
        let step = |at: &usize| self.earlier[*at].map(|at| at as usize);
        let first = self.earlier.get(query_idx).copied().flatten();
        std::iter::successors(first.map(|at| at as usize), step)
    }

    /// Probability that a row gives to earlier copies of its query's token, and to the tokens after them; `p` is the probability
    /// of a key.
    ///
    /// For a copy right before the query, the token after it is the query itself, which counts.
    pub fn masses(&self, query_idx: usize, p: impl Fn(usize) -> f32) -> (f32, f32) {
        let (mut duplicate, mut induction) = (0.0f64, 0.0f64);
        for key_idx in self.before(query_idx) {
            duplicate += f64::from(p(key_idx));
            induction += f64::from(p(key_idx + 1));
        }
        (duplicate as f32, induction as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_not_an_earlier_copy() {
        let tokens = [7, 7, 7, 8, 7];
        let repeats = Repeats::of_real(&tokens, Some(&[false, false, true, true, true]));
        assert_eq!(repeats.before(2).count(), 0);
        assert_eq!(repeats.before(4).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn all_earlier_copies_of_a_token_and_their_successors_are_found() {
        let repeats = Repeats::of(&[7, 8, 7, 7, 9]);
        assert_eq!(repeats.before(3).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(repeats.before(4).count(), 0);
        let row = [0.1, 0.2, 0.3, 0.4, 0.0];
        // Copies at 2 and 0; they are followed by 3 and 1.
        let (duplicate, induction) = repeats.masses(3, |key_idx| row[key_idx]);
        assert!((duplicate - 0.4).abs() < 1e-6 && (induction - 0.6).abs() < 1e-6);
    }
}
