//! What the worker tells → state.

use std::sync::Arc;

use super::app::{App, Axis};
use super::run_view::{Preparing, RunState, RunView};
use crate::worker::Event;

impl App {
    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Opened {
                model,
                has_tokenizer,
                tokenizer,
            } => {
                self.model = Some(model);
                self.has_tokenizer = has_tokenizer;
                self.tokenizer = tokenizer;
            }
            Event::OpenFailed(reason) => {
                self.fatal = Some(reason);
                self.is_over = true;
            }
            Event::Started {
                run,
                prompt,
                source,
                origin,
            } => {
                self.suppose_of_next();
                self.run = Some(RunView::new(run, prompt, source, origin));
                self.preparing = None;
                (self.detail, self.awaited) = (None, None);
                self.notice = self.opening_notice.take();
                (self.part, self.awaited_part) = (None, None);
                // The last token of a text is where a causal model has seen it all.
                self.selection.query_idx = self.n_along(Axis::Query).saturating_sub(1);
                let grids = self.grids();
                let is_known = grids.contains(&self.selection.stack);
                self.select_grid(if is_known {
                    self.selection.stack
                } else {
                    grids[0]
                });
            }
            Event::Supposed { run, model } => self.supposed_started(run, model),
            Event::Writing { n_written, n_most } => {
                self.preparing = Some(Preparing::Target { n_written, n_most });
            }
            Event::Refused(reason) => {
                self.notice = Some(self.supposed_refused(reason));
                self.preparing = None;
            }
            Event::Swept { of, swept } => self.take_sweep(of, swept),
            Event::SweptLayer { of, points } => self.sweep.layer = Some((of, points)),
            Event::Tensor { name, stats } => {
                self.model_view.stats.insert(name, Some(stats));
            }
            Event::Progress { run, .. }
            | Event::Work { run, .. }
            | Event::Layer { run, .. }
            | Event::NonFinite { run, .. }
            | Event::Finished { run, .. }
            | Event::Failed { run, .. }
            | Event::Judged { run, .. }
            | Event::Probing { run, .. }
            | Event::Detail { run, .. }
            | Event::Part { run, .. }
            | Event::DetailFailed { run, .. } => {
                // What an older run still sends is of no interest.
                self.with_half_of(run, |app| app.event_of_run(event));
            }
        }
    }

    fn event_of_run(&mut self, event: Event) {
        let Some(run) = &mut self.run else { return };
        match event {
            Event::Progress { progress, .. } => run.state = RunState::Running(progress),
            Event::Work { share, .. } => run.share = Some(share),
            Event::Layer { report, .. } => {
                run.layers.entry(report.stack).or_default().push(report);
            }
            Event::NonFinite { found, .. } => {
                self.notice = Some(found.to_string());
                run.nonfinite = Some(found);
            }
            Event::Finished {
                outcome,
                labels,
                took,
                ..
            } => {
                run.state = RunState::Done {
                    outcome,
                    labels,
                    took,
                };
            }
            Event::Failed { reason, .. } => run.state = RunState::Ended(reason),
            Event::Detail { query, detail, .. } => {
                self.detail = Some((query, Arc::clone(&detail)));
                if self.awaited == Some(query) {
                    self.awaited = None;
                }
            }
            Event::Part { head, detail, .. } => self.part = Some((head, detail)),
            Event::Judged {
                judgement,
                is_probed,
                ..
            } => {
                run.judge(judgement);
                run.is_probed = is_probed;
                run.probing = None;
            }
            Event::Probing { step, .. } => run.probing = Some(step),
            Event::DetailFailed { reason, query, .. } => {
                if query.is_none() {
                    run.probing = None;
                }
                self.notice = Some(reason);
            }
            Event::Opened { .. }
            | Event::OpenFailed(_)
            | Event::Started { .. }
            | Event::Supposed { .. }
            | Event::Writing { .. }
            | Event::Refused(_)
            | Event::Swept { .. }
            | Event::SweptLayer { .. }
            | Event::Tensor { .. } => {}
        }
    }
}
