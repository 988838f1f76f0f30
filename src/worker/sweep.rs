//! Sweeps of the score scale, of a head already on screen or of all heads of its layer.

use std::sync::Arc;

use attnscope_compute::error::Result;
use attnscope_run::{HeadDetail, HeadQuery, Sweep, SweepPoint, sweep_scales};
use attnscope_spec::Stack;

use super::run_id::RunId;

/// Ends of the sweep, and the number of points between them.
const FROM: f64 = 0.05;

const TO: f64 = 50.0;
const N_POINTS: usize = 49;

/// Target of a sweep: run, head and query.
pub type SweepOf = (RunId, HeadQuery, usize);

/// Request for a sweep of a head.
#[derive(Debug, Clone)]
pub struct SweepQuery {
    pub of: SweepOf,
    /// The head's scores, each cell one query and one key.
    pub detail: Arc<HeadDetail>,
    /// Scales to mark, such as those of known scaling rules.
    pub marks: Vec<f64>,
}

/// Ignores `detail`, which is determined by the target.
impl PartialEq for SweepQuery {
    fn eq(&self, other: &Self) -> bool {
        self.of == other.of
    }
}

/// Sweep points of one query's row, and of all rows of the head.
#[derive(Debug, Clone, PartialEq)]
pub struct Swept {
    pub row: Vec<SweepPoint>,
    pub all: Vec<SweepPoint>,
}

/// Target of a layer sweep, over all heads of a layer.
pub type LayerSweepOf = (RunId, Stack, usize);

/// Request for a sweep of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerSweepQuery {
    pub of: LayerSweepOf,
    pub n_heads: usize,
    /// Scales to mark, such as those of known scaling rules.
    pub marks: Vec<f64>,
}

fn scales(marks: &[f64]) -> Vec<f64> {
    let marks = marks.iter().copied();
    let marks: Vec<f64> = marks.filter(|at| (1e-6..1e6).contains(at)).collect();
    sweep_scales(FROM, TO, N_POINTS, &marks).unwrap_or_default()
}

/// Sweeps the scale of a head's scores.
pub(super) fn sweep(query: &SweepQuery) -> Swept {
    let scores = query.detail.scores.finest();
    let scales = scales(&query.marks);
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

/// Sweeps the scale of one head's scores after the other; `None` if they are no longer available.
pub(super) fn sweep_layer(
    query: &LayerSweepQuery,
    mut detail: impl FnMut(HeadQuery) -> Option<Result<HeadDetail>>,
) -> Option<Result<Vec<SweepPoint>>> {
    let (_, stack, layer_idx) = query.of;
    let mut sweep = Sweep::new(&scales(&query.marks));
    for head_idx in 0..query.n_heads {
        let head = HeadQuery {
            stack,
            layer_idx,
            head_idx,
            hides_first_key: false,
            weighs_values: false,
        };
        match detail(head)? {
            Ok(detail) => {
                let scores = detail.scores.finest();
                sweep.add_rows(&scores.cells, scores.n_cols.max(1));
            }
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(sweep.points()))
}
