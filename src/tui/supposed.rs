//! A second run beside the first: asking for it, showing it, and what it is less the first.

use std::sync::Arc;

use super::app::{App, Effect};
use super::run::{Run, RunState};
use super::runs::{Second, Shows, Way};
use super::scene::Scene;
use crate::worker::RunId;
use attnscope_engine::analysis::{HeadQuery, Pyramid, Subject, WhatIf};
use attnscope_engine::attention::Pooled;

impl App {
    /// Supposes something more; it runs once the run on screen is over.
    pub fn suppose(&mut self, what_if: WhatIf) {
        let mut what_ifs = self.drop_supposed();
        // The newest of two that contradict each other is what is meant.
        what_ifs.retain(|known| !known.contradicts(&what_if));
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
        self.runs.b = Some(Second::new(Way::WhatIf(what_ifs)));
        self.runs.shows = Shows::B;
    }

    /// Back to A alone; gives what was supposed.
    pub fn drop_supposed(&mut self) -> Vec<WhatIf> {
        self.runs.shows = Shows::A;
        match self.runs.b.take().map(|second| second.way) {
            Some(Way::WhatIf(what_ifs)) => what_ifs,
            None => Vec::new(),
        }
    }

    /// Another text begins: what was supposed of the last one is supposed of it too, once it has run.
    pub(super) fn suppose_of_next(&mut self) {
        let what_ifs = self.drop_supposed();
        if !what_ifs.is_empty() {
            self.begin_supposing(what_ifs);
        }
    }

    /// Asks for B, once A is over.
    pub(super) fn ask_supposed(&mut self, effects: &mut Vec<Effect>) {
        let is_over = |run: &Run| matches!(run.state, RunState::Done { .. });
        let is_over = self.runs.a.as_ref().is_some_and(is_over);
        if let Some(second) = self.runs.b.as_mut().filter(|b| !b.is_asked && is_over) {
            second.is_asked = true;
            let Way::WhatIf(what_ifs) = &second.way;
            effects.push(Effect::Suppose(what_ifs.clone()));
        }
    }

    /// B has begun.
    pub(super) fn supposed_started(&mut self, id: RunId, subject: Subject) {
        let Some(a) = &self.runs.a else { return };
        let run = Run::new(id, subject, a.prompt.clone(), a.source.clone(), a.origin);
        if let Some(second) = self.runs.b.as_mut().filter(|second| second.is_asked) {
            second.run = Some(run);
        }
    }

    /// B could not be: A is shown alone. Gives why, in words of the screen.
    pub(super) fn supposed_refused(&mut self, reason: String) -> String {
        let awaits = |second: &Second| second.is_asked && second.run.is_none();
        if self.runs.b.as_ref().is_some_and(awaits) {
            self.drop_supposed();
        }
        // On screen it was no flag.
        match reason.strip_prefix("--what-if ") {
            Some(reason) => reason.to_owned(),
            None => reason,
        }
    }

    /// Shows A, B or the difference, where there is a B.
    pub fn show_side(&mut self, side: Shows) {
        if self.runs.b.is_some() {
            self.runs.shows = side;
        }
    }

    /// The next side in turn.
    pub fn next_side(&mut self) {
        self.show_side(match self.runs.shows {
            Shows::A => Shows::B,
            Shows::B => Shows::Difference,
            Shows::Difference => Shows::A,
        });
    }

    /// Asks for the selected head of the run that is not shown, where both are looked at; and subtracts once both are there.
    pub(super) fn ask_both_heads(&mut self, effects: &mut Vec<Effect>) {
        let scene = self.scene();
        let compares = scene.shows_difference() || self.panel.compares();
        // One after the other: of two questions about heads, the newer one stands.
        if !compares || scene.both_runs().is_none() || scene.shown_detail().is_none() {
            return;
        }
        let other = match self.runs.shows {
            Shows::A => Shows::B,
            Shows::B | Shows::Difference => Shows::A,
        };
        self.ask_for_head(other, effects);
        if self.scene().difference().is_some() {
            return;
        }
        let computed = self.scene().subtracted();
        if let (Some(second), Some(map)) = (&mut self.runs.b, computed) {
            second.difference = Some(map);
        }
    }
}

impl Scene<'_> {
    /// The selected head's map of B less A's, with what it is of; `None` until both are there.
    fn subtracted(self) -> Option<(HeadQuery, bool, Arc<Pyramid>)> {
        let [a, b] = self.both_details()?;
        let is_scores = self.head_view.shows_scores;
        let map = if is_scores {
            less(b.scores.finest(), a.scores.finest())
        } else {
            less(b.pattern.finest(), a.pattern.finest())
        };
        Some((self.wanted_head(), is_scores, Arc::new(map)))
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
