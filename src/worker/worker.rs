//! The worker: a thread that runs prompts, and threads that answer questions about the run meanwhile.

use std::sync::{Arc, Mutex};

use attnscope_checkpoint::Opening;
use attnscope_compute::pace::Pace;
use attnscope_prompt::{PromptForm, Request};
use attnscope_run::align::Alignment;
use attnscope_run::{HeadQuery, WhatIf};

use super::against::Against;
use super::asked::{FirstPrompt, PartQuery, Question, RunJob, StepOpening, UsualPrompt};
use super::context::Context;
use super::effect_shown::EffectQuery;
use super::event::Sink;
use super::lane::{Lane, lock};
use super::live::LiveOpening;
use super::look::Looker;
use super::over_prompts::PromptsQuery;
use super::own_device::OwnDevice;
use super::past::noting;
use super::query_rows::RowsQuery;
use super::run_id::{Pair, RunId};
use super::runner::Runner;
use super::sweep::{LayerSweepQuery, SweepQuery};
use super::terms::Terms;
use super::watch::Watch;

/// Worker threads: one runs prompts, the others answer questions about the run meanwhile.
pub struct Worker {
    runs: Lane<RunJob>,
    heads: Lane<Question>,
    parts: Lane<Question>,
    sweeps: Lane<Question>,
    layer_sweeps: Lane<Question>,
    tensors: Lane<Question>,
    probes: Lane<Question>,
    comparisons: Lane<Question>,
    query_rows: Lane<Question>,
    effects: Lane<Question>,
    over_prompts: Lane<Question>,
    /// Watches the open files until dropped.
    _watch: Watch,
    context: Arc<Mutex<Context>>,
}

impl Drop for Worker {
    /// Threads are not waited for, so that what they keep on disk goes here.
    fn drop(&mut self) {
        let context = lock(&self.context);
        let both = [&context.live, &context.second_live];
        both.into_iter().flatten().for_each(|live| live.leave());
    }
}

impl Worker {
    /// Opens a checkpoint (the demo if none is named) and runs its first prompt.
    ///
    /// Refuses runs that need more memory than is available, unless forced.
    pub fn start(
        opening: impl Into<Opening>,
        first: FirstPrompt,
        terms: Terms,
        sink: Sink,
    ) -> Self {
        let worker = Self::spawn(terms, None, sink);
        worker.runs.submit(RunJob::Open(opening.into(), first));
        worker
    }

    /// Starts a worker that waits for a training step to be opened.
    pub fn waiting(usual: UsualPrompt, terms: Terms, sink: Sink) -> Self {
        Self::spawn(terms, Some(usual), sink)
    }

    /// Opens a training step and runs the last prompt through it; stops a run in progress.
    pub fn open_step(&self, step: StepOpening) {
        self.stop_questions();
        self.over_prompts.cancel();
        self.runs.submit(RunJob::OpenStep(step.0));
    }

    /// Starts a worker that shows an alignment of two sentences.
    pub fn start_alignment(alignment: Alignment, terms: Terms, sink: Sink) -> Self {
        let worker = Self::spawn(terms, None, sink);
        worker.runs.submit(RunJob::Align(Box::new(alignment)));
        worker
    }

    /// Starts a worker that shows the model of another process.
    pub fn start_live(opening: LiveOpening, terms: Terms, sink: Sink) -> Self {
        let worker = Self::spawn(terms, None, sink);
        worker.runs.submit(RunJob::OpenLive(Box::new(opening)));
        worker
    }

    fn spawn(terms: Terms, usual: Option<UsualPrompt>, sink: Sink) -> Self {
        let context: Arc<Mutex<Context>> = Arc::default();
        let sink = noting(context.clone(), sink);
        let terms = Arc::new(terms);
        let runs = Lane::spawn("runs", {
            let (context, sink) = (context.clone(), sink.clone());
            let mut runner = Runner {
                device: OwnDevice::new(terms.device),
                terms: terms.clone(),
                context,
                sink,
                prompt_form: Arc::new(PromptForm::Ids("no checkpoint is open".to_owned())),
                opening: None,
                usual,
                last: None,
                prompt: None,
                other: None,
                before: None,
                live_tokenizer: None,
                unchecked: Vec::new(),
                remembered: None,
            };
            move |id, job, pace: &dyn Pace| runner.job(id, job, pace)
        });
        let looker = |name: &str| {
            Lane::spawn(name, {
                let mut looker = Looker {
                    context: context.clone(),
                    sink: sink.clone(),
                    device: OwnDevice::new(terms.device),
                    terms: terms.clone(),
                };
                move |_, look, pace: &dyn Pace| looker.answer(look, pace)
            })
        };
        Self {
            runs,
            heads: looker("heads"),
            parts: looker("parts"),
            sweeps: looker("sweeps"),
            layer_sweeps: looker("layer sweeps"),
            tensors: looker("tensors"),
            probes: looker("probes"),
            comparisons: looker("comparisons"),
            query_rows: looker("query rows"),
            effects: looker("effects"),
            over_prompts: looker("over prompts"),
            _watch: Watch::begin(&context, sink.clone()),
            context,
        }
    }

    /// Rereads the files and runs the last prompt; stops a run in progress.
    pub fn read_again(&self) {
        self.stop_questions();
        self.over_prompts.cancel();
        self.runs.submit(RunJob::ReadAgain);
    }

    /// Lets the model continue the last prompt.
    pub fn write(&self) {
        self.stop_questions();
        self.runs.submit(RunJob::Write);
    }

    /// Runs another prompt; stops a run in progress.
    pub fn run(&self, request: Request) {
        self.stop_questions();
        self.runs.submit(RunJob::Run(request));
    }

    /// Runs the last prompt again with changed attention.
    pub fn run_what_ifs(&self, what_ifs: Vec<WhatIf>) {
        self.comparisons.cancel();
        self.runs.submit(RunJob::WhatIf(what_ifs));
    }

    /// Runs something to compare with the last run.
    pub fn against(&self, against: Against) {
        self.comparisons.cancel();
        self.runs.submit(RunJob::Against(against));
    }

    /// Loads the code of a live model anew, to compare with a run of it.
    pub fn reload(&self, a: RunId) {
        self.comparisons.cancel();
        self.runs.submit(RunJob::Reload(a));
    }

    /// Shows a run of before again, as A or as B.
    pub fn again(&self, run: RunId, is_second: bool) {
        if is_second {
            self.comparisons.cancel();
        } else {
            self.stop_questions();
        }
        self.runs.submit(RunJob::Again(run, is_second));
    }

    /// Stops the run in progress.
    pub fn cancel(&self) {
        self.runs.cancel();
        self.stop_questions();
        self.over_prompts.cancel();
    }

    /// Stops all questions about the last run. Those about other prompts go on: another text does not change the model.
    fn stop_questions(&self) {
        self.probes.cancel();
        self.comparisons.cancel();
        self.effects.cancel();
    }

    /// Compares two finished runs, hook by hook.
    pub fn compare(&self, pair: Pair) {
        self.comparisons.submit(Question::Compare(pair));
    }

    /// Probes the model of a run with changed prompts.
    pub fn probe(&self, run: RunId) {
        self.probes.submit(Question::Probes(run));
    }

    /// Requests a head of a run; drops an older unanswered request.
    pub fn look_at(&self, run: RunId, query: HeadQuery) {
        self.heads.submit(Question::Head(run, query));
    }

    /// Requests a part of a head at full resolution; drops an older unanswered request.
    pub fn look_at_part(&self, run: RunId, query: PartQuery) {
        self.parts.submit(Question::Part(run, query));
    }

    /// Requests a sweep of a head's score scale; drops an older unanswered request.
    pub fn sweep(&self, query: SweepQuery) {
        self.sweeps.submit(Question::Sweep(query));
    }

    /// Requests a sweep of the score scale of all heads of a layer; drops an older unanswered request.
    pub fn sweep_layer(&self, query: LayerSweepQuery) {
        self.layer_sweeps.submit(Question::SweepLayer(query));
    }

    /// Requests the attention from one query to each key in every head; drops an older unanswered request.
    pub fn query_rows(&self, query: RowsQuery) {
        self.query_rows.submit(Question::QueryRows(query));
    }

    /// Requests the effects of a run's heads; drops an older unanswered request.
    pub fn measure(&self, query: EffectQuery) {
        self.effects.submit(Question::Effect(query));
    }

    /// Runs a set of prompts through the open model; drops an older unanswered request.
    pub fn over_prompts(&self, query: PromptsQuery) {
        self.over_prompts.submit(Question::OverPrompts(query));
    }

    /// Requests the statistics of a tensor.
    pub fn tensor(&self, name: String) {
        self.tensors.submit(Question::Tensor(name));
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}
