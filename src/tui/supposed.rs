//! Another attention beside the one of the checkpoint: what is supposed, both runs, and which of them the panels show.

use std::sync::Arc;

use super::app::{App, Effect};
use super::full_part::Wanted;
use super::run_view::{RunState, RunView};
use crate::worker::RunId;
use attnscope_engine::analysis::{HeadDetail, HeadQuery, PartDetail, Pyramid, WhatIf};
use attnscope_engine::attention::Pooled;
use attnscope_engine::model::{Model, Stack};
use attnscope_engine::stats::LayerReport;

/// What panels show while something is supposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The checkpoint as it is.
    Before,
    /// With the attention that is supposed.
    After,
    /// What changed, where it is a number or a map; elsewhere as after.
    Difference,
}

impl Side {
    pub fn label(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
            Self::Difference => "difference",
        }
    }
}

/// A run with what was computed of it: all that a panel draws from.
#[derive(Debug, Default)]
pub struct Half {
    model: Option<Arc<Model>>,
    run: Option<RunView>,
    detail: Option<(HeadQuery, Arc<HeadDetail>)>,
    awaited: Option<HeadQuery>,
    part: Option<(HeadQuery, Arc<PartDetail>)>,
    awaited_part: Option<Wanted>,
}

/// What is supposed, and the half of the comparison that panels do not show.
#[derive(Debug)]
pub struct Supposed {
    pub what_ifs: Vec<WhatIf>,
    pub side: Side,
    other: Option<Half>,
    is_asked: bool,
    /// The selected head's map after, less the one before; of the scores where they are shown.
    difference: Option<(HeadQuery, bool, Arc<Pyramid>)>,
}

impl Supposed {
    /// As a person wrote it.
    pub fn words(&self) -> String {
        let words: Vec<String> = self.what_ifs.iter().map(WhatIf::to_string).collect();
        words.join(", ")
    }
}

impl App {
    /// Supposes something more; it runs once the run on screen is over.
    pub fn suppose(&mut self, what_if: WhatIf) {
        let mut what_ifs = self.drop_supposed();
        what_ifs.push(what_if);
        self.begin_supposing(what_ifs);
    }

    /// Takes the last what-if back.
    pub fn suppose_less(&mut self) {
        let mut what_ifs = self.drop_supposed();
        what_ifs.pop();
        if !what_ifs.is_empty() {
            self.begin_supposing(what_ifs);
        }
    }

    pub(super) fn begin_supposing(&mut self, what_ifs: Vec<WhatIf>) {
        self.supposed = Some(Supposed {
            what_ifs,
            side: Side::After,
            other: None,
            is_asked: false,
            difference: None,
        });
    }

    /// Back to the checkpoint as it is; gives what was supposed.
    pub fn drop_supposed(&mut self) -> Vec<WhatIf> {
        self.show_side(Side::Before);
        let supposed = self.supposed.take();
        supposed.map_or(Vec::new(), |supposed| supposed.what_ifs)
    }

    /// Another text begins: what was supposed of the last one is supposed of it too, once it has run.
    pub(super) fn suppose_of_next(&mut self) {
        let what_ifs = self.drop_supposed();
        if !what_ifs.is_empty() {
            self.begin_supposing(what_ifs);
        }
    }

    /// Asks for the run with what is supposed, once the other one is over.
    pub(super) fn ask_supposed(&mut self, effects: &mut Vec<Effect>) {
        let is_over = |run: &RunView| matches!(run.state, RunState::Done { .. });
        let is_over = self.run.as_ref().is_some_and(is_over);
        if let Some(supposed) = self.supposed.as_mut().filter(|s| !s.is_asked && is_over) {
            supposed.is_asked = true;
            effects.push(Effect::Suppose(supposed.what_ifs.clone()));
        }
    }

    /// The run with what is supposed has begun.
    pub(super) fn supposed_started(&mut self, id: RunId, model: Arc<Model>) {
        let wanted = self.supposed.as_ref().map(|supposed| supposed.side);
        self.show_side(Side::Before);
        let Some(supposed) = self.supposed.as_mut().filter(|s| s.is_asked) else {
            return;
        };
        let Some(run) = &self.run else { return };
        let run = RunView::new(id, run.prompt.clone(), run.source.clone(), run.origin);
        supposed.other = Some(Half {
            model: Some(model),
            run: Some(run),
            ..Half::default()
        });
        supposed.side = Side::Before;
        self.show_side(wanted.unwrap_or(Side::After));
    }

    /// It could not be: the checkpoint is shown as it is. Gives why, in words of the screen.
    pub(super) fn supposed_refused(&mut self, reason: String) -> String {
        if self
            .supposed
            .as_ref()
            .is_some_and(|s| s.is_asked && s.other.is_none())
        {
            self.supposed = None;
        }
        // On screen it was no flag.
        match reason.strip_prefix("--what-if ") {
            Some(reason) => reason.to_owned(),
            None => reason,
        }
    }

    /// Shows one side of the comparison.
    pub fn show_side(&mut self, side: Side) {
        let Some(supposed) = &mut self.supposed else {
            return;
        };
        let shows_before = |side: Side| side == Side::Before;
        if supposed.other.is_some() && shows_before(supposed.side) != shows_before(side) {
            self.swap_halves();
        }
        if let Some(supposed) = &mut self.supposed {
            supposed.side = side;
        }
    }

    /// The next side in turn.
    pub fn next_side(&mut self) {
        let next = match self.supposed.as_ref().map(|supposed| supposed.side) {
            Some(Side::After) => Side::Difference,
            Some(Side::Difference) => Side::Before,
            _ => Side::After,
        };
        self.show_side(next);
    }

    fn swap_halves(&mut self) {
        let Some(half) = self.supposed.as_mut().and_then(|s| s.other.as_mut()) else {
            return;
        };
        std::mem::swap(&mut self.model, &mut half.model);
        std::mem::swap(&mut self.run, &mut half.run);
        std::mem::swap(&mut self.detail, &mut half.detail);
        std::mem::swap(&mut self.awaited, &mut half.awaited);
        std::mem::swap(&mut self.part, &mut half.part);
        std::mem::swap(&mut self.awaited_part, &mut half.awaited_part);
    }

    /// Does something to the half that a run belongs to, shown or not; `false` where it belongs to none.
    pub(super) fn with_half_of(&mut self, run: RunId, act: impl FnOnce(&mut Self)) -> bool {
        let is_of = |shown: Option<&RunView>| shown.is_some_and(|shown| shown.id == run);
        if is_of(self.run.as_ref()) {
            act(self);
            return true;
        }
        let other = self.supposed.as_ref().and_then(|s| s.other.as_ref());
        if !is_of(other.and_then(|half| half.run.as_ref())) {
            return false;
        }
        self.swap_halves();
        act(self);
        self.swap_halves();
        true
    }

    /// Both runs, before and after, where there are two.
    pub fn both_runs(&self) -> Option<[&RunView; 2]> {
        let supposed = self.supposed.as_ref()?;
        let (shown, other) = (self.run.as_ref()?, supposed.other.as_ref()?.run.as_ref()?);
        Some(match supposed.side {
            Side::Before => [shown, other],
            Side::After | Side::Difference => [other, shown],
        })
    }

    /// The selected head at full resolution, before and after, as far as both are there.
    pub fn both_details(&self) -> Option<[&HeadDetail; 2]> {
        let supposed = self.supposed.as_ref()?;
        let wanted = self.wanted_head();
        let other = supposed.other.as_ref()?.detail.as_ref();
        let other = other.filter(|(query, _)| *query == wanted)?;
        let (shown, other) = (self.shown_detail()?, other.1.as_ref());
        Some(match supposed.side {
            Side::Before => [shown, other],
            Side::After | Side::Difference => [other, shown],
        })
    }

    /// A layer in both runs, as far as both have come.
    pub fn both_layers(&self, grid: Stack, layer_idx: usize) -> Option<[&LayerReport; 2]> {
        let [before, after] = self.both_runs()?.map(|run| {
            let layer = run
                .layers
                .get(&grid)
                .and_then(|layers| layers.get(layer_idx));
            layer.map(Arc::as_ref)
        });
        Some([before?, after?])
    }

    /// What a token that either run predicts reads as.
    pub fn predicted_label(&self, id: u32) -> String {
        let labels = self.both_runs().into_iter().flatten();
        let found = labels.filter_map(|run| match &run.state {
            RunState::Done { labels, .. } => labels.get(&id).cloned(),
            _ => None,
        });
        found.into_iter().next().unwrap_or_else(|| id.to_string())
    }

    /// Whether grids and maps are to show what changed.
    pub fn grid_differs(&self) -> bool {
        self.shows_difference() || (self.panel.compares() && self.both_runs().is_some())
    }

    /// Whether panels are to show what changed.
    pub fn shows_difference(&self) -> bool {
        let side = self.supposed.as_ref().map(|supposed| supposed.side);
        side == Some(Side::Difference) && self.both_runs().is_some()
    }

    /// The selected head's map after less before, as it is shown: scores or pattern.
    pub fn difference(&self) -> Option<&Pyramid> {
        let wanted = (self.wanted_head(), self.head_view.shows_scores);
        let (query, is_scores, map) = self.supposed.as_ref()?.difference.as_ref()?;
        ((*query, *is_scores) == wanted).then_some(map)
    }

    /// The same where the Head panel shows it; single cells of a long head are those of the side that is shown.
    pub fn shown_difference(&self) -> Option<&Pyramid> {
        let differs = self.shows_difference() && !self.shows_part();
        self.difference().filter(|_| differs)
    }

    /// Asks for the selected head of the side that is not shown, where both are looked at; and subtracts once both are there.
    pub(super) fn ask_both_heads(&mut self, effects: &mut Vec<Effect>) {
        let compares = self.shows_difference() || self.panel.compares();
        // One after the other: of two questions about heads, the newer one stands.
        if !compares || self.both_runs().is_none() || self.shown_detail().is_none() {
            return;
        }
        self.swap_halves();
        self.ask_for_head(effects);
        self.swap_halves();
        if self.difference().is_some() {
            return;
        }
        let Some([before, after]) = self.both_details() else {
            return;
        };
        let is_scores = self.head_view.shows_scores;
        let map = match is_scores {
            true => less(after.scores.finest(), before.scores.finest()),
            false => less(after.pattern.finest(), before.pattern.finest()),
        };
        let computed = (self.wanted_head(), is_scores, Arc::new(map));
        if let Some(supposed) = &mut self.supposed {
            supposed.difference = Some(computed);
        }
    }
}

/// One map less another; hidden cells stay hidden where both hide them, and count as 0 where one does.
fn less(after: &Pooled, before: &Pooled) -> Pyramid {
    let of = |value: f32| {
        if value == f32::NEG_INFINITY {
            0.0
        } else {
            value
        }
    };
    let pairs = after.cells.iter().zip(&before.cells);
    let cells = pairs.map(|(after, before)| {
        let are_hidden = *after == f32::NEG_INFINITY && *before == f32::NEG_INFINITY;
        if are_hidden {
            *after
        } else {
            of(*after) - of(*before)
        }
    });
    Pyramid::of_differences(Pooled {
        cells: cells.collect(),
        ..after.clone()
    })
}
