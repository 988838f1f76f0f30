//! Answers to what is asked about a run while it goes on, or after it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::lane::lock;
use super::own_device::OwnDevice;
use super::runner::{judged, reason};
use super::sweep::sweep;
use super::{Context, Event, Given, Look, RunId, Sink};
use crate::analysis::{self, Judging, Step};
use crate::checks::Thresholds;
use crate::error::Error;
use crate::ops::on_device;
use crate::pace::Pace;

/// Answers one question, from what the run has kept.
pub(super) fn answer(
    context: &Mutex<Context>,
    sink: &Sink,
    device: &mut OwnDevice,
    look: Look,
    pace: &dyn Pace,
) {
    let (model, given) = {
        let context = lock(context);
        let given = [&context.given, &context.supposed_given];
        (context.model.clone(), given.map(Clone::clone))
    };
    // A question about a run that is no longer on screen finds none.
    let ran = |run: RunId| lock(context).of_run(run).cloned();
    match look {
        Look::Tensor(name) => {
            let stats =
                model.and_then(|model| analysis::tensor_stats(&model.checkpoint.tensors, &name));
            sink(Event::Tensor { name, stats });
        }
        Look::Part(run, part) => {
            // All it needs is in the question.
            let detail = analysis::part_detail(&part.rows, part.head, part.queries, part.keys);
            sink(Event::Part {
                run,
                head: part.head,
                detail: Arc::new(detail),
            });
        }
        Look::Sweep(query) => {
            let swept = Arc::new(sweep(&query));
            sink(Event::Swept {
                of: query.of,
                swept,
            });
        }
        Look::Probes(run) => {
            let Some(ran) = ran(run) else { return };
            let Some((layers, outcome)) = ran.seen else {
                return;
            };
            let (model, input) = (ran.model, ran.input);
            let mut told = |step: Step| sink(Event::Probing { run, step });
            let mut judging = Judging {
                thresholds: &Thresholds::default(),
                baselines: &BTreeMap::new(),
                wants: &|_| true,
                told: &mut told,
                pace,
            };
            let inputs = std::slice::from_ref(&*input);
            let probed = device.get().and_then(|compute| {
                on_device!(&compute, ops => analysis::probe(ops, &model, inputs, &mut judging))
            });
            match probed {
                Ok(probes) => judged(sink, run, &model, (&layers, &outcome), Some(probes)),
                Err(error) => sink(Event::DetailFailed {
                    run,
                    query: None,
                    reason: reason(&error),
                }),
            }
        }
        Look::Head(run, query) if given[0].is_some() => {
            let mut given = given.into_iter().flatten();
            let Some((_, given)) = given.find(|(current, _)| run == *current) else {
                return;
            };
            let detail = match &*given {
                Given::Alignment(_, aligned) => Ok(aligned.detail(query)),
                Given::Trace { captured, arrays } => {
                    let at = (query.stack, query.layer_idx);
                    let names = arrays.iter().find(|(place, _)| *place == at);
                    let names = names.map(|(_, names)| names.clone()).unwrap_or_default();
                    analysis::captured_head(captured, &names, query)
                }
            };
            match detail {
                Ok(detail) => sink(Event::Detail {
                    run,
                    query,
                    detail: Arc::new(detail),
                }),
                Err(error) => sink(Event::DetailFailed {
                    run,
                    query: Some(query),
                    reason: error.to_string(),
                }),
            }
        }
        Look::Head(run, query) => {
            let Some(ran) = ran(run) else { return };
            let Some(kept) = ran.kept else { return };
            let (model, input) = (ran.model, ran.input);
            let detail = device.get().and_then(|compute| {
                on_device!(&compute, ops => {
                    analysis::head_detail(ops, &model, &input, &kept, query, pace)
                })
            });
            match detail {
                Ok(detail) => sink(Event::Detail {
                    run,
                    query,
                    detail: Arc::new(detail),
                }),
                Err(Error::Cancelled) => {}
                Err(error) => sink(Event::DetailFailed {
                    run,
                    query: Some(query),
                    reason: error.to_string(),
                }),
            }
        }
    }
}
