//! A run: one model on one prompt, with all data that panels draw.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use attnscope_checks::stats::LayerReport;
use attnscope_checks::{Finding, Severity};
use attnscope_prompt::{Firsts, Prompt, Source};
use attnscope_run::{
    HeadDetail, HeadQuery, Judgement, NonFinite, Outcome, PartDetail, Progress, Step, Subject,
};
use attnscope_spec::{MergeSpec, Place, Stack};
use attnscope_worker::{PromptOrigin, RunId};

/// A requested part of a long head: the head, its queries and its keys.
pub type Wanted = (HeadQuery, Range<usize>, Range<usize>);

/// A run with the results that have arrived so far, and the heads last computed in full.
#[derive(Debug)]
pub struct Run {
    pub id: RunId,
    /// The model or trace that ran.
    pub subject: Subject,
    pub prompt: Arc<Prompt>,
    /// Prompts of layers whose patches are not those of the prompt.
    merged: Merged,
    pub source: Source,
    pub origin: PromptOrigin,
    /// Layer reports by grid, in layer order, as they finish.
    pub layers: BTreeMap<Stack, Vec<Arc<LayerReport>>>,
    pub state: RunState,
    /// Share of the arithmetic done, from 0 to 1, once known.
    pub share: Option<f32>,
    /// How long it will go on, in words.
    pub left: Option<String>,
    pub nonfinite: Option<NonFinite>,
    /// Heads that the keys of induction heads read from: pairs of the earlier and the induction head.
    pub fed: Vec<(Place, Place)>,
    /// Verdicts of all checks, once the run has finished.
    pub judgement: Option<Arc<Judgement>>,
    /// Why a finished run has no verdicts, if its checks were stopped.
    pub unjudged: Option<String>,
    /// Its findings, the worst first; of equally bad ones the first layer's.
    pub findings: Vec<Finding>,
    /// The worst warning or error of each head, and of each layer as a whole.
    pub marks: BTreeMap<(Stack, usize, Option<usize>), Severity>,
    /// Whether the model was probed (run on changed prompts).
    pub is_probed: bool,
    /// Whether automatic probing was already decided on.
    pub was_considered: bool,
    /// Progress of probing.
    pub probing: Option<Step>,
    /// The last head that could not be computed, and why.
    pub failed_head: Option<(HeadQuery, String)>,
    /// The last head computed in full.
    pub detail: Option<(HeadQuery, Arc<HeadDetail>)>,
    /// The head being computed.
    pub awaited: Option<HeadQuery>,
    /// The last part of a long head computed at full resolution.
    pub part: Option<(HeadQuery, Arc<PartDetail>)>,
    /// The part being computed.
    pub awaited_part: Option<Wanted>,
}

/// Stage of a prompt before its run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preparing {
    /// The text is being read.
    Text,
    /// A decoder is generating its target.
    Target { n_written: usize, n_most: usize },
    /// The code of a live model runs; `n` is 0 until a run has counted its layers.
    Code { n_done: usize, n: usize },
}

/// State of a run.
#[derive(Debug, Clone)]
pub enum RunState {
    Running(Progress),
    Done {
        outcome: Arc<Outcome>,
        labels: Arc<BTreeMap<u32, String>>,
        took: Duration,
    },
    /// Stopped or failed while reading or computing, with the reason.
    Ended(String),
    /// Stopped by an internal error.
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
        let merged = Merged::of(&subject, &prompt);
        Self {
            id,
            merged,
            subject,
            prompt,
            source,
            origin,
            layers: BTreeMap::new(),
            state,
            nonfinite: None,
            fed: Vec::new(),
            judgement: None,
            unjudged: None,
            findings: Vec::new(),
            marks: BTreeMap::new(),
            share: None,
            left: None,
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

    /// A head at full resolution, if it is the last one computed.
    pub fn detail_of(&self, head: HeadQuery) -> Option<&Arc<HeadDetail>> {
        let detail = self.detail.as_ref().filter(|(query, _)| *query == head);
        detail.map(|(_, detail)| detail)
    }

    /// The prompt as the layers of a stack see it: that of the model, or of their stage.
    pub fn prompt_in(&self, stack: Stack, layer_idx: usize) -> &Prompt {
        let mut stages = self.merged.stages.iter().rev();
        let stage = stages.find(|(of, first, _)| *of == stack && *first <= layer_idx);
        match (stage, stack) {
            (Some((_, _, merged)), _) => merged,
            (None, Stack::Encoder) => self.prompt.given(),
            (None, _) => &self.prompt,
        }
    }

    /// The prompt whose tokens are the keys of a layer's own attention.
    pub fn keys_in(&self, stack: Stack, layer_idx: usize) -> &Prompt {
        let mut keys = self.merged.keys.iter();
        let keys = keys.find(|(of, at, _)| (*of, *at) == (stack, layer_idx));
        match keys {
            Some((_, _, prompt)) => prompt,
            None => self.prompt_in(stack, layer_idx),
        }
    }

    /// A layer's report, once it has arrived.
    pub fn layer(&self, grid: Stack, layer_idx: usize) -> Option<&LayerReport> {
        let layers = self.layers.get(&grid)?;
        let is_it = |layer: &&Arc<LayerReport>| layer.layer_idx == layer_idx;
        // Layers without attention have no report, so later ones are not at their number.
        let found = layers.get(layer_idx).filter(is_it);
        found.or_else(|| layers.iter().find(is_it)).map(Arc::as_ref)
    }

    /// The text of a token of the vocabulary, if the run predicts it.
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

    /// Stores the verdicts and sorts their findings once, so that frames only read them.
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
        (self.judgement, self.unjudged) = (Some(judgement), None);
    }

    /// Adds the report of a layer, or replaces an earlier one.
    pub fn take_layer(&mut self, report: Arc<LayerReport>) {
        let layers = self.layers.entry(report.stack).or_default();
        let is_it = |layer: &&mut Arc<LayerReport>| layer.layer_idx == report.layer_idx;
        match layers.iter_mut().find(is_it) {
            Some(earlier) => *earlier = report,
            None => layers.push(report),
        }
    }

    /// Whether the run is finished and its checks are not.
    pub fn is_checking(&self) -> bool {
        let is_done = matches!(self.state, RunState::Done { .. });
        is_done && self.judgement.is_none() && self.unjudged.is_none()
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, RunState::Running(_))
    }
}

/// Prompts of layers whose positions are not those of the prompt.
#[derive(Debug, Default)]
struct Merged {
    /// Of layers in later stages: stack, first layer, prompt.
    stages: Vec<(Stack, usize, Prompt)>,
    /// Of keys that are other rows than queries: stack, layer, prompt.
    keys: Vec<(Stack, usize, Prompt)>,
}

impl Merged {
    fn of(subject: &Subject, prompt: &Prompt) -> Self {
        let mut all = Self::default();
        let stacks = subject.model().map(|model| &model.spec.stacks);
        for stack in stacks.into_iter().flatten() {
            let given = match stack.stack {
                Stack::Encoder => prompt.given(),
                _ => prompt,
            };
            let grid = given.picture.as_ref().map(|picture| picture.grid());
            if let Some(joined) = &stack.embed.joined {
                let joined = given.joined_by(joined.n);
                all.stages.push((stack.stack, 0, joined));
            }
            for (layer_idx, block) in stack.blocks().iter().enumerate() {
                let next = layer_idx + 1;
                let n_joined = stack.n_joined(next);
                match (grid.map(|grid| stack.grid_of(next, grid)), &block.merge) {
                    (Some(grid), Some(merge)) => {
                        let firsts = Firsts::of_stage(merge.has_class(), n_joined);
                        let merged = given.merged_to(grid, firsts);
                        all.stages.push((stack.stack, next, merged));
                    }
                    (None, Some(merge)) if merge.n_to(2) < 2 => {
                        let n = stack.n_shortened(next, given.tokens.len());
                        let shortened = Prompt {
                            tokens: given.tokens.iter().take(n).copied().collect(),
                            positions: (0..n).collect(),
                            ..Prompt::default()
                        };
                        all.stages.push((stack.stack, next, shortened));
                    }
                    _ if block.joined.is_some() => {
                        let joined = given.joined_by(n_joined);
                        all.stages.push((stack.stack, next, joined));
                    }
                    _ => {}
                }
                let key_grid = block.key_grid();
                if key_grid.is_some_and(|key_grid| key_grid.of_both().is_some()) {
                    let keys = prompt.given().before(given);
                    all.keys.push((stack.stack, layer_idx, keys));
                } else if let Some(pooled) = key_grid.and_then(|key_grid| key_grid.pooled()) {
                    let keys = given.with_pools(pooled.size);
                    all.keys.push((stack.stack, layer_idx, keys));
                } else if let (Some(grid), Some(key_grid)) = (grid, key_grid) {
                    let grid = key_grid.to(stack.grid_of(layer_idx, grid));
                    let merge = stack.merged_before(layer_idx);
                    let has_class = merge.is_some_and(MergeSpec::has_class);
                    let keys = given.merged_to(grid, Firsts::of_stage(has_class, 0));
                    all.keys.push((stack.stack, layer_idx, keys));
                }
            }
        }
        all
    }
}
