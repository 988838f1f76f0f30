//! Marked heads: several heads at once, to drop, compare or export them.

use std::collections::BTreeSet;

use attnscope_spec::Place;

use super::app::App;
use super::filter::{head_of_key, key_of_head};

/// The marked heads, and the head at which a range begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    heads: BTreeSet<usize>,
    /// Where the range that is being drawn begins, and what was marked before it.
    range: Option<(Place, BTreeSet<usize>)>,
}

impl Marks {
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    pub fn len(&self) -> usize {
        self.heads.len()
    }

    pub fn has(&self, place: Place) -> bool {
        !self.heads.is_empty() && self.heads.contains(&key_of_head(place))
    }

    /// The marked heads, in the order of grids, layers and heads.
    pub fn places(&self) -> Vec<Place> {
        self.heads.iter().map(|key| head_of_key(*key)).collect()
    }

    /// Marks a head, or takes its mark back.
    pub fn toggle(&mut self, place: Place) {
        self.range = None;
        let key = key_of_head(place);
        if !self.heads.remove(&key) {
            self.heads.insert(key);
        }
    }

    /// Marks heads in addition; takes the marks of all of them back if all are marked already.
    pub fn toggle_all(&mut self, places: &[Place]) {
        self.range = None;
        let keys: BTreeSet<usize> = places.iter().map(|place| key_of_head(*place)).collect();
        if keys.is_subset(&self.heads) {
            self.heads.retain(|key| !keys.contains(key));
        } else {
            self.heads.extend(keys);
        }
    }

    /// Takes all marks back.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Ends a range: the next one begins elsewhere.
    pub fn end_range(&mut self) {
        self.range = None;
    }

    /// Marks the layers and heads from where the range begins to another head; it begins at `from` unless it has begun.
    pub fn extend(&mut self, from: Place, to: Place) {
        let before = self.heads.clone();
        let (begin, before) = self.range.get_or_insert((from, before));
        let span = |a: Option<usize>, b: Option<usize>| {
            let (a, b) = (a.unwrap_or(0), b.unwrap_or(0));
            a.min(b)..=a.max(b)
        };
        let mut heads = before.clone();
        for layer_idx in span(begin.layer_idx, to.layer_idx) {
            for head_idx in span(begin.head_idx, to.head_idx) {
                heads.insert(key_of_head(
                    Place::layer(to.grid(), layer_idx).head(head_idx),
                ));
            }
        }
        self.heads = heads;
    }

    /// Drops marks of heads that a model does not have.
    pub fn keep(&mut self, is_there: impl Fn(Place) -> bool) {
        self.heads.retain(|key| is_there(head_of_key(*key)));
    }
}

impl App {
    /// Whether Compare shows the marked heads side by side.
    pub fn shows_marked(&self) -> bool {
        self.compare_view.shows_marked && !self.marks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_spec::Stack;

    fn head(layer_idx: usize, head_idx: usize) -> Place {
        Place::layer(Stack::Only, layer_idx).head(head_idx)
    }

    fn names(marks: &Marks) -> String {
        let names: Vec<String> = marks.places().iter().map(Place::to_string).collect();
        names.join(" ")
    }

    #[test]
    fn a_range_grows_and_shrinks_from_where_it_begins() {
        let mut marks = Marks::default();
        marks.toggle(head(5, 0));
        marks.extend(head(1, 2), head(1, 3));
        marks.extend(head(1, 3), head(2, 3));
        assert_eq!(names(&marks), "L1H2 L1H3 L2H2 L2H3 L5H0");
        marks.extend(head(2, 3), head(1, 3));
        assert_eq!(names(&marks), "L1H2 L1H3 L5H0");
        marks.end_range();
        marks.extend(head(0, 0), head(0, 1));
        assert_eq!(names(&marks), "L0H0 L0H1 L1H2 L1H3 L5H0");
    }

    #[test]
    fn all_of_a_set_are_marked_first_and_taken_back_then() {
        let mut marks = Marks::default();
        marks.toggle(head(0, 1));
        marks.toggle_all(&[head(0, 1), head(0, 2)]);
        assert_eq!(names(&marks), "L0H1 L0H2");
        marks.toggle_all(&[head(0, 1), head(0, 2)]);
        assert!(marks.is_empty());
    }
}
