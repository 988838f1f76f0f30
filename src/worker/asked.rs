//! What the threads are asked for: runs, and looks at a run.

use std::ops::Range;
use std::sync::Arc;

use attnscope_checkpoint::Opening;
use attnscope_compute::attention::HeadRows;
use attnscope_compute::error::Result;
use attnscope_prompt::Request;
use attnscope_run::align::Alignment;
use attnscope_run::{HeadQuery, WhatIf};
use attnscope_spec::Model;

use super::against::Against;
use super::effect_shown::EffectQuery;
use super::event::PromptOrigin;
use super::query_rows::RowsQuery;
use super::run_id::{Pair, RunId};
use super::sweep::{LayerSweepQuery, SweepQuery};

/// Chooses the prompt of the first step of a training that is opened, whichever that is.
pub type UsualPrompt = Box<dyn Fn(&Model, bool) -> Result<(Request, PromptOrigin)> + Send>;

/// A step of a training that is to be opened.
#[derive(Debug, Clone)]
pub struct StepOpening(pub Opening);

impl PartialEq for StepOpening {
    fn eq(&self, other: &Self) -> bool {
        let target = |step: &Self| Against::Target(step.0.clone());
        target(self) == target(other)
    }
}

/// Chooses the first prompt once the checkpoint is open.
pub type FirstPrompt = Box<dyn FnOnce(&Model, bool) -> Result<(Request, PromptOrigin)> + Send>;

/// What runs are asked for.
pub(super) enum RunJob {
    Open(Opening, FirstPrompt),
    Align(Box<Alignment>),
    /// Another step of a training in the place of the one that is open, with the prompt of that.
    OpenStep(Opening),
    Run(Request),
    /// The prompt of the last run again, with another attention.
    Suppose(Vec<WhatIf>),
    /// Something beside the last run.
    Against(Against),
    /// The files once more, and the last prompt through them.
    ReadAgain,
    /// The model behind the last prompt.
    Write,
}

/// A part of a head that is wanted at full resolution.
#[derive(Debug, Clone)]
pub struct PartQuery {
    pub head: HeadQuery,
    pub rows: Arc<HeadRows>,
    pub queries: Range<usize>,
    pub keys: Range<usize>,
}

/// What it is computed from follows from the head.
impl PartialEq for PartQuery {
    fn eq(&self, other: &Self) -> bool {
        let asked = |query: &Self| (query.head, query.queries.clone(), query.keys.clone());
        asked(self) == asked(other)
    }
}

impl Eq for PartQuery {}

/// What is asked about a run, beside it.
pub(super) enum Look {
    Head(RunId, HeadQuery),
    Tensor(String),
    Probes(RunId),
    Part(RunId, PartQuery),
    Sweep(SweepQuery),
    SweepLayer(LayerSweepQuery),
    Compare(Pair),
    QueryRows(RowsQuery),
    Effect(EffectQuery),
}
