//! The mask that a layer looks like: how far forward and back its queries see.

use std::ops::Range;

/// How far forward queries see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Both,
    /// Keys up to the query's own position and so many more; less than 0 leaves out the own position.
    Causal(isize),
    /// Own position and later ones, or later ones alone: a mask used the wrong way round.
    Inverted,
    /// Causal, but that every query sees so many keys at the beginning.
    Prefix(usize),
    /// None of these.
    Unclear,
}

/// The mask that a layer looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub n_queries: usize,
    pub n_keys: usize,
    pub direction: Direction,
    /// How many keys back queries see, their own included.
    pub window: Option<usize>,
    /// Where blocks begin that see nothing of each other; empty where there is one.
    pub documents: Vec<usize>,
    /// Keys at either end that look like padding, which nobody declared.
    pub pads: Vec<usize>,
    /// Keys that no query gives anything to, padding aside.
    pub unseen: Vec<usize>,
    /// Whether queries see their own position; `None` where they have none, or too few were recorded.
    pub sees_own: Option<bool>,
    /// How much later queries begin than keys.
    pub base: usize,
    /// With fewer queries than keys: the mask counts from the first key, as if queries were the first tokens.
    pub is_top_left: bool,
    /// Nothing lies on keys after the query.
    pub never_ahead: bool,
    /// Rows and cells are as the shape says, but for a few that are 0.
    pub is_tight: bool,
}

impl Shape {
    /// Which keys a query sees, padding aside.
    pub fn range_of(&self, query_idx: usize) -> Range<usize> {
        let own = query_idx + self.base;
        let (mut start, mut end) = (0, self.n_keys);
        match self.direction {
            Direction::Causal(ahead) => {
                end = own.saturating_add_signed(ahead + 1).min(self.n_keys);
            }
            Direction::Prefix(n) => end = (own + 1).max(n).min(self.n_keys),
            Direction::Inverted => start = own.min(self.n_keys),
            Direction::Both | Direction::Unclear => {}
        }
        if let Some(width) = self.window {
            start = start.max((own + 1).saturating_sub(width));
            if self.direction == Direction::Both {
                end = end.min(own + width);
            }
        }
        if !self.documents.is_empty() {
            let block = self.documents.partition_point(|at| *at <= own);
            start = start.max(block.checked_sub(1).map_or(0, |idx| self.documents[idx]));
            end = end.min(self.documents.get(block).copied().unwrap_or(self.n_keys));
        }
        start.min(end)..end
    }

    /// What it is, in words.
    pub fn words(&self) -> String {
        let mut words = match self.direction {
            Direction::Both => "both ways".to_owned(),
            Direction::Causal(0) => "causal".to_owned(),
            Direction::Causal(1) => "causal, and the next key as well".to_owned(),
            Direction::Causal(-1) => "causal without the own position".to_owned(),
            Direction::Causal(ahead) if ahead > 0 => format!("up to {ahead} keys ahead"),
            Direction::Causal(ahead) => format!("up to {} keys back", -ahead),
            Direction::Inverted => "the own position and later keys only".to_owned(),
            Direction::Prefix(n) => format!("both ways over the first {n} keys, causal after them"),
            Direction::Unclear if self.never_ahead => "nothing on later keys".to_owned(),
            Direction::Unclear => "no mask of one shape".to_owned(),
        };
        if let Some(width) = self.window {
            words.push_str(&format!(", a window of {width}"));
        }
        if !self.documents.is_empty() {
            let starts: Vec<String> = self.documents.iter().map(usize::to_string).collect();
            words.push_str(&format!(", documents from {}", starts.join(", ")));
        }
        words
    }
}
