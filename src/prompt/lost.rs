//! Characters of a text that its tokenizer does not know, or that no token stands for: counted, and told.

use attnscope_checkpoint::counted::counted;

use super::tokenizer::Token;

/// Of so many characters, one that is lost is much.
const MUCH: usize = 4;

/// How much of a text came through its tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Characters that can be seen.
    pub n_characters: usize,
    /// Those that a token for the unknown stands for.
    pub n_unknown: usize,
    /// Those that no token stands for.
    pub n_dropped: usize,
}

impl Lost {
    /// Counts over the tokens of a text.
    pub fn of(text: &str, tokens: &[Token]) -> Self {
        // What covers each byte: 0 nothing, 1 the unknown, 2 a known token.
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

    /// Of several texts together.
    pub fn and(self, other: Self) -> Self {
        Self {
            n_characters: self.n_characters + other.n_characters,
            n_unknown: self.n_unknown + other.n_unknown,
            n_dropped: self.n_dropped + other.n_dropped,
        }
    }

    /// What there is to say where so much was lost that the model read another text: a quarter of it or more.
    pub fn much(self) -> Option<String> {
        let n_lost = self.n_unknown + self.n_dropped;
        self.words().filter(|_| MUCH * n_lost >= self.n_characters)
    }

    /// Whether there was something to be seen, and nothing of it came through.
    pub fn is_all(self) -> bool {
        self.n_characters > 0 && self.n_unknown + self.n_dropped == self.n_characters
    }

    /// What there is to say; `None` where everything came through.
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

/// Whether a character is seen by itself: no blank, no control character, no mark on another one.
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
    fn characters_are_known_unknown_or_dropped() {
        let text = "ab é d";
        let all = Lost::of(text, &[token(0..2, true), token(2..5, false)]);
        assert_eq!((all.n_characters, all.n_unknown, all.n_dropped), (4, 1, 1));
        let said = all.words().expect("something");
        assert_eq!(
            said,
            "of the text's 4 characters, 1 is unknown to the tokenizer and 1 is dropped by the tokenizer"
        );
        assert!(!all.is_all());
        assert!(Lost::of("hello world", &[]).is_all());
        assert!(Lost::of("hello", &[token(0..5, false), token(5..5, true)]).is_all());
    }

    #[test]
    fn blanks_marks_and_controls_are_not_missed() {
        for text in ["", "  \n", "\u{0}\u{7}", "e\u{301}"] {
            let lost = Lost::of(text, &[token(0..text.len().min(1), true)]);
            assert_eq!((lost.words(), lost.is_all()), (None, false), "{text:?}");
        }
    }
}
