//! A run: one model on one prompt, with everything that a panel draws from.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use attnscope_checks::stats::LayerReport;
use attnscope_checks::{Finding, Severity};
use attnscope_prompt::{Prompt, Source};
use attnscope_run::{
    HeadDetail, HeadQuery, Judgement, NonFinite, Outcome, PartDetail, Progress, Step, Subject,
};
use attnscope_spec::Stack;
use attnscope_worker::{PromptOrigin, RunId};

/// The part of a long head that is wanted: the head, its queries and its keys.
pub type Wanted = (HeadQuery, Range<usize>, Range<usize>);

/// One run, as far as it has come, and the heads computed in full so far.
#[derive(Debug)]
pub struct Run {
    pub id: RunId,
    /// What ran.
    pub subject: Subject,
    pub prompt: Arc<Prompt>,
    pub source: Source,
    pub origin: PromptOrigin,
    /// By grid, in order of layers, as they finish.
    pub layers: BTreeMap<Stack, Vec<Arc<LayerReport>>>,
    pub state: RunState,
    /// How much of its arithmetic is done, from 0 to 1, once that is told.
    pub share: Option<f32>,
    pub nonfinite: Option<NonFinite>,
    /// What every check makes of it, once it is over.
    pub judgement: Option<Arc<Judgement>>,
    /// Its findings, the worst first; of equals the first layer's.
    pub findings: Vec<Finding>,
    /// The worst warning or error of each head, and of each layer as a whole.
    pub marks: BTreeMap<(Stack, usize, Option<usize>), Severity>,
    /// Whether the model was asked on changed prompts.
    pub is_probed: bool,
    /// Whether it was decided if it is asked without a key.
    pub was_considered: bool,
    /// How far it is being asked.
    pub probing: Option<Step>,
    /// The head that could not be computed last, and why.
    pub failed_head: Option<(HeadQuery, String)>,
    /// The head last computed in full.
    pub detail: Option<(HeadQuery, Arc<HeadDetail>)>,
    /// The head being computed.
    pub awaited: Option<HeadQuery>,
    /// The part of a long head last computed at full resolution.
    pub part: Option<(HeadQuery, Arc<PartDetail>)>,
    /// The part being computed.
    pub awaited_part: Option<Wanted>,
}

/// What happens to a prompt before its run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preparing {
    /// The text is read.
    Text,
    /// A decoder writes its target.
    Target { n_written: usize, n_most: usize },
}

/// Whether a run still goes on.
#[derive(Debug, Clone)]
pub enum RunState {
    Running(Progress),
    Done {
        outcome: Arc<Outcome>,
        labels: Arc<BTreeMap<u32, String>>,
        took: Duration,
    },
    /// Stopped, or something could not be read or computed; says why.
    Ended(String),
    /// An internal error broke it off.
    Broken(String),
}

impl Run {
    pub fn new(
        id: RunId,
        subject: Subject,
        prompt: Arc<Prompt>,
        source: Source,
        origin: PromptOrigin,
    ) -> Self {
        let state = RunState::Running(Progress::Embedding);
        Self {
            id,
            subject,
            prompt,
            source,
            origin,
            layers: BTreeMap::new(),
            state,
            nonfinite: None,
            judgement: None,
            findings: Vec::new(),
            marks: BTreeMap::new(),
            share: None,
            is_probed: false,
            was_considered: false,
            probing: None,
            failed_head: None,
            detail: None,
            awaited: None,
            part: None,
            awaited_part: None,
        }
    }

    /// A head at full resolution, if it is the last one that was computed.
    pub fn detail_of(&self, head: HeadQuery) -> Option<&Arc<HeadDetail>> {
        let detail = self.detail.as_ref().filter(|(query, _)| *query == head);
        detail.map(|(_, detail)| detail)
    }

    /// A layer's report, once it has arrived.
    pub fn layer(&self, grid: Stack, layer_idx: usize) -> Option<&LayerReport> {
        let layers = self.layers.get(&grid)?;
        layers.get(layer_idx).map(Arc::as_ref)
    }

    /// What a token of the vocabulary reads as, if the run predicts it.
    pub fn label(&self, id: u32) -> Option<&str> {
        match &self.state {
            RunState::Done { labels, .. } => labels.get(&id).map(String::as_str),
            _ => None,
        }
    }

    /// Why a head could not be computed, if it is the last one that failed.
    pub fn failure_of(&self, head: HeadQuery) -> Option<&str> {
        let failed = self.failed_head.as_ref();
        failed
            .filter(|(query, _)| *query == head)
            .map(|(_, reason)| reason.as_str())
    }

    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            RunState::Done { outcome, .. } => Some(outcome),
            _ => None,
        }
    }

    /// Takes in what the checks say, sorted once: frames only read it.
    pub fn judge(&mut self, judgement: Arc<Judgement>) {
        let verdicts = judgement.verdicts.iter();
        self.findings = verdicts
            .flat_map(|(_, verdict)| verdict.findings.clone())
            .collect();
        self.findings
            .sort_by_key(|finding| (Reverse(finding.severity), finding.place.layer_idx));
        self.marks.clear();
        for finding in self
            .findings
            .iter()
            .rev()
            .filter(|finding| finding.severity > Severity::Info)
        {
            if let Some(layer_idx) = finding.place.layer_idx {
                let at = (finding.place.grid(), layer_idx, finding.place.head_idx);
                self.marks.insert(at, finding.severity);
            }
        }
        self.judgement = Some(judgement);
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, RunState::Running(_))
    }
}
