//! Sweeping the selected head's scores: asked of the worker while the panel is open, and shown for the head and query that it
//! was asked for.

use std::sync::Arc;

use attnscope_compute::attention::SoftmaxAxis;
use attnscope_run::SweepPoint;
use attnscope_worker::{LayerSweepOf, LayerSweepQuery, SweepOf, SweepQuery, Swept};

use super::app::{App, Effect};
use super::panel::Panel;
use super::panels::sweep::marks;
use super::scene::Scene;

impl<'a> Scene<'a> {
    fn sweep_wanted(self) -> Option<SweepOf> {
        let run = self.run()?.id;
        Some((run, self.wanted_head(), self.selection.query_idx))
    }

    /// The sweep of what is selected, once it is there.
    pub fn swept(self) -> Option<&'a Swept> {
        let wanted = self.sweep_wanted()?;
        let (of, swept) = self.state().sweep.swept.as_ref()?;
        (*of == wanted).then_some(swept)
    }

    /// Why what is selected has no sweep.
    pub fn no_sweep(self) -> Option<&'static str> {
        let axis = self.attention().map(|attention| attention.softmax_axis);
        if axis == Some(SoftmaxAxis::Queries) {
            return Some("its softmax runs over queries: no row of scores has a softmax to sweep");
        }
        let detail = self.shown_detail()?;
        (detail.pooling() > 1)
            .then_some("its scores are pooled on screen: attnscope sweep CHECKPOINT --layer L reads all of them")
    }

    /// The layer whose heads are to be swept together.
    fn layer_wanted(self) -> Option<LayerSweepOf> {
        let run = self.run()?.id;
        let at = self.selection;
        (self.sweep.wants_layer).then_some((run, at.stack, at.layer_idx))
    }

    /// The sweep of all heads of the selected layer, once it is there.
    pub fn swept_layer(self) -> Option<&'a [SweepPoint]> {
        let wanted = self.layer_wanted()?;
        let (of, points) = self.state().sweep.layer.as_ref()?;
        (*of == wanted).then_some(points)
    }

    /// Whether it is wanted and not there.
    pub fn awaits_layer_sweep(self) -> bool {
        self.layer_wanted().is_some() && self.swept_layer().is_none()
    }
}

impl App {
    /// Asks for the sweep of the selected row, once the head's scores are there.
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

    /// Asks for the sweep of the layer, once its run has come so far.
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
