//! What follows the start token of a decoder: tokens that tell it what to do, such as a language and a task.

/// Tokens of a prefix at most.
const MOST: usize = 7;

/// A few tokens that stand together.
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

    /// `None` where there are more than a prefix holds.
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

/// What follows the start token of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Starts {
    /// Before what the model writes.
    pub of_written: Prefix,
    /// Before a text that is given.
    pub of_text: Prefix,
    /// Tokens that the model writes next whatever it predicts.
    pub n_forced: usize,
}

impl Starts {
    pub const NONE: Self = Self {
        of_written: Prefix::NONE,
        of_text: Prefix::NONE,
        n_forced: 0,
    };

    /// The start token, and what follows it.
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
    fn a_prefix_holds_what_it_was_given_or_nothing() {
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
