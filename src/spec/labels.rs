//! What the outputs of a head stand for, where they are no words: labels of a text, of its tokens, or of spans of it.

/// The labels of a head.
#[derive(Debug, Clone, PartialEq)]
pub struct Labels {
    /// One for each output.
    pub names: Vec<String>,
    pub kind: LabelKind,
    pub pooled: Pooled,
}

impl Labels {
    /// What to say where the one position that counts is padding; `None` where it is a token, or where several count.
    pub fn at_padding(&self, tokens: &[u32], real: Option<&[bool]>) -> Option<String> {
        let counts_several = matches!(
            self.pooled,
            Pooled::Mean | Pooled::MeanOfOutputs | Pooled::MeanFrom(_) | Pooled::Probed
        );
        let at = self.pooled.position(tokens).filter(|_| !counts_several)?;
        let is_padding = real?.get(at) == Some(&false);
        is_padding.then(|| {
            let word = self.pooled.word();
            format!("labels are read at the {word}, position {at}, which is padding: they mean nothing there")
        })
    }
}

/// How outputs become figures between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelKind {
    /// One label holds: softmax over labels.
    OneOf,
    /// Each label holds or does not: a sigmoid each.
    Several,
    /// Numbers as they are: a regression, a reward.
    Value,
    /// Where a span starts and ends: softmax over positions.
    Span,
}

/// Which positions the outputs count at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooled {
    /// Each position has its own.
    Every,
    First,
    /// The last whose token is not this one, with which texts are filled up.
    Last(Option<u32>),
    /// The last that has this token, with which texts end.
    LastOf(u32),
    /// The first that has this token; the first of all where none has it.
    FirstOf(u32),
    /// The one whose token is the highest, the first of several.
    Highest,
    /// The mean of the hidden states of all real positions: each position has the same outputs.
    Mean,
    /// The mean over real positions of what the head's own layer makes of each: the outputs, averaged.
    MeanOfOutputs,
    /// The mean of the hidden states from a position on, the same for each position.
    MeanFrom(usize),
    /// The first hidden state, and behind it the mean of those from a position on.
    FirstAndMeanFrom(usize),
    /// The first two hidden states behind each other.
    FirstTwo,
    /// All hidden states, as a learned query weighs them: each position has the same outputs.
    Probed,
}

impl Pooled {
    /// The position that counts; `None` where all do.
    pub fn position(self, tokens: &[u32]) -> Option<usize> {
        match self {
            Self::Every => None,
            Self::First
            | Self::Mean
            | Self::MeanOfOutputs
            | Self::MeanFrom(_)
            | Self::FirstAndMeanFrom(_)
            | Self::FirstTwo
            | Self::Probed => Some(0),
            Self::Last(None) => tokens.len().checked_sub(1),
            Self::Last(Some(pad)) => {
                Some(tokens.iter().rposition(|token| *token != pad).unwrap_or(0))
            }
            Self::FirstOf(end) => Some(tokens.iter().position(|token| *token == end).unwrap_or(0)),
            Self::Highest => {
                let highest = tokens.iter().max()?;
                tokens.iter().position(|token| token == highest)
            }
            Self::LastOf(end) => {
                let last = tokens.len().saturating_sub(1);
                Some(
                    tokens
                        .iter()
                        .rposition(|token| *token == end)
                        .unwrap_or(last),
                )
            }
        }
    }

    /// The name for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Every => "every token",
            Self::First => "first token",
            Self::Last(_) => "last token",
            Self::LastOf(_) => "last end token",
            Self::FirstOf(_) => "first end token",
            Self::Highest => "token of the highest id",
            Self::Mean => "mean of tokens",
            Self::MeanOfOutputs => "mean of all tokens' outputs",
            Self::MeanFrom(_) => "mean of patches",
            Self::FirstAndMeanFrom(_) => "first token and mean of patches",
            Self::FirstTwo => "first two tokens",
            Self::Probed => "tokens, pooled by attention",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_that_counts_is_that_of_transformers() {
        let tokens = [5, 0, 7, 2, 0, 0];
        assert_eq!(Pooled::Every.position(&tokens), None);
        assert_eq!(Pooled::First.position(&tokens), Some(0));
        assert_eq!(Pooled::Last(None).position(&tokens), Some(5));
        assert_eq!(Pooled::Last(Some(0)).position(&tokens), Some(3));
        assert_eq!(Pooled::Last(Some(9)).position(&tokens), Some(5));
        assert_eq!(Pooled::Last(Some(0)).position(&[0, 0]), Some(0));
        assert_eq!(Pooled::LastOf(0).position(&[0, 3, 0, 4]), Some(2));
        assert_eq!(Pooled::FirstOf(0).position(&tokens), Some(1));
        assert_eq!(Pooled::FirstOf(9).position(&tokens), Some(0));
        assert_eq!(Pooled::Highest.position(&[1, 8, 3, 8]), Some(1));
        assert_eq!(Pooled::LastOf(9).position(&tokens), Some(5));
    }

    #[test]
    fn a_label_at_padding_is_told() {
        let tokens = [0, 0, 7, 2];
        let labels = |pooled| Labels {
            names: vec!["one".to_owned()],
            kind: LabelKind::Value,
            pooled,
        };
        let (in_front, behind) = ([false, false, true, true], [true, true, true, false]);
        let told = |pooled, real: &[bool]| labels(pooled).at_padding(&tokens, Some(real));
        let said = told(Pooled::First, &in_front).expect("is told");
        assert!(said.contains("first token, position 0"), "{said}");
        assert_eq!(told(Pooled::First, &behind), None);
        assert!(told(Pooled::Last(None), &behind).is_some());
        assert_eq!(told(Pooled::Last(None), &in_front), None);
        assert_eq!(told(Pooled::Mean, &in_front), None);
        assert_eq!(told(Pooled::Every, &in_front), None);
        assert_eq!(labels(Pooled::First).at_padding(&tokens, None), None);
    }
}
