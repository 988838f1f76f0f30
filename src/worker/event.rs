//! Events that threads send to listeners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use attnscope_checks::stats::LayerReport;
use attnscope_compare::Comparison;
use attnscope_compute::ops::Device;
use attnscope_prompt::{Prompt, PromptForm, Source};
use attnscope_run::{
    HeadDetail, HeadQuery, Judgement, NonFinite, Outcome, PartDetail, Progress, Step, Subject,
    SweepPoint, TensorStats,
};
use attnscope_spec::Place;
use attnscope_studies::over_prompts::OverPrompts;

use super::effect_shown::{EffectQuery, EffectShown};
use super::query_rows::{QueryRows, RowsQuery};
use super::run_id::{Pair, RunId};
use super::sweep::{LayerSweepOf, SweepOf, Swept};
use super::written::WrittenToken;

/// Receives events, from any thread.
pub type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// Kind of a question about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionKind {
    Head(HeadQuery),
    Part,
    Probes,
    Sweep,
    LayerSweep,
    Comparison,
    QueryRows,
    Effect(EffectQuery),
}

/// Origin of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptOrigin {
    BuiltIn,
    Asked,
}

/// Event on a thread.
#[derive(Debug, Clone)]
pub enum Event {
    Opened {
        subject: Subject,
        /// Whether a prompt can be text.
        has_tokenizer: bool,
        /// The tokenizer's name, or why prompts must be ids.
        tokenizer: String,
        /// What turns texts into tokens; `None` where another process or no file does.
        prompt_form: Option<Arc<PromptForm>>,
        /// The device of computation.
        device: Device,
    },
    /// The checkpoint or the first prompt cannot be used; there is nothing to show.
    OpenFailed(String),
    Started {
        run: RunId,
        prompt: Arc<Prompt>,
        source: Source,
        origin: PromptOrigin,
    },
    /// A run of before is on screen again, alone.
    StartedAgain {
        run: RunId,
        subject: Subject,
        prompt: Arc<Prompt>,
        source: Source,
        origin: PromptOrigin,
    },
    /// The code of a live model runs, before its run is shown.
    RunningCode {
        n_done: usize,
        /// 0 if unknown.
        n: usize,
    },
    /// The open subject is another recording of the same model.
    Renewed(Subject),
    /// The last prompt runs again, through a model with changed attention.
    WhatIfStarted {
        run: RunId,
        subject: Subject,
    },
    /// A second run, to compare with the last one, has started.
    SecondStarted {
        run: RunId,
        subject: Subject,
        prompt: Arc<Prompt>,
        source: Source,
    },
    /// A decoder generates its own target before a run starts.
    Writing {
        n_written: usize,
        n_most: usize,
    },
    /// The model starts to continue the text on screen.
    BeganToWrite {
        /// Texts of the tokens before, and of the encoder's tokens if it has one.
        given: Vec<String>,
        keys: Option<Vec<String>>,
        n_most: usize,
        /// Names of the generating models: A, and B if it is another one.
        models: Vec<String>,
    },
    /// A (0) or B (1) generated a token.
    Wrote(usize, Arc<WrittenToken>),
    /// Generation ended, with the reason if it was not intended. `tokens` are those of the text and of the continuation.
    EndedWriting {
        tokens: Vec<u32>,
        given: Option<Source>,
        real: Option<Vec<bool>>,
        n_written: usize,
        why: Option<String>,
    },
    /// A later prompt cannot be used; the screen stays as it is.
    Refused(String),
    /// A file of the checkpoint changed on disk since it was opened; the message says which, and how.
    Changed(String),
    Progress {
        run: RunId,
        progress: Progress,
    },
    /// Completed share of the run's arithmetic, from 0 to 1, and the time that it took.
    Work {
        run: RunId,
        share: f32,
        passed: Duration,
    },
    Layer {
        run: RunId,
        report: Arc<LayerReport>,
    },
    NonFinite {
        run: RunId,
        found: NonFinite,
    },
    /// A run finished; `labels` has the text of every predicted id.
    Finished {
        run: RunId,
        outcome: Arc<Outcome>,
        labels: Arc<BTreeMap<u32, String>>,
        took: Duration,
    },
    /// Heads that the keys of induction heads read from: pairs of the earlier and the induction head.
    Fed {
        run: RunId,
        fed: Vec<(Place, Place)>,
    },
    Failed {
        run: RunId,
        reason: String,
    },
    /// An internal error aborted the run.
    Broken {
        run: RunId,
        message: String,
    },
    /// Verdicts of all checks on the run; sent again after the model was probed with changed prompts.
    Judged {
        run: RunId,
        judgement: Arc<Judgement>,
        is_probed: bool,
    },
    /// The checks of a finished run were stopped, or could not read it any more.
    Unjudged {
        run: RunId,
        reason: String,
    },
    /// Progress of probing the model with changed prompts.
    Probing {
        run: RunId,
        step: Step,
    },
    Detail {
        run: RunId,
        query: HeadQuery,
        detail: Arc<HeadDetail>,
    },
    /// A part of a head at full resolution.
    Part {
        run: RunId,
        head: HeadQuery,
        detail: Arc<PartDetail>,
    },
    /// A question about the run could not be answered.
    QuestionFailed {
        run: RunId,
        question: QuestionKind,
        reason: String,
    },
    /// Progress of comparing two runs.
    Comparing {
        pair: Pair,
        step: Step,
    },
    Compared {
        pair: Pair,
        comparison: Arc<Comparison>,
    },
    /// Attention from one query to every key, in every head.
    QueryRows {
        of: RowsQuery,
        rows: Arc<QueryRows>,
    },
    /// Effects of heads measured so far.
    Measured {
        of: EffectQuery,
        shown: Arc<EffectShown>,
        /// Whether this is the final result.
        is_last: bool,
    },
    /// What is known of all heads over the prompts of a request so far.
    OverPrompts {
        /// Number of the request.
        of: u64,
        over: Arc<OverPrompts>,
        /// Whether this is the final result.
        is_last: bool,
    },
    /// The prompts of a request did not all run.
    OverPromptsFailed {
        of: u64,
        reason: String,
    },
    /// Sweep of the score scale of a head.
    Swept {
        of: SweepOf,
        swept: Arc<Swept>,
    },
    /// Sweep of the score scale of all heads of a layer.
    SweptLayer {
        of: LayerSweepOf,
        points: Arc<Vec<SweepPoint>>,
    },
    Tensor {
        name: String,
        stats: Option<TensorStats>,
    },
    /// The statistics of a tensor could not be computed.
    TensorFailed {
        name: String,
        reason: String,
    },
}
