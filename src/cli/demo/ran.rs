//! A compiled-in checkpoint run on a story's text, and what its tokens read as.

use std::ops::ControlFlow;

use anyhow::Result;

use super::stories::Story;
use crate::analysis::{self, Observer, Options, Outcome, Progress};
use crate::family;
use crate::model::Model;
use crate::ops::{Compute, on_device};
use crate::prompt::{self, Prompt, Reading, Tokenizer};
use crate::stats::LayerReport;

/// A run that is over.
pub struct Ran {
    pub model: Model,
    pub prompt: Prompt,
    pub layers: Vec<LayerReport>,
    pub outcome: Outcome,
    reading: Reading,
}

#[derive(Default)]
struct Keep(Vec<LayerReport>);

impl Observer for Keep {
    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        self.0.push(report);
        ControlFlow::Continue(())
    }
}

impl Ran {
    /// Runs a story's text through a checkpoint that is read in some way.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn of(
        compute: &Compute,
        story: &Story,
        bundle: &'static str,
        set: &[(String, String)],
    ) -> Result<Self> {
        let story = Story {
            bundle,
            set: &[],
            ..story.clone()
        };
        let model = family::read(super::opening(&story, set).open()?)?;
        let reading = Tokenizer::open(&model.checkpoint.tokenizer)?;
        let prompt = prompt::prepare(&story.request(), &reading, model.spec.limits())?;
        let input = analysis::input_of(&prompt);
        let options = Options {
            keep_bytes: None,
            predicts: true,
        };
        let mut keep = Keep::default();
        let outcome = on_device!(compute, ops => {
            analysis::run(ops, &model, &input, options, &mut keep, None, &|| false)
        })?;
        Ok(Self {
            model,
            prompt,
            layers: keep.0,
            outcome,
            reading,
        })
    }

    /// What a predicted token reads as.
    pub fn label(&self, id: u32) -> String {
        let reading = self.reading.of_target(self.model.spec.limits());
        reading.label(id).trim().to_owned()
    }

    pub fn loss(&self) -> Option<f64> {
        self.outcome.predictions.as_ref()?.loss
    }
}
