//! Tokens after a decoder's start token that select what it does, such as a language and a task.

/// Upper limit of tokens in a prefix.
const MOST: usize = 7;

/// A short sequence of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prefix {
    ids: [u32; MOST],
    n: usize,
}

impl Prefix {
    pub const NONE: Self = Self {
        ids: [0; MOST],
        n: 0,
    };

    /// A prefix of these tokens; `None` if there are too many.
    pub fn of(ids: &[u32]) -> Option<Self> {
        let mut prefix = Self::NONE;
        prefix.n = ids.len();
        prefix.ids.get_mut(..ids.len())?.copy_from_slice(ids);
        Some(prefix)
    }

    pub fn ids(&self) -> &[u32] {
        &self.ids[..self.n]
    }
}

/// Tokens after the start token of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Starts {
    /// Before text that the model generates.
    pub of_written: Prefix,
    /// Before text that the user gives.
    pub of_text: Prefix,
    /// Number of tokens forced next, whatever the model predicts.
    pub n_forced: usize,
}

impl Starts {
    pub const NONE: Self = Self {
        of_written: Prefix::NONE,
        of_text: Prefix::NONE,
        n_forced: 0,
    };

    /// The start token and the tokens after it.
    pub(super) fn after(&self, start_token: u32, is_text: bool) -> Vec<u32> {
        let prefix = if is_text {
            &self.of_text
        } else {
            &self.of_written
        };
        [&[start_token], prefix.ids()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_holds_all_of_its_tokens_or_is_none() {
        let prefix = Prefix::of(&[3, 1]).expect("few");
        assert_eq!(prefix.ids(), [3, 1]);
        assert_eq!(Prefix::of(&[0; MOST + 1]), None);
        let starts = Starts {
            of_text: prefix,
            ..Starts::NONE
        };
        assert_eq!(starts.after(9, true), [9, 3, 1]);
        assert_eq!(starts.after(9, false), [9]);
    }
}
