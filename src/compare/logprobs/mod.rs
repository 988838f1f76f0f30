//! Tables of log-probabilities of two programs, with a model as the third side: who departs from it, from which token, and why.
//!
//! All values are in nats. A side is judged on its own tokens: where the two have other ids, that is told first, and each is compared with
//! what the model says of the tokens that it had.

mod between;
mod causes;
mod floor;
mod identified;
mod ids;
mod kinds;
mod reference;
mod scored;
mod side;
mod spending;
mod transformed;
mod tried;

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_run::Progress;
use attnscope_spec::Model;

use self::side::Judge;
use super::noise;

pub use between::{Between, Divergence};
pub use causes::{Cause, Search};
pub use floor::{Floor, Level};
pub use identified::lend_ids;
pub use ids::{IdsApart, apart, paired};
pub use kinds::TokenKind;
pub use reference::{Referee, Reference, can_judge};
pub use scored::{LogProbs, ScoredPrompt, ScoredToken};
pub use side::{First, SideJudgement, TokenGap};

/// The comparison of two tables, or of one with a model.
#[derive(Debug, Clone, PartialEq)]
pub struct LogProbComparison {
    /// Log-probabilities that both sides have of the same tokens; those of the only table where there is one.
    pub n_tokens: usize,
    /// The two tables against each other; `None` where there is one.
    pub between: Option<Between>,
    /// Prompts whose ids differ.
    pub ids: Vec<IdsApart>,
    /// Each table against the model; `None` without one.
    pub sides: [Option<SideJudgement>; 2],
    pub floor: Floor,
}

impl LogProbComparison {
    /// Whether no side departs, no ids differ, and the two agree within the floor.
    pub fn is_same(&self) -> bool {
        let departs = self.sides.iter().flatten().any(|side| side.departs);
        // With a model, each side was judged by its own tokens; two that agree with it agree with each other.
        let is_judged = self.sides.iter().flatten().next().is_some();
        let parts = !is_judged && self.between.as_ref().is_some_and(|both| both.parts);
        self.ids.is_empty() && !departs && !parts
    }
}

impl LogProbComparison {
    /// Compares two tables, or one with a model. `tolerance` is a limit of the mean difference, in nats.
    ///
    /// # Errors
    /// When the model cannot be run on the tokens, or the work is stopped.
    pub fn of<O: Ops>(
        (a, b): (&LogProbs, Option<&LogProbs>),
        referee: Option<&Referee<'_, O>>,
        tolerance: Option<f64>,
        told: &mut dyn FnMut(Telling<'_>),
    ) -> Result<Self> {
        let pairs = b.map(|b| paired(a, b)).unwrap_or_default();
        let ids = pairs.iter().filter_map(|(idx, other)| {
            let b = b?;
            ids::apart(&a.prompts[*idx], &b.prompts[*other])
        });
        let ids = ids.collect();
        let mut floor = Floor::usual(tolerance);
        let mut sides = [None, None];
        if let Some(referee) = referee {
            let mut references: Vec<Reference> = Vec::new();
            for (idx, table) in std::iter::once(a).chain(b).enumerate() {
                let has_same = idx == 1 && b.is_some_and(|b| has_ids_of(a, b));
                references.push(if has_same {
                    references[0].clone()
                } else {
                    referee.ask(table, &mut |prompt_idx, progress| {
                        told(Telling::Asking(&table.prompts[prompt_idx].name, progress));
                    })?
                });
            }
            if references.iter().all(|reference| reference.is_measured) {
                let all = references
                    .iter()
                    .flat_map(|reference| reference.scales.iter());
                floor = Floor::of_scales(
                    all.flat_map(|scales| scales.iter().skip(1).copied()),
                    tolerance,
                );
            }
            for ((idx, table), reference) in
                std::iter::once(a).chain(b).enumerate().zip(&references)
            {
                let judge = Judge {
                    floor: &floor,
                    routes: routes(referee.model),
                    usual_half: reference.usual_half,
                    quantum: table.quantum,
                };
                let mut judged = side::judged(table, reference, &judge);
                if judged.departs {
                    let told = &mut |done, of| told(Telling::Explaining(["A", "B"][idx], done, of));
                    referee.explain((table, reference), &judge, &mut judged, told)?;
                }
                sides[idx] = Some(judged);
            }
        }
        let between = b.and_then(|b| between::between(a, b, &pairs, &floor));
        Ok(Self {
            n_tokens: between.as_ref().map_or(a.n_scored(), |both| both.n_tokens),
            between,
            ids,
            sides,
            floor,
        })
    }
}

/// Progress of a comparison.
#[derive(Debug, Clone, Copy)]
pub enum Telling<'a> {
    /// The model runs a prompt.
    Asking(&'a str, Progress),
    /// Explanations of a side are tried: done, and of how many.
    Explaining(&'a str, usize, usize),
}

/// Whether two tables have the same prompts in the same order.
fn has_ids_of(a: &LogProbs, b: &LogProbs) -> bool {
    let of_b = b.prompts.iter().map(ScoredPrompt::ids);
    a.prompts.len() == b.prompts.len() && a.prompts.iter().map(ScoredPrompt::ids).eq(of_b)
}

/// Whether a model chooses between experts.
fn routes(model: &Model) -> bool {
    let mut stacks = model.spec.stacks.iter();
    stacks.any(|stack| (0..stack.n_layers()).any(|layer_idx| noise::routes(stack, layer_idx)))
}
