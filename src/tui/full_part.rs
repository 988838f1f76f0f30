//! Maps too long to hold whole: what is on screen is computed at full resolution, with a margin to scroll into.

use std::ops::Range;

use super::app::{App, Axis, Effect, Panel};
use super::panels;
use super::view;
use crate::worker::PartQuery;
use attnscope_engine::analysis::{HeadDetail, HeadQuery, PartDetail};

/// The part of a head that is wanted.
pub type Wanted = (HeadQuery, Range<usize>, Range<usize>);

impl App {
    /// Queries and keys of one cell of the map: 1 where it is shown at full resolution.
    pub fn pooling(&self) -> usize {
        match self.shown_detail() {
            Some(detail) if self.head_view.is_full && detail.rows.is_some() => 1,
            detail => detail.map_or(1, HeadDetail::pooling),
        }
    }

    /// Whether the map shows single cells of a head that is otherwise pooled.
    pub fn shows_part(&self) -> bool {
        let detail = self.shown_detail();
        detail.is_some_and(|detail| detail.pooling() > self.pooling())
    }

    /// The part at full resolution that holds some cells, if it has been computed.
    pub fn part_with(&self, queries: &Range<usize>, keys: &Range<usize>) -> Option<&PartDetail> {
        let (head, part) = self.part.as_ref()?;
        let holds = *head == self.wanted_head()
            && covers(&part.queries, queries)
            && covers(&part.keys, keys);
        holds.then_some(part)
    }

    /// Asks for what the Head panel shows, where it is not there yet.
    pub(super) fn ask_for_part(&mut self, effects: &mut Vec<Effect>) {
        if self.panel != Panel::Head || !self.shows_part() {
            return;
        }
        let (queries, keys) = panels::head::shown_cells(self, view::areas(self.size).body);
        let head = self.wanted_head();
        let is_awaited = self.awaited_part.as_ref().is_some_and(|wanted| {
            wanted.0 == head && covers(&wanted.1, &queries) && covers(&wanted.2, &keys)
        });
        if is_awaited || self.part_with(&queries, &keys).is_some() {
            return;
        }
        let rows = self.shown_detail().and_then(|detail| detail.rows.clone());
        let (Some(run), Some(rows)) = (&self.run, rows) else {
            return;
        };
        // As much again on every side, so that scrolling finds it there.
        let wider = |range: &Range<usize>, n: usize| {
            range.start.saturating_sub(range.len())..(range.end + range.len()).min(n)
        };
        let queries = wider(&queries, self.n_along(Axis::Query));
        let keys = wider(&keys, self.n_along(Axis::Key));
        self.awaited_part = Some((head, queries.clone(), keys.clone()));
        let query = PartQuery {
            head,
            rows,
            queries,
            keys,
        };
        effects.push(Effect::LookAtPart(run.id, query));
    }
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
