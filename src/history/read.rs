//! Result of reading one checkpoint for a history.

use attnscope_checks::stats::STATISTICS;
use attnscope_report::record::{Row, Source, Table};
use attnscope_report::{ModelRecord, PromptRecord};

use super::grid::{Grid, LayerShape};
use super::record::{Numbers, UNKNOWN};

/// Statistics of one checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub grid: Grid,
    /// Means over the prompts.
    pub numbers: Numbers,
    /// Rows of the table, one per prompt and place.
    pub rows: Vec<Row>,
    /// Family and sizes of the model, as JSON.
    pub model: String,
    /// Whether the statistics came from the cache.
    pub is_cached: bool,
}

impl Reading {
    /// Makes a reading from prompts that were run.
    pub fn of(model: &ModelRecord, step: Option<u64>, prompts: &[PromptRecord]) -> Self {
        let source = Source {
            model,
            step,
            prompts,
        };
        let table = Table::of(&[source], Vec::new());
        // Plain names and numbers: serialisation cannot fail.
        let model = serde_json::to_string(model).unwrap_or_default();
        let grid = Grid::new(prompts.first().map_or(Vec::new(), |prompt| {
            let shape = |layer: &attnscope_report::LayerRecord| LayerShape {
                stack: layer.stack,
                layer_idx: layer.layer,
                n_heads: layer.heads.len(),
            };
            prompt.layers.iter().map(shape).collect()
        }));
        Self::of_rows(grid, table.rows, model)
    }

    /// Makes a reading from existing rows.
    pub fn of_rows(grid: Grid, rows: Vec<Row>, model: String) -> Self {
        let numbers = mean(&grid, &rows);
        Self {
            grid,
            numbers,
            rows,
            model,
            is_cached: false,
        }
    }
}

/// Returns the mean over prompts of every statistic and cell. It is NaN if one prompt has NaN, and unknown if one prompt lacks
/// the value.
fn mean(grid: &Grid, rows: &[Row]) -> Numbers {
    let n_cells = grid.n_cells();
    let mut sums = vec![0f64; STATISTICS.len() * n_cells];
    let mut counts = vec![0u32; n_cells];
    let mut is_known = vec![true; sums.len()];
    let (mut loss, mut n_losses, mut last_prompt) = (0.0, 0u32, None);
    for row in rows {
        if last_prompt != Some(&row.prompt) {
            last_prompt = Some(&row.prompt);
            if let Some(of) = row.loss {
                loss += of;
                n_losses += 1;
            }
        }
        let Some(cell) = row.place().and_then(|place| grid.cell(&place)) else {
            continue;
        };
        counts[cell] += 1;
        for (nth, value) in row.stats.iter().enumerate() {
            let at = nth * n_cells + cell;
            is_known[at] &= value.is_some();
            sums[at] += value.unwrap_or_default();
        }
    }
    let value = |(at, sum): (usize, &f64)| match counts[at % n_cells.max(1)] {
        n if n > 0 && is_known[at] => (sum / f64::from(n)) as f32,
        _ => UNKNOWN,
    };
    Numbers {
        batch: None,
        loss: (n_losses > 0).then(|| loss / f64::from(n_losses)),
        values: sums.iter().enumerate().map(value).collect(),
    }
}
