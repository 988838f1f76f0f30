//! How badly a prompt fits the tokenizer: unknown characters, dropped characters, and given ids that it does not reproduce.

use attnscope_checkpoint::counted::counted;

use super::given_ids::GivenIds;
use super::tokenizer::Token;

/// A loss of one in this many characters is reported as large.
const MUCH: usize = 4;

/// Number of characters that the tokenizer lost, and of given ids that re-tokenizing their text does not reproduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenizerLoss {
    /// Visible characters of the text.
    pub n_characters: usize,
    /// Characters covered by an unknown token.
    pub n_unknown: usize,
    /// Characters that no token covers.
    pub n_dropped: usize,
    /// Counts of the ids given in place of a text.
    pub ids: GivenIds,
}

impl TokenizerLoss {
    /// Counts over the tokens of a text.
    pub fn of(text: &str, tokens: &[Token]) -> Self {
        // What covers each byte: 0 nothing, 1 an unknown token, 2 a known token.
        let mut covered = vec![0u8; text.len()];
        for token in tokens {
            let level = 1 + u8::from(token.is_known);
            let bytes = covered.get_mut(token.bytes.clone()).into_iter().flatten();
            bytes.for_each(|byte| *byte = level.max(*byte));
        }
        let mut lost = Self::default();
        for (at, character) in text.char_indices() {
            if !is_seen(character) {
                continue;
            }
            lost.n_characters += 1;
            match covered.get(at) {
                Some(2) => {}
                Some(1) => lost.n_unknown += 1,
                _ => lost.n_dropped += 1,
            }
        }
        lost
    }

    /// Sums the counts of several texts.
    pub fn and(self, other: Self) -> Self {
        Self {
            n_characters: self.n_characters + other.n_characters,
            n_unknown: self.n_unknown + other.n_unknown,
            n_dropped: self.n_dropped + other.n_dropped,
            ids: self.ids.and(other.ids),
        }
    }

    /// The remark on a large loss, a quarter of the text or more, after which the model read a different text.
    pub fn much(self) -> Option<String> {
        let n_lost = self.n_unknown + self.n_dropped;
        self.words().filter(|_| MUCH * n_lost >= self.n_characters)
    }

    /// Whether the text has visible characters and all were lost.
    pub fn is_all(self) -> bool {
        self.n_characters > 0 && self.n_unknown + self.n_dropped == self.n_characters
    }

    /// The remark on lost characters; `None` if there are none.
    pub fn words(self) -> Option<String> {
        let counts = [
            (self.n_unknown, "unknown to the tokenizer"),
            (self.n_dropped, "dropped by the tokenizer"),
        ];
        let parts: Vec<String> = counts
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("{n} {} {what}", if *n == 1 { "is" } else { "are" }))
            .collect();
        let of = format!("of the text's {}", counted(self.n_characters, "character"));
        (!parts.is_empty()).then(|| format!("{of}, {}", parts.join(" and ")))
    }
}

/// Whether a character is visible by itself: not a blank, a control character, or a combining mark.
fn is_seen(character: char) -> bool {
    let is_mark = matches!(u32::from(character),
        0x00AD | 0x0300..=0x036F | 0x0483..=0x0489 | 0x0591..=0x05BD | 0x0610..=0x061A | 0x064B..=0x065F
        | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0x20D0..=0x20FF | 0x2581 | 0x3099..=0x309A
        | 0xFE00..=0xFE0F | 0xFE20..=0xFE2F | 0xFEFF | 0xFFFD | 0xE0000..=0xE01EF);
    !(is_mark || character.is_whitespace() || character.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(bytes: std::ops::Range<usize>, is_known: bool) -> Token {
        Token {
            id: 0,
            bytes,
            is_special: false,
            is_known,
        }
    }

    #[test]
    fn characters_are_counted_as_known_unknown_or_dropped() {
        let text = "ab é d";
        let all = TokenizerLoss::of(text, &[token(0..2, true), token(2..5, false)]);
        assert_eq!((all.n_characters, all.n_unknown, all.n_dropped), (4, 1, 1));
        let said = all.words().expect("something");
        assert_eq!(
            said,
            "of the text's 4 characters, 1 is unknown to the tokenizer and 1 is dropped by the tokenizer"
        );
        assert!(!all.is_all());
        assert!(TokenizerLoss::of("hello world", &[]).is_all());
        assert!(TokenizerLoss::of("hello", &[token(0..5, false), token(5..5, true)]).is_all());
    }

    #[test]
    fn blanks_combining_marks_and_controls_do_not_count_as_lost() {
        for text in ["", "  \n", "\u{0}\u{7}", "e\u{301}"] {
            let lost = TokenizerLoss::of(text, &[token(0..text.len().min(1), true)]);
            assert_eq!((lost.words(), lost.is_all()), (None, false), "{text:?}");
        }
    }
}
