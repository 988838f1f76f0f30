//! The sweep of the selected head's scores: asked of the worker when its panel is open, and kept for the head and query it is of.

use std::sync::Arc;

use super::app::{App, Effect, Panel};
use super::panels::sweep::marks;
use crate::attention::SoftmaxAxis;
use crate::worker::{SweepOf, SweepQuery, Swept};

/// The last sweep, and the one that is awaited.
#[derive(Debug, Default)]
pub struct SweepView {
    pub(super) swept: Option<(SweepOf, Arc<Swept>)>,
    awaited: Option<SweepOf>,
}

impl App {
    fn sweep_wanted(&self) -> Option<SweepOf> {
        let run = self.run.as_ref()?.id;
        Some((run, self.wanted_head(), self.selection.query_idx))
    }

    /// The sweep of what is selected, once it is there.
    pub fn swept(&self) -> Option<&Swept> {
        let wanted = self.sweep_wanted()?;
        let (of, swept) = self.sweep.swept.as_ref()?;
        (*of == wanted).then_some(swept)
    }

    /// Why what is selected has no sweep.
    pub fn no_sweep(&self) -> Option<&'static str> {
        let axis = self.attention().map(|attention| attention.softmax_axis);
        if axis == Some(SoftmaxAxis::Queries) {
            return Some(
                "its softmax runs over queries: a row of scores has none of its own to sweep",
            );
        }
        let detail = self.shown_detail()?;
        (detail.pooling() > 1)
            .then_some("its scores are pooled on screen: attnscope sweep CHECKPOINT --layer L reads all of them")
    }

    /// Asks for the sweep of the selected row, once the head's scores are there.
    pub(super) fn ask_for_sweep(&mut self, effects: &mut Vec<Effect>) {
        if self.panel != Panel::Sweep || self.swept().is_some() || self.no_sweep().is_some() {
            return;
        }
        let (Some(of), Some(detail)) = (self.sweep_wanted(), self.detail_of_selection()) else {
            return;
        };
        if self.sweep.awaited == Some(of) {
            return;
        }
        self.sweep.awaited = Some(of);
        let marks = marks(self).into_iter().map(|mark| mark.at).collect();
        effects.push(Effect::Sweep(SweepQuery { of, detail, marks }));
    }

    pub(super) fn take_sweep(&mut self, of: SweepOf, swept: Arc<Swept>) {
        self.sweep.swept = Some((of, swept));
    }
}
