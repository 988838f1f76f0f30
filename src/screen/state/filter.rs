//! Filters of lists, and the search that the finder leaves behind: which rows match, and which of them comes next.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use attnscope_spec::{Place, Stack};

use super::app::App;
use super::find::Target;
use super::matching::Matching;
use super::panel::Panel;

/// A list that can be filtered. Panels that show the same things share the list, and so its filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum List {
    Findings,
    Heads,
    Statistics,
    Steps,
    Tensors,
    Tokens,
}

impl List {
    /// The list of a panel, if it has one.
    pub fn of(panel: Panel) -> Option<Self> {
        match panel {
            Panel::Overview | Panel::Effect => Some(Self::Heads),
            Panel::Scores => Some(Self::Statistics),
            Panel::Tokens | Panel::Rows => Some(Self::Tokens),
            Panel::Model => Some(Self::Tensors),
            Panel::Checks => Some(Self::Findings),
            Panel::History => Some(Self::Steps),
            Panel::Head | Panel::Compare | Panel::Sweep | Panel::Prompts | Panel::Story => None,
        }
    }

    /// Its rows, in the plural.
    pub fn rows(self) -> &'static str {
        match self {
            Self::Findings => "findings and checks",
            Self::Heads => "heads",
            Self::Statistics => "statistics",
            Self::Steps => "steps",
            Self::Tensors => "tensors",
            Self::Tokens => "tokens",
        }
    }
}

/// A row of a list: what selects it, and the text that is searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub key: usize,
    pub text: String,
}

/// The grids of heads, in the order in which keys of heads count them.
const GRIDS: [Stack; 4] = [Stack::Only, Stack::Encoder, Stack::Decoder, Stack::Cross];

/// Bits of a layer and of a head in the key of a head.
const BITS: u32 = 14;

/// The key of a head, or of a layer without a head.
pub fn key_of_head(place: Place) -> usize {
    let grid = GRIDS.iter().position(|grid| *grid == place.grid());
    let (layer_idx, head_idx) = (place.layer_idx.unwrap_or(0), place.head_idx.unwrap_or(0));
    (grid.unwrap_or(0) << (2 * BITS)) | (layer_idx << BITS) | head_idx
}

/// The head of a key.
pub fn head_of_key(key: usize) -> Place {
    let part = |nth: u32| (key >> (nth * BITS)) & ((1 << BITS) - 1);
    let grid = GRIDS.get(key >> (2 * BITS)).copied();
    Place::layer(grid.unwrap_or(Stack::Only), part(1)).head(part(0))
}

/// The filter of one list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub query: String,
    /// Keys of the rows that match, as the list orders them.
    pub matches: Vec<usize>,
    kept: BTreeSet<usize>,
    /// Number of rows of the whole list.
    pub n_all: usize,
}

impl Filter {
    /// Searches the rows of the list again: for the words as they stand, or if no row has them, for their letters in order.
    pub fn refresh(&mut self, rows: &[Row]) {
        let found = |mut matching: Matching| -> Vec<usize> {
            let is_match = |row: &&Row| matching.score(&row.text).is_some();
            rows.iter().filter(is_match).map(|row| row.key).collect()
        };
        self.matches = found(Matching::whole_words(&self.query));
        if self.matches.is_empty() {
            self.matches = found(Matching::fuzzy(&self.query));
        }
        self.kept = self.matches.iter().copied().collect();
        self.n_all = rows.len();
    }

    /// Whether a row matches.
    pub fn keeps(&self, key: usize) -> bool {
        self.kept.contains(&key)
    }
}

/// The row some rows away from a row, among those that keys stop at; from elsewhere, the nearest one that way.
pub fn next_stop(stops: &[usize], from: usize, by: isize, wraps: bool) -> Option<usize> {
    let last = stops.len().checked_sub(1)?;
    let at = match stops.iter().position(|key| *key == from) {
        Some(at) if wraps => (at as isize).wrapping_add(by).rem_euclid(last as isize + 1) as usize,
        Some(at) => at.saturating_add_signed(by).min(last),
        None if by > 0 => {
            let after = stops.iter().position(|key| *key > from);
            after.unwrap_or(0)
        }
        None => {
            let before = stops.iter().rposition(|key| *key < from);
            before.unwrap_or(last)
        }
    };
    stops.get(at).copied()
}

/// The rows that `n_rows` lines show of a list of `n`, around the selected one.
pub fn window(n: usize, selected: usize, n_rows: usize) -> Range<usize> {
    let first = selected.saturating_sub(n_rows / 2);
    let first = first.min(n.saturating_sub(n_rows));
    first..(first + n_rows).min(n)
}

/// The filters of all lists; a list without an entry shows all of its rows.
pub type Filters = BTreeMap<List, Filter>;

/// What was found last with the finder: the other things of its kind that the same letters find.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    pub query: String,
    pub targets: Vec<Target>,
    pub at: usize,
}

impl Search {
    /// Goes on to another target, the first after the last.
    pub fn step(&mut self, by: isize) -> Option<Target> {
        let n = self.targets.len();
        if n == 0 {
            return None;
        }
        self.at = (self.at as isize + by).rem_euclid(n as isize) as usize;
        self.targets.get(self.at).cloned()
    }
}

impl App {
    /// The list of the open panel, if it has one now.
    pub fn list_here(&self) -> Option<List> {
        List::of(self.panel).filter(|list| match list {
            List::Steps => self.training.is_some(),
            _ => self.opened.is_some(),
        })
    }

    /// The filter of a list, if letters were typed.
    pub fn filter_of(&self, list: List) -> Option<&Filter> {
        self.filters
            .get(&list)
            .filter(|filter| !filter.query.is_empty())
    }

    /// The filter of the open panel's list.
    pub fn filter_here(&self) -> Option<(List, &Filter)> {
        let list = self.list_here()?;
        Some((list, self.filter_of(list)?))
    }

    /// What was looked for with the finder, in panels without a list.
    pub fn search_here(&self) -> Option<&Search> {
        self.search.as_ref().filter(|_| self.list_here().is_none())
    }

    /// Whether a list shows a row: all rows unless it is filtered.
    pub fn keeps(&self, list: List, key: usize) -> bool {
        self.filter_of(list).is_none_or(|filter| filter.keeps(key))
    }

    /// The rows of a list that `n_rows` lines show, around the selected row: of all `n` rows, or of those that match.
    ///
    /// The keys of such a list are the indices of its rows.
    pub fn visible(&self, list: List, n: usize, selected: usize, n_rows: usize) -> Vec<usize> {
        let Some(filter) = self.filter_of(list) else {
            return window(n, selected, n_rows).collect();
        };
        let at = filter.matches.partition_point(|key| *key < selected);
        let shown = window(filter.matches.len(), at, n_rows).map(|nth| filter.matches[nth]);
        shown.filter(|key| *key < n).collect()
    }

    /// Whether the filter of heads, if there is one, leaves a head out.
    pub fn leaves_out(&self, place: Place) -> bool {
        !self.keeps(List::Heads, key_of_head(place))
    }

    /// The note in the title of a filtered list: how many rows of how many it shows.
    pub fn filter_note(&self, list: List) -> String {
        self.filter_of(list).map_or(String::new(), |filter| {
            format!("· {} of {} ", filter.matches.len(), filter.n_all)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(query: &str) -> Filter {
        let texts = ["the", "old king", "gave", "the", "king"];
        let rows = texts.iter().enumerate();
        let rows: Vec<Row> = rows
            .map(|(key, text)| Row {
                key,
                text: (*text).to_owned(),
            })
            .collect();
        let mut filter = Filter {
            query: query.to_owned(),
            ..Filter::default()
        };
        filter.refresh(&rows);
        filter
    }

    #[test]
    fn the_key_of_a_head_leads_back_to_it() {
        for grid in GRIDS {
            let place = Place::layer(grid, 127).head(95);
            assert!(head_of_key(key_of_head(place)).is_same_head(&place));
        }
    }

    #[test]
    fn letters_in_order_count_where_no_row_has_the_word() {
        assert_eq!(filter("th").matches, [0, 3]);
        assert_eq!(filter("okg").matches, [1]);
        assert_eq!(filter("!the").matches, [1, 2, 4]);
    }

    #[test]
    fn steps_lead_from_match_to_match_and_from_elsewhere_to_the_nearest() {
        let kings = filter("king");
        assert_eq!((kings.matches.as_slice(), kings.n_all), (&[1, 4][..], 5));
        let next = |from, by, wraps| next_stop(&kings.matches, from, by, wraps);
        assert!(kings.keeps(4) && !kings.keeps(0));
        assert_eq!(next(2, 1, true), Some(4));
        assert_eq!(next(2, -1, true), Some(1));
        assert_eq!(next(1, 1, true), Some(4));
        assert_eq!(next(4, 1, true), Some(1));
        assert_eq!(next(4, 1, false), Some(4));
        assert_eq!(next(1, isize::MAX / 2, false), Some(4));
        assert_eq!(next(4, isize::MIN / 2, false), Some(1));
        assert_eq!(next_stop(&[], 2, 1, true), None);
        assert_eq!(next_stop(&[], 2, -1, true), None);
    }
}
