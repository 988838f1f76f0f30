//! The mask inferred from a layer's pattern: how far forward and back its queries see.

use std::ops::Range;

/// How far forward queries see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Both,
    /// Keys up to the query's own position plus this many; negative values exclude the query's own position.
    Causal(isize),
    /// The query's own position and later ones, or only later ones: an inverted mask.
    Inverted,
    /// Causal, except that every query sees this many keys at the beginning.
    Prefix(usize),
    /// None of these.
    Unclear,
}

/// The mask inferred from a layer's pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub n_queries: usize,
    pub n_keys: usize,
    pub direction: Direction,
    /// Number of keys that queries see backwards, their own included.
    pub window: Option<usize>,
    /// First positions of blocks that do not see each other; empty if there is only one block.
    pub documents: Vec<usize>,
    /// Undeclared keys at either end that look like padding.
    pub pads: Vec<usize>,
    /// Keys that no query attends to, except padding.
    pub unseen: Vec<usize>,
    /// Whether queries see their own position; `None` if they have none, or if too few were recorded.
    pub sees_own: Option<bool>,
    /// Offset of the first query from the first key.
    pub base: usize,
    /// With fewer queries than keys: the mask is aligned to the first key, as if the queries were the first tokens.
    pub is_top_left: bool,
    /// No query attends to a later key.
    pub never_ahead: bool,
    /// All rows and cells match the shape, except for a few that are 0.
    pub is_tight: bool,
}

impl Shape {
    /// The keys that a query sees, ignoring padding.
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

    /// Describes the shape in words.
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
