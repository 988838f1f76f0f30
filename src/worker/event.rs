//! What happened on a thread, as listeners hear it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use attnscope_checks::stats::LayerReport;
use attnscope_compare::Comparison;
use attnscope_compute::ops::Device;
use attnscope_prompt::{Prompt, Source};
use attnscope_run::{
    HeadDetail, HeadQuery, Judgement, NonFinite, Outcome, PartDetail, Progress, Step, Subject,
    SweepPoint, TensorStats,
};

use super::effect_shown::{EffectQuery, EffectShown};
use super::query_rows::{QueryRows, RowsQuery};
use super::run_id::{Pair, RunId};
use super::sweep::{LayerSweepOf, SweepOf, Swept};
use super::written::WrittenToken;

/// Receives events, from any thread.
pub type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// What was asked about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    Head(HeadQuery),
    Part,
    Probes,
    Sweep,
    LayerSweep,
    Comparison,
    QueryRows,
    Effect(EffectQuery),
}

/// Where a prompt came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptOrigin {
    BuiltIn,
    Asked,
}

/// What happened on a thread.
#[derive(Debug, Clone)]
pub enum Event {
    Opened {
        subject: Subject,
        /// Whether a prompt can be text.
        has_tokenizer: bool,
        /// What ids come from, or why prompts can only be ids.
        tokenizer: String,
        /// What computes.
        device: Device,
    },
    /// The checkpoint, or the first prompt, cannot be used: there is nothing to show.
    OpenFailed(String),
    Started {
        run: RunId,
        prompt: Arc<Prompt>,
        source: Source,
        origin: PromptOrigin,
    },
    /// The prompt of the last run runs again, through a model with another attention.
    Supposed {
        run: RunId,
        subject: Subject,
    },
    /// Something else runs beside the last run.
    Beside {
        run: RunId,
        subject: Subject,
        prompt: Arc<Prompt>,
        source: Source,
    },
    /// A decoder writes its own target, before a run begins.
    Writing {
        n_written: usize,
        n_most: usize,
    },
    /// The model begins to write behind the text on screen.
    BeganToWrite {
        /// What the tokens before read as, and those of the encoder where there is one.
        given: Vec<String>,
        keys: Option<Vec<String>>,
        n_most: usize,
        /// The models that write: A, and B where it is another one.
        models: Vec<String>,
    },
    /// A or B, counted from 0, wrote a token.
    Wrote(usize, Arc<WrittenToken>),
    /// It writes no more: says why where that was not meant. All tokens are those of the text and what was written.
    EndedWriting {
        tokens: Vec<u32>,
        given: Option<Source>,
        real: Option<Vec<bool>>,
        n_written: usize,
        why: Option<String>,
    },
    /// A later prompt cannot be used; what is on screen stays.
    Refused(String),
    /// A file of the checkpoint changed on disk since it was opened: says which, and how.
    Changed(String),
    Progress {
        run: RunId,
        progress: Progress,
    },
    /// How much of the run's arithmetic is done, from 0 to 1.
    Work {
        run: RunId,
        share: f32,
    },
    Layer {
        run: RunId,
        report: Arc<LayerReport>,
    },
    NonFinite {
        run: RunId,
        found: NonFinite,
    },
    /// `labels` holds what every predicted id reads as.
    Finished {
        run: RunId,
        outcome: Arc<Outcome>,
        labels: Arc<BTreeMap<u32, String>>,
        took: Duration,
    },
    Failed {
        run: RunId,
        reason: String,
    },
    /// An internal error broke the run off.
    Broken {
        run: RunId,
        message: String,
    },
    /// What every check makes of the run; again after the model was asked on changed prompts.
    Judged {
        run: RunId,
        judgement: Arc<Judgement>,
        is_probed: bool,
    },
    /// How far the model is asked on changed prompts.
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
    DetailFailed {
        run: RunId,
        question: Question,
        reason: String,
    },
    /// How far two runs are compared.
    Comparing {
        pair: Pair,
        step: Step,
    },
    Compared {
        pair: Pair,
        comparison: Arc<Comparison>,
    },
    /// What a query gives to each key in every head.
    QueryRows {
        of: RowsQuery,
        rows: Arc<QueryRows>,
    },
    /// What is known so far of what heads do.
    Measured {
        of: EffectQuery,
        shown: Arc<EffectShown>,
        /// Nothing follows.
        is_last: bool,
    },
    /// The scores of a head, multiplied.
    Swept {
        of: SweepOf,
        swept: Arc<Swept>,
    },
    /// The scores of all heads of a layer, multiplied.
    SweptLayer {
        of: LayerSweepOf,
        points: Arc<Vec<SweepPoint>>,
    },
    Tensor {
        name: String,
        stats: Option<TensorStats>,
    },
    /// The figures of a tensor could not be computed.
    TensorFailed {
        name: String,
        reason: String,
    },
}
