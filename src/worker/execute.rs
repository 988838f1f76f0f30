//! Runs one input through a model and sends the pipeline's events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use attnscope_checks::stats::LayerReport;
use attnscope_compute::error::Result;
use attnscope_compute::on_device;
use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_prompt::{PromptForm, TokenizerLoss};
use attnscope_run::{Job, KEEP_BYTES, Kept, NonFinite, Observer, Options, Outcome, Progress};
use attnscope_spec::Model;

use super::context::{Context, ModelRun};
use super::event::{Event, Sink};
use super::fed::fed;
use super::lane::lock;
use super::progress::ProgressPace;
use super::run_id::RunId;
use super::runner::Runner;
use super::told::{judged, reason, tell_of_change};

impl Runner {
    /// Runs an input and sends its results. If an earlier run is given, resumes from the first layer that differs from it;
    /// otherwise reuses the last run's state for a common beginning of the text.
    /// Token texts of predictions come from `prompt_form`.
    pub(super) fn execute(
        &mut self,
        run: RunId,
        (model, input): (&Model, &Input),
        earlier: Option<&ModelRun>,
        prompt_form: &PromptForm,
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
        let told = ProgressPace::new(run, sink, pace, all);
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
                let labels = Arc::new(labels(prompt_form, model, &outcome));
                let (layers, outcome) = (Arc::new(relay.layers), Arc::new(outcome));
                let mut lost = TokenizerLoss::default();
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
                let fed = fed(model, &layers, pace);
                if !fed.is_empty() {
                    sink(Event::Fed { run, fed });
                }
                judged(
                    sink,
                    run,
                    model,
                    (&layers, &outcome, lost),
                    None,
                    &self.terms.thresholds,
                );
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

/// Returns the text of every predicted id.
fn labels(prompt_form: &PromptForm, model: &Model, outcome: &Outcome) -> BTreeMap<u32, String> {
    let prompt_form = prompt_form.of_target(model.spec.limits());
    let top = outcome
        .predictions
        .iter()
        .flat_map(|p| p.top.iter().flatten());
    top.map(|token| (token.id, prompt_form.label(token.id)))
        .collect()
}

/// Observer that forwards the pipeline's events to listeners.
struct Relay<'a> {
    run: RunId,
    sink: &'a Sink,
    context: &'a Mutex<Context>,
    layers: Vec<Arc<LayerReport>>,
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
