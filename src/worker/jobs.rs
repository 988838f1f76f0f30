//! Jobs of the thread that opens checkpoints and runs prompts, one after another.

use std::sync::Arc;
use std::time::Instant;

use attnscope_checkpoint::Opening;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::on_device;
use attnscope_compute::pace::Pace;
use attnscope_prompt::{Prompt, Request, Tokenizer};
use attnscope_run::{Ability, MemoryNeed, Subject, WhatIf};
use attnscope_spec::Model;

use super::asked::{FirstPrompt, RunJob};
use super::caught::caught;
use super::context::{ModelRun, RunData, ShownRun};
use super::event::{Event, PromptOrigin};
use super::lane::lock;
use super::run_id::RunId;
use super::runner::Runner;
use super::told::{reason, tell_of_change};
use super::trace::trace_of;

impl Runner {
    pub fn job(&mut self, id: RunId, job: RunJob, pace: &dyn Pace) {
        let is_first = matches!(
            job,
            RunJob::Open(..) | RunJob::Align(_) | RunJob::OpenLive(_)
        );
        match caught(|| self.act(id, job, pace)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.refused(is_first, &error),
            Err(message) => self.broken(id, message),
        }
        if let Err(message) = caught(|| self.check_shown(pace)) {
            self.unchecked.clear();
            self.broken(id, message);
        }
    }

    fn act(&mut self, id: RunId, job: RunJob, pace: &dyn Pace) -> Result<()> {
        match job {
            RunJob::Open(opening, first) => self.open(id, opening, first, pace),
            RunJob::Align(alignment) => {
                self.show_alignment(id, *alignment);
                Ok(())
            }
            RunJob::OpenLive(opening) => self.open_live(id, *opening, pace),
            RunJob::OpenStep(opening) => self.open_step(id, opening, pace),
            RunJob::Run(request) => self.run(id, request, PromptOrigin::Asked, pace),
            RunJob::WhatIf(what_ifs) => self.run_what_ifs(id, &what_ifs, pace),
            RunJob::Against(against) => self.against(id, &against, pace),
            RunJob::Reload(a) => self.reload(id, a, pace),
            RunJob::Again(run, is_second) => self.again(run, is_second, pace),
            RunJob::ReadAgain => self.read_again(id, pace),
            RunJob::Write => self.write(pace),
        }
    }

    /// Reports that nothing ran.
    fn refused(&self, is_first: bool, error: &Error) {
        tell_of_change(&self.sink, error);
        // If the user cancelled the opening, the checkpoint is open and only its first prompt is missing.
        let is_fatal = is_first && !matches!(error, Error::Cancelled);
        (self.sink)(if is_fatal {
            Event::OpenFailed(reason(error))
        } else {
            Event::Refused(reason(error))
        });
    }

    /// Reports a panic, as the run's failure if the run had started.
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
        let (request, origin) = first(&model, self.prompt_form.tokenizer().is_some())?;
        self.run(id, request, origin, pace)
    }

    /// Opens another training step; if that fails, the current one stays open.
    fn open_step(&mut self, id: RunId, opening: Opening, pace: &dyn Pace) -> Result<()> {
        let model = self.read(&opening)?;
        (self.opening, self.other) = (Some(opening), None);
        let has_tokenizer = self.prompt_form.tokenizer().is_some();
        let (request, origin) = match (self.last.clone(), &self.usual) {
            (Some(last), _) => last,
            (None, Some(usual)) => usual(&model, has_tokenizer)?,
            (None, None) => {
                return Err(Error::Prompt("nothing ran yet: e takes a text".to_owned()));
            }
        };
        self.run(id, request, origin, pace)
    }

    /// Reopens the files as they are now, and runs the last prompt through them.
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

    /// Reads a checkpoint's metadata; it replaces the last checkpoint only if all of it is usable.
    fn read(&mut self, opening: &Opening) -> Result<Arc<Model>> {
        let started = Instant::now();
        let model = Arc::new(attnscope_families::read(opening.open()?)?);
        let prompt_form = Arc::new(Tokenizer::open(&model.checkpoint.tokenizer)?);
        log::info!(
            "opened {} in {:?}",
            model.checkpoint.name,
            started.elapsed()
        );
        lock(&self.context).open(Subject::Model(model.clone()));
        (self.sink)(Event::Opened {
            subject: Subject::Model(model.clone()),
            has_tokenizer: prompt_form.tokenizer().is_some(),
            tokenizer: prompt_form.describe(),
            prompt_form: Some(prompt_form.clone()),
            device: self.device.kind(),
        });
        self.prompt_form = prompt_form;
        self.before = None;
        Ok(model)
    }

    /// Runs a prompt. Fails only if the prompt cannot be used; later failures are sent as events of the run.
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
        if let Some(reason) = subject.why_not(Ability::AnotherText) {
            return Err(Error::Prompt(reason.to_owned()));
        }
        let model = match subject {
            Subject::Model(model) => model,
            Subject::Alignment(alignment) => return self.align_again(run, &alignment, &request),
            Subject::Trace(_) => return self.run_live(run, Some(request), false, pace),
        };
        self.last = Some((request.clone(), origin));
        let prompt_form = &self.prompt_form;
        let limits = model.spec.limits();
        let mut prompt = attnscope_prompt::prepare(&request, prompt_form, limits)?;
        if !self.terms.is_forced {
            let longest = attnscope_run::input_of(&prompt.longest());
            let need = MemoryNeed::on_screen(&model, &longest, rayon::current_num_threads());
            attnscope_checkpoint::machine::check_memory(need.total())?;
        }
        let compute = self.device.get()?;
        let label = |id| prompt_form.of_target(limits).label(id);
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
        let form = self.prompt_form.clone();
        let begun = ModelRun::new(
            model.clone(),
            input.clone(),
            prompt.all_lost(),
            form.clone(),
        );
        lock(&self.context).show_alone(ShownRun::new(run, RunData::Model(begun)));
        (self.sink)(Event::Started {
            run,
            prompt,
            source: request.source,
            origin,
        });
        self.execute(run, (&model, &input), None, &form, pace)?;
        let over = lock(&self.context).model_run(run).map(|ran| ran.clone());
        if let Some(over) = over.filter(|ran| ran.seen.is_some()) {
            self.before = Some(over);
        }
        Ok(())
    }

    /// Runs the last prompt with changed attention, from the first layer that differs.
    fn run_what_ifs(&mut self, run: RunId, what_ifs: &[WhatIf], pace: &dyn Pace) -> Result<()> {
        let (subject, first) = {
            let context = lock(&self.context);
            let first = context.a.as_ref().map(|ran| ran.what.clone());
            (context.subject.clone(), first)
        };
        let lacks = subject
            .as_ref()
            .and_then(|subject| subject.why_not(Ability::WhatIf));
        if let Some(reason) = lacks {
            return Err(Error::Prompt(reason.to_owned()));
        }
        if let Some(Subject::Alignment(alignment)) = subject {
            return self.run_alignment_what_ifs(run, &alignment, what_ifs);
        }
        if let Some(RunData::Trace(recorded)) = &first {
            return self.live_what_ifs(run, recorded, what_ifs, pace);
        }
        let Some(RunData::Model(plain)) = first else {
            let problem = "a what-if needs a run of a model: run a text first";
            return Err(Error::Prompt(problem.to_owned()));
        };
        let spec = attnscope_run::with_what_ifs(&plain.model.spec, what_ifs)?;
        let model = Arc::new(plain.model.with_spec(spec));
        let form = plain.prompt_form.clone();
        let begun = ModelRun::new(model.clone(), plain.input.clone(), plain.lost, form.clone());
        lock(&self.context).show_second(ShownRun::new(run, RunData::Model(begun)));
        (self.sink)(Event::WhatIfStarted {
            run,
            subject: Subject::Model(model.clone()),
        });
        let input = plain.input.clone();
        self.execute(run, (&model, &input), Some(&plain), &form, pace)
    }
}
