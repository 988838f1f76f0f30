//! What the heads of a run do, by one measure: values are told as they are computed, and the newest question wins.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_prompt::Tokenizer;
use attnscope_spec::Place;
use attnscope_studies::effect::{
    Ablation, Asked, Base, LensRow, Part, PartEffect, Replaced, RetrievalHead, ShareOf, Step,
    attribute, check_linear, circuits, contributions, lens, retrieval,
};

use super::event::Event;
use super::run_id::RunId;
use super::{ModelRun, Sink};

/// Likeliest tokens that are named at each depth.
const N_TOP: usize = 3;

/// What is measured of every head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Measure {
    /// What a head adds to the logit of the likeliest token after the selected query.
    #[default]
    Attribution,
    /// How much the loss grows when a head is zeroed.
    Ablation,
    /// The length of what a head adds, of all that it carries.
    Contribution,
    /// Whether a head raises the tokens that it looks at, by its weights.
    Copying,
    /// Whether a head copies from far away, on random tokens.
    Retrieval,
}

impl Measure {
    pub const ALL: [Self; 5] = [
        Self::Attribution,
        Self::Ablation,
        Self::Contribution,
        Self::Copying,
        Self::Retrieval,
    ];

    /// What it is called.
    pub fn title(self) -> &'static str {
        match self {
            Self::Attribution => "attribution",
            Self::Ablation => "ablation",
            Self::Contribution => "contribution",
            Self::Copying => "copying",
            Self::Retrieval => "retrieval",
        }
    }

    /// What its numbers are.
    pub fn about(self) -> &'static str {
        match self {
            Self::Attribution => "what each head adds to the logit of the likeliest next token",
            Self::Ablation => {
                "change of the loss (KL without one) when the head is zeroed, in nats"
            }
            Self::Contribution => "mean Σ α·‖v W_O‖: how much each head carries",
            Self::Copying => "Σ Re λ / Σ |λ| of W_E W_V W_O W_U: 1 raises what it looks at",
            Self::Retrieval => {
                "share of a needle's tokens that a head looks at while they are written"
            }
        }
    }

    /// Whether it is told from predictions, or from the weights that make them.
    pub fn needs_predictions(self) -> bool {
        self != Self::Contribution
    }

    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|measure| *measure == self);
        Self::ALL[(at.unwrap_or(0) + 1) % Self::ALL.len()]
    }
}

/// What is asked: a run, a measure, and the position that logits are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectQuery {
    pub run: RunId,
    pub measure: Measure,
    pub position_idx: usize,
}

/// What is known so far.
#[derive(Debug, Clone, Default)]
pub struct EffectShown {
    /// Heads whose values have come.
    pub heads: Vec<(Place, f64)>,
    /// Other parts: what they are called, and their values.
    pub others: Vec<(String, f64)>,
    /// The lens at the position, by depth.
    pub lens: Vec<LensRow>,
    /// The logit so far, by depth; empty where logits are no sum of shares.
    pub path: Vec<f64>,
    /// The token whose logit is looked at.
    pub token: Option<u32>,
    pub labels: BTreeMap<u32, String>,
    /// How many of all values have come.
    pub progress: (usize, usize),
    /// Why there is no value, or what is to be known of them.
    pub note: Option<String>,
}

/// Measures, and tells what is known as it comes.
///
/// # Errors
/// When the model cannot be run, or a newer question came.
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

/// Fills in the values of heads, and tells of those that come one after another.
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

/// The lens at a position, and the likeliest token after it.
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
    let reading = Tokenizer::open(&model.checkpoint.tokenizer)?;
    let reading = reading.of_target(model.spec.limits());
    let ids = shown.lens.iter().flat_map(|row| {
        let top = row.top.iter().map(|(id, _)| *id);
        top.chain(row.target)
    });
    shown.labels = ids.map(|id| (id, reading.label(id))).collect();
    Ok(())
}
