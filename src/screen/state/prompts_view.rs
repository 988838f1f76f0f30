//! State of the Prompts panel: the set of prompts, what is known of heads over them, and the place to go to.

use std::sync::Arc;

use attnscope_prompt::Source;
use attnscope_spec::Place;
use attnscope_studies::over_prompts::OverPrompts;
use attnscope_worker::{PromptSet, PromptsQuery};

/// The set of prompts, the pending request and its results.
#[derive(Debug, Default)]
pub struct PromptsView {
    /// Prompts given on the command line; `None` to go over the texts of the session.
    pub given: Option<PromptSet>,
    /// Whether the panel has a tab: prompts were given, or it has been opened.
    pub is_open: bool,
    pub asked: Option<PromptsQuery>,
    /// Results of the request so far.
    pub over: Option<Arc<OverPrompts>>,
    pub end: End,
    /// The statistic of the vertical axis; that of the horizontal one is the screen's.
    pub other_idx: Option<usize>,
    /// The selected place among those that excite the selected head.
    pub place_idx: usize,
    /// The place to select once its prompt runs.
    pub goes_to: Option<(Source, Place)>,
    n_asked: u64,
}

/// How a request stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum End {
    #[default]
    Going,
    Done,
    /// Stopped or failed, with the reason.
    Because(String),
}

impl PromptsView {
    /// Makes a request; results of an earlier one are dropped.
    pub fn ask(&mut self, set: PromptSet) -> PromptsQuery {
        self.n_asked += 1;
        let query = PromptsQuery {
            nth: self.n_asked,
            set,
        };
        self.asked = Some(query.clone());
        (self.over, self.end, self.place_idx) = (None, End::Going, 0);
        query
    }

    /// Whether an answer is about the pending request.
    pub fn is_asked(&self, nth: u64) -> bool {
        self.asked.as_ref().is_some_and(|query| query.nth == nth)
    }

    /// Drops the request and its results.
    pub fn forget(&mut self) {
        (self.asked, self.over, self.end) = (None, None, End::Going);
    }

    /// Number of prompts that have run and of all, while they run.
    pub fn progress(&self) -> Option<(usize, usize)> {
        let query = self.asked.as_ref().filter(|_| self.end == End::Going)?;
        let n_done = self.over.as_ref().map_or(0, |over| over.n_prompts);
        Some((n_done, query.set.len()))
    }
}
