//! Alignment error rate (Och and Ney 2003) against reference alignments in Pharaoh format.

use std::collections::BTreeSet;
use std::ops::AddAssign;

/// Link from a source word to a target word, both counted from 0.
pub type Link = (usize, usize);

/// Reference alignment made by people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GoldAlignment {
    pub sure: BTreeSet<Link>,
    /// Includes the sure links.
    pub possible: BTreeSet<Link>,
}

/// Parses `0-0 1-2 2?1`: source-target, where `-` is sure, and `?` or `p` is possible.
///
/// # Errors
/// When a word is not a link; names the first such word.
pub fn parse_alignment(text: &str) -> Result<GoldAlignment, String> {
    let mut gold = GoldAlignment::default();
    for word in text.split_whitespace() {
        let wrong = || format!("alignment: expected links like 0-1 or 0?1, found {word:?}");
        let at = word.find(['-', '?', 'p']).ok_or_else(wrong)?;
        let (from, to) = (&word[..at], &word[at + 1..]);
        let index = |text: &str| text.parse::<usize>().map_err(|_| wrong());
        let link = (index(from)?, index(to)?);
        if word.as_bytes()[at] == b'-' {
            gold.sure.insert(link);
        }
        gold.possible.insert(link);
    }
    Ok(gold)
}

/// Counts summed over sentence pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AlignmentErrors {
    /// |A|
    pub n_links: usize,
    /// |S|
    pub n_sure: usize,
    /// |A ∩ S|
    pub n_sure_found: usize,
    /// |A ∩ P|
    pub n_possible_found: usize,
}

impl AddAssign for AlignmentErrors {
    fn add_assign(&mut self, other: Self) {
        self.n_links += other.n_links;
        self.n_sure += other.n_sure;
        self.n_sure_found += other.n_sure_found;
        self.n_possible_found += other.n_possible_found;
    }
}

impl AlignmentErrors {
    /// Counts the links of one sentence pair.
    pub fn of(links: &BTreeSet<Link>, gold: &GoldAlignment) -> Self {
        Self {
            n_links: links.len(),
            n_sure: gold.sure.len(),
            n_sure_found: links.intersection(&gold.sure).count(),
            n_possible_found: links.intersection(&gold.possible).count(),
        }
    }

    /// 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|); NaN if both sets are empty.
    pub fn rate(&self) -> f64 {
        let found = (self.n_sure_found + self.n_possible_found) as f64;
        1.0 - found / (self.n_links + self.n_sure) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_definition_of_och_and_ney() {
        let gold = parse_alignment("0-0 1-2 2?1 3p1").expect("links");
        assert_eq!((gold.sure.len(), gold.possible.len()), (2, 4));
        let links = BTreeSet::from([(0, 0), (2, 1), (5, 5)]);
        // |A ∩ S| = 1, |A ∩ P| = 2, |A| = 3, |S| = 2.
        assert_eq!(AlignmentErrors::of(&links, &gold).rate(), 1.0 - 3.0 / 5.0);
        assert_eq!(AlignmentErrors::of(&gold.sure, &gold).rate(), 0.0);
        for wrong in ["0", "a-1", "0-", "1-2-3"] {
            assert!(parse_alignment(wrong).is_err(), "{wrong}");
        }
    }
}
