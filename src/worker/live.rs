//! Runs of a live subject: a process that holds a model, asked again for every text, what-if and reload.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use attnscope_checks::{Probes, Thresholds};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Device;
use attnscope_compute::pace::Pace;
use attnscope_live::{Code, LiveSession, LiveTarget};
use attnscope_prompt::{Prompt, Request, Source};
use attnscope_run::{
    Ability, Declared, Judgement, LiveRun, Recorded, Step, Subject, Unaudited, WhatIf, judge_live,
    live_changes, live_request, probe_live, read_trace, record_unaudited, unprobed,
};

use super::context::{Context, RunData, ShownRun};
use super::event::{Event, PromptOrigin, Sink};
use super::lane::lock;
use super::run_id::RunId;
use super::runner::Runner;
use super::second_run::fits;
use super::told::tell_recorded;
use super::unchecked::Unchecked;

/// A live subject to open, and what to run first.
#[derive(Debug)]
pub struct LiveOpening {
    pub target: LiveTarget,
    /// The interpreter, if not that of the environment.
    pub python: Option<PathBuf>,
    pub declared: Declared,
    /// `None` lets the process choose.
    pub first: Option<Request>,
}

/// The process behind the open subject.
#[derive(Debug)]
pub(super) struct Live {
    /// One request at a time: a run waits for the probes before it, which are stopped.
    session: Mutex<LiveSession>,
    pub declared: Declared,
    /// Where the session keeps the files of its runs.
    directory: PathBuf,
    /// Files of the person's code, as they were when they were read.
    code: Mutex<Vec<(PathBuf, Option<SystemTime>)>>,
}

impl Live {
    fn new(opening: LiveOpening, code: Code) -> Result<Self> {
        let session = LiveSession::new(opening.target, opening.python.as_deref(), code)?;
        Ok(Self {
            directory: session.directory().to_path_buf(),
            session: Mutex::new(session),
            declared: opening.declared,
            code: Mutex::default(),
        })
    }

    /// Removes the files of all runs, also while one is going on: the program ends.
    pub fn leave(&self) {
        if let Err(e) = std::fs::remove_dir_all(&self.directory) {
            log::debug!("{}: {e}", self.directory.display());
        }
    }

    /// Notes how the files of the code are now.
    fn note_code(&self, files: &[PathBuf]) {
        *lock(&self.code) = files
            .iter()
            .map(|file| (file.clone(), written(file)))
            .collect();
    }

    /// A file of the code that is no longer as it was read. Says so once for each change.
    pub fn changed_file(&self) -> Option<PathBuf> {
        let mut code = lock(&self.code);
        let changed = code.iter_mut().find(|(file, known)| {
            let now = written(file);
            now.is_some() && now != *known
        })?;
        changed.1 = written(&changed.0);
        Some(changed.0.clone())
    }

    /// Runs the model; labels are the texts of predicted ids. Files of runs that are not kept go.
    fn record(
        &self,
        request: &attnscope_live::Request,
        (context, sink): (&Mutex<Context>, &Sink),
        pace: &dyn Pace,
    ) -> Result<Ran> {
        let mut session = lock(&self.session);
        session.keep_only(&shown_files(&lock(context)));
        let told = &mut |_: &str, n_done: usize, n: usize| sink(Event::RunningCode { n_done, n });
        let ran = record_unaudited(&mut session, request, &self.declared, told, pace)?;
        let predicted = ran.recorded.outcome.predictions.iter();
        let tops = predicted.flat_map(|predictions| predictions.top.iter().flatten());
        let mut ids: Vec<u32> = tops.map(|token| token.id).collect();
        ids.sort_unstable();
        ids.dedup();
        let begun = Instant::now();
        let texts = session.labels(&ids, pace)?;
        log::debug!(
            "{:?} in the process, {:?} until its answer was here, {:?} to read it, {:?} for labels",
            ran.took,
            ran.answered,
            ran.reading,
            begun.elapsed()
        );
        Ok((ran, ids.into_iter().zip(texts).collect()))
    }
}

/// A run that is not audited yet, and the texts of predicted ids.
type Ran = (LiveRun<Unaudited>, BTreeMap<u32, String>);

impl Runner {
    /// Starts the process of a live subject, and shows its first run.
    pub(super) fn open_live(
        &mut self,
        run: RunId,
        opening: LiveOpening,
        pace: &dyn Pace,
    ) -> Result<()> {
        let first = opening.first.clone();
        let live = Arc::new(Live::new(opening, self.terms.python_code)?);
        lock(&self.context).live = Some(live.clone());
        let about = lock(&live.session).about(pace)?.clone();
        live.note_code(&about.files);
        log::info!("{}: {}", about.name, about.words());
        self.live_tokenizer = about.tokenizer;
        self.run_live(run, first, true, pace)
    }

    /// Runs a text, and shows it as the only run.
    pub(super) fn run_live(
        &mut self,
        run: RunId,
        request: Option<Request>,
        is_first: bool,
        pace: &dyn Pace,
    ) -> Result<()> {
        let live = self.live()?;
        let asked = live_request(request.as_ref(), &live.declared)?;
        let ran = live.record(&asked, (&self.context, &self.sink), pace)?;
        let origin = match request {
            Some(_) => PromptOrigin::Asked,
            None => PromptOrigin::BuiltIn,
        };
        self.last = request.map(|request| (request, origin));
        self.show_live(run, ran, (origin, is_first));
        Ok(())
    }

    /// Shows a run as the only one.
    fn show_live(
        &mut self,
        run: RunId,
        (ran, labels): Ran,
        (origin, is_first): (PromptOrigin, bool),
    ) {
        let recorded = Arc::new(ran.recorded);
        let subject = Subject::Trace(recorded.clone());
        {
            let mut context = lock(&self.context);
            context.subject = Some(subject.clone());
            context.show_alone(shown(run, &recorded));
        }
        let sink = &self.sink;
        sink(if is_first {
            Event::Opened {
                subject,
                has_tokenizer: self.live_tokenizer.is_some(),
                tokenizer: recorded.about.clone(),
                prompt_form: None,
                device: Device::Cpu,
            }
        } else {
            Event::Renewed(subject)
        });
        let prompt = Arc::new(recorded.prompt.clone());
        sink(Event::Started {
            run,
            prompt: prompt.clone(),
            source: source_of(ran.text.as_deref(), &recorded),
            origin,
        });
        tell_recorded(sink, run, &recorded, (ran.took, &labels));
        log::info!(
            "run {run}: {} tokens in {:?}",
            prompt.tokens.len(),
            ran.took
        );
        self.prompt = Some(prompt);
        self.unchecked.push(Unchecked {
            run,
            recorded,
            read: Some(ran.trace),
        });
    }

    /// Runs the text on screen with changed attention, as B.
    pub(super) fn live_what_ifs(
        &mut self,
        run: RunId,
        recorded: &Arc<Recorded>,
        what_ifs: &[WhatIf],
        pace: &dyn Pace,
    ) -> Result<()> {
        let changes = live_changes(recorded, what_ifs)?;
        let ran = self.record_again(recorded, changes, pace)?;
        let subject = Subject::Trace(recorded.clone());
        self.show_second_live(run, &subject, ran, true)
    }

    /// Loads the code anew, and runs the text on screen through it, as B.
    pub(super) fn live_reload(
        &mut self,
        run: RunId,
        subject: &Subject,
        recorded: &Recorded,
        pace: &dyn Pace,
    ) -> Result<()> {
        if let Some(reason) = subject.why_not(Ability::ReadAgain) {
            return Err(Error::Prompt(reason.to_owned()));
        }
        let live = self.live()?;
        let about = lock(&live.session).reload(pace)?.clone();
        live.note_code(&about.files);
        let ran = self.record_again(recorded, Vec::new(), pace)?;
        let after = ran.0.recorded.shape();
        if after != recorded.shape() {
            // Nothing to lay side by side: a layer or a head came or went.
            self.show_live(run, ran, (PromptOrigin::Asked, false));
            return Ok(());
        }
        self.show_second_live(run, subject, ran, false)
    }

    /// Runs another text, as B.
    pub(super) fn second_live_prompt(
        &mut self,
        run: RunId,
        request: &Request,
        subject: &Subject,
        pace: &dyn Pace,
    ) -> Result<()> {
        let live = self.live()?;
        let asked = live_request(Some(request), &live.declared)?;
        let ran = live.record(&asked, (&self.context, &self.sink), pace)?;
        self.show_second_live(run, subject, ran, false)
    }

    /// Runs the prompt of A through another live model, as B.
    pub(super) fn second_live_target(
        &mut self,
        run: RunId,
        target: LiveTarget,
        (subject, of_a): (&Subject, &Prompt),
        pace: &dyn Pace,
    ) -> Result<()> {
        let values = match subject {
            Subject::Trace(recorded) => recorded.values.clone(),
            _ => None,
        };
        if of_a.lacks_ids && values.is_none() {
            let problem = "A has no token ids: there is nothing to run through another model";
            return Err(Error::Prompt(problem.to_owned()));
        }
        let declared = self.live().map(|live| live.declared.clone());
        let opening = LiveOpening {
            target,
            python: None,
            declared: declared.unwrap_or_default(),
            first: None,
        };
        let live = Arc::new(Live::new(opening, self.terms.python_code)?);
        let asked = if values.is_some() {
            attnscope_live::Request {
                values,
                ..live_request(None, &live.declared)?
            }
        } else {
            let given = of_a.given().tokens.clone();
            attnscope_live::Request {
                target: of_a.source.as_ref().map(|_| of_a.tokens.clone()),
                ..live_request(Some(&Request::ids(given)), &live.declared)?
            }
        };
        let ran = live.record(&asked, (&self.context, &self.sink), pace)?;
        lock(&self.context).second_live = Some(live);
        self.show_second_live(run, subject, ran, false)
    }

    /// Runs the text of a recorded run again.
    fn record_again(
        &self,
        recorded: &Recorded,
        changes: Vec<serde_json::Value>,
        pace: &dyn Pace,
    ) -> Result<Ran> {
        let live = self.live()?;
        let request = self.last.as_ref().map(|(request, _)| request);
        let mut asked = live_request(request, &live.declared)?;
        if request.is_none() && !recorded.prompt.lacks_ids {
            asked.ids = Some(recorded.prompt.given().tokens.clone());
        }
        asked.changes = changes;
        live.record(&asked, (&self.context, &self.sink), pace)
    }

    /// Shows a run as B, if its heads have counterparts in A.
    fn show_second_live(
        &mut self,
        run: RunId,
        a: &Subject,
        (ran, labels): Ran,
        is_what_if: bool,
    ) -> Result<()> {
        let recorded = Arc::new(ran.recorded);
        let subject = Subject::Trace(recorded.clone());
        fits(a, &subject)?;
        lock(&self.context).show_second(shown(run, &recorded));
        (self.sink)(if is_what_if {
            Event::WhatIfStarted { run, subject }
        } else {
            Event::SecondStarted {
                run,
                subject,
                prompt: Arc::new(recorded.prompt.clone()),
                source: source_of(ran.text.as_deref(), &recorded),
            }
        });
        tell_recorded(&self.sink, run, &recorded, (ran.took, &labels));
        self.unchecked.push(Unchecked {
            run,
            recorded,
            read: Some(ran.trace),
        });
        Ok(())
    }

    fn live(&self) -> Result<Arc<Live>> {
        let live = lock(&self.context).live.clone();
        live.ok_or_else(|| Error::Prompt("no live model is open".to_owned()))
    }
}

/// Probes the live subject with changed inputs, and judges a run of it with what they saw.
///
/// # Errors
/// When the person's code fails, or the pace stops it.
pub(super) fn probe(
    (live, recorded): (&Live, &Recorded),
    run: RunId,
    sink: &Sink,
    thresholds: &Thresholds,
    pace: &dyn Pace,
) -> Result<()> {
    if recorded
        .live
        .as_ref()
        .is_some_and(|about| about.lacks.probes.is_some())
    {
        let problem = "probes change token ids, and this model takes none";
        return Err(Error::Prompt(problem.to_owned()));
    }
    let told = &mut |what: &str, n_done: usize, n: usize| {
        let step = Step {
            what: what.to_owned(),
            n_done,
            n: n.max(n_done),
        };
        sink(Event::Probing { run, step });
    };
    let probes = probe_live(
        &mut lock(&live.session),
        recorded,
        &live.declared,
        told,
        pace,
    )?;
    let trace = read_trace(&recorded.captured, &live.declared)?;
    judge((sink, run), recorded, &trace, Some(probes), thresholds);
    Ok(())
}

/// Runs all checks on an audited run of a live subject.
pub(super) fn judge(
    (sink, run): (&Sink, RunId),
    recorded: &Recorded,
    trace: &attnscope_run::Trace,
    probes: Option<Probes>,
    thresholds: &Thresholds,
) {
    let is_probed = probes.is_some();
    let probes = probes.unwrap_or_else(|| {
        let lacks = recorded
            .live
            .as_ref()
            .and_then(|live| live.lacks.probes.clone());
        unprobed(lacks.as_deref().unwrap_or("not run yet: p runs it"))
    });
    let verdicts = judge_live(trace, &probes, thresholds);
    sink(Event::Judged {
        run,
        judgement: Arc::new(Judgement { verdicts, probes }),
        is_probed,
    });
}

/// The files of the recorded runs on screen, and of those that can be shown again.
fn shown_files(context: &Context) -> Vec<PathBuf> {
    let both = [&context.a, &context.b].into_iter().flatten();
    let path = |ran: &ShownRun| match &ran.what {
        RunData::Trace(recorded) => Some(recorded.captured.path.clone()),
        RunData::Model(_) | RunData::Alignment(_) => None,
    };
    both.chain(context.past.iter()).filter_map(path).collect()
}

fn shown(run: RunId, recorded: &Arc<Recorded>) -> ShownRun {
    ShownRun::new(run, RunData::Trace(recorded.clone()))
}

/// The text, the rows of numbers or the ids that ran.
fn source_of(text: Option<&str>, recorded: &Recorded) -> Source {
    match (text, &recorded.values) {
        (Some(text), _) => Source::Text(text.to_owned()),
        (None, Some(values)) => Source::Values(values.clone()),
        (None, None) => Source::Ids(recorded.prompt.given().tokens.clone()),
    }
}

/// The process behind the open subject, if a run is one of it.
pub(super) fn live_of(context: &Mutex<Context>, recorded: &Recorded) -> Option<Arc<Live>> {
    recorded.live.as_ref()?;
    lock(context).live.clone()
}

/// When a file was last written.
fn written(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|of| of.modified()).ok()
}
