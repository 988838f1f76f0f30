//! The number that grids and rankings show for a head or a layer: a statistic, its change, or the distance between two patterns.

use attnscope_checks::stats::{Compute, LayerReport, STATISTICS, Values};
use attnscope_spec::Stack;

use crate::figure::moved;
use crate::state::runs::Shows;
use crate::state::scene::Scene;

/// The value of a head or a layer; NaN if there is none yet.
pub fn value(app: Scene<'_>, grid: Stack, layer_idx: usize, head_idx: Option<usize>) -> f64 {
    if app.shows_distance() {
        return distance(app, grid, layer_idx, head_idx);
    }
    if app.grid_differs() {
        let both = app.both_layers(grid, layer_idx);
        return both.map_or(f64::NAN, |[before, after]| {
            let before = of(app, Shows::A, before, head_idx);
            moved(before, of(app, Shows::B, after, head_idx))
        });
    }
    let layer = app.layer_of(grid, layer_idx);
    let side = app.shown_side();
    layer.map_or(f64::NAN, |layer| of(app, side, layer, head_idx))
}

/// Why the value is not defined here; `None` if it is defined, or should be and is not.
pub fn why_undefined(
    app: Scene<'_>,
    grid: Stack,
    layer_idx: usize,
    head_idx: Option<usize>,
) -> Option<&'static str> {
    if app.shows_distance() || !value(app, grid, layer_idx, head_idx).is_nan() {
        return None;
    }
    let why = |layer: &LayerReport| layer.why_undefined(app.statistic_idx, head_idx);
    if app.grid_differs() {
        // If one side is broken, do not report the value as undefined because of the other.
        let both = app.both_layers(grid, layer_idx)?;
        let values = both.map(|layer| match head_idx {
            Some(idx) => layer
                .heads
                .get(idx)
                .map_or(f64::NAN, |head| stat(app, &head.stats)),
            None => stat(app, &layer.stats),
        });
        let mut sides = both
            .into_iter()
            .zip(values)
            .filter(|(_, value)| value.is_nan());
        let first = sides.next().and_then(|(layer, _)| why(layer))?;
        return sides
            .all(|(layer, _)| why(layer).is_some())
            .then_some(first);
    }
    why(app.layer_of(grid, layer_idx)?)
}

/// The chosen statistic from a set of values; NaN for a statistic of tokens.
fn stat(app: Scene<'_>, values: &Values) -> f64 {
    match app.statistic_idx {
        idx if idx < STATISTICS.len() => values.at(idx),
        _ => f64::NAN,
    }
}

/// The chosen statistic of a head or a layer on one side.
fn of(app: Scene<'_>, side: Shows, layer: &LayerReport, head_idx: Option<usize>) -> f64 {
    match head_idx {
        None => match app.statistic().compute {
            // Heads of other types are dimmed and left out.
            Compute::Head(_, gather) if app.shown_type.is_some() => {
                let shown = layer.heads.iter().enumerate();
                let shown = shown.filter(|(_, head)| app.is_of_shown_type(head));
                let mut shown = shown
                    .map(|(head_idx, _)| app.head_statistic(side, layer, head_idx))
                    .peekable();
                match shown.peek() {
                    Some(_) => gather.over(shown),
                    None => f64::NAN,
                }
            }
            _ => app.layer_statistic(side, layer),
        },
        Some(head_idx) => app.head_statistic(side, layer, head_idx),
    }
}

/// Distance between a head's patterns in A and B; for a layer, the mean over its heads.
fn distance(app: Scene<'_>, grid: Stack, layer_idx: usize, head_idx: Option<usize>) -> f64 {
    let of = |head_idx: usize| {
        let head = app.compared_head(grid, layer_idx, head_idx);
        head.map_or(f64::NAN, |head| head.divergence)
    };
    match head_idx {
        Some(head_idx) => of(head_idx),
        None => {
            let n_heads = app.n_heads_of(grid);
            (0..n_heads).map(of).sum::<f64>() / n_heads as f64
        }
    }
}
