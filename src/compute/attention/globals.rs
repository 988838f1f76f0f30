//! Global tokens: they see all other tokens and are seen by all, whatever the window (Longformer, Beltagy et al. 2020, arXiv
//! 2004.05150).

use std::fmt;

/// Which tokens are global.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Globals {
    /// The first one.
    First,
    /// So many first ones.
    Firsts(usize),
    /// Tokens before the first separator: the question, if a text follows it.
    Question { separator: u32 },
    /// Tokens after the two separators that end the question: an answer to choose.
    Answer { separator: u32 },
}

impl Globals {
    /// One flag per token: whether it is global.
    pub fn among(self, tokens: &[u32]) -> Vec<bool> {
        let first_separator = |separator: u32| tokens.iter().position(|token| *token == separator);
        let range = match self {
            Self::First => 0..1,
            Self::Firsts(n) => 0..n,
            Self::Question { separator } => 0..first_separator(separator).unwrap_or(0),
            Self::Answer { separator } => match first_separator(separator) {
                Some(end) => end + 2..tokens.len(),
                None => 0..0,
            },
        };
        (0..tokens.len()).map(|idx| range.contains(&idx)).collect()
    }
}

impl fmt::Display for Globals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("the first token"),
            Self::Firsts(n) => write!(f, "the first {n} tokens"),
            Self::Question { separator } => {
                write!(f, "those before the first separator (id {separator})")
            }
            Self::Answer { separator } => {
                write!(
                    f,
                    "those behind the two separators (id {separator}) after a question"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_delimit_the_global_tokens_of_questions_and_answers() {
        // <s> question </s></s> answer </s>
        let tokens = [0, 7, 8, 2, 2, 9, 9, 2];
        let global = |which: Globals| -> Vec<usize> {
            let flags = which.among(&tokens);
            (0..tokens.len()).filter(|idx| flags[*idx]).collect()
        };
        assert_eq!(global(Globals::First), [0]);
        assert_eq!(global(Globals::Question { separator: 2 }), [0, 1, 2]);
        assert_eq!(global(Globals::Answer { separator: 2 }), [5, 6, 7]);
        assert_eq!(global(Globals::Question { separator: 5 }), [0usize; 0]);
    }
}
