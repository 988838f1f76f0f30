//! Sweeps of the selected head's scores: requested while the panel is open, and shown only for the requested head and query.

use std::sync::Arc;

use attnscope_worker::{LayerSweepQuery, SweepOf, SweepQuery, Swept};

use super::panels::sweep::marks;
use super::state::app::App;
use super::state::msg::Effect;
use super::state::panel::Panel;

impl App {
    /// Requests the sweep of the selected row, once the head's scores are there.
    pub(super) fn ask_for_sweep(&mut self, effects: &mut Vec<Effect>) {
        if self.panel != Panel::Sweep
            || self.scene().swept().is_some()
            || self.scene().no_sweep().is_some()
        {
            return;
        }
        let (Some(of), Some(detail)) = (
            self.scene().sweep_wanted(),
            self.scene().detail_of_selection(),
        ) else {
            return;
        };
        if self.sweep.awaited == Some(of) {
            return;
        }
        self.sweep.awaited = Some(of);
        let marks = marks(self.scene())
            .into_iter()
            .map(|mark| mark.at)
            .collect();
        effects.push(Effect::Sweep(SweepQuery { of, detail, marks }));
    }

    /// Requests the sweep of the layer, once the run has reached it.
    pub(super) fn ask_for_layer_sweep(&mut self, effects: &mut Vec<Effect>) {
        let is_due = self.panel == Panel::Sweep && self.scene().awaits_layer_sweep();
        if !is_due || self.scene().no_sweep().is_some() || self.scene().swept().is_none() {
            return;
        }
        let Some(of) = self.scene().layer_wanted() else {
            return;
        };
        if self.sweep.awaited_layer == Some(of) {
            return;
        }
        self.sweep.awaited_layer = Some(of);
        let marks = marks(self.scene())
            .into_iter()
            .map(|mark| mark.at)
            .collect();
        let n_heads = self.scene().n_heads();
        effects.push(Effect::SweepLayer(LayerSweepQuery { of, n_heads, marks }));
    }

    pub(super) fn take_sweep(&mut self, of: SweepOf, swept: Arc<Swept>) {
        self.sweep.swept = Some((of, swept));
    }
}
