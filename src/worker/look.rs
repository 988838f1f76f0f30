//! Answers to what is asked about a run while it goes on, or after it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::lane::lock;
use super::own_device::OwnDevice;
use super::runner::{judged, reason};
use super::sweep::{sweep, sweep_layer};
use super::{Context, Event, Given, Look, RunId, Sink};
use attnscope_engine::analysis::{self, HeadDetail, HeadQuery, Judging, Step};
use attnscope_engine::checks::Thresholds;
use attnscope_engine::error::{Error, Result};
use attnscope_engine::on_device;
use attnscope_engine::pace::Pace;

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
    let heads = Heads { context, given };
    // A question about a run that is no longer on screen finds none.
    let ran = |run: RunId| lock(context).of_run(run).cloned();
    match look {
        Look::Tensor(name) => {
            let stats = model.and_then(|model| {
                let stats = analysis::tensor_stats(&model.checkpoint.tensors, &name);
                stats.unwrap_or_default()
            });
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
        Look::Head(run, query) => match heads.detail(device, run, query, pace) {
            None | Some(Err(Error::Cancelled)) => {}
            Some(Ok(detail)) => sink(Event::Detail {
                run,
                query,
                detail: Arc::new(detail),
            }),
            Some(Err(error)) => sink(Event::DetailFailed {
                run,
                query: Some(query),
                reason: error.to_string(),
            }),
        },
        Look::SweepLayer(query) => {
            let detail = |head: HeadQuery| heads.detail(device, query.of.0, head, pace);
            match sweep_layer(&query, detail) {
                None | Some(Err(Error::Cancelled)) => {}
                Some(Ok(points)) => sink(Event::SweptLayer {
                    of: query.of,
                    points: Arc::new(points),
                }),
                Some(Err(error)) => sink(Event::DetailFailed {
                    run: query.of.0,
                    query: None,
                    reason: error.to_string(),
                }),
            }
        }
    }
}

/// Where heads are computed from.
struct Heads<'a> {
    context: &'a Mutex<Context>,
    given: [Option<(RunId, Arc<Given>)>; 2],
}

impl Heads<'_> {
    /// One head of a run in full; `None` where the run is no longer on screen, or keeps nothing to compute it from.
    fn detail(
        &self,
        device: &mut OwnDevice,
        run: RunId,
        query: HeadQuery,
        pace: &dyn Pace,
    ) -> Option<Result<HeadDetail>> {
        if self.given[0].is_some() {
            let mut given = self.given.iter().flatten();
            let (_, given) = given.find(|(current, _)| run == *current)?;
            return Some(match &**given {
                Given::Alignment(_, aligned) => Ok(aligned.detail(query)),
                Given::Trace { captured, arrays } => {
                    let at = (query.stack, query.layer_idx);
                    let names = arrays.iter().find(|(place, _)| *place == at);
                    let names = names.map(|(_, names)| names.clone()).unwrap_or_default();
                    analysis::captured_head(captured, &names, query)
                }
            });
        }
        let ran = lock(self.context).of_run(run).cloned()?;
        let kept = ran.kept?;
        let (model, input) = (ran.model, ran.input);
        Some(device.get().and_then(|compute| {
            on_device!(&compute, ops => {
                analysis::head_detail(ops, &model, &input, &kept, query, pace)
            })
        }))
    }
}
