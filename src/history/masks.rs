//! Changes of masks: where the rows of a head prove another mask than those before them.
//!
//! This is exact. Only what proves nothing is left open: see [`MaskKind::meet`].

use std::collections::BTreeMap;

use attnscope_checks::Severity;
use attnscope_spec::Place;

use super::judge::Finding;
use super::lines::LINES;
use super::log::{Mask, MaskKind};
use super::value::History;

const CHECK: &str = "mask-changed";
/// Not a statistic of the registry: the mean number of keys that sampled rows see.
const KEYS: &str = "visible_keys";
/// Layers or heads named in a reason.
const MOST_NAMED: usize = 4;
/// Different masks kept of a head; what has more has no mask that could change.
const MOST_KNOWN: usize = 8;

/// Follows the mask of every head.
#[derive(Debug, Clone, Default)]
pub(super) struct MaskFollower {
    /// By cell of the grid.
    heads: Vec<OfHead>,
}

#[derive(Debug, Clone, Default)]
struct OfHead {
    /// Every mask that it has had, as far as its rows prove it.
    known: Vec<MaskKind>,
    /// Which of them it has, and the last record of it with its mean number of visible keys.
    now: usize,
    last: (usize, f64),
    /// A record with another one, which the next has to confirm.
    pending: Option<(usize, Mask)>,
    changes: Vec<OfOne>,
}

/// A change of one head.
#[derive(Debug, Clone, Copy)]
struct OfOne {
    from: usize,
    to: usize,
    /// The last record before it, and the first of it, with their keys.
    since: (usize, f64),
    begin: (usize, f64),
    end: Option<usize>,
}

/// One change, of all heads that have it together.
#[derive(Debug, Clone)]
pub(super) struct MaskChange {
    pub begin: usize,
    pub end: Option<usize>,
    pub cells: Vec<usize>,
    since: (usize, f64),
    to: f64,
    /// `window 16 → causal`
    words: String,
}

impl OfHead {
    fn take(&mut self, record_idx: usize, mask: Mask) {
        let Some(known) = self.known.get_mut(self.now) else {
            self.known.push(mask.kind);
            self.last = (record_idx, mask.keys);
            return;
        };
        if let Some(both) = known.meet(mask.kind) {
            *known = both;
            self.last = (record_idx, mask.keys);
            self.pending = None;
            return;
        }
        let confirmed = self.pending.and_then(|(begin, first)| {
            let both = first.kind.meet(mask.kind)?;
            Some((begin, first.keys, both))
        });
        match confirmed {
            None => self.pending = Some((record_idx, mask)),
            Some((begin, keys, kind)) => {
                self.change((begin, keys), kind);
                self.last = (record_idx, mask.keys);
                self.pending = None;
            }
        }
    }

    fn change(&mut self, begin: (usize, f64), kind: MaskKind) {
        let found = self.known.iter().enumerate();
        let mut found = found.filter_map(|(nth, known)| Some((nth, known.meet(kind)?)));
        // What goes back and forth is told once.
        if let Some((nth, both)) = found.next() {
            let (from, to) = (self.now, nth);
            self.known[to] = both;
            self.now = to;
            let lasting = self.changes.iter_mut();
            for change in lasting.filter(|of| of.end.is_none() && of.to == from) {
                change.end = Some(begin.0);
            }
        } else if self.known.len() < MOST_KNOWN {
            self.known.push(kind);
            self.changes.push(OfOne {
                from: self.now,
                to: self.known.len() - 1,
                since: self.last,
                begin,
                end: None,
            });
            self.now = self.known.len() - 1;
        }
    }
}

impl MaskFollower {
    pub fn take(&mut self, history: &History, record_idx: usize) {
        let facts = history.records()[record_idx].batch();
        let Some((facts, masks)) = facts.and_then(|of| Some((of, of.masks.as_ref()?))) else {
            return;
        };
        let grid = history.grid();
        self.heads.resize_with(grid.n_heads(), OfHead::default);
        // Texts put together in a row are apart: the batch says so.
        let is_packed = facts.documents.is_some_and(|n| n > 1.0);
        for layer in 0..grid.layers().len() {
            for (head, cell) in grid.heads_of(layer).enumerate() {
                let mask = masks.at(layer, head);
                let is_told =
                    |mask: &Mask| !(is_packed && matches!(mask.kind, MaskKind::Documents { .. }));
                if let Some(mask) = mask.filter(is_told) {
                    self.heads[cell].take(record_idx, mask);
                }
            }
        }
    }

    /// Returns all changes, with the heads that have each of them.
    pub fn changes(&self) -> Vec<MaskChange> {
        let mut groups: BTreeMap<(usize, Option<usize>, String), MaskChange> = BTreeMap::new();
        for (cell, head) in self.heads.iter().enumerate() {
            for change in &head.changes {
                let [from, to] = [change.from, change.to].map(|nth| head.known[nth]);
                let words = format!("{from} → {to}");
                let group = groups
                    .entry((change.begin.0, change.end, words.clone()))
                    .or_insert_with(|| MaskChange {
                        begin: change.begin.0,
                        end: change.end,
                        cells: Vec::new(),
                        since: change.since,
                        to: change.begin.1,
                        words,
                    });
                group.cells.push(cell);
            }
        }
        groups.into_values().collect()
    }
}

/// Names the changes in the leaks that begin with them; returns findings of the others.
pub(super) fn told(
    history: &History,
    mut changes: Vec<MaskChange>,
    findings: &mut [Finding],
) -> Vec<Finding> {
    let is_leak = |check: &str| {
        let mut lines = LINES.iter();
        lines.any(|line| line.check == check && line.leak.is_some())
    };
    for change in &mut changes {
        for leak in findings.iter_mut() {
            if leak.begin == change.begin
                && is_leak(leak.check)
                && change.cells.contains(&leak.cell)
            {
                leak.why += &format!("; mask: {}", change.words);
                change.cells.retain(|cell| *cell != leak.cell);
            }
        }
    }
    let rest = changes.iter().filter(|change| !change.cells.is_empty());
    rest.map(|change| finding(history, change)).collect()
}

fn finding(history: &History, change: &MaskChange) -> Finding {
    let (places, cell) = places(history, &change.cells);
    let place = match places.as_slice() {
        [] => Place::MODEL,
        [first, ..] => *first,
    };
    let named: Vec<String> = places
        .iter()
        .take(MOST_NAMED)
        .map(Place::to_string)
        .collect();
    let named = named.join(", ");
    let of = match places.len() {
        0 => "in every head; ".to_owned(),
        1 => String::new(),
        n if n <= MOST_NAMED => format!("in {named}; "),
        n => format!("in {named} and {} more; ", n - MOST_NAMED),
    };
    let why = format!(
        "{of}sampled queries see {} keys instead of {} on average",
        plain(change.to),
        plain(change.since.1)
    );
    Finding {
        check: CHECK,
        severity: Severity::Warning,
        place,
        cell,
        statistic: KEYS,
        threshold: 0.0,
        begin: change.begin,
        to: change.to,
        end: change.end,
        from: Some(change.since),
        changed: Some(change.words.clone()),
        warned: None,
        why,
        advice: "look at what makes the mask there: a window, is_causal, a mask that is no longer passed on, or another kernel; a model \
                 trained under one mask is another model under the next",
    }
}

/// The layers that have all their heads among these cells, and the other heads; nothing where that is the whole model. Also the cell
/// of the first of them.
fn places(history: &History, cells: &[usize]) -> (Vec<Place>, usize) {
    let grid = history.grid();
    if cells.len() == grid.n_heads() {
        return (Vec::new(), 0);
    }
    let (mut places, mut first) = (Vec::new(), None);
    for (layer, shape) in grid.layers().iter().enumerate() {
        let heads = grid.heads_of(layer);
        let of: Vec<usize> = cells
            .iter()
            .copied()
            .filter(|cell| heads.contains(cell))
            .collect();
        if of.len() == heads.len() {
            first.get_or_insert(grid.n_heads() + layer);
            places.push(shape.place());
        } else {
            first = first.or(of.first().copied());
            places.extend(of.iter().map(|cell| grid.place(*cell)));
        }
    }
    (places, first.unwrap_or(0))
}

/// A number of keys, to a tenth.
fn plain(keys: f64) -> String {
    format!("{}", (keys * 10.0).round() / 10.0)
}
