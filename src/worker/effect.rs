//! Measures the effects of a run's heads; values are sent as they are computed, and the newest query wins.

use std::ops::ControlFlow;
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_prompt::Tokenizer;
use attnscope_spec::Place;
use attnscope_studies::effect::{
    Ablation, Asked, Base, Part, PartEffect, Replaced, RetrievalHead, ShareOf, Step, attribute,
    check_linear, circuits, contributions, lens, retrieval,
};

use super::context::ModelRun;
use super::effect_shown::{EffectQuery, EffectShown, Measure};
use super::event::{Event, Sink};

/// Number of likeliest tokens listed at each depth.
const N_TOP: usize = 3;

/// Runs a measurement and sends partial results.
///
/// # Errors
/// When the model cannot be run, or a newer query arrived.
pub(super) fn measure<O: Ops>(
    ops: &O,
    ran: &ModelRun,
    query: EffectQuery,
    sink: &Sink,
    pace: &dyn Pace,
) -> Result<()> {
    let tell = |shown: &EffectShown, is_last: bool| {
        sink(Event::Measured {
            of: query,
            shown: Arc::new(shown.clone()),
            is_last,
        });
    };
    let mut shown = EffectShown::default();
    let position_idx = query
        .position_idx
        .min(ran.input.sequence.len().saturating_sub(1));
    if let Err(why) = predicted(ops, ran, position_idx, &mut shown, pace) {
        if matches!(why, Error::Cancelled) {
            return Err(why);
        }
        shown.note = Some(why.to_string());
    }
    tell(&shown, false);
    values(
        ops,
        ran,
        (query.measure, position_idx),
        &mut shown,
        &tell,
        pace,
    )?;
    tell(&shown, true);
    Ok(())
}

/// Fills in the values of heads, and sends those that arrive one by one.
fn values<O: Ops>(
    ops: &O,
    ran: &ModelRun,
    (measure, position_idx): (Measure, usize),
    shown: &mut EffectShown,
    tell: &dyn Fn(&EffectShown, bool),
    pace: &dyn Pace,
) -> Result<()> {
    let (model, input) = (&*ran.model, &*ran.input);
    match measure {
        Measure::Copying => {
            let found = circuits(model, &|_| false, &mut |_, _| {}, pace)?;
            let heads = found.heads.iter();
            let heads = heads.filter_map(|one| Some((one.place, one.copying?)));
            shown.heads = heads.collect();
            shown.note = found.notes.last().cloned();
        }
        Measure::Retrieval => match retrieval(ops, model, pace) {
            Ok(found) => {
                let score = |head: &RetrievalHead| {
                    if head.retrieval.is_nan() {
                        head.looks
                    } else {
                        head.retrieval
                    }
                };
                shown.heads = found
                    .heads
                    .iter()
                    .map(|head| (head.place, score(head)))
                    .collect();
                let written = found.written.map(|share| {
                    let (n, prompts) = (found.n_tokens, found.n_prompts);
                    let share = (share * 100.0).round();
                    format!("{prompts} prompts of {n} random tokens; the model writes {share} % of the needles")
                });
                shown.note = written;
            }
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            Err(why) => shown.note = Some(why.to_string()),
        },
        Measure::Attribution => {
            let Some(token) = shown.token else {
                return Ok(());
            };
            if let Err(why) = check_linear(model) {
                shown.note = Some(why.to_string());
                return Ok(());
            }
            let asked = Asked {
                position_idx,
                token,
                against: None,
            };
            let found = attribute(ops, model, input, asked, &|_, _| false, pace)?;
            for share in &found.shares {
                let name = match share.of {
                    ShareOf::FeedForward => format!("{} feed-forward", share.place),
                    of => of.label().replace('_', " "),
                };
                match share.of {
                    ShareOf::Head => shown.heads.push((share.place, share.value)),
                    _ => shown.others.push((name, share.value)),
                }
            }
            shown.path = found.path;
        }
        Measure::Contribution => {
            let found = contributions(ops, model, input, pace)?;
            shown.heads = found.iter().map(|one| (one.place, one.total)).collect();
        }
        Measure::Ablation => {
            let wants = |part: Part, _: Place| part == Part::Head;
            let mut ablation = Ablation::plan(model, Replaced::Zero, wants)?;
            let inputs = std::slice::from_ref(input);
            let mut told = |ablation: &Ablation, step: Step| {
                if let Step::Ablated { n_done, n_all } = step {
                    let value = |part: &PartEffect| Some((part.place, part.size()?));
                    shown.heads = ablation.parts.iter().filter_map(value).collect();
                    shown.progress = (n_done, n_all);
                    tell(shown, false);
                }
                ControlFlow::Continue(())
            };
            ablation.run(ops, model, (inputs, None), &mut told, pace)?;
        }
    }
    Ok(())
}

/// Computes the logit lens at a position, and the likeliest token after it.
fn predicted<O: Ops>(
    ops: &O,
    ran: &ModelRun,
    position_idx: usize,
    shown: &mut EffectShown,
    pace: &dyn Pace,
) -> Result<()> {
    let (model, input) = (&*ran.model, &*ran.input);
    attnscope_studies::effect::head_of(model)?;
    let base = Base::run(ops, model, input, &[], &mut |_| {}, pace)?;
    let at = (&[position_idx][..], N_TOP);
    shown.lens = lens(ops, model, (input, &base), at, pace, |_| {})?;
    let last = shown.lens.last().and_then(|row| row.top.first());
    shown.token = last.map(|(id, _)| *id);
    let prompt_form = Tokenizer::open(&model.checkpoint.tokenizer)?;
    let prompt_form = prompt_form.of_target(model.spec.limits());
    let ids = shown.lens.iter().flat_map(|row| {
        let top = row.top.iter().map(|(id, _)| *id);
        top.chain(row.target)
    });
    shown.labels = ids.map(|id| (id, prompt_form.label(id))).collect();
    Ok(())
}
