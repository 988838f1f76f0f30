//! The open checkpoint or trace, and the runs from which questions are answered.

use std::sync::Arc;

use attnscope_checks::stats::LayerReport;
use attnscope_forward::Input;
use attnscope_prompt::{PromptForm, TokenizerLoss};
use attnscope_run::align::Aligned;
use attnscope_run::{Earlier, Kept, Outcome, Recorded, Resume, Shared, Subject};
use attnscope_spec::Model;

use super::event::Event;
use super::live::Live;
use super::past::{Begun, Past};
use super::run_id::RunId;

/// The open subject, and the runs that questions refer to.
#[derive(Default)]
pub(super) struct Context {
    pub subject: Option<Subject>,
    /// The last run of the open subject.
    pub a: Option<ShownRun>,
    /// A second run, compared with it.
    pub b: Option<ShownRun>,
    /// Runs that left the screen.
    pub past: Past,
    /// The process behind the open subject, if it is a live one.
    pub live: Option<Arc<Live>>,
    /// That of another live model, last compared with it.
    pub second_live: Option<Arc<Live>>,
}

/// A run on screen.
#[derive(Clone)]
pub(super) struct ShownRun {
    pub run: RunId,
    pub what: RunData,
    /// What it began with, once the screen was told.
    pub begun: Option<Begun>,
    /// What the screen was told of it since.
    pub told: Vec<Event>,
}

/// Data of a run from which questions are answered.
#[derive(Clone)]
pub(super) enum RunData {
    Model(ModelRun),
    Trace(Arc<Recorded>),
    Alignment(Arc<Aligned>),
}

/// A run of a model, as far as it has progressed, with its input.
#[derive(Clone)]
pub(super) struct ModelRun {
    pub model: Arc<Model>,
    pub input: Arc<Input>,
    /// The part of its text that the tokenizer does not know.
    pub lost: TokenizerLoss,
    /// What gives predicted ids their texts.
    pub prompt_form: Arc<PromptForm>,
    pub kept: Option<Arc<Kept>>,
    /// Its results, once it has finished.
    pub seen: Option<Seen>,
}

impl ModelRun {
    pub fn new(
        model: Arc<Model>,
        input: Arc<Input>,
        lost: TokenizerLoss,
        prompt_form: Arc<PromptForm>,
    ) -> Self {
        Self {
            model,
            input,
            lost,
            prompt_form,
            kept: None,
            seen: None,
        }
    }

    /// Returns the state from which a changed model can resume, once this run has finished.
    pub fn resume(&self) -> Option<Resume<'_>> {
        let (layers, _) = self.seen.as_ref()?;
        Some(Resume {
            spec: &self.model.spec,
            kept: self.kept.as_ref()?,
            layers,
        })
    }

    /// Returns what this run, once finished, shares with another text for the same model.
    pub fn shared_with(&self, model: &Model, input: &Input) -> Option<Shared<'_>> {
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
    /// Returns the open subject, and the one compared with it if that is another.
    pub fn subjects(&self) -> Vec<Subject> {
        let compared = self.b.as_ref().and_then(|ran| match &ran.what {
            RunData::Model(ran) => Some(Subject::Model(ran.model.clone())),
            RunData::Trace(recorded) => Some(Subject::Trace(recorded.clone())),
            RunData::Alignment(_) => None,
        });
        let mut all: Vec<Subject> = self.subject.iter().cloned().collect();
        all.extend(compared.filter(|compared| !all.iter().any(|open| open.is(compared))));
        all
    }

    pub fn of_run(&self, run: RunId) -> Option<&ShownRun> {
        let both = [&self.a, &self.b];
        both.into_iter().flatten().find(|ran| ran.run == run)
    }

    /// Returns a run of a model, to update its progress.
    pub fn model_run(&mut self, run: RunId) -> Option<&mut ModelRun> {
        let both = [&mut self.a, &mut self.b];
        let ran = both.into_iter().flatten().find(|ran| ran.run == run)?;
        match &mut ran.what {
            RunData::Model(ran) => Some(ran),
            RunData::Trace(_) | RunData::Alignment(_) => None,
        }
    }
}

/// Results of a run.
pub(super) type Seen = (Arc<Vec<Arc<LayerReport>>>, Arc<Outcome>);
