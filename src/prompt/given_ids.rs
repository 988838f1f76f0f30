//! Ids given in place of a text: how many of them the tokenizer does not reproduce from their text.

use std::collections::HashMap;

use super::tokenizer::Tokenizer;

/// Number of given ids, and how many of them re-tokenizing their text does not reproduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GivenIds {
    /// Given ids that decode to text; special tokens are not counted.
    pub n: usize,
    /// Ids that re-tokenizing the text does not reproduce.
    pub n_foreign: usize,
}

impl GivenIds {
    /// Counts the ids of a prompt. Both counts are 0 if their text cannot be tokenized.
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

    /// Returns the share of ids that re-tokenizing their text does not reproduce; 0 without ids.
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
        // No UTF-8 text contains these bytes.
        let found = GivenIds::of(&[0xc3, 0xc3, 0xff], &bytes);
        assert_eq!((found.n, found.n_foreign), (3, 3));
        assert_eq!(GivenIds::of(&[], &bytes).foreign_share(), 0.0);
    }
}
