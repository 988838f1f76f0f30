//! Maps too long to keep whole: the visible part is computed at full resolution, with a margin for scrolling.

use std::ops::Range;

use attnscope_worker::PartQuery;

use super::panels;
use super::state::app::App;
use super::state::msg::Effect;
use super::state::panel::Panel;
use super::state::scene::part::covers;
use super::state::views::Axis;

impl App {
    /// Requests the part that the Head panel shows, unless it is there already.
    pub(super) fn ask_for_part(&mut self, effects: &mut Vec<Effect>) {
        let scene = self.scene();
        if self.panel != Panel::Head || !scene.shows_part() {
            return;
        }
        let (queries, keys) = panels::head_layout::shown_cells(scene, self.areas().body);
        let head = scene.wanted_head();
        let Some(run) = scene.run() else { return };
        let is_awaited = run.awaited_part.as_ref().is_some_and(|wanted| {
            wanted.0 == head && covers(&wanted.1, &queries) && covers(&wanted.2, &keys)
        });
        if is_awaited || scene.part_with(&queries, &keys).is_some() {
            return;
        }
        let rows = scene.shown_detail().and_then(|detail| detail.rows.clone());
        let Some(rows) = rows else { return };
        // The same size again on every side, so that scrolling finds it computed.
        let wider = |range: &Range<usize>, n: usize| {
            range.start.saturating_sub(range.len())..(range.end + range.len()).min(n)
        };
        let queries = wider(&queries, scene.n_along(Axis::Query));
        let keys = wider(&keys, scene.n_along(Axis::Key));
        let run_id = run.id;
        if let Some(run) = self.runs.of(run_id) {
            run.awaited_part = Some((head, queries.clone(), keys.clone()));
        }
        // Requests for the other run are no longer answered; allow them to be sent again.
        let others = self.runs.others_than(run_id);
        others.for_each(|run| run.awaited_part = None);
        let query = PartQuery {
            head,
            rows,
            queries,
            keys,
        };
        effects.push(Effect::LookAtPart(run_id, query));
    }
}
