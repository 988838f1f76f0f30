//! Position counting: by index, over real tokens, or after the padding token.

/// How positions are counted if none are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PositionRule {
    /// 0, 1, 2, …, including padding.
    Index,
    /// By index, from `by` on.
    Shifted { by: usize },
    /// Real tokens are counted from `first`; padding gets the position before it, or 0.
    RealTokens { first: usize },
    /// Tokens other than `pad` are counted from pad + 1; padding gets position `pad`.
    NotPad { pad: u32 },
}

impl std::fmt::Display for PositionRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index => f.write_str("all tokens from 0"),
            Self::Shifted { by } => write!(f, "all tokens from {by}"),
            Self::RealTokens { first } => write!(f, "real tokens from {first}"),
            Self::NotPad { pad } => write!(f, "tokens other than {pad} from {}", pad + 1),
        }
    }
}

impl PositionRule {
    /// The position of every token, counted over real tokens even if the rule does not.
    pub fn over_real(self, tokens: &[u32], real: &[bool]) -> Vec<usize> {
        match self {
            Self::Index => positions_over_real(real),
            rule => rule.positions(tokens, Some(real)),
        }
    }

    /// The position of every token.
    pub fn positions(self, tokens: &[u32], real: Option<&[bool]>) -> Vec<usize> {
        let is_real = |idx: usize| real.is_none_or(|real| real[idx]);
        let mut n_seen = 0;
        match self {
            Self::Index => (0..tokens.len()).collect(),
            Self::Shifted { by } => (by..by + tokens.len()).collect(),
            Self::RealTokens { first } => {
                let position = |idx: usize| {
                    if is_real(idx) {
                        n_seen += 1;
                        first + n_seen - 1
                    } else {
                        first.saturating_sub(1)
                    }
                };
                (0..tokens.len()).map(position).collect()
            }
            Self::NotPad { pad } => {
                let position = |id: &u32| {
                    if *id == pad {
                        pad as usize
                    } else {
                        n_seen += 1;
                        pad as usize + n_seen
                    }
                };
                tokens.iter().map(position).collect()
            }
        }
    }
}

/// Counts real tokens; leading padding shares the position of the first real token.
fn positions_over_real(real: &[bool]) -> Vec<usize> {
    let mut n_seen = 0usize;
    real.iter()
        .map(|is_real| {
            n_seen += usize::from(*is_real);
            n_seen.saturating_sub(1)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_count_positions_by_index_over_real_tokens_or_after_padding() {
        let (tokens, real) = ([1, 1, 5, 6], [false, false, true, true]);
        let count = |rule: PositionRule| rule.positions(&tokens, Some(&real));
        assert_eq!(count(PositionRule::Index), [0, 1, 2, 3]);
        // Such tables begin with two extra rows, one of them for padding.
        assert_eq!(count(PositionRule::RealTokens { first: 2 }), [1, 1, 2, 3]);
        assert_eq!(count(PositionRule::RealTokens { first: 0 }), [0, 0, 0, 1]);
        assert_eq!(count(PositionRule::NotPad { pad: 1 }), [1, 1, 2, 3]);
    }
}
