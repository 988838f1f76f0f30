//! What a head's outputs mean if they are not tokens: labels of a text, of its tokens, or of spans.

/// The labels of a head.
#[derive(Debug, Clone, PartialEq)]
pub struct Labels {
    /// One per output.
    pub names: Vec<String>,
    pub kind: LabelKind,
    pub pooled: Pooled,
}

impl Labels {
    /// A warning if the labels are read at a padded position; `None` if that position is a token, or if several positions are
    /// used.
    pub fn at_padding(&self, tokens: &[u32], real: Option<&[bool]>) -> Option<String> {
        let counts_several = matches!(
            self.pooled,
            Pooled::Mean
                | Pooled::Max
                | Pooled::MeanOfOutputs
                | Pooled::MeanFrom(_)
                | Pooled::ByAttention
        );
        let at = self.pooled.position(tokens).filter(|_| !counts_several)?;
        let is_padding = real?.get(at) == Some(&false);
        is_padding.then(|| {
            let word = self.pooled.word();
            format!("labels are read at the {word}, position {at}, which is padding: they mean nothing there")
        })
    }
}

/// How outputs become label scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelKind {
    /// Exactly one label applies: softmax over labels.
    OneOf,
    /// Each label applies or not: a sigmoid each.
    Several,
    /// Unscaled numbers: a regression or a reward.
    Value,
    /// Start and end of a span: softmax over positions.
    Span,
}

/// Which positions the outputs are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooled {
    /// Every position has outputs of its own.
    Every,
    First,
    /// The last token that is not this padding token.
    Last(Option<u32>),
    /// The last occurrence of this end token.
    LastOf(u32),
    /// The first occurrence of this end token, or the first position if it does not occur.
    FirstOf(u32),
    /// The token with the highest id; the first if there are several.
    Highest,
    /// The mean of the hidden states of all real positions: each position has the same outputs.
    Mean,
    /// The largest value of each component of the hidden states over all real positions: each position has the same outputs.
    Max,
    /// The mean of the head's outputs over all real positions.
    MeanOfOutputs,
    /// The mean of the hidden states from this position on; each position has the same outputs.
    MeanFrom(usize),
    /// The first hidden state, concatenated with the mean of those from this position on.
    FirstAndMeanFrom(usize),
    /// The first two hidden states, concatenated.
    FirstTwo,
    /// All hidden states, pooled by attention with a learned query: each position has the same outputs.
    ByAttention,
}

impl Pooled {
    /// The position that the outputs are read from; `None` if every position has its own.
    pub fn position(self, tokens: &[u32]) -> Option<usize> {
        match self {
            Self::Every => None,
            Self::First
            | Self::Mean
            | Self::Max
            | Self::MeanOfOutputs
            | Self::MeanFrom(_)
            | Self::FirstAndMeanFrom(_)
            | Self::FirstTwo
            | Self::ByAttention => Some(0),
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

    /// The display name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Every => "every token",
            Self::First => "first token",
            Self::Last(_) => "last token",
            Self::LastOf(_) => "last end token",
            Self::FirstOf(_) => "first end token",
            Self::Highest => "token of the highest id",
            Self::Mean => "mean of tokens",
            Self::Max => "largest values of tokens",
            Self::MeanOfOutputs => "mean of all tokens' outputs",
            Self::MeanFrom(_) => "mean of patches",
            Self::FirstAndMeanFrom(_) => "first token and mean of patches",
            Self::FirstTwo => "first two tokens",
            Self::ByAttention => "tokens, pooled by attention",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pooled_position_matches_transformers() {
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
    fn a_label_read_at_padding_gives_a_warning() {
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
        assert_eq!(told(Pooled::Max, &in_front), None);
        assert_eq!(told(Pooled::Every, &in_front), None);
        assert_eq!(labels(Pooled::First).at_padding(&tokens, None), None);
    }
}
