//! Sweeps of the selected head and layer.

use attnscope_compute::attention::SoftmaxAxis;
use attnscope_run::{Ability, SweepPoint};
use attnscope_worker::{LayerSweepOf, SweepOf, Swept};

use super::Scene;

impl<'a> Scene<'a> {
    /// The row whose sweep is requested.
    pub(crate) fn sweep_wanted(self) -> Option<SweepOf> {
        let run = self.run()?.id;
        Some((run, self.wanted_head(), self.selection.query_idx))
    }

    /// The sweep of the selected row, once it is there.
    pub fn swept(self) -> Option<&'a Swept> {
        let wanted = self.sweep_wanted()?;
        let (of, swept) = self.state().sweep.swept.as_ref()?;
        (*of == wanted).then_some(swept)
    }

    /// Why the selected row has no sweep.
    pub fn no_sweep(self) -> Option<&'static str> {
        let axis = self.attention().map(|attention| attention.softmax_axis);
        if axis.is_some_and(|axis| axis != SoftmaxAxis::Keys) {
            return Some(if self.accepts_what_ifs() {
                "its softmax does not run over keys: no row of scores has a softmax to sweep. With w softmax_axis=keys it has one; v \
                 then shows B"
            } else {
                "its softmax does not run over keys: no row of scores has a softmax to sweep"
            });
        }
        let detail = self.shown_detail()?;
        if let Some(why) = self.no_scores() {
            return Some(why);
        }
        (detail.pooling() > 1)
            .then_some("its scores are pooled on screen: attnscope sweep CHECKPOINT --layer L reads all of them")
    }

    /// Why the selected head has no scores to draw or to sweep.
    pub fn no_scores(self) -> Option<&'static str> {
        let has_none = self.shown_detail()?.histogram.n == 0;
        let is_model = self.subject()?.model().is_some();
        has_none.then_some(if is_model {
            "no score of this head is finite"
        } else {
            "this recording holds no scores of this head"
        })
    }

    /// Whether what-ifs can be made to what is open.
    pub fn accepts_what_ifs(self) -> bool {
        let subject = self.subject();
        subject.is_some_and(|subject| subject.why_not(Ability::WhatIf).is_none())
    }

    /// The layer whose heads are requested to be swept together.
    pub(crate) fn layer_wanted(self) -> Option<LayerSweepOf> {
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

    /// Whether the layer's sweep is requested and has not arrived.
    pub fn awaits_layer_sweep(self) -> bool {
        self.layer_wanted().is_some() && self.swept_layer().is_none()
    }
}
