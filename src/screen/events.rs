//! Turns the worker's events into state.

use attnscope_report::time_left;
use attnscope_run::Subject;
use attnscope_worker::{Event, QuestionKind, RunId};

use super::state::app::App;
use super::state::keys::Action;
use super::state::run::{Preparing, Run, RunState};
use super::state::runs::Comparing;
use super::state::views::{Axis, ModelView};

impl App {
    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Opened {
                subject,
                has_tokenizer,
                tokenizer,
                prompt_form,
                device,
            } => {
                let name = self.opened.as_ref().map(Subject::name);
                let is_again = name.is_some();
                if is_again {
                    if name == Some(subject.name()) {
                        // Its files may have changed.
                        self.runs.seen.clear();
                    }
                    self.forget();
                }
                if let Some(view) = &mut self.training {
                    view.answered(true);
                }
                self.device = device;
                self.opened = Some(subject);
                self.has_tokenizer = has_tokenizer;
                (self.tokenizer, self.prompt_form) = (tokenizer, prompt_form);
                if is_again {
                    // Keep the selected head, or select the last one if there are fewer.
                    self.step_layer(0);
                }
            }
            Event::RunningCode { n_done, n } => {
                self.preparing = Some(Preparing::Code { n_done, n });
            }
            Event::Renewed(subject) => self.opened = Some(subject),
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
                let Some(subject) = self.opened.clone() else {
                    return;
                };
                self.second_again();
                self.runs.a = Some(Run::new(run, subject, prompt, source.clone(), origin));
                self.preparing = None;
                let unknown = self.unknown_text();
                self.notice = self.opening_notice.take().or(unknown);
                // In a text, select the last token: in a causal model it sees all others. In a picture, select the first token,
                // which represents the whole.
                let run = self.runs.a.as_ref();
                let sees = run.is_some_and(|run| run.prompt.picture.is_some());
                let last = self.scene().n_along(Axis::Query).saturating_sub(1);
                self.selection.query_idx = if sees { 0 } else { last };
                let grids = self.scene().grids();
                let is_known = grids.contains(&self.selection.stack);
                self.select_grid(if is_known {
                    self.selection.stack
                } else {
                    grids[0]
                });
                self.arrive(&source);
            }
            Event::StartedAgain {
                run,
                subject,
                prompt,
                source,
                origin,
            } => {
                self.runs.a = Some(Run::new(run, subject, prompt, source, origin));
                (self.preparing, self.notice) = (None, self.unknown_text());
                if let Some(second) = self.runs.b.as_mut().filter(|b| b.run.is_none()) {
                    second.is_asked = false;
                }
                self.select_grid(self.selection.stack);
            }
            Event::WhatIfStarted { run, subject } => self.second_started(run, subject, None),
            Event::SecondStarted {
                run,
                subject,
                prompt,
                source,
            } => self.second_started(run, subject, Some((prompt, source))),
            Event::Comparing { pair, step } => {
                self.take_comparing(pair, Comparing::Going(Some(step)));
            }
            Event::QueryRows { of, rows } => self.take_query_rows(of, rows),
            Event::Compared { pair, comparison } => {
                self.take_comparing(pair, Comparing::Done(comparison));
            }
            Event::Writing { n_written, n_most } => {
                self.preparing = Some(Preparing::Target { n_written, n_most });
            }
            Event::BeganToWrite { .. } | Event::Wrote(..) | Event::EndedWriting { .. } => {
                self.take_writing(event);
            }
            Event::Refused(reason) => {
                self.give_up_writing();
                self.notice = Some(self.second_refused(reason));
                self.preparing = None;
                if let Some(view) = &mut self.training {
                    view.answered(false);
                    self.opening_notice = None;
                }
            }
            Event::Changed(what) => {
                self.notice = Some(format!("{what} · r reads it again"));
                self.changed = Some(what);
            }
            Event::Measured { of, shown, is_last } => self.take_effects(of, shown, is_last),
            Event::OverPrompts { of, over, is_last } => self.take_over_prompts(of, over, is_last),
            Event::OverPromptsFailed { of, reason } => self.end_over_prompts(of, reason),
            Event::Swept { of, swept } => self.take_sweep(of, swept),
            Event::SweptLayer { of, points } => self.sweep.layer = Some((of, points)),
            Event::Tensor { name, stats } => {
                self.model_view.stats.insert(name, Some(stats));
            }
            Event::TensorFailed { name, reason } => {
                self.model_view.stats.insert(name, Some(None));
                self.take_failure(reason);
            }
            Event::Broken { run, ref message } => {
                self.preparing = None;
                let [edits, reads] = [Action::Edit, Action::ReadAgain].map(|a| self.keys.key(a));
                self.notice = Some(format!(
                    "{message} · {edits} runs a text, {reads} reads all again"
                ));
                self.event_of_run(run, event);
            }
            Event::Progress { run, .. }
            | Event::Work { run, .. }
            | Event::Layer { run, .. }
            | Event::NonFinite { run, .. }
            | Event::Finished { run, .. }
            | Event::Failed { run, .. }
            | Event::Fed { run, .. }
            | Event::Judged { run, .. }
            | Event::Unjudged { run, .. }
            | Event::Probing { run, .. }
            | Event::Detail { run, .. }
            | Event::Part { run, .. }
            | Event::QuestionFailed { run, .. } => self.event_of_run(run, event),
        }
    }

    /// Shows why a request failed, unless the notice already says that the files changed.
    fn take_failure(&mut self, reason: String) {
        if self.changed.as_ref() != Some(&reason) {
            self.notice = Some(reason);
        }
    }

    /// Drops all results of the files' previous contents, because the files were read again.
    fn forget(&mut self) {
        self.second_again();
        if let Some(run) = self.runs.a.take() {
            self.last_source = Some(run.source);
        }
        (self.changed, self.notice) = (None, None);
        self.sweep.forget();
        self.effect_view.forget();
        self.prompts_view.forget();
        self.model_view = ModelView::default();
        self.preparing = Some(Preparing::Text);
    }

    fn event_of_run(&mut self, id: RunId, event: Event) {
        // Ignore events of runs that are no longer on screen.
        let Some(run) = self.runs.of(id) else { return };
        match event {
            Event::Progress { progress, .. } => run.state = RunState::Running(progress),
            Event::Work { share, passed, .. } => {
                run.share = Some(share);
                run.left = time_left(passed, f64::from(share));
            }
            Event::Layer { report, .. } => run.take_layer(report),
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
            Event::Fed { fed, .. } => run.fed = fed,
            Event::Failed { reason, .. } => run.state = RunState::Ended(reason),
            Event::Broken { message, .. } => {
                run.probing = None;
                run.state = RunState::Broken(message);
            }
            Event::Detail { query, detail, .. } => {
                run.failed_head = None;
                run.detail = Some((query, detail));
                if run.awaited == Some(query) {
                    run.awaited = None;
                }
            }
            Event::Part { head, detail, .. } => run.part = Some((head, detail)),
            Event::Judged {
                judgement,
                is_probed,
                ..
            } => {
                run.judge(judgement);
                run.is_probed = is_probed;
                run.probing = None;
            }
            Event::Unjudged { reason, .. } => run.unjudged = Some(reason),
            Event::Probing { step, .. } => run.probing = Some(step),
            Event::QuestionFailed {
                reason, question, ..
            } => {
                match question {
                    QuestionKind::Probes => run.probing = None,
                    QuestionKind::Head(query) => run.failed_head = Some((query, reason.clone())),
                    QuestionKind::Comparison => {
                        let pair = (self.runs.a.as_ref().map_or(0, |a| a.id), id);
                        self.take_comparing(pair, Comparing::Ended(reason.clone()));
                    }
                    // A newer request replaced this one.
                    QuestionKind::Effect(of) if !self.effect_view.end(of) => return,
                    QuestionKind::Effect(_) => {}
                    QuestionKind::Part
                    | QuestionKind::Sweep
                    | QuestionKind::LayerSweep
                    | QuestionKind::QueryRows => {}
                }
                self.take_failure(reason);
            }
            Event::Opened { .. }
            | Event::OpenFailed(_)
            | Event::RunningCode { .. }
            | Event::Renewed(_)
            | Event::Started { .. }
            | Event::StartedAgain { .. }
            | Event::WhatIfStarted { .. }
            | Event::SecondStarted { .. }
            | Event::Comparing { .. }
            | Event::Compared { .. }
            | Event::QueryRows { .. }
            | Event::Writing { .. }
            | Event::BeganToWrite { .. }
            | Event::Wrote(..)
            | Event::EndedWriting { .. }
            | Event::Refused(_)
            | Event::Changed(_)
            | Event::TensorFailed { .. }
            | Event::Measured { .. }
            | Event::OverPrompts { .. }
            | Event::OverPromptsFailed { .. }
            | Event::Swept { .. }
            | Event::SweptLayer { .. }
            | Event::Tensor { .. } => {}
        }
    }
}
