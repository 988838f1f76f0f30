//! View of two runs: A, B, and their differences.

use attnscope_checks::stats::LayerReport;
use attnscope_run::{HeadDetail, Pyramid};
use attnscope_spec::Stack;

use super::Scene;
use crate::state::run::Run;
use crate::state::runs::Shows;
use crate::state::selection::step;
use crate::state::views::Axis;

impl<'a> Scene<'a> {
    /// A and B, once both have begun.
    pub fn both_runs(self) -> Option<[&'a Run; 2]> {
        self.app.runs.both()
    }

    /// The names of A and B.
    pub fn labels(self) -> [&'static str; 2] {
        let second = self.app.runs.b.as_ref();
        second.map_or(["A", "B"], |second| second.way.labels())
    }

    /// The selected head at full resolution in A and in B, once both are there.
    pub fn both_details(self) -> Option<[&'a HeadDetail; 2]> {
        let wanted = self.wanted_head();
        let [a, b] = self.both_runs()?.map(|run| run.detail_of(wanted));
        Some([a?, b?])
    }

    /// The selected query and key as positions of one side, because the texts of A and B may differ.
    pub fn crosshair_in(self, side: Shows) -> (usize, usize) {
        let at = self.selection;
        let is_of_b = self.shows != Shows::A;
        let second = self
            .app
            .runs
            .b
            .as_ref()
            .filter(|second| second.run.is_some());
        let Some(second) = second.filter(|_| is_of_b != (side != Shows::A)) else {
            return (at.query_idx, at.key_idx);
        };
        let (of_queries, of_keys) = second.aligned_axes(at.stack);
        // A token without a counterpart may keep its position, which a shorter text does not have.
        let inside = |idx: usize, axis: Axis| {
            let n = Scene::of(self.app, side).n_along(axis);
            step(idx, 0, n)
        };
        (
            inside(of_queries.other(at.query_idx, is_of_b), Axis::Query),
            inside(of_keys.other(at.key_idx, is_of_b), Axis::Key),
        )
    }

    /// The selected query and key as positions of this scene's side: an export draws both sides, whichever is on screen.
    pub fn crosshair(self) -> (usize, usize) {
        self.app.scene().crosshair_in(self.shows)
    }

    /// The position in A that corresponds to one in B along an axis; `None` if only B has the token.
    pub fn counterpart(self, axis: Axis, idx: usize) -> Option<usize> {
        let second = self.app.runs.b.as_ref()?;
        let (of_queries, of_keys) = second.aligned_axes(self.selection.stack);
        let aligned = match axis {
            Axis::Query => of_queries,
            Axis::Key => of_keys,
        };
        aligned.of_b(idx)
    }

    /// A layer's reports in A and in B, once both have arrived.
    pub fn both_layers(self, grid: Stack, layer_idx: usize) -> Option<[&'a LayerReport; 2]> {
        let [a, b] = self.both_runs()?.map(|run| run.layer(grid, layer_idx));
        Some([a?, b?])
    }

    /// The label of a token that A or B predicts.
    pub fn predicted_label(self, id: u32) -> String {
        if let Some(name) = self.class_label(id) {
            return name;
        }
        let runs = self.both_runs().into_iter().flatten();
        let label = runs.into_iter().find_map(|run| run.label(id));
        label.map_or_else(|| id.to_string(), str::to_owned)
    }

    /// Whether panels show B minus A.
    pub fn shows_difference(self) -> bool {
        self.shows == Shows::Difference && self.both_runs().is_some()
    }

    /// Whether grids and maps show B minus A.
    pub fn grid_differs(self) -> bool {
        let compares = self.panel.compares() && self.both_runs().is_some();
        (self.shows_difference() || compares) && !self.shows_distance()
    }

    /// The selected head's map in B minus the one in A, scores or pattern as shown.
    pub fn difference(self) -> Option<&'a Pyramid> {
        let wanted = (self.wanted_head(), self.head_map());
        let (query, which, map) = self.app.runs.b.as_ref()?.difference.as_ref()?;
        ((*query, *which) == wanted).then_some(map)
    }

    /// The difference that the Head panel shows; `None` if it shows single cells of a long head, which belong to one run.
    pub fn shown_difference(self) -> Option<&'a Pyramid> {
        let differs = self.shows_difference() && !self.shows_part();
        self.difference().filter(|_| differs)
    }
}
