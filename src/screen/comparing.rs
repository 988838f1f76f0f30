//! Comparison of A and B in lockstep: requests it from the worker when a panel shows it.

use attnscope_compare::Comparison;
use attnscope_forward::Hook;
use attnscope_worker::Pair;

use super::state::app::App;
use super::state::msg::Effect;
use super::state::panel::Panel;
use super::state::run::RunState;
use super::state::runs::Comparing;
use super::state::scene::compared::has_hooks;

impl App {
    /// Requests the comparison once both runs have finished and a panel shows it.
    pub(super) fn ask_for_comparison(&mut self, effects: &mut Vec<Effect>) {
        let scene = self.scene();
        let is_shown = match self.panel {
            Panel::Compare => true,
            Panel::Tokens | Panel::Model => scene.shows_difference(),
            _ => false,
        };
        let Some([a, b]) = scene.both_runs().filter(|_| is_shown) else {
            return;
        };
        let can = [a, b]
            .into_iter()
            .all(|run| matches!(run.state, RunState::Done { .. }) && has_hooks(run));
        let pair = (a.id, b.id);
        if let Some(second) = self.runs.b.as_mut().filter(|_| can)
            && matches!(second.comparing, Comparing::No)
        {
            second.comparing = Comparing::Going(None);
            effects.push(Effect::Compare(pair));
        }
    }

    /// Selects the first place at which A and B differ, as far as the hook has one.
    pub(super) fn go_to_first(&mut self) {
        let first = self
            .scene()
            .comparison()
            .and_then(Comparison::first)
            .cloned();
        let Some((first, stack)) = first.and_then(|first| Some((first.clone(), first.stack?)))
        else {
            self.notice = Some("what differs first belongs to no head".to_owned());
            return;
        };
        let Some(layer_idx) = first.layer_idx else {
            self.notice = Some(format!("{} belongs to no layer", first.name()));
            return;
        };
        self.select_grid(stack);
        self.selection.layer_idx = layer_idx;
        if let Some(head_idx) = first.head_idx {
            // Keys and values are indexed by KV head: select the first query head that reads it.
            let per_kv = match (first.hook, self.scene().attention()) {
                (Hook::K | Hook::V | Hook::RotK, Some(spec)) => {
                    spec.n_heads / spec.n_kv_heads.max(1)
                }
                _ => 1,
            };
            self.selection.head_idx = head_idx * per_kv.max(1);
        }
        self.step_layer(0);
        self.selection.query_idx = first.query_idx.unwrap_or(self.selection.query_idx);
        self.selection.key_idx = first.key_idx.unwrap_or(self.selection.key_idx);
        self.select_grid(stack);
    }

    /// Takes in a progress or result message of a comparison, unless its runs are no longer on screen.
    pub(super) fn take_comparing(&mut self, pair: Pair, told: Comparing) {
        let is_current = self.runs.both().is_some_and(|[a, b]| (a.id, b.id) == pair);
        if let Some(second) = self.runs.b.as_mut().filter(|_| is_current) {
            second.comparing = told;
        }
    }
}
