//! Requests to the worker threads: runs, and questions about a run.

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
use super::live::LiveOpening;
use super::over_prompts::PromptsQuery;
use super::query_rows::RowsQuery;
use super::run_id::{Pair, RunId};
use super::sweep::{LayerSweepQuery, SweepQuery};

/// Chooses the prompt for a training step, if none was requested before.
pub type UsualPrompt = Box<dyn Fn(&Model, bool) -> Result<(Request, PromptOrigin)> + Send>;

/// A training step to open.
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

/// Request to the thread that runs prompts.
pub(super) enum RunJob {
    Open(Opening, FirstPrompt),
    Align(Box<Alignment>),
    OpenLive(Box<LiveOpening>),
    /// Replace the open training step by another one, keeping the prompt.
    OpenStep(Opening),
    Run(Request),
    /// Run the last prompt again with what-if changes to attention.
    WhatIf(Vec<WhatIf>),
    /// Run something to compare with the last run.
    Against(Against),
    /// Load the code of a live model anew, to compare with a run of it.
    Reload(RunId),
    /// Show a run of before again, as A or as B.
    Again(RunId, bool),
    /// Reread the files, and run the last prompt again.
    ReadAgain,
    /// Let the model continue the last prompt.
    Write,
}

/// A part of a head, requested at full resolution.
#[derive(Debug, Clone)]
pub struct PartQuery {
    pub head: HeadQuery,
    pub rows: Arc<HeadRows>,
    pub queries: Range<usize>,
    pub keys: Range<usize>,
}

/// Ignores `rows`, which are determined by the head.
impl PartialEq for PartQuery {
    fn eq(&self, other: &Self) -> bool {
        let asked = |query: &Self| (query.head, query.queries.clone(), query.keys.clone());
        asked(self) == asked(other)
    }
}

impl Eq for PartQuery {}

/// Question about a run, answered while runs continue.
pub(super) enum Question {
    Head(RunId, HeadQuery),
    Tensor(String),
    Probes(RunId),
    Part(RunId, PartQuery),
    Sweep(SweepQuery),
    SweepLayer(LayerSweepQuery),
    Compare(Pair),
    QueryRows(RowsQuery),
    Effect(EffectQuery),
    OverPrompts(PromptsQuery),
}
