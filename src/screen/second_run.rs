//! A second run B beside A: requests it, shows it and subtracts A from it.

use std::sync::Arc;

use attnscope_compute::attention::Pooled;
use attnscope_prompt::{Prompt, Source};
use attnscope_run::{HeadDetail, HeadMap, HeadQuery, Pyramid, Subject, WhatIf};
use attnscope_worker::{Against, RunId};

use super::state::aligned::Aligned;
use super::state::app::App;
use super::state::msg::Effect;
use super::state::run::{Run, RunState};
use super::state::runs::{Second, SecondRunKind, Shows};
use super::state::scene::Scene;

impl App {
    /// Compares the run on screen with something else, which runs once the run on screen has finished.
    pub fn compare_with(&mut self, against: Against) {
        self.drop_second();
        self.switch_all_off();
        self.begin_second(SecondRunKind::Against(against), Shows::Difference);
    }

    /// Compares with something required: if it cannot be opened, the screen quits.
    pub fn must_compare_with(&mut self, against: Against) {
        self.compare_with(against);
        if let Some(second) = &mut self.runs.b {
            second.is_demanded = true;
        }
    }

    /// Whether the open model lives in another process.
    pub(super) fn is_live(&self) -> bool {
        let kind = self.opened.as_ref().map(Subject::kind);
        kind == Some("live")
    }

    /// Compares the run on screen, as before, with the same text through the code as it is now.
    pub(super) fn reload(&mut self) {
        let is_reloaded = |second: &Second| {
            matches!(&second.way, SecondRunKind::Against(Against::Reload)) && second.run.is_some()
        };
        if self.runs.b.as_ref().is_some_and(is_reloaded) {
            // What was after the last reload is before this one.
            self.runs.a = self.runs.b.take().and_then(|second| second.run);
            self.opened = self.runs.a.as_ref().map(|run| run.subject.clone());
        }
        self.compare_with(Against::Reload);
    }

    /// Runs A's prompt with what-ifs, as B.
    pub(super) fn begin_what_ifs(&mut self, what_ifs: Vec<WhatIf>, shows: Shows) {
        self.begin_second(SecondRunKind::WhatIf(what_ifs), shows);
    }

    pub(super) fn begin_second(&mut self, way: SecondRunKind, shows: Shows) {
        self.runs.b = Some(Second::new(way));
        self.runs.shows = shows;
    }

    /// Drops B and shows A alone; returns how B was made.
    pub fn drop_second(&mut self) -> Option<SecondRunKind> {
        self.select_on(false);
        self.runs.shows = Shows::A;
        self.runs.b.take().map(|second| second.way)
    }

    /// Queues B again when A restarts, with another text or because its files changed.
    pub(super) fn second_again(&mut self) {
        let shows = self.runs.shows;
        let way = self.drop_second();
        // The code before a reload is gone: another text runs through the one that is loaded.
        if let Some(way) = way.filter(|way| *way != SecondRunKind::Against(Against::Reload)) {
            self.begin_second(way, shows);
        }
    }

    /// Requests B once A has finished.
    pub(super) fn ask_second(&mut self, effects: &mut Vec<Effect>) {
        let is_over = |run: &Run| matches!(run.state, RunState::Done { .. });
        let Some(a) = self
            .runs
            .a
            .as_ref()
            .filter(|run| is_over(run))
            .map(|run| run.id)
        else {
            return;
        };
        if let Some(second) = self.runs.b.as_mut().filter(|b| !b.is_asked) {
            second.is_asked = true;
            effects.push(match (&second.way, second.earlier) {
                (_, Some(id)) => Effect::Again(id, true),
                (SecondRunKind::Earlier(id, _), None) => Effect::Again(*id, true),
                (SecondRunKind::WhatIf(what_ifs), None) => Effect::WhatIf(what_ifs.clone()),
                (SecondRunKind::Against(Against::Reload), None) => Effect::Reload(a),
                (SecondRunKind::Against(against), None) => Effect::Against(against.clone()),
            });
        }
    }

    /// Takes in that B has started, with A's prompt unless it has its own.
    pub(super) fn second_started(
        &mut self,
        id: RunId,
        subject: Subject,
        own: Option<(Arc<Prompt>, Source)>,
    ) {
        self.preparing = None;
        let Some(a) = &self.runs.a else { return };
        let (prompt, source) = own.unwrap_or_else(|| (a.prompt.clone(), a.source.clone()));
        let aligned = Aligned::of_prompts(&a.prompt, &prompt);
        let run = Run::new(id, subject, prompt, source, a.origin);
        if let Some(second) = self.runs.b.as_mut().filter(|second| second.is_asked) {
            second.run = Some(run);
            second.aligned = aligned;
            if self.runs.shows != Shows::A {
                self.select_on(true);
            }
        }
    }

    /// Drops B because it cannot run; returns the reason without flag names.
    pub(super) fn second_refused(&mut self, reason: String) -> String {
        let awaits = |second: &&Second| second.is_asked && second.run.is_none();
        if let Some(second) = self.runs.b.as_ref().filter(awaits) {
            if second.is_demanded {
                self.fatal = Some(reason.clone());
                self.is_over = true;
            }
            self.drop_second();
            self.switch_all_off();
        }
        // On screen nobody typed a flag.
        match reason.strip_prefix("--what-if ") {
            Some(reason) => reason.to_owned(),
            None => reason,
        }
    }

    /// Moves the selection to the tokens of B aligned with those of A, or back.
    fn select_on(&mut self, is_of_b: bool) {
        let Some(second) = self.runs.b.as_ref().filter(|second| second.run.is_some()) else {
            return;
        };
        let at = self.selection;
        let (of_queries, of_keys) = second.aligned_axes(at.stack);
        let query_idx = of_queries.other(at.query_idx, !is_of_b);
        let key_idx = of_keys.other(at.key_idx, !is_of_b);
        (self.selection.query_idx, self.selection.key_idx) = (query_idx, key_idx);
    }

    /// Shows A, B or the difference, if there is a B.
    pub fn show_side(&mut self, side: Shows) {
        if self.runs.b.is_some() {
            let is_of_b = side != Shows::A;
            if is_of_b != (self.runs.shows != Shows::A) {
                self.select_on(is_of_b);
            }
            self.runs.shows = side;
            self.keep_crosshair_in_sight();
        }
    }

    /// Shows the next side in turn.
    pub fn next_side(&mut self) {
        self.show_side(match self.runs.shows {
            Shows::A => Shows::B,
            Shows::B => Shows::Difference,
            Shows::Difference => Shows::A,
        });
    }

    /// If a panel compares both runs, requests the selected head of the one not shown, and subtracts the maps once both exist.
    pub(super) fn ask_both_heads(&mut self, effects: &mut Vec<Effect>) {
        let scene = self.scene();
        let compares = scene.shows_difference() || self.panel.compares();
        // One request at a time: a newer request for a head replaces the older one.
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
    /// The selected head's map of B minus A's, with the head and map that it belongs to; `None` until both are there.
    fn subtracted(self) -> Option<(HeadQuery, HeadMap, Arc<Pyramid>)> {
        let [a, b] = self.both_details()?;
        // With texts of different lengths the cells do not correspond, so the maps are shown side by side instead.
        let sizes = |detail: &HeadDetail| {
            let map = detail.pattern.finest();
            (
                map.n_rows,
                map.n_cols,
                map.queries_per_cell,
                map.keys_per_cell,
            )
        };
        if sizes(a) != sizes(b) {
            return None;
        }
        let which = self.head_map();
        let map = less(b.map(which)?.finest(), a.map(which)?.finest());
        Some((self.wanted_head(), which, Arc::new(map)))
    }
}

/// Subtracts one map from another. Cells hidden in both stay hidden; cells hidden in one count as 0 there.
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
