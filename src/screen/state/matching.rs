//! Compares typed letters with texts: the one way in which the palette, the finder, filters, the help and the what-ifs search.

use nucleo_matcher::pattern::{AtomKind, CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

/// A typed query, ready to be compared with texts.
#[derive(Debug)]
pub struct Matching {
    pattern: Pattern,
    matcher: Matcher,
    buffer: Vec<char>,
}

impl Matching {
    /// Matches texts that have the letters of each word in order, whatever their case; `!word` leaves out texts that have the word.
    pub fn fuzzy(typed: &str) -> Self {
        let pattern = Pattern::parse(typed, CaseMatching::Ignore, Normalization::Smart);
        Self::of(pattern)
    }

    /// Matches texts that have each word as it stands.
    pub fn of_words(typed: &str) -> Self {
        let (case, letters) = (CaseMatching::Ignore, Normalization::Smart);
        Self::of(Pattern::new(typed, case, letters, AtomKind::Substring))
    }

    /// Matches texts that have each word as it stands; `!word` leaves out texts that have the word.
    pub fn whole_words(typed: &str) -> Self {
        let has_sign = |word: &str| word.starts_with(['!', '^', '\'']);
        let words = typed.split_whitespace();
        let words = words.map(|word| {
            if has_sign(word) {
                word.to_owned()
            } else {
                format!("'{word}")
            }
        });
        Self::fuzzy(&words.collect::<Vec<_>>().join(" "))
    }

    fn of(pattern: Pattern) -> Self {
        Self {
            pattern,
            matcher: Matcher::new(Config::DEFAULT),
            buffer: Vec::new(),
        }
    }

    /// How well a text matches: the more, the better; `None` if it does not match.
    pub fn score(&mut self, text: &str) -> Option<u32> {
        let text = Utf32Str::new(text, &mut self.buffer);
        self.pattern.score(text, &mut self.matcher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(mut of: Matching) -> Vec<&'static str> {
        let texts = [
            "future-leak L1H3",
            "entropy-collapse L1H0",
            "future-leak L0",
        ];
        let all = texts.into_iter();
        all.filter(|text| of.score(text).is_some()).collect()
    }

    #[test]
    fn letters_match_in_order_and_an_inverse_word_leaves_out() {
        let of = |typed| matching(Matching::fuzzy(typed));
        assert_eq!(of("ftlk"), ["future-leak L1H3", "future-leak L0"]);
        assert_eq!(of("l1 !leak"), ["entropy-collapse L1H0"]);
        assert_eq!(of("!leak !entropy"), Vec::<&str>::new());
        assert_eq!(of("!").len(), 3);
        assert_eq!(of("").len(), 3);
        let of = |typed| matching(Matching::whole_words(typed));
        assert_eq!(of("ftlk"), Vec::<&str>::new());
        assert_eq!(of("l1 !leak"), ["entropy-collapse L1H0"]);
        assert_eq!(of("h0"), ["entropy-collapse L1H0"]);
    }

    #[test]
    fn words_match_as_they_stand() {
        let of = |typed| matching(Matching::of_words(typed));
        assert_eq!(of("ftlk"), Vec::<&str>::new());
        assert_eq!(of("LEAK l1"), ["future-leak L1H3"]);
    }
}
