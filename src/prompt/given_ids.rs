//! Ids that were given in place of a text: whether the tokenizer gives the same ids for their text.

use std::collections::HashMap;

use super::tokenizer::Tokenizer;

/// Count of given ids, and of those that the tokenizer does not give for their text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GivenIds {
    /// Ids that stand for text; special tokens do not count.
    pub n: usize,
    /// Ids that are missing when their text is tokenized again.
    pub n_foreign: usize,
}

impl GivenIds {
    /// Counts over the ids of a prompt. Nothing is counted where their text cannot be tokenized.
    pub fn of(ids: &[u32], tokenizer: &Tokenizer) -> Self {
        let Ok(again) = tokenizer.cut(&tokenizer.text(ids), false) else {
            return Self::default();
        };
        let mut left: HashMap<u32, usize> = HashMap::new();
        for token in again {
            *left.entry(token.id).or_default() += 1;
        }
        let mut given = Self::default();
        for id in ids.iter().filter(|id| !tokenizer.text(&[**id]).is_empty()) {
            given.n += 1;
            match left.get_mut(id).filter(|n| **n > 0) {
                Some(n) => *n -= 1,
                None => given.n_foreign += 1,
            }
        }
        given
    }

    /// Sums the counts of several prompts.
    pub fn and(self, other: Self) -> Self {
        Self {
            n: self.n + other.n,
            n_foreign: self.n_foreign + other.n_foreign,
        }
    }

    /// The share of ids that the tokenizer does not give for their text; 0 without ids.
    pub fn foreign_share(self) -> f64 {
        self.n_foreign as f64 / self.n.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_bytes_are_their_text_and_others_are_foreign() {
        let bytes = Tokenizer::bytes();
        let ids: Vec<u32> = "a text".bytes().map(u32::from).collect();
        let found = GivenIds::of(&ids, &bytes);
        assert_eq!((found.n, found.n_foreign), (6, 0));
        // No text has these bytes.
        let found = GivenIds::of(&[0xc3, 0xc3, 0xff], &bytes);
        assert_eq!((found.n, found.n_foreign), (3, 3));
        assert_eq!(GivenIds::of(&[], &bytes).foreign_share(), 0.0);
    }
}
