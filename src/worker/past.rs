//! Runs that left the screen, kept to be shown again: the last few whole, older ones as what is needed to run them again.

use std::sync::Arc;

use attnscope_compute::error::{Error, Result};
use attnscope_compute::pace::Pace;
use attnscope_prompt::{Prompt, Request, Source};
use attnscope_run::{KEEP_BYTES, Subject};

use super::context::{Context, RunData, ShownRun};
use super::event::{Event, PromptOrigin, Sink};
use super::lane::lock;
use super::run_id::RunId;
use super::runner::Runner;
use super::second_run::fits;
use super::unchecked::Unchecked;

/// Runs off screen that are kept whole at most, as long as their layer inputs fit [`KEEP_BYTES`] together.
const N_WHOLE: usize = 4;

/// Runs off screen that are known at most.
const MOST: usize = 200;

/// What a run began with.
#[derive(Clone)]
pub(super) struct Begun {
    pub subject: Subject,
    pub prompt: Arc<Prompt>,
    pub source: Source,
    pub origin: PromptOrigin,
}

/// Runs that left the screen, the newest last.
#[derive(Default)]
pub(super) struct Past(Vec<ShownRun>);

impl Past {
    /// Keeps a run that leaves the screen, and lets go of what is over the limits.
    pub fn keep(&mut self, ran: ShownRun) {
        self.0.retain(|known| known.run != ran.run);
        if ran.begun.is_some() {
            self.0.push(ran);
        }
        let (mut n_whole, mut n_bytes) = (0, 0);
        for ran in self.0.iter_mut().rev() {
            n_bytes += ran.n_bytes();
            n_whole += usize::from(ran.is_whole());
            if n_whole > N_WHOLE || n_bytes > KEEP_BYTES {
                ran.lighten();
            }
        }
        // Recordings and alignments cannot run again.
        self.0
            .retain(|ran| ran.is_whole() || matches!(ran.what, RunData::Model(_)));
        let n_over = self.0.len().saturating_sub(MOST);
        self.0.drain(..n_over);
    }

    pub fn take(&mut self, run: RunId) -> Option<ShownRun> {
        let at = self.0.iter().position(|ran| ran.run == run)?;
        Some(self.0.remove(at))
    }

    pub fn iter(&self) -> impl Iterator<Item = &ShownRun> {
        self.0.iter()
    }

    pub fn of(&mut self, run: RunId) -> Option<&mut ShownRun> {
        self.0.iter_mut().find(|ran| ran.run == run)
    }
}

impl ShownRun {
    pub fn new(run: RunId, what: RunData) -> Self {
        Self {
            run,
            what,
            begun: None,
            told: Vec::new(),
        }
    }

    /// Whether it can be shown again without running.
    fn is_whole(&self) -> bool {
        let is_end = |event: &Event| matches!(event, Event::Finished { .. });
        self.told.iter().any(is_end)
    }

    /// Bytes of the layer inputs that it keeps.
    fn n_bytes(&self) -> usize {
        match &self.what {
            RunData::Model(ran) => ran.kept.as_ref().map_or(0, |kept| kept.n_bytes()),
            RunData::Trace(_) | RunData::Alignment(_) => 0,
        }
    }

    /// Lets go of its results.
    fn lighten(&mut self) {
        self.told.clear();
        if let RunData::Model(ran) = &mut self.what {
            (ran.kept, ran.seen) = (None, None);
        }
    }
}

impl Context {
    /// Opens a subject in place of the one before, of which nothing is on screen any more.
    ///
    /// Runs of a subject of the same name are forgotten, because its files may have changed.
    pub fn open(&mut self, subject: Subject) {
        let before = self.subject.as_ref().map(Subject::name);
        self.leave();
        let past = std::mem::take(&mut self.past);
        let is_again = before.is_some_and(|name| name == subject.name());
        *self = Self {
            subject: Some(subject),
            past: if is_again { Past::default() } else { past },
            ..Self::default()
        };
    }

    /// Shows a run alone.
    pub fn show_alone(&mut self, ran: ShownRun) {
        self.leave();
        self.a = Some(ran);
    }

    /// Shows a run as B.
    pub fn show_second(&mut self, ran: ShownRun) {
        if let Some(before) = self.b.replace(ran) {
            self.past.keep(before);
        }
    }

    /// Keeps the runs on screen as past ones.
    fn leave(&mut self) {
        let both = [self.b.take(), self.a.take()];
        both.into_iter()
            .flatten()
            .for_each(|ran| self.past.keep(ran));
    }

    /// Takes a run that was shown before, or is B now. One that is to be A may be A already, because keys are faster than runs.
    pub fn take(&mut self, run: RunId, is_second: bool) -> Option<ShownRun> {
        let is_it = |ran: &Option<ShownRun>| ran.as_ref().is_some_and(|ran| ran.run == run);
        if is_it(&self.b) {
            return self.b.take();
        }
        if is_it(&self.a) && !is_second {
            return self.a.take();
        }
        self.past.take(run)
    }

    /// Notes what the screen is told of a run, to tell it again.
    fn note(&mut self, event: &Event) {
        let (run, begun) = match event {
            Event::Started {
                run,
                prompt,
                source,
                origin,
            } => {
                let begun = self.subject.clone().map(|subject| Begun {
                    subject,
                    prompt: prompt.clone(),
                    source: source.clone(),
                    origin: *origin,
                });
                (*run, begun)
            }
            Event::WhatIfStarted { run, subject } => {
                let of_a = self.a.as_ref().and_then(|a| a.begun.clone());
                let subject = subject.clone();
                (*run, of_a.map(|of_a| Begun { subject, ..of_a }))
            }
            Event::SecondStarted {
                run,
                subject,
                prompt,
                source,
            } => {
                let begun = Begun {
                    subject: subject.clone(),
                    prompt: prompt.clone(),
                    source: source.clone(),
                    origin: PromptOrigin::Asked,
                };
                (*run, Some(begun))
            }
            Event::Layer { run, .. }
            | Event::NonFinite { run, .. }
            | Event::Finished { run, .. }
            | Event::Fed { run, .. }
            | Event::Judged { run, .. } => (*run, None),
            _ => return,
        };
        let on_screen = [&mut self.a, &mut self.b].into_iter().flatten();
        let mut on_screen = on_screen.filter(|ran| ran.run == run);
        let Some(ran) = on_screen.next().or_else(|| self.past.of(run)) else {
            return;
        };
        if let Some(begun) = begun {
            ran.begun = Some(begun);
            return;
        }
        if let Event::Layer { report, .. } = event {
            // Audits of a recording change statistics of some layers.
            let place = report.place();
            let is_of_it = |event: &Event| matches!(event, Event::Layer { report, .. } if report.place() == place);
            ran.told.retain(|event| !is_of_it(event));
        }
        if matches!(event, Event::Judged { .. }) {
            // Probes bring a new judgement.
            let is_judgement = |event: &Event| matches!(event, Event::Judged { .. });
            ran.told.retain(|event| !is_judgement(event));
        }
        ran.told.push(event.clone());
    }
}

/// The sink, with what it is told of runs noted in the context.
pub(super) fn noting(context: Arc<std::sync::Mutex<Context>>, sink: Sink) -> Sink {
    Arc::new(move |event| {
        // Not every event is noted: some are told while the context is locked.
        if matches!(
            event,
            Event::Started { .. }
                | Event::WhatIfStarted { .. }
                | Event::SecondStarted { .. }
                | Event::Layer { .. }
                | Event::NonFinite { .. }
                | Event::Finished { .. }
                | Event::Fed { .. }
                | Event::Judged { .. }
        ) {
            lock(&context).note(&event);
        }
        sink(event);
    })
}

impl Runner {
    /// Shows a run of before again, as A or as B: from what is kept of it, else by running it again.
    ///
    /// # Errors
    /// When nothing of it is kept, it does not fit beside A, or there is not enough memory to run it.
    pub(super) fn again(&mut self, run: RunId, is_second: bool, pace: &dyn Pace) -> Result<()> {
        let (begun, told, what) = {
            let mut context = lock(&self.context);
            let Some(mut ran) = context.take(run, is_second) else {
                let problem = "nothing is kept of that run any more: run its text again";
                return Err(Error::Prompt(problem.to_owned()));
            };
            let of_a = context.a.as_ref().and_then(|a| a.begun.as_ref());
            let refused = match (&ran.begun, of_a.filter(|_| is_second)) {
                (Some(own), Some(of_a)) => fits(&of_a.subject, &own.subject).err(),
                _ => None,
            };
            let Some(begun) = ran.begun.clone().filter(|_| refused.is_none()) else {
                context.past.keep(ran);
                return refused.map_or(Ok(()), Err);
            };
            // It is told again, and noted again.
            let told = std::mem::take(&mut ran.told);
            let what = ran.what.clone();
            if is_second {
                context.show_second(ran);
            } else {
                let is_recording = |subject: &Subject| subject.model().is_none();
                if context.subject.as_ref().is_some_and(is_recording)
                    && is_recording(&begun.subject)
                {
                    context.subject = Some(begun.subject.clone());
                }
                context.show_alone(ran);
            }
            (begun, told, what)
        };
        if !is_second {
            self.take_up(&begun);
        }
        let Begun {
            subject,
            prompt,
            source,
            origin,
        } = begun.clone();
        (self.sink)(if is_second {
            Event::SecondStarted {
                run,
                subject,
                prompt,
                source,
            }
        } else {
            Event::StartedAgain {
                run,
                subject,
                prompt,
                source,
                origin,
            }
        });
        if told
            .iter()
            .any(|event| matches!(event, Event::Finished { .. }))
        {
            let is_judged = |event: &Event| matches!(event, Event::Judged { .. });
            let was_checked = told.iter().any(is_judged);
            told.into_iter().for_each(|event| (self.sink)(event));
            if let RunData::Trace(recorded) = what
                && !was_checked
            {
                self.unchecked.retain(|of| of.run != run);
                self.unchecked.push(Unchecked {
                    run,
                    recorded,
                    read: None,
                });
            }
            return Ok(());
        }
        let RunData::Model(ran) = what else {
            return Ok(());
        };
        if let Err(e) = self.check_memory(&ran.model, &begun.prompt) {
            let reason = e.to_string();
            (self.sink)(Event::Failed { run, reason });
            return Ok(());
        }
        let form = ran.prompt_form.clone();
        self.execute(run, (&ran.model, &ran.input), None, &form, pace)
    }

    /// Makes the prompt of a run the one that further requests are about.
    fn take_up(&mut self, begun: &Begun) {
        let prompt = &begun.prompt;
        let request = Request {
            source: begun.source.clone(),
            target: prompt.given_target(),
            attention_mask: prompt.given().real.clone(),
            ..Request::text("")
        };
        self.prompt = Some(prompt.clone());
        self.last = Some((request, begun.origin));
    }
}
