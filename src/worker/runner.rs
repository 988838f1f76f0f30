//! The thread that opens a checkpoint and runs prompts, one after another, and sends what the pipeline says.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use attnscope_checkpoint::Opening;
use attnscope_checks::stats::LayerReport;
use attnscope_checks::{Probes, Thresholds};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::on_device;
use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_prompt::{Lost, Prompt, Reading, Request, Tokenizer};
use attnscope_run::{
    Ability, Job, Judgement, KEEP_BYTES, Kept, MemoryNeed, NonFinite, Observer, Options, Outcome,
    Progress, Subject, WhatIf,
};
use attnscope_spec::Model;

use super::against::Other;
use super::caught::caught;
use super::event::{Event, PromptOrigin};
use super::lane::lock;
use super::own_device::OwnDevice;
use super::progress::Told;
use super::run_id::RunId;
use super::writing::Remembered;
use super::{Context, FirstPrompt, ModelRun, Ran, RunJob, Sink, UsualPrompt, What};

/// Why something did not run, in words; `stopped` where a person gave it up.
pub(super) fn reason(error: &Error) -> String {
    match error {
        Error::Cancelled => "stopped".to_owned(),
        other => other.to_string(),
    }
}

/// Tells where an error is that a file changed: whatever failed, there are numbers on screen that are no longer the file's.
pub(super) fn tell_of_change(sink: &Sink, error: &Error) {
    if matches!(error, Error::Changed { .. }) {
        sink(Event::Changed(error.to_string()));
    }
}

/// The file of a trace, where one is opened in place of a checkpoint.
pub(super) fn trace_of(opening: &Opening) -> Option<&Path> {
    let path = opening.path.as_deref();
    path.filter(|path| attnscope_run::is_captured(path))
}

/// The thread that opens and runs.
pub(super) struct Runner {
    pub is_forced: bool,
    pub device: OwnDevice,
    pub context: Arc<Mutex<Context>>,
    pub sink: Sink,
    pub reading: Reading,
    /// What was opened, to be opened again.
    pub opening: Option<Opening>,
    /// What runs where no prompt was asked for yet and a step of a training is opened.
    pub usual: Option<UsualPrompt>,
    /// The prompt that was last asked for.
    pub last: Option<(Request, PromptOrigin)>,
    /// What the last run of A was of.
    pub prompt: Option<Arc<Prompt>>,
    /// The checkpoint that was last run beside A.
    pub other: Option<Other>,
    /// The last run of what is open that came to its end.
    pub before: Option<ModelRun>,
    /// What the model read when it wrote last.
    pub remembered: Option<Remembered>,
}

impl Runner {
    pub fn job(&mut self, id: RunId, job: RunJob, pace: &dyn Pace) {
        let is_first = matches!(job, RunJob::Open(..) | RunJob::Align(_));
        match caught(|| self.act(id, job, pace)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.refused(is_first, &error),
            Err(message) => self.broken(id, message),
        }
    }

    fn act(&mut self, id: RunId, job: RunJob, pace: &dyn Pace) -> Result<()> {
        match job {
            RunJob::Open(opening, first) => self.open(id, opening, first, pace),
            RunJob::Align(alignment) => {
                self.show_alignment(id, *alignment);
                Ok(())
            }
            RunJob::OpenStep(opening) => self.open_step(id, opening, pace),
            RunJob::Run(request) => self.run(id, request, PromptOrigin::Asked, pace),
            RunJob::Suppose(what_ifs) => self.suppose(id, &what_ifs, pace),
            RunJob::Against(against) => self.against(id, &against, pace),
            RunJob::ReadAgain => self.read_again(id, pace),
            RunJob::Write => self.write(pace),
        }
    }

    /// Tells that nothing ran.
    fn refused(&self, is_first: bool, error: &Error) {
        tell_of_change(&self.sink, error);
        // Where the opening was given up, the checkpoint is open: only its first prompt is missing.
        let is_fatal = is_first && !matches!(error, Error::Cancelled);
        (self.sink)(if is_fatal {
            Event::OpenFailed(reason(error))
        } else {
            Event::Refused(reason(error))
        });
    }

    /// Tells of a panic: of the run, where it had begun.
    fn broken(&self, run: RunId, message: String) {
        let (has_begun, is_open) = {
            let context = lock(&self.context);
            (context.of_run(run).is_some(), context.subject.is_some())
        };
        log::error!("run {run}: {message}");
        (self.sink)(match (has_begun, is_open) {
            (true, _) => Event::Broken { run, message },
            (false, true) => Event::Refused(message),
            (false, false) => Event::OpenFailed(message),
        });
    }

    fn open(
        &mut self,
        id: RunId,
        opening: Opening,
        first: FirstPrompt,
        pace: &dyn Pace,
    ) -> Result<()> {
        let opening = self.opening.insert(opening).clone();
        if let Some(path) = trace_of(&opening) {
            return self.show_trace(id, path);
        }
        let model = self.read(&opening)?;
        let (request, origin) = first(&model, self.reading.tokenizer().is_some())?;
        self.run(id, request, origin, pace)
    }

    /// Opens another step of a training; the one that is open stays where it cannot be.
    fn open_step(&mut self, id: RunId, opening: Opening, pace: &dyn Pace) -> Result<()> {
        let model = self.read(&opening)?;
        (self.opening, self.other) = (Some(opening), None);
        let has_tokenizer = self.reading.tokenizer().is_some();
        let (request, origin) = match (self.last.clone(), &self.usual) {
            (Some(last), _) => last,
            (None, Some(usual)) => usual(&model, has_tokenizer)?,
            (None, None) => {
                return Err(Error::Prompt("nothing ran yet: e takes a text".to_owned()));
            }
        };
        self.run(id, request, origin, pace)
    }

    /// Opens the files again, as they are now, and runs the last prompt through what they hold.
    fn read_again(&mut self, id: RunId, pace: &dyn Pace) -> Result<()> {
        self.other = None;
        let Some(opening) = self.opening.clone() else {
            let problem = "there are no files to read again: start the command again";
            return Err(Error::Prompt(problem.to_owned()));
        };
        if let Some(path) = trace_of(&opening) {
            return self.show_trace(id, path);
        }
        self.read(&opening)?;
        match self.last.clone() {
            Some((request, origin)) => self.run(id, request, origin, pace),
            None => Err(Error::Prompt("nothing ran yet: e takes a text".to_owned())),
        }
    }

    /// Reads what a checkpoint says of itself; only when all of it can be used does it take the place of the last one.
    fn read(&mut self, opening: &Opening) -> Result<Arc<Model>> {
        let started = Instant::now();
        let model = Arc::new(attnscope_families::read(opening.open()?)?);
        let reading = Tokenizer::open(&model.checkpoint.tokenizer)?;
        log::info!(
            "opened {} in {:?}",
            model.checkpoint.name,
            started.elapsed()
        );
        *lock(&self.context) = Context {
            subject: Some(Subject::Model(model.clone())),
            ..Context::default()
        };
        (self.sink)(Event::Opened {
            subject: Subject::Model(model.clone()),
            has_tokenizer: reading.tokenizer().is_some(),
            tokenizer: reading.describe(),
            device: self.device.kind(),
        });
        self.reading = reading;
        self.before = None;
        Ok(model)
    }

    /// Fails only when the prompt cannot be used; what goes wrong later is an event of the run.
    fn run(
        &mut self,
        run: RunId,
        request: Request,
        origin: PromptOrigin,
        pace: &dyn Pace,
    ) -> Result<()> {
        let subject = lock(&self.context).subject.clone();
        let Some(subject) = subject else {
            return Ok(());
        };
        if let Some(reason) = subject.lacks(Ability::AnotherText) {
            return Err(Error::Prompt(reason.to_owned()));
        }
        let model = match subject {
            Subject::Model(model) => model,
            Subject::Alignment(alignment) => return self.align_again(run, &alignment, &request),
            Subject::Trace(_) => return Ok(()),
        };
        self.last = Some((request.clone(), origin));
        let reading = &self.reading;
        let limits = model.spec.limits();
        let mut prompt = attnscope_prompt::prepare(&request, reading, limits)?;
        if !self.is_forced {
            let longest = attnscope_run::input_of(&prompt.longest());
            let need = MemoryNeed::on_screen(&model, &longest, rayon::current_num_threads());
            attnscope_checkpoint::machine::check_memory(need.total())?;
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
            attnscope_run::generate(ops, &model, &mut prompt, &label, &mut wrote, pace)
        })?;
        let prompt = Arc::new(prompt);
        self.prompt = Some(prompt.clone());
        let input = Arc::new(attnscope_run::input_of(&prompt));
        {
            let mut context = lock(&self.context);
            context.a = Some(Ran {
                run,
                what: What::Model(ModelRun::new(
                    model.clone(),
                    input.clone(),
                    prompt.all_lost(),
                )),
            });
            context.b = None;
        }
        (self.sink)(Event::Started {
            run,
            prompt,
            source: request.source,
            origin,
        });
        self.execute(run, (&model, &input), None, None, pace)?;
        let over = lock(&self.context).model_run(run).map(|ran| ran.clone());
        if let Some(over) = over.filter(|ran| ran.seen.is_some()) {
            self.before = Some(over);
        }
        Ok(())
    }

    /// Runs the last prompt with another attention, from the first layer that differs on.
    fn suppose(&mut self, run: RunId, what_ifs: &[WhatIf], pace: &dyn Pace) -> Result<()> {
        let (subject, first) = {
            let context = lock(&self.context);
            let first = context.a.as_ref().map(|ran| ran.what.clone());
            (context.subject.clone(), first)
        };
        let lacks = subject
            .as_ref()
            .and_then(|subject| subject.lacks(Ability::WhatIf));
        if let Some(reason) = lacks {
            return Err(Error::Prompt(reason.to_owned()));
        }
        if let Some(Subject::Alignment(alignment)) = subject {
            return self.suppose_alignment(run, &alignment, what_ifs);
        }
        let Some(What::Model(plain)) = first else {
            let problem = "nothing ran yet that could be supposed otherwise";
            return Err(Error::Prompt(problem.to_owned()));
        };
        let spec = attnscope_run::supposed(&plain.model.spec, what_ifs)?;
        let model = Arc::new(plain.model.with_spec(spec));
        lock(&self.context).b = Some(Ran {
            run,
            what: What::Model(ModelRun::new(
                model.clone(),
                plain.input.clone(),
                plain.lost,
            )),
        });
        (self.sink)(Event::Supposed {
            run,
            subject: Subject::Model(model.clone()),
        });
        let input = plain.input.clone();
        self.execute(run, (&model, &input), Some(&plain), None, pace)
    }

    /// Runs an input, and tells what comes of it: from where the model differs from an earlier run's, where one is given; otherwise
    /// with what the last run knows of a text that begins in the same way.
    /// What is predicted reads as `reading` says, or as the tokenizer of what is open.
    pub(super) fn execute(
        &mut self,
        run: RunId,
        (model, input): (&Model, &Input),
        earlier: Option<&ModelRun>,
        reading: Option<&Reading>,
        pace: &dyn Pace,
    ) -> Result<()> {
        let compute = self.device.get()?;
        let sink = &self.sink;
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
        let resume = earlier.and_then(ModelRun::resume);
        let before = self.before.as_ref().filter(|_| resume.is_none());
        let shared = before.and_then(|before| before.shared_with(model, input));
        let mut all = attnscope_run::work_of(model, std::slice::from_ref(input), options);
        if let Some(shared) = &shared {
            let (n, of) = (shared.n_tokens(), input.sequence.len());
            log::info!("run {run}: {n} of {of} tokens are those of the run before");
            all = all
                .saturating_sub(attnscope_run::work_spared(model, shared, options))
                .max(1);
        }
        let told = Told::new(run, sink, pace, all);
        let job = Job {
            input,
            observer: &mut relay,
            tap: None,
        };
        let ran = match (resume, shared) {
            (Some(resume), _) => on_device!(&compute, ops => {
                attnscope_run::run_changed(ops, model, job, options, resume, &told)
            }),
            (None, Some(shared)) => on_device!(&compute, ops => {
                attnscope_run::run_edited(ops, model, job, options, shared, &told)
            }),
            (None, None) => on_device!(&compute, ops => {
                attnscope_run::run(ops, model, input, options, job.observer, None, &told)
            }),
        };
        match ran {
            Ok(outcome) => {
                let took = started.elapsed();
                log::info!("run {run}: {} tokens in {took:?}", input.sequence.len());
                let labels = Arc::new(labels(reading.unwrap_or(&self.reading), model, &outcome));
                let (layers, outcome) = (Arc::new(relay.layers), Arc::new(outcome));
                let mut lost = Lost::default();
                if let Some(ran) = lock(&self.context).model_run(run) {
                    ran.seen = Some((layers.clone(), outcome.clone()));
                    lost = ran.lost;
                }
                sink(Event::Finished {
                    run,
                    outcome: outcome.clone(),
                    labels,
                    took,
                });
                judged(sink, run, model, (&layers, &outcome, lost), None);
            }
            Err(error) => {
                tell_of_change(sink, &error);
                sink(Event::Failed {
                    run,
                    reason: reason(&error),
                });
            }
        }
        Ok(())
    }
}

/// What every predicted id reads as.
fn labels(reading: &Reading, model: &Model, outcome: &Outcome) -> BTreeMap<u32, String> {
    let reading = reading.of_target(model.spec.limits());
    let top = outcome
        .predictions
        .iter()
        .flat_map(|p| p.top.iter().flatten());
    top.map(|token| (token.id, reading.label(token.id)))
        .collect()
}

/// Sends what the pipeline says to whoever listens.
struct Relay<'a> {
    run: RunId,
    sink: &'a Sink,
    context: &'a Mutex<Context>,
    layers: Vec<Arc<LayerReport>>,
}

/// Tells what every check makes of a run, and of what probes saw where there were some.
pub(super) fn judged(
    sink: &Sink,
    run: RunId,
    model: &Model,
    (layers, outcome, lost): (&[Arc<LayerReport>], &Outcome, Lost),
    probes: Option<Probes>,
) {
    let is_probed = probes.is_some();
    let probes = probes.unwrap_or_else(|| attnscope_run::unasked("not run yet: p runs it"));
    let verdicts = attnscope_run::judge_layers(
        model,
        layers,
        outcome,
        &probes,
        &Thresholds::in_force(),
        lost,
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
        if let Some(ran) = lock(self.context).model_run(self.run) {
            ran.kept = Some(kept.clone());
        }
    }

    fn nonfinite(&mut self, found: &NonFinite) {
        (self.sink)(Event::NonFinite {
            run: self.run,
            found: found.clone(),
        });
    }
}
