//! Subjects shown without running a model: a trace, which is one finished run, and an alignment, which is computed at once.

use std::path::Path;
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Device;
use attnscope_prompt::{Request, Source};
use attnscope_run::align::Alignment;
use attnscope_run::{Declared, Recorded, Subject, WhatIf};

use super::context::{RunData, ShownRun};
use super::event::{Event, PromptOrigin};
use super::lane::lock;
use super::run_id::RunId;
use super::runner::Runner;
use super::told::{tell_aligned, tell_trace};

impl Runner {
    /// Shows a trace as a finished run.
    pub(super) fn show_trace(&mut self, run: RunId, path: &Path) -> Result<()> {
        if attnscope_run::is_probe(path) {
            let problem =
                "a probe holds what moved, and no attention to show: attnscope check judges it";
            return Err(Error::file(path, problem));
        }
        let captured = attnscope_run::open_trace(path)?;
        let trace = attnscope_run::read_trace(&captured, &Declared::default())?;
        let recorded = Arc::new(Recorded::new(captured, &trace));
        let subject = Subject::Trace(recorded.clone());
        self.shows(run, subject.clone(), RunData::Trace(recorded.clone()));
        let sink = &self.sink;
        sink(Event::Opened {
            subject,
            has_tokenizer: false,
            tokenizer: recorded.about.clone(),
            prompt_form: None,
            device: Device::Cpu,
        });
        sink(Event::Started {
            run,
            prompt: Arc::new(recorded.prompt.clone()),
            source: Source::Ids(recorded.prompt.given().tokens.clone()),
            origin: PromptOrigin::Asked,
        });
        tell_trace(sink, run, &recorded, &trace, &self.terms.thresholds);
        self.prompt = Some(Arc::new(recorded.prompt.clone()));
        Ok(())
    }

    /// Opens an alignment and shows it.
    pub(super) fn show_alignment(&mut self, run: RunId, alignment: Alignment) {
        (self.sink)(Event::Opened {
            subject: Subject::Alignment(Arc::new(alignment.clone())),
            has_tokenizer: true,
            tokenizer: "words as the dictionaries have them".to_owned(),
            prompt_form: None,
            device: Device::Cpu,
        });
        self.begin_alignment(run, alignment);
    }

    fn begin_alignment(&mut self, run: RunId, alignment: Alignment) {
        let aligned = Arc::new(alignment.align());
        let (prompt, text) = (alignment.prompt(), alignment.text());
        let subject = Subject::Alignment(Arc::new(alignment));
        self.shows(run, subject, RunData::Alignment(aligned.clone()));
        (self.sink)(Event::Started {
            run,
            prompt: Arc::new(prompt),
            source: Source::Text(text),
            origin: PromptOrigin::Asked,
        });
        tell_aligned(&self.sink, run, &aligned, &self.terms.thresholds);
    }

    /// Makes a run the only one on screen.
    fn shows(&self, run: RunId, subject: Subject, what: RunData) {
        let mut context = lock(&self.context);
        (context.live, context.second_live) = (None, None);
        context.subject = Some(subject);
        context.show_alone(ShownRun::new(run, what));
    }

    /// Aligns another pair of texts.
    ///
    /// # Errors
    /// When the text cannot be aligned.
    pub(super) fn align_again(
        &mut self,
        run: RunId,
        alignment: &Alignment,
        request: &Request,
    ) -> Result<()> {
        match &request.source {
            Source::Text(text) => {
                self.begin_alignment(run, alignment.of_texts(text)?);
                Ok(())
            }
            Source::Ids(_) | Source::Picture(_) | Source::Values(_) => {
                let problem = "an alignment is of words: expected two texts";
                Err(Error::Prompt(problem.to_owned()))
            }
        }
    }

    /// Aligns the words on screen with changed attention.
    ///
    /// # Errors
    /// When a change names a place that an alignment does not have.
    pub(super) fn run_alignment_what_ifs(
        &mut self,
        run: RunId,
        alignment: &Alignment,
        what_ifs: &[WhatIf],
    ) -> Result<()> {
        let alignment = alignment.with_what_ifs(what_ifs)?;
        let aligned = Arc::new(alignment.align());
        let what = RunData::Alignment(aligned.clone());
        lock(&self.context).show_second(ShownRun::new(run, what));
        let subject = Subject::Alignment(Arc::new(alignment));
        (self.sink)(Event::WhatIfStarted { run, subject });
        tell_aligned(&self.sink, run, &aligned, &self.terms.thresholds);
        Ok(())
    }
}
