//! Runs B, to compare with A: another checkpoint, a trace, or another prompt.

use std::path::Path;
use std::sync::Arc;

use attnscope_checkpoint::Opening;
use attnscope_compare::{CompareOptions, Comparison, beyond_one_context, tokenizers_differ};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::on_device;
use attnscope_compute::pace::Pace;
use attnscope_live::LiveTarget;
use attnscope_prompt::{Prompt, PromptForm, Request, Source, Tokenizer};
use attnscope_run::{Ability, Declared, MemoryNeed, Recorded, Subject, input_of, is_probe};
use attnscope_spec::Model;

use super::against::Against;
use super::context::{ModelRun, RunData, ShownRun};
use super::event::Event;
use super::lane::lock;
use super::run_id::RunId;
use super::runner::{Other, Runner};
use super::told::tell_trace;
use super::trace::trace_of;

fn refuses(problem: impl Into<String>) -> Error {
    Error::Prompt(problem.into())
}

impl Runner {
    /// Runs B.
    ///
    /// # Errors
    /// When B cannot be opened or compared with A; the error says why in one line.
    pub(super) fn against(&mut self, run: RunId, against: &Against, pace: &dyn Pace) -> Result<()> {
        let (subject, a) = {
            let context = lock(&self.context);
            (context.subject.clone(), context.a.clone())
        };
        if let Some(Subject::Alignment(_)) = &subject {
            return Err(refuses(
                "an alignment can only be compared with a what-if: press w",
            ));
        }
        let (Some(subject), Some(a), Some(prompt)) = (subject, a, self.prompt.clone()) else {
            return Err(refuses(
                "there is nothing to compare with yet: run a text first",
            ));
        };
        match against {
            Against::Reload => self.reload(run, a.run, pace),
            Against::Prompt(request) if subject.model().is_none() => {
                if let Some(reason) = subject.why_not(Ability::AnotherText) {
                    return Err(refuses(reason));
                }
                self.second_live_prompt(run, request, &subject, pace)
            }
            Against::Prompt(request) => {
                let RunData::Model(plain) = a.what else {
                    return Err(refuses(format!(
                        "{} is a recording and cannot run another prompt",
                        subject.name()
                    )));
                };
                self.run_second_prompt(run, request, &plain, pace)
            }
            Against::Target(opening) => {
                let path = opening.path.as_deref();
                match (path.and_then(LiveTarget::parse), trace_of(opening)) {
                    (Some(target), _) => {
                        self.second_live_target(run, target, (&subject, &prompt), pace)
                    }
                    (None, Some(path)) => self.show_second_trace(run, path, &subject),
                    (None, None) => {
                        self.run_second_checkpoint(run, against, opening, (&subject, &prompt), pace)
                    }
                }
            }
        }
    }

    /// Loads the code of a live model anew, and runs the text of A through it as B. What the screen shows as A may have been B.
    ///
    /// # Errors
    /// When A is no run of a live model, or its code does not load or run.
    pub(super) fn reload(&mut self, run: RunId, a: RunId, pace: &dyn Pace) -> Result<()> {
        let ran = {
            let mut context = lock(&self.context);
            let is_a = context.a.as_ref().is_some_and(|known| known.run == a);
            if !is_a && let Some(ran) = context.take(a, false) {
                context.show_alone(ran);
            }
            context.a.as_ref().map(|ran| ran.what.clone())
        };
        let Some(RunData::Trace(recorded)) = ran else {
            return Err(refuses("there is no code to load again"));
        };
        let subject = Subject::Trace(recorded.clone());
        self.live_reload(run, &subject, &recorded, pace)
    }

    fn run_second_prompt(
        &mut self,
        run: RunId,
        request: &Request,
        plain: &ModelRun,
        pace: &dyn Pace,
    ) -> Result<()> {
        let (model, prompt_form) = (&plain.model, &plain.prompt_form);
        let limits = model.spec.limits();
        let mut prompt = attnscope_prompt::prepare(request, prompt_form, limits)?;
        self.check_memory(model, &prompt)?;
        let compute = self.device.get()?;
        let label = |id| prompt_form.of_target(limits).label(id);
        on_device!(&compute, ops => {
            attnscope_run::generate(ops, model, &mut prompt, &label, &mut |_| {}, pace)
        })?;
        let source = request.source.clone();
        self.begin_second(run, (model, prompt_form), Arc::new(prompt), source);
        self.execute_second(run, pace)
    }

    fn run_second_checkpoint(
        &mut self,
        run: RunId,
        against: &Against,
        opening: &Opening,
        (subject, of_a): (&Subject, &Prompt),
        pace: &dyn Pace,
    ) -> Result<()> {
        let is_it =
            |other: &Other| other.against == *against && other.model.checkpoint.unchanged().is_ok();
        let known = self.other.take().filter(is_it);
        let (model, prompt_form) = match known {
            Some(other) => (other.model, other.prompt_form),
            None => {
                let model = Arc::new(attnscope_families::read(opening.open()?)?);
                let prompt_form = Arc::new(Tokenizer::open(&model.checkpoint.tokenizer)?);
                (model, prompt_form)
            }
        };
        self.other = Some(Other {
            against: against.clone(),
            model: model.clone(),
            prompt_form: prompt_form.clone(),
        });
        fits(subject, &Subject::Model(model.clone()))?;
        let prompt = self.counted(of_a, &model, &prompt_form)?;
        if let Some(of_a) = subject.model()
            && let Some(beyond) = beyond_one_context(&prompt, [of_a, &model])
        {
            return Err(refuses(beyond));
        }
        self.check_memory(&model, &prompt)?;
        let source = prompt.given_source();
        self.begin_second(run, (&model, &prompt_form), Arc::new(prompt), source);
        self.execute_second(run, pace)
    }

    /// Returns A's prompt with positions as B counts them. If A's text is known and B has a tokenizer, both must split it
    /// alike.
    fn counted(&self, of_a: &Prompt, model: &Model, prompt_form: &PromptForm) -> Result<Prompt> {
        let limits = model.spec.limits();
        let ids = of_a.given();
        let usual = self.last.as_ref().map(|(request, _)| request.clone());
        let usual = usual.unwrap_or_else(|| Request::ids(Vec::new()));
        if let (Source::Picture(_), true) = (&usual.source, of_a.picture.is_some()) {
            // Each side preprocesses the image in its own way; the check below requires equal numbers of tokens.
            let theirs = attnscope_prompt::prepare(&usual, prompt_form, limits)?;
            if theirs.tokens.len() != of_a.tokens.len() {
                return Err(refuses(format!(
                    "A cuts the picture into {} tokens, B into {}",
                    of_a.tokens.len(),
                    theirs.tokens.len()
                )));
            }
            return Ok(theirs);
        }
        if let (Source::Text(_), Some(_)) = (&usual.source, prompt_form.tokenizer()) {
            let theirs = attnscope_prompt::prepare(&usual, prompt_form, limits)?;
            if let Some(apart) = tokenizers_differ(ids, theirs.given()) {
                let hint = "--tokens gives ids, which both take";
                return Err(refuses(format!("{apart}; {hint}")));
            }
        }
        if of_a.lacks_ids {
            return Err(refuses(
                "the trace holds no token ids: there is nothing to run through a checkpoint",
            ));
        }
        let request = Request {
            source: of_a.given_source(),
            target: of_a.given_target(),
            attention_mask: ids.real.clone(),
            truncate: false,
            n_to_write: 0,
            ..usual
        };
        let mut prompt = attnscope_prompt::prepare(&request, prompt_form, limits)?;
        if prompt_form.tokenizer().is_none() && prompt.tokens == of_a.tokens {
            // A's token texts are more useful than ids.
            prompt.labels.clone_from(&of_a.labels);
        }
        Ok(prompt)
    }

    fn show_second_trace(&mut self, run: RunId, path: &Path, subject: &Subject) -> Result<()> {
        if is_probe(path) {
            return Err(Error::file(path, "a probe holds no attention to compare"));
        }
        let captured = attnscope_run::open_trace(path)?;
        let trace = attnscope_run::read_trace(&captured, &Declared::default())?;
        let recorded = Arc::new(Recorded::new(captured, &trace));
        let is_renumbered = |(own, shown): (&Arc<_>, &Arc<_>)| {
            let own: &attnscope_checks::stats::LayerReport = own;
            let shown: &attnscope_checks::stats::LayerReport = shown;
            own.layer_idx != shown.layer_idx
        };
        let is_partial = trace.layers.iter().zip(&recorded.layers).any(is_renumbered);
        if is_partial && !matches!(subject, Subject::Trace(_)) {
            let problem = "the trace leaves layers out: record all of them to compare it on screen";
            return Err(Error::file(path, problem));
        }
        let of_trace = Subject::Trace(recorded.clone());
        fits(subject, &of_trace)?;
        let what = RunData::Trace(recorded.clone());
        lock(&self.context).show_second(ShownRun::new(run, what));
        (self.sink)(Event::SecondStarted {
            run,
            subject: of_trace,
            prompt: Arc::new(recorded.prompt.clone()),
            source: Source::Ids(recorded.prompt.given().tokens.clone()),
        });
        tell_trace(&self.sink, run, &recorded, &trace, &self.terms.thresholds);
        Ok(())
    }

    pub(super) fn check_memory(&self, model: &Model, prompt: &Prompt) -> Result<()> {
        if self.terms.is_forced {
            return Ok(());
        }
        let longest = input_of(&prompt.longest());
        let need = MemoryNeed::on_screen(model, &longest, rayon::current_num_threads());
        attnscope_checkpoint::machine::check_memory(need.total())
    }

    fn begin_second(
        &self,
        run: RunId,
        (model, prompt_form): (&Arc<Model>, &Arc<PromptForm>),
        prompt: Arc<Prompt>,
        source: Source,
    ) {
        let input = Arc::new(input_of(&prompt));
        let (lost, form) = (prompt.all_lost(), prompt_form.clone());
        let begun = ModelRun::new(model.clone(), input, lost, form);
        lock(&self.context).show_second(ShownRun::new(run, RunData::Model(begun)));
        (self.sink)(Event::SecondStarted {
            run,
            subject: Subject::Model(model.clone()),
            prompt,
            source,
        });
    }

    fn execute_second(&mut self, run: RunId, pace: &dyn Pace) -> Result<()> {
        let ran = lock(&self.context).model_run(run).cloned();
        match ran {
            Some(ran) => {
                let form = ran.prompt_form.clone();
                self.execute(run, (&ran.model, &ran.input), None, &form, pace)
            }
            None => Ok(()),
        }
    }
}

/// Checks that every head of B has a counterpart in A.
pub(super) fn fits(a: &Subject, b: &Subject) -> Result<()> {
    if let (Subject::Model(a), Subject::Model(b)) = (a, b) {
        let comparison = Comparison::of_knobs(a, b, &CompareOptions::default());
        return match comparison.prevented() {
            None => Ok(()),
            Some(knob) => Err(refuses(format!(
                "{} and {} cannot be run side by side: {knob}",
                a.checkpoint.name, b.checkpoint.name
            ))),
        };
    }
    let (of_a, of_b) = (a.shape(), b.shape());
    for grid in &of_b {
        let own = of_a.iter().find(|own| own.stack == grid.stack);
        let own = own.map_or(&[][..], |own| own.n_heads.as_slice());
        if own != grid.n_heads.as_slice() {
            let words = |heads: &[usize]| match heads.first() {
                None => "none".to_owned(),
                Some(n_heads) => format!("{} × {n_heads}", heads.len()),
            };
            let stack = grid.stack.label().unwrap_or("layers");
            return Err(refuses(format!(
                "{} and {} have no heads in common to compare: {stack} × heads are {} and {}",
                a.name(),
                b.name(),
                words(own),
                words(&grid.n_heads)
            )));
        }
    }
    Ok(())
}
