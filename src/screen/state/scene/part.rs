//! Full-resolution part of a long head.

use std::ops::Range;

use attnscope_run::{HeadDetail, PartDetail};

use super::Scene;

impl<'a> Scene<'a> {
    /// Queries and keys per cell of the map: 1 if it is shown at full resolution.
    pub fn pooling(self) -> usize {
        match self.shown_detail() {
            Some(detail) if self.head_view.is_full && detail.rows.is_some() => 1,
            detail => detail.map_or(1, HeadDetail::pooling),
        }
    }

    /// Whether the map shows single cells of a head that is otherwise pooled.
    pub fn shows_part(self) -> bool {
        let detail = self.shown_detail();
        detail.is_some_and(|detail| detail.pooling() > self.pooling())
    }

    /// The full-resolution part that contains the given cells, if it has been computed.
    pub fn part_with(self, queries: &Range<usize>, keys: &Range<usize>) -> Option<&'a PartDetail> {
        let (head, part) = self.run()?.part.as_ref()?;
        let holds = *head == self.wanted_head()
            && covers(&part.queries, queries)
            && covers(&part.keys, keys);
        holds.then_some(part)
    }
}

/// Whether a range contains another.
pub fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
