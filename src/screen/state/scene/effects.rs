//! Effects of heads.

use attnscope_spec::Place;
use attnscope_studies::effect::head_of;
use attnscope_worker::{EffectQuery, EffectShown, Measure};

use super::Scene;
use crate::state::panel::Panel;

impl<'a> Scene<'a> {
    /// The request for what the Effect panel shows.
    pub(crate) fn effect_wanted(self) -> Option<EffectQuery> {
        let run = self.run()?;
        run.subject.model()?;
        Some(EffectQuery {
            run: run.id,
            measure: self.effect_measure(),
            position_idx: self.selection.query_idx,
        })
    }

    /// Why the model has no predictions to measure effects on.
    pub fn no_predictions(self) -> Option<String> {
        let model = self.subject()?.model()?;
        head_of(model).err().map(|why| why.to_string())
    }

    /// The measure shown: the chosen one, or the one that works without predictions.
    pub fn effect_measure(self) -> Measure {
        let chosen = self.effect_view.measure;
        if chosen.needs_predictions() && self.no_predictions().is_some() {
            Measure::Contribution
        } else {
            chosen
        }
    }

    /// The results of that request so far.
    pub fn effects(self) -> Option<&'a EffectShown> {
        let wanted = self.effect_wanted()?;
        let (of, shown) = self.state().effect_view.shown.as_ref()?;
        (*of == wanted).then_some(shown)
    }

    /// Whether more values are to come.
    pub fn awaits_effects(self) -> bool {
        let view = &self.state().effect_view;
        let is_here = self.panel == Panel::Effect && view.awaited == self.effect_wanted();
        is_here && !view.is_over && view.awaited.is_some()
    }

    /// Heads with values, by decreasing magnitude.
    pub fn ranked_effects(self) -> Vec<(Place, f64)> {
        let mut heads = self
            .effects()
            .map_or(Vec::new(), |shown| shown.heads.clone());
        heads.sort_by(|(_, a), (_, b)| b.abs().total_cmp(&a.abs()));
        heads
    }

    /// The selected head as a place.
    pub fn selected_place(self) -> Place {
        let at = self.selection;
        Place::layer(at.stack, at.layer_idx).head(at.head_idx)
    }
}
