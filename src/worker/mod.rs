//! Runs analyses on threads of their own: one running, one next, the newest wins; every event carries its run.

mod event;
mod lane;
mod look;
mod own_device;
mod progress;

pub use event::{Event, PromptOrigin, RunId};

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use self::lane::{Lane, lock};
use self::look::answer;
use self::own_device::OwnDevice;
use self::progress::Told;
use crate::analysis::{
    self, ArrayNames, Declared, HeadQuery, Judgement, KEEP_BYTES, Kept, MemoryNeed, NonFinite,
    Observer, Options, Outcome, Progress,
};
use crate::attention::HeadRows;
use crate::checkpoint::Opening;
use crate::checkpoint::captured::Captured;
use crate::checks::{Probes, Thresholds};
use crate::error::{Error, Result};
use crate::family;
use crate::machine;
use crate::model::{Input, Model, Stack};
use crate::ops::{Device, on_device};
use crate::pace::Pace;
use crate::prompt::{self, Prompt, Reading, Request, Source, Tokenizer};
use crate::stats::LayerReport;

/// Receives events, from any thread.
pub type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// Chooses the first prompt once the checkpoint is open.
pub type FirstPrompt = Box<dyn FnOnce(&Model, bool) -> Result<(Request, PromptOrigin)> + Send>;

/// What runs are asked for.
enum RunJob {
    Open(Opening, FirstPrompt),
    Run(Request),
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
}

/// An open model and the run that looks refer to.
#[derive(Default)]
struct Context {
    model: Option<Arc<Model>>,
    run: RunId,
    input: Option<Arc<Input>>,
    kept: Option<Arc<Kept>>,
    /// What the run told, once it is over.
    seen: Option<Seen>,
    /// A trace in the place of a model that runs.
    trace: Option<Arc<OpenTrace>>,
}

/// What a run told.
type Seen = (Arc<Vec<Arc<LayerReport>>>, Arc<Outcome>);

/// A trace: its file, and the arrays of each layer on screen.
struct OpenTrace {
    captured: Captured,
    arrays: Vec<((Stack, usize), ArrayNames)>,
}

/// Threads: one runs prompts, the others answer questions about the run while it goes on.
pub struct Worker {
    runs: Arc<Lane<RunJob>>,
    heads: Arc<Lane<Look>>,
    parts: Arc<Lane<Look>>,
    tensors: Arc<Lane<Look>>,
    probes: Arc<Lane<Look>>,
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
        let context: Arc<Mutex<Context>> = Arc::default();
        let runs = Lane::spawn("runs", {
            let (context, sink) = (context.clone(), sink.clone());
            let mut runner = Runner {
                is_forced,
                device: OwnDevice::new(device),
                context,
                sink,
                reading: Reading::Ids("no checkpoint is open".to_owned()),
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
        let worker = Self {
            runs,
            heads: looker("heads"),
            parts: looker("parts"),
            tensors: looker("tensors"),
            probes: looker("probes"),
        };
        worker.runs.submit(RunJob::Open(opening.into(), first));
        worker
    }

    /// Runs another prompt; a run still going is stopped.
    pub fn run(&self, request: Request) {
        self.probes.cancel();
        self.runs.submit(RunJob::Run(request));
    }

    /// Stops the run that is going.
    pub fn cancel(&self) {
        self.runs.cancel();
        self.probes.cancel();
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

/// Why something did not run, in words; `stopped` where a person gave it up.
fn reason(error: &Error) -> String {
    match error {
        Error::Cancelled => "stopped".to_owned(),
        other => other.to_string(),
    }
}

/// The thread that opens and runs.
struct Runner {
    is_forced: bool,
    device: OwnDevice,
    context: Arc<Mutex<Context>>,
    sink: Sink,
    reading: Reading,
}

impl Runner {
    fn job(&mut self, id: RunId, job: RunJob, pace: &dyn Pace) {
        match job {
            RunJob::Open(opening, first) => {
                match self.open(id, &opening, first, pace) {
                    Ok(()) => {}
                    // The checkpoint is open; only its first prompt was given up.
                    Err(given_up @ Error::Cancelled) => {
                        (self.sink)(Event::Refused(reason(&given_up)));
                    }
                    Err(error) => (self.sink)(Event::OpenFailed(reason(&error))),
                }
            }
            RunJob::Run(request) => {
                if let Err(error) = self.run(id, request, PromptOrigin::Asked, pace) {
                    (self.sink)(Event::Refused(reason(&error)));
                }
            }
        }
    }

    fn open(
        &mut self,
        id: RunId,
        opening: &Opening,
        first: FirstPrompt,
        pace: &dyn Pace,
    ) -> Result<()> {
        if let Some(path) = opening
            .path
            .as_deref()
            .filter(|path| analysis::is_captured(path))
        {
            return self.show_trace(id, path);
        }
        let started = Instant::now();
        let model = Arc::new(family::read(opening.open()?)?);
        log::info!(
            "opened {} in {:?}",
            model.checkpoint.name,
            started.elapsed()
        );
        lock(&self.context).model = Some(model.clone());
        self.reading = Tokenizer::open(&model.checkpoint.tokenizer)?;
        let has_tokenizer = self.reading.tokenizer().is_some();
        (self.sink)(Event::Opened {
            model: model.clone(),
            has_tokenizer,
            tokenizer: self.reading.describe(),
        });
        let (request, origin) = first(&model, has_tokenizer)?;
        self.run(id, request, origin, pace)
    }

    /// Shows a trace as a run that is over.
    fn show_trace(&mut self, run: RunId, path: &Path) -> Result<()> {
        if analysis::is_probe(path) {
            let problem =
                "a probe holds what moved, and no attention to show: attnscope check judges it";
            return Err(Error::file(path, problem));
        }
        let captured = Captured::open(path)?;
        let trace = analysis::read_trace(&captured, &Declared::default())?;
        let view = analysis::view_of(&captured, &trace);
        let at = view
            .layers
            .iter()
            .map(|layer| (layer.stack, layer.layer_idx));
        let arrays = at.zip(trace.arrays.iter().cloned()).collect();
        {
            let mut context = lock(&self.context);
            context.run = run;
            context.model = Some(view.model.clone());
            context.trace = Some(Arc::new(OpenTrace { captured, arrays }));
        }
        let sink = &self.sink;
        sink(Event::Opened {
            model: view.model,
            has_tokenizer: false,
            tokenizer: format!("a trace; {}", trace.mask_origin),
        });
        let ids = view.prompt.given().tokens.clone();
        sink(Event::Started {
            run,
            prompt: Arc::new(view.prompt),
            source: Source::Ids(ids),
            origin: PromptOrigin::Asked,
        });
        for report in &view.layers {
            sink(Event::Layer {
                run,
                report: report.clone(),
            });
        }
        sink(Event::Finished {
            run,
            outcome: Arc::default(),
            labels: Arc::default(),
            took: Duration::ZERO,
        });
        let verdicts = analysis::judge_trace(&trace, &view.layers, &Thresholds::default());
        let probes = Probes::none("a trace holds one run");
        sink(Event::Judged {
            run,
            judgement: Arc::new(Judgement { verdicts, probes }),
            is_probed: true,
        });
        Ok(())
    }

    /// Fails only when the prompt cannot be used; what goes wrong later is an event of the run.
    fn run(
        &mut self,
        run: RunId,
        request: Request,
        origin: PromptOrigin,
        pace: &dyn Pace,
    ) -> Result<()> {
        let Some(model) = lock(&self.context).model.clone() else {
            return Ok(());
        };
        if lock(&self.context).trace.is_some() {
            let problem = "a trace holds one run: there is no model to run another text with";
            return Err(Error::Prompt(problem.to_owned()));
        }
        let reading = &self.reading;
        let limits = model.spec.limits();
        let mut prompt = prompt::prepare(&request, reading, limits)?;
        if !self.is_forced {
            let longest = analysis::input_of(&prompt.longest());
            let need = MemoryNeed::on_screen(&model, &longest, rayon::current_num_threads());
            machine::check_memory(need.total())?;
        }
        let compute = self.device.get()?;
        let label = |id| reading.of_target(limits).label(id);
        let mut wrote = |prompt: &Prompt| {
            (self.sink)(Event::Writing {
                n_written: prompt.tokens.len(),
                n_most: prompt.tokens.len() + prompt.n_to_generate,
            });
        };
        on_device!(&compute, ops => {
            analysis::generate(ops, &model, &mut prompt, &label, &mut wrote, pace)
        })?;
        let prompt = Arc::new(prompt);
        let input = Arc::new(analysis::input_of(&prompt));
        {
            let mut context = lock(&self.context);
            context.run = run;
            context.input = Some(input.clone());
            context.kept = None;
            context.seen = None;
        }
        let sink = &self.sink;
        sink(Event::Started {
            run,
            prompt,
            source: request.source,
            origin,
        });
        let started = Instant::now();
        let mut relay = Relay {
            run,
            sink,
            context: &self.context,
            layers: Vec::new(),
        };
        let options = Options {
            keep_bytes: Some(KEEP_BYTES),
            predicts: true,
        };
        let all = analysis::work_of(&model, std::slice::from_ref(&*input), options);
        let told = Told::new(run, sink, pace, all);
        let ran = on_device!(&compute, ops => {
            analysis::run(ops, &model, &input, options, &mut relay, None, &told)
        });
        match ran {
            Ok(outcome) => {
                let took = started.elapsed();
                log::info!("run {run}: {} tokens in {took:?}", input.sequence.len());
                let labels = Arc::new(self.labels(&model, &outcome));
                let (layers, outcome) = (Arc::new(relay.layers), Arc::new(outcome));
                lock(&self.context).seen = Some((layers.clone(), outcome.clone()));
                sink(Event::Finished {
                    run,
                    outcome: outcome.clone(),
                    labels,
                    took,
                });
                judged(sink, run, &model, (&layers, &outcome), None);
            }
            Err(error) => sink(Event::Failed {
                run,
                reason: reason(&error),
            }),
        }
        Ok(())
    }
}

impl Runner {
    /// What every predicted id reads as.
    fn labels(&self, model: &Model, outcome: &Outcome) -> BTreeMap<u32, String> {
        let reading = self.reading.of_target(model.spec.limits());
        let top = outcome
            .predictions
            .iter()
            .flat_map(|p| p.top.iter().flatten());
        top.map(|token| (token.id, reading.label(token.id)))
            .collect()
    }
}

/// Sends what the pipeline says to whoever listens.
struct Relay<'a> {
    run: RunId,
    sink: &'a Sink,
    context: &'a Mutex<Context>,
    layers: Vec<Arc<LayerReport>>,
}

/// Tells what every check makes of a run, and of what probes saw where there were some.
fn judged(
    sink: &Sink,
    run: RunId,
    model: &Model,
    (layers, outcome): (&[Arc<LayerReport>], &Outcome),
    probes: Option<Probes>,
) {
    let is_probed = probes.is_some();
    let probes = probes.unwrap_or_else(|| Probes::none("not asked yet: press p"));
    let verdicts = analysis::judge_layers(
        model,
        layers,
        outcome,
        &probes,
        &Thresholds::default(),
        None,
    );
    let judgement = Arc::new(Judgement { verdicts, probes });
    sink(Event::Judged {
        run,
        judgement,
        is_probed,
    });
}

impl Observer for Relay<'_> {
    fn progress(&mut self, progress: Progress) -> std::ops::ControlFlow<()> {
        (self.sink)(Event::Progress {
            run: self.run,
            progress,
        });
        std::ops::ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> std::ops::ControlFlow<()> {
        let report = Arc::new(report);
        self.layers.push(report.clone());
        (self.sink)(Event::Layer {
            run: self.run,
            report,
        });
        std::ops::ControlFlow::Continue(())
    }

    fn keeping(&mut self, kept: &Arc<Kept>) {
        lock(self.context).kept = Some(kept.clone());
    }

    fn nonfinite(&mut self, found: &NonFinite) {
        (self.sink)(Event::NonFinite {
            run: self.run,
            found: found.clone(),
        });
    }
}
