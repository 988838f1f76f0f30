//! Effects of heads as extra columns of `heads`: the requested measures of `attnscope effect`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use anyhow::Result;
use attnscope_checks::stats::{HeadReport, Stat};
use attnscope_compute::error::Error;
use attnscope_compute::on_device;
use attnscope_forward::Input;
use attnscope_prompt::Prompt;
use attnscope_run::input_of;
use attnscope_spec::{Model, Place};
use attnscope_studies::effect::{
    Ablation, Asked, Base, Part, Replaced, ShareOf, attribute, check_linear, circuits, lens,
    retrieval,
};
use clap::ValueEnum;

use super::progress::note;
use super::session::Session;

/// A measure of what heads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum HeadEffect {
    /// Change of the loss when the head is zeroed: one partial run per head
    Ablation,
    /// What the head adds to the logit of the likeliest last token: one run
    Attribution,
    /// Attention weighed by the length of what it carries: costs nothing
    Contribution,
    /// Whether the head raises what it looks at, from weights alone
    Copying,
    /// Copying of random needles from far away: 20 runs on random tokens
    Retrieval,
}

const CONTRIBUTION: [Stat; 3] = [
    Stat::ContributionFirst,
    Stat::ContributionEntropy,
    Stat::ContributionTotal,
];

impl HeadEffect {
    /// Returns the columns of the measure.
    pub fn columns(self) -> Vec<&'static str> {
        match self {
            Self::Ablation => vec!["loss_change", "kl"],
            Self::Attribution => vec!["share"],
            Self::Contribution => CONTRIBUTION.map(Stat::id).to_vec(),
            Self::Copying => vec!["copying"],
            Self::Retrieval => vec!["retrieval", "looks", "streaming"],
        }
    }
}

/// Values with their place and column.
type Values = Vec<(Place, &'static str, f64)>;

/// Results of measures that do not depend on a prompt, and of the last prompt's measures.
pub struct HeadEffects<'a> {
    asked: &'a [HeadEffect],
    session: &'a Session<'a>,
    model: &'a Model,
    of_model: Values,
    of_prompt: Values,
}

impl<'a> HeadEffects<'a> {
    /// Runs the measures that do not depend on a prompt. If one does not apply to the model, a note says so once, and its columns
    /// stay empty.
    ///
    /// # Errors
    /// When the model cannot be run.
    pub fn begin(
        asked: &'a [HeadEffect],
        session: &'a Session<'a>,
        model: &'a Model,
    ) -> Result<Self> {
        let mut effects = Self {
            asked,
            session,
            model,
            of_model: Vec::new(),
            of_prompt: Vec::new(),
        };
        if effects.asks(HeadEffect::Copying)
            && let Some(found) = possible(circuits(model, &|_| false, &mut |_, _| {}, &|| false))?
        {
            let heads = found.heads.iter();
            let copying = heads.filter_map(|head| Some((head.place, "copying", head.copying?)));
            effects.of_model.extend(copying);
        }
        if effects.asks(HeadEffect::Retrieval) {
            let found = on_device!(&session.compute, ops => retrieval(ops, model, &|| false));
            for head in possible(found)?.into_iter().flat_map(|found| found.heads) {
                effects.of_model.extend([
                    (head.place, "retrieval", head.retrieval),
                    (head.place, "looks", head.looks),
                    (head.place, "streaming", head.streaming),
                ]);
            }
        }
        Ok(effects)
    }

    fn asks(&self, effect: HeadEffect) -> bool {
        self.asked.contains(&effect)
    }

    /// Returns the columns of all requested measures.
    pub fn columns(&self) -> Vec<&'static str> {
        self.asked.iter().flat_map(|one| one.columns()).collect()
    }

    /// Runs the measures that depend on a prompt.
    ///
    /// # Errors
    /// When the model cannot be run.
    pub fn run(&mut self, prompt: &Prompt) -> Result<()> {
        self.of_prompt.clear();
        let input = input_of(prompt);
        if self.asks(HeadEffect::Ablation)
            && let Some(ablation) = possible(self.ablated(&input))?
        {
            for effect in &ablation.parts {
                let mean = |estimate: Option<attnscope_studies::effect::Estimate>| {
                    estimate.map_or(f64::NAN, |estimate| estimate.mean)
                };
                self.of_prompt.extend([
                    (effect.place, "loss_change", mean(effect.loss())),
                    (effect.place, "kl", mean(effect.kl())),
                ]);
            }
        }
        if self.asks(HeadEffect::Attribution)
            && let Some(shares) = possible(self.attributed(&input))?
        {
            self.of_prompt.extend(shares);
        }
        Ok(())
    }

    fn ablated(&self, input: &Input) -> attnscope_compute::error::Result<Ablation> {
        let wants = |part: Part, _: Place| part == Part::Head;
        let mut ablation = Ablation::plan(self.model, Replaced::Zero, wants)?;
        let inputs = std::slice::from_ref(input);
        let mut tell = |_: &Ablation, _| ControlFlow::Continue(());
        on_device!(&self.session.compute, ops => {
            ablation.run(ops, self.model, (inputs, None), &mut tell, &|| false)
        })?;
        Ok(ablation)
    }

    /// Returns shares of the logit of the likeliest token at the last real position.
    fn attributed(&self, input: &Input) -> attnscope_compute::error::Result<Values> {
        check_linear(self.model)?;
        let sequence = &input.sequence;
        let last = (0..sequence.len()).rfind(|idx| sequence.is_real(*idx));
        let missing = || Error::Prompt("the prompt has no token".to_owned());
        let position_idx = last.ok_or_else(missing)?;
        on_device!(&self.session.compute, ops => {
            let go_on = || false;
            let base = Base::run(ops, self.model, input, &[], &mut |_| {}, &go_on)?;
            let rows = lens(ops, self.model, (input, &base), (&[position_idx], 1), &go_on, |_| {})?;
            let top = rows.last().and_then(|row| row.top.first());
            let (token, _) = *top.ok_or_else(missing)?;
            let asked = Asked { position_idx, token, against: None };
            let found = attribute(ops, self.model, input, asked, &|_, _| false, &go_on)?;
            let heads = found.shares.into_iter().filter(|share| share.of == ShareOf::Head);
            Ok(heads.map(|share| (share.place, "share", share.value)).collect())
        })
    }

    /// Returns the values of one head.
    pub fn of(&self, place: Place, head: &HeadReport) -> BTreeMap<&'static str, f64> {
        let mut found = BTreeMap::new();
        if self.asks(HeadEffect::Contribution) {
            let values = CONTRIBUTION.map(|stat| (stat.id(), head.stats.of(stat)));
            found.extend(values);
        }
        let values = self.of_model.iter().chain(&self.of_prompt);
        let own = values.filter(|(at, ..)| at.is_same_head(&place));
        found.extend(own.map(|(_, column, value)| (*column, *value)));
        found
    }
}

/// Returns a result, or `None` with a note if the measure does not apply to the model.
fn possible<T>(found: attnscope_compute::error::Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(why @ (Error::Setting(_) | Error::Prompt(_))) => {
            note(&format!("--effect: {why}; its columns stay empty"));
            Ok(None)
        }
        Err(e) => Err(e.into()),
    }
}
