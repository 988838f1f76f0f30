//! An opened model.

use std::ops::ControlFlow;
use std::sync::Arc;

use attnscope_checks::Thresholds;
use attnscope_checks::stats::LayerReport;
use attnscope_compute::on_device;
use attnscope_compute::ops::Device;
use attnscope_prompt::{PromptForm, Request, prepare};
use attnscope_run::{KEEP_BYTES, Kept, Observer, Options, Progress, generate, input_of};

use super::error::Error;
use super::run::Run;

/// An opened checkpoint of a known family. It can be run any number of times.
pub struct Model {
    pub(crate) inner: attnscope_spec::Model,
    tokenizer: PromptForm,
    pub(crate) device: Device,
    pub(crate) thresholds: Arc<Thresholds>,
}

/// Collects the results of a run.
#[derive(Default)]
struct Seen {
    layers: Vec<LayerReport>,
    kept: Option<Arc<Kept>>,
}

impl Observer for Seen {
    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        self.layers.push(report);
        ControlFlow::Continue(())
    }

    fn keeping(&mut self, kept: &Arc<Kept>) {
        self.kept = Some(kept.clone());
    }
}

impl Model {
    pub(crate) fn new(
        inner: attnscope_spec::Model,
        tokenizer: PromptForm,
        device: Device,
        thresholds: Arc<Thresholds>,
    ) -> Self {
        Self {
            inner,
            tokenizer,
            device,
            thresholds,
        }
    }

    /// Runs a text through the model.
    ///
    /// # Errors
    /// As for [`Model::run_request`].
    pub fn run(&self, text: &str) -> Result<Run<'_>, Error> {
        self.run_request(&Request::text(text))
    }

    /// Runs token ids through the model, verbatim.
    ///
    /// # Errors
    /// As for [`Model::run_request`].
    pub fn run_tokens(&self, ids: &[u32]) -> Result<Run<'_>, Error> {
        self.run_request(&Request::ids(ids.to_vec()))
    }

    /// Runs any prompt: a text, ids, a sound or a picture, with an attention mask and a target.
    ///
    /// # Errors
    /// When the prompt does not fit the model, a tensor does not have the shape that the family needs, or the device fails.
    pub fn run_request(&self, request: &Request) -> Result<Run<'_>, Error> {
        let limits = self.inner.spec.limits();
        let mut prompt = prepare(request, &self.tokenizer, limits)?;
        let device = self.device.open()?;
        // An encoder-decoder model may first have to generate its target.
        let label = |id| self.tokenizer.of_target(limits).label(id);
        on_device!(&device, ops => generate(
            ops, &self.inner, &mut prompt, &label, &mut |_| {}, &|| false,
        ))?;
        let input = input_of(&prompt);
        let options = Options {
            keep_bytes: Some(KEEP_BYTES),
            predicts: true,
        };
        let mut seen = Seen::default();
        let outcome = on_device!(&device, ops => attnscope_run::run(
            ops, &self.inner, &input, options, &mut seen, None, &|| false,
        ))?;
        Ok(Run {
            model: self,
            input,
            layers: seen.layers,
            kept: seen.kept,
            outcome,
            lost: prompt.all_lost(),
        })
    }
}
