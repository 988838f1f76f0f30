//! A compiled-in checkpoint run on a story's text, and what its tokens read as.

use anyhow::Result;
use attnscope_checks::stats::LayerReport;
use attnscope_checks::{FutureProbe, Probed};
use attnscope_compute::attention::HeadSummary;
use attnscope_compute::on_device;
use attnscope_compute::ops::Compute;
use attnscope_prompt::{Prompt, PromptForm, Tokenizer};
use attnscope_run::{Layers, Options, Outcome, WhatIf, with_what_ifs};
use attnscope_spec::Model;

use super::story::{Story, Telling};

/// A run that is over.
pub struct Ran {
    pub model: Model,
    pub prompt: Prompt,
    pub layers: Vec<LayerReport>,
    pub outcome: Outcome,
    prompt_form: PromptForm,
}

impl Ran {
    /// Runs a story's text through a checkpoint that is read in some way.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn of(
        telling: &Telling<'_>,
        bundle: &'static str,
        own: &[(String, String)],
    ) -> Result<Self> {
        Self::with(telling, bundle, own, &[])
    }

    /// Runs a story's text through a checkpoint with another attention.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn with(
        telling: &Telling<'_>,
        bundle: &'static str,
        own: &[(String, String)],
        what_ifs: &[&str],
    ) -> Result<Self> {
        let story = Story {
            bundle,
            set: &[],
            ..telling.story.clone()
        };
        let compute = telling.compute;
        let set = [own, telling.set].concat();
        let mut model = attnscope_families::read(story.opening(&set).open()?)?;
        let what_ifs = what_ifs.iter().map(|words| words.parse());
        let what_ifs: Vec<WhatIf> = what_ifs
            .collect::<Result<_, _>>()
            .map_err(anyhow::Error::msg)?;
        model.spec = with_what_ifs(&model.spec, &what_ifs)?;
        let prompt_form = Tokenizer::open(&model.checkpoint.tokenizer)?;
        let prompt =
            attnscope_prompt::prepare(&story.request(), &prompt_form, model.spec.limits())?;
        let input = attnscope_run::input_of(&prompt);
        let options = Options {
            keep_bytes: None,
            predicts: true,
        };
        let mut keep = Layers::default();
        let outcome = on_device!(compute, ops => {
            attnscope_run::run(ops, &model, &input, options, &mut keep, None, &|| false)
        })?;
        Ok(Self {
            model,
            prompt,
            layers: keep.0,
            outcome,
            prompt_form,
        })
    }

    /// What each token of the text reads as; of two texts, the one that is predicted.
    pub fn labels(&self) -> Vec<String> {
        let labels = self.prompt.labels.iter();
        labels.map(|label| label.trim().to_owned()).collect()
    }

    /// The labels of the tokens that keys come from.
    pub fn given_labels(&self) -> Vec<String> {
        let labels = self.prompt.given().labels.iter();
        labels.map(|label| label.trim().to_owned()).collect()
    }

    pub fn summaries(&self) -> impl Iterator<Item = &HeadSummary> {
        let heads = self.layers.iter().flat_map(|layer| &layer.heads);
        heads.map(|head| &head.summary)
    }

    /// The three likeliest tokens after a position.
    pub fn likeliest(&self, position_idx: usize) -> Vec<String> {
        let found = self.outcome.predictions.as_ref();
        let top = found.and_then(|found| found.top.get(position_idx));
        let top = top.into_iter().flatten().take(3);
        top.map(|token| format!("{} {:.3}", self.label(token.id), token.probability))
            .collect()
    }

    /// What moves when later tokens are changed; `None` where the model may see them.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn future(&self, compute: &Compute) -> Result<Option<FutureProbe>> {
        let input = attnscope_run::input_of(&self.prompt);
        let probed = on_device!(compute, ops => {
            attnscope_run::probe_future(ops, &self.model, &input, |_| {}, &|| false)
        })?;
        Ok(match probed {
            Probed::Ran(probe) => Some(probe),
            Probed::Not(_) | Probed::Untried(_) | Probed::Undecided(_) => None,
        })
    }

    /// What a predicted token reads as.
    fn label(&self, id: u32) -> String {
        let prompt_form = self.prompt_form.of_target(self.model.spec.limits());
        prompt_form.label(id).trim().to_owned()
    }

    pub fn loss(&self) -> Option<f64> {
        self.outcome.predictions.as_ref()?.loss
    }
}
