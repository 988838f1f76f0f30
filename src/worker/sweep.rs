//! Sweeps of scores that are on screen already: all they need is in the question.

use std::sync::Arc;

use super::event::RunId;
use crate::analysis::{HeadDetail, HeadQuery, Sweep, SweepPoint, sweep_scales};

/// Ends of the sweep, and points between.
const FROM: f64 = 0.05;
const TO: f64 = 50.0;
const N_POINTS: usize = 49;

/// What a sweep is of: run, head and query.
pub type SweepOf = (RunId, HeadQuery, usize);

/// A sweep that is wanted.
#[derive(Debug, Clone)]
pub struct SweepQuery {
    pub of: SweepOf,
    /// The head's scores, each cell one query and one key.
    pub detail: Arc<HeadDetail>,
    /// Scales that have a meaning.
    pub marks: Vec<f64>,
}

/// What it is computed from follows from what it is of.
impl PartialEq for SweepQuery {
    fn eq(&self, other: &Self) -> bool {
        self.of == other.of
    }
}

/// Points of one query's row, and of all rows of the head.
#[derive(Debug, Clone, PartialEq)]
pub struct Swept {
    pub row: Vec<SweepPoint>,
    pub all: Vec<SweepPoint>,
}

/// Multiplies the scores.
pub(super) fn sweep(query: &SweepQuery) -> Swept {
    let scores = query.detail.scores.finest();
    let marks: Vec<f64> = query
        .marks
        .iter()
        .copied()
        .filter(|at| (1e-6..1e6).contains(at))
        .collect();
    let scales = sweep_scales(FROM, TO, N_POINTS, &marks).unwrap_or_default();
    let (mut row, mut all) = (Sweep::new(&scales), Sweep::new(&scales));
    if let Some(scores) = scores.cells.chunks(scores.n_cols.max(1)).nth(query.of.2) {
        row.add_row(scores);
    }
    all.add_rows(&scores.cells, scores.n_cols.max(1));
    Swept {
        row: row.points(),
        all: all.points(),
    }
}
