//! Answers questions about a run, during or after it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use attnscope_compute::error::{Error, Result};
use attnscope_compute::on_device;
use attnscope_compute::pace::Pace;
use attnscope_run::{Budget, HeadDetail, HeadQuery, Judging, Step, Subject};

use super::asked::Question;
use super::caught::caught;
use super::compare::compare;
use super::context::{Context, RunData};
use super::effect::measure;
use super::event::{Event, QuestionKind, Sink};
use super::lane::lock;
use super::live::{live_of, probe};
use super::over_prompts::over_prompts;
use super::own_device::OwnDevice;
use super::query_rows::query_rows;
use super::run_id::RunId;
use super::sweep::{sweep, sweep_layer};
use super::terms::Terms;
use super::told::{judged, reason, tell_of_change};

/// Subject of a question, to report that it could not be answered.
#[derive(Debug, Clone)]
enum About {
    Run(RunId, QuestionKind),
    Tensor(String),
    Prompts(u64),
}

impl About {
    fn of(look: &Question) -> Self {
        match look {
            Question::Head(run, query) => Self::Run(*run, QuestionKind::Head(*query)),
            Question::Tensor(name) => Self::Tensor(name.clone()),
            Question::Probes(run) => Self::Run(*run, QuestionKind::Probes),
            Question::Part(run, _) => Self::Run(*run, QuestionKind::Part),
            Question::Sweep(query) => Self::Run(query.of.0, QuestionKind::Sweep),
            Question::SweepLayer(query) => Self::Run(query.of.0, QuestionKind::LayerSweep),
            Question::QueryRows(query) => Self::Run(query.run, QuestionKind::QueryRows),
            Question::Effect(query) => Self::Run(query.run, QuestionKind::Effect(*query)),
            Question::OverPrompts(query) => Self::Prompts(query.nth),
            Question::Compare((_, b)) => Self::Run(*b, QuestionKind::Comparison),
        }
    }

    fn failed(self, reason: String) -> Event {
        match self {
            Self::Run(run, question) => Event::QuestionFailed {
                run,
                question,
                reason,
            },
            Self::Tensor(name) => Event::TensorFailed { name, reason },
            Self::Prompts(of) => Event::OverPromptsFailed { of, reason },
        }
    }
}

/// State of a thread that answers questions about the open subject.
pub(super) struct Looker {
    pub context: Arc<Mutex<Context>>,
    pub sink: Sink,
    pub device: OwnDevice,
    pub terms: Arc<Terms>,
}

impl Looker {
    /// Answers one question from data that the run kept. Every question gets an answer, even if that is an error.
    pub fn answer(&mut self, look: Question, pace: &dyn Pace) {
        let about = About::of(&look);
        let reason = match caught(|| self.find(look, pace)) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => {
                tell_if_current(&self.context, &self.sink, &about, &error);
                reason(&error)
            }
            Err(message) => {
                log::error!("{about:?}: {message}");
                message
            }
        };
        (self.sink)(about.failed(reason));
    }

    /// # Errors
    /// When there is no answer; the error says why.
    fn find(&mut self, look: Question, pace: &dyn Pace) -> Result<()> {
        let (context, sink) = (&*self.context, &self.sink);
        let (device, thresholds) = (&mut self.device, &self.terms.thresholds);
        // A run that is no longer on screen is not found.
        let ran = |run: RunId| lock(context).of_run(run).map(|ran| ran.what.clone());
        match look {
            Question::Tensor(name) => {
                let subject = lock(context).subject.clone();
                let stats = match subject {
                    Some(subject) => attnscope_run::tensor_stats(subject.tensors(), &name)?,
                    None => None,
                };
                sink(Event::Tensor { name, stats });
            }
            Question::Part(run, part) => {
                // The query contains all the data it needs.
                let detail =
                    attnscope_run::part_detail(&part.rows, part.head, part.queries, part.keys);
                sink(Event::Part {
                    run,
                    head: part.head,
                    detail: Arc::new(detail),
                });
            }
            Question::Effect(query) => {
                let Some(RunData::Model(ran)) = ran(query.run) else {
                    return Ok(());
                };
                let compute = device.get()?;
                on_device!(&compute, ops => measure(ops, &ran, query, sink, pace))?;
            }
            Question::OverPrompts(query) => {
                let subject = lock(context).subject.clone();
                let Some(Subject::Model(model)) = subject else {
                    let problem = "many prompts need a checkpoint that can be run";
                    return Err(Error::Prompt(problem.to_owned()));
                };
                let compute = device.get()?;
                let is_forced = self.terms.is_forced;
                on_device!(&compute, ops => {
                    over_prompts(ops, &model, &query, is_forced, sink, pace)
                })?;
            }
            Question::Compare(pair) => compare(context, sink, device, pair, pace)?,
            Question::Sweep(query) => {
                let swept = Arc::new(sweep(&query));
                sink(Event::Swept {
                    of: query.of,
                    swept,
                });
            }
            Question::Probes(run) => {
                let ran = match ran(run) {
                    Some(RunData::Model(ran)) => ran,
                    Some(RunData::Trace(recorded)) => {
                        return match live_of(context, &recorded) {
                            Some(live) => probe((&live, &recorded), run, sink, thresholds, pace),
                            None => Ok(()),
                        };
                    }
                    Some(RunData::Alignment(_)) | None => return Ok(()),
                };
                let Some((layers, outcome)) = ran.seen else {
                    return Ok(());
                };
                let (model, input, lost) = (ran.model, ran.input, ran.lost);
                let mut told = |step: Step| sink(Event::Probing { run, step });
                let mut judging = Judging {
                    thresholds,
                    baselines: &BTreeMap::new(),
                    wants: &|_| true,
                    lost,
                    budget: Budget::IN_BACKGROUND,
                    told: &mut told,
                    pace,
                };
                let inputs = std::slice::from_ref(&*input);
                let probed = device.get().and_then(|compute| {
                    on_device!(&compute, ops => attnscope_run::probe(ops, &model, inputs, &mut judging))
                });
                judged(
                    sink,
                    run,
                    &model,
                    (&layers, &outcome, lost),
                    Some(probed?),
                    thresholds,
                );
            }
            Question::Head(run, query) => {
                match ran(run).and_then(|what| detail(&what, device, query, pace)) {
                    None | Some(Err(Error::Cancelled)) => {}
                    Some(Ok(detail)) => sink(Event::Detail {
                        run,
                        query,
                        detail: Arc::new(detail),
                    }),
                    Some(Err(error)) => return Err(error),
                }
            }
            Question::QueryRows(query) => {
                let what = ran(query.run);
                let detail = |head: HeadQuery| detail(what.as_ref()?, device, head, pace);
                match query_rows(&query, detail) {
                    None | Some(Err(Error::Cancelled)) => {}
                    Some(Ok(rows)) => sink(Event::QueryRows { of: query, rows }),
                    Some(Err(error)) => return Err(error),
                }
            }
            Question::SweepLayer(query) => {
                let what = ran(query.of.0);
                let detail = |head: HeadQuery| detail(what.as_ref()?, device, head, pace);
                match sweep_layer(&query, detail) {
                    None | Some(Err(Error::Cancelled)) => {}
                    Some(Ok(points)) => sink(Event::SweptLayer {
                        of: query.of,
                        points: Arc::new(points),
                    }),
                    Some(Err(error)) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// Reports that the open files changed, unless the question is about a subject that is no longer open.
fn tell_if_current(context: &Mutex<Context>, sink: &Sink, about: &About, error: &Error) {
    // Locked while reporting, so that nothing else is opened in between.
    let context = lock(context);
    let is_current = match about {
        About::Run(run, _) => context.of_run(*run).is_some(),
        About::Tensor(_) | About::Prompts(_) => context.subject.is_some(),
    };
    if is_current {
        tell_of_change(sink, error);
    }
}

/// Computes one head of a run in full; `None` if the run keeps no data for it.
fn detail(
    what: &RunData,
    device: &mut OwnDevice,
    query: HeadQuery,
    pace: &dyn Pace,
) -> Option<Result<HeadDetail>> {
    match what {
        RunData::Alignment(aligned) => Some(Ok(aligned.detail(query))),
        RunData::Trace(recorded) => {
            let names = recorded.arrays_of(query.stack, query.layer_idx);
            Some(attnscope_run::captured_head(
                &recorded.captured,
                &names,
                query,
            ))
        }
        RunData::Model(ran) => {
            let kept = ran.kept.as_ref()?;
            Some(device.get().and_then(|compute| {
                on_device!(&compute, ops => {
                    attnscope_run::head_detail(ops, &ran.model, &ran.input, kept, query, pace)
                })
            }))
        }
    }
}
