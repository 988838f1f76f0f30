//! Heads over many prompts.

use attnscope_checks::stats::{STATISTICS, Stat};
use attnscope_studies::over_prompts::{Excited, HeadOver, OverPrompts};

use super::Scene;

impl<'a> Scene<'a> {
    /// What is known over the prompts so far.
    pub fn over_prompts(self) -> Option<&'a OverPrompts> {
        self.state().prompts_view.over.as_deref()
    }

    /// The selected head over the prompts.
    pub fn head_over_prompts(self) -> Option<&'a HeadOver> {
        let at = self.selection;
        self.over_prompts()?
            .head(at.stack, at.layer_idx, at.head_idx)
    }

    /// The statistics of the horizontal and the vertical axis: two different ones that heads have.
    pub fn scatter_axes(self) -> [usize; 2] {
        let is_per_head = |idx: &usize| {
            STATISTICS
                .get(*idx)
                .is_some_and(|statistic| statistic.is_per_head())
        };
        let usual = [Stat::EntropyRelative, Stat::FirstKeyMass].map(Stat::idx);
        let x = Some(self.statistic_idx).filter(is_per_head);
        let x = x.unwrap_or(usual[0]);
        let y = self.prompts_view.other_idx.filter(|idx| *idx != x);
        let y = y.or_else(|| usual.into_iter().rev().find(|idx| *idx != x));
        [x, y.unwrap_or(usual[1])]
    }

    /// The id of a prompt of the set.
    pub fn prompt_id(self, prompt_idx: usize) -> String {
        let query = self.state().prompts_view.asked.as_ref();
        let found = query.and_then(|query| query.set.get(prompt_idx));
        found.map_or_else(String::new, |(id, _)| id.clone())
    }

    /// The selected place among those that excite the selected head, with its rank from 0.
    pub fn selected_excited(self) -> Option<(usize, &'a Excited)> {
        let places = &self.head_over_prompts()?.excited;
        let nth = self
            .prompts_view
            .place_idx
            .min(places.len().checked_sub(1)?);
        places.get(nth).map(|place| (nth, place))
    }
}
