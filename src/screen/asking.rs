//! Requests to the worker for what panels show of a tensor and of a head.

use super::state::app::App;
use super::state::msg::Effect;
use super::state::panel::Panel;
use super::state::runs::Shows;
use super::state::scene::Scene;

impl App {
    pub(super) fn ask_for_tensor(&mut self, effects: &mut Vec<Effect>) {
        let Some(subject) = self.scene().subject().cloned() else {
            return;
        };
        let nth = self.model_view.tensor_idx;
        if let Some((name, _)) = subject.tensors().iter().nth(nth) {
            self.model_view.stats.insert(name.to_owned(), None);
            effects.push(Effect::Tensor(name.to_owned()));
        }
    }

    /// Requests the selected head of a run in full, once its layer is there and a panel shows it.
    pub(super) fn ask_for_head(&mut self, shows: Shows, effects: &mut Vec<Effect>) {
        let scene = Scene::of(self, shows);
        let wanted = scene.wanted_head();
        // The Overview panel's small map needs only stored data, except for the difference of two runs.
        let shows_change = self.panel == Panel::Overview && self.scene().shows_difference();
        let is_due = (self.panel.shows_head() || shows_change) && scene.layer().is_some();
        if !is_due || scene.shown_detail().is_some() {
            return;
        }
        let run = self.runs.shown_mut(shows);
        if let Some(run) = run.filter(|run| run.awaited != Some(wanted)) {
            run.awaited = Some(wanted);
            let id = run.id;
            effects.push(Effect::LookAt(id, wanted));
            // Requests for the other run are no longer answered.
            self.runs.others_than(id).for_each(|run| run.awaited = None);
        }
    }
}
