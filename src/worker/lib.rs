//! Runs analyses on threads of their own: one running, one next, the newest wins; every event carries its run.

mod against;
mod caught;
mod compare;
mod effect;
mod event;
mod given;
mod lane;
mod look;
mod own_device;
mod progress;
mod query_rows;
mod run_id;
mod runner;
mod sweep;
mod watch;
mod writing;

pub use against::{Against, recorded_prompt};
pub use caught::caught;
pub use compare::Pair;
pub use effect::{EffectQuery, EffectShown, Measure};
pub use event::{Event, PromptOrigin, Question};
pub use query_rows::{HeadAt, QueryRows, RowsQuery};
pub use run_id::RunId;
pub use sweep::{LayerSweepOf, LayerSweepQuery, SweepOf, SweepQuery, Swept};
pub use writing::{StepRows, WrittenToken};

use std::ops::Range;
use std::sync::{Arc, Mutex};

use attnscope_checkpoint::Opening;
use attnscope_checks::stats::LayerReport;
use attnscope_compute::attention::HeadRows;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Device;
use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_prompt::{Lost, Reading, Request};
use attnscope_run::align::{Aligned, Alignment};
use attnscope_run::{Earlier, HeadQuery, Kept, Outcome, Recorded, Resume, Shared, Subject, WhatIf};
use attnscope_spec::Model;

use self::lane::Lane;
use self::look::answer;
use self::own_device::OwnDevice;
use self::runner::Runner;
use self::watch::Watch;

/// Receives events, from any thread.
pub type Sink = Arc<dyn Fn(Event) + Send + Sync>;

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
enum RunJob {
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
enum Look {
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

/// What is open, and the runs that looks refer to.
#[derive(Default)]
struct Context {
    subject: Option<Subject>,
    /// The last run of what is open, as it is.
    a: Option<Ran>,
    /// A second run beside it.
    b: Option<Ran>,
}

/// A run on screen.
#[derive(Clone)]
struct Ran {
    run: RunId,
    what: What,
}

/// What questions about a run are answered from.
#[derive(Clone)]
enum What {
    Model(ModelRun),
    Trace(Arc<Recorded>),
    Alignment(Arc<Aligned>),
}

/// A run of a model, as far as it has come, and what it ran.
#[derive(Clone)]
struct ModelRun {
    model: Arc<Model>,
    input: Arc<Input>,
    /// How much of its text the tokenizer does not know.
    lost: Lost,
    kept: Option<Arc<Kept>>,
    /// What it told, once it is over.
    seen: Option<Seen>,
}

impl ModelRun {
    fn new(model: Arc<Model>, input: Arc<Input>, lost: Lost) -> Self {
        Self {
            model,
            input,
            lost,
            kept: None,
            seen: None,
        }
    }

    /// From where a changed model can go on, once this run is over.
    fn resume(&self) -> Option<Resume<'_>> {
        let (layers, _) = self.seen.as_ref()?;
        Some(Resume {
            spec: &self.model.spec,
            kept: self.kept.as_ref()?,
            layers,
        })
    }

    /// What this run, once it is over, knows of another text for the same model.
    fn shared_with(&self, model: &Model, input: &Input) -> Option<Shared<'_>> {
        let (_, outcome) = self
            .seen
            .as_ref()
            .filter(|_| std::ptr::eq(model, &*self.model))?;
        let earlier = Earlier {
            input: &self.input,
            kept: self.kept.as_ref()?,
            outcome,
        };
        earlier.shared_with(&model.spec, input)
    }
}

impl Context {
    /// What is open, and what stands beside it where that is something else.
    fn subjects(&self) -> Vec<Subject> {
        let beside = self.b.as_ref().and_then(|ran| match &ran.what {
            What::Model(ran) => Some(Subject::Model(ran.model.clone())),
            What::Trace(recorded) => Some(Subject::Trace(recorded.clone())),
            What::Alignment(_) => None,
        });
        let mut all: Vec<Subject> = self.subject.iter().cloned().collect();
        all.extend(beside.filter(|beside| !all.iter().any(|open| open.is(beside))));
        all
    }

    fn of_run(&self, run: RunId) -> Option<&Ran> {
        let both = [&self.a, &self.b];
        both.into_iter().flatten().find(|ran| ran.run == run)
    }

    /// A run of a model, to be told how far it has come.
    fn model_run(&mut self, run: RunId) -> Option<&mut ModelRun> {
        let both = [&mut self.a, &mut self.b];
        let ran = both.into_iter().flatten().find(|ran| ran.run == run)?;
        match &mut ran.what {
            What::Model(ran) => Some(ran),
            What::Trace(_) | What::Alignment(_) => None,
        }
    }
}

/// What a run told.
type Seen = (Arc<Vec<Arc<LayerReport>>>, Arc<Outcome>);

/// Threads: one runs prompts, the others answer questions about the run while it goes on.
pub struct Worker {
    runs: Lane<RunJob>,
    heads: Lane<Look>,
    parts: Lane<Look>,
    sweeps: Lane<Look>,
    layer_sweeps: Lane<Look>,
    tensors: Lane<Look>,
    probes: Lane<Look>,
    comparisons: Lane<Look>,
    query_rows: Lane<Look>,
    effects: Lane<Look>,
    /// Files are looked after as long as this is held.
    _watch: Watch,
}

impl Worker {
    /// Opens a checkpoint (the demo when none is named) and runs its first prompt.
    ///
    /// Refuses runs that need more memory than there is, unless it is forced.
    pub fn start(
        opening: impl Into<Opening>,
        first: FirstPrompt,
        device: Device,
        is_forced: bool,
        sink: Sink,
    ) -> Self {
        let worker = Self::spawn(device, is_forced, None, sink);
        worker.runs.submit(RunJob::Open(opening.into(), first));
        worker
    }

    /// Waits for a step of a training to be opened.
    pub fn waiting(usual: UsualPrompt, device: Device, is_forced: bool, sink: Sink) -> Self {
        Self::spawn(device, is_forced, Some(usual), sink)
    }

    /// Opens a step of a training, and runs the last prompt through it; a run still going is stopped.
    pub fn open_step(&self, step: StepOpening) {
        self.stop_questions();
        self.runs.submit(RunJob::OpenStep(step.0));
    }

    /// Shows an alignment of two sentences.
    pub fn start_alignment(alignment: Alignment, sink: Sink) -> Self {
        let worker = Self::spawn(Device::Cpu, false, None, sink);
        worker.runs.submit(RunJob::Align(Box::new(alignment)));
        worker
    }

    fn spawn(device: Device, is_forced: bool, usual: Option<UsualPrompt>, sink: Sink) -> Self {
        let context: Arc<Mutex<Context>> = Arc::default();
        let runs = Lane::spawn("runs", {
            let (context, sink) = (context.clone(), sink.clone());
            let mut runner = Runner {
                is_forced,
                device: OwnDevice::new(device),
                context,
                sink,
                reading: Reading::Ids("no checkpoint is open".to_owned()),
                opening: None,
                usual,
                last: None,
                prompt: None,
                other: None,
                before: None,
                remembered: None,
            };
            move |id, job, pace: &dyn Pace| runner.job(id, job, pace)
        });
        let looker = |name: &str| {
            Lane::spawn(name, {
                let (context, sink) = (context.clone(), sink.clone());
                let mut device = OwnDevice::new(device);
                move |_, look, pace: &dyn Pace| answer(&context, &sink, &mut device, look, pace)
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
            _watch: Watch::begin(&context, sink.clone()),
        }
    }

    /// Reads the files again, as they are now, and runs the last prompt; a run still going is stopped.
    pub fn read_again(&self) {
        self.stop_questions();
        self.runs.submit(RunJob::ReadAgain);
    }

    /// Lets the model write behind the last prompt.
    pub fn write(&self) {
        self.stop_questions();
        self.runs.submit(RunJob::Write);
    }

    /// Runs another prompt; a run still going is stopped.
    pub fn run(&self, request: Request) {
        self.stop_questions();
        self.runs.submit(RunJob::Run(request));
    }

    /// Runs the last prompt again with another attention.
    pub fn suppose(&self, what_ifs: Vec<WhatIf>) {
        self.comparisons.cancel();
        self.runs.submit(RunJob::Suppose(what_ifs));
    }

    /// Runs something beside the last run.
    pub fn against(&self, against: Against) {
        self.comparisons.cancel();
        self.runs.submit(RunJob::Against(against));
    }

    /// Stops the run that is going.
    pub fn cancel(&self) {
        self.runs.cancel();
        self.stop_questions();
    }

    /// Stops what is asked of a whole model.
    fn stop_questions(&self) {
        self.probes.cancel();
        self.comparisons.cancel();
        self.effects.cancel();
    }

    /// Compares two runs that are over, hook by hook.
    pub fn compare(&self, pair: Pair) {
        self.comparisons.submit(Look::Compare(pair));
    }

    /// Asks the model of a run on changed prompts.
    pub fn probe(&self, run: RunId) {
        self.probes.submit(Look::Probes(run));
    }

    /// Asks for a head of a run; an older question still open is dropped.
    pub fn look_at(&self, run: RunId, query: HeadQuery) {
        self.heads.submit(Look::Head(run, query));
    }

    /// Asks for a part of a head at full resolution; an older question still open is dropped.
    pub fn look_at_part(&self, run: RunId, query: PartQuery) {
        self.parts.submit(Look::Part(run, query));
    }

    /// Asks for a sweep of a head's scores; an older question still open is dropped.
    pub fn sweep(&self, query: SweepQuery) {
        self.sweeps.submit(Look::Sweep(query));
    }

    /// Asks for a sweep of the scores of all heads of a layer; an older question still open is dropped.
    pub fn sweep_layer(&self, query: LayerSweepQuery) {
        self.layer_sweeps.submit(Look::SweepLayer(query));
    }

    /// Asks what a query gives to each key in every head; an older question still open is dropped.
    pub fn query_rows(&self, query: RowsQuery) {
        self.query_rows.submit(Look::QueryRows(query));
    }

    /// Asks what the heads of a run do; an older question still open is dropped.
    pub fn measure(&self, query: EffectQuery) {
        self.effects.submit(Look::Effect(query));
    }

    /// Asks for the figures of a tensor.
    pub fn tensor(&self, name: String) {
        self.tensors.submit(Look::Tensor(name));
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}
