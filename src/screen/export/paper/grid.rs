//! Figures of a statistic for every layer and head.

use attnscope_report::drawing::{Map, Side};
use attnscope_spec::Stack;

use super::{bar, printed, rgb};
use crate::figure::{colour_range, figure_within, share};
use crate::panels::head_value::{value, why_undefined};
use crate::state::scene::Scene;
use crate::widgets::heatmap::Scale;

/// A grid for each stack of the model, with the values of the Overview panel.
pub fn of_overview(app: Scene<'_>) -> Vec<Map> {
    let grids = app.grids();
    let grids = grids
        .into_iter()
        .filter(|grid| !app.layers_of(*grid).is_empty());
    grids.map(|grid| of_grid(app, grid)).collect()
}

fn of_grid(app: Scene<'_>, grid: Stack) -> Map {
    let statistic = app.statistic();
    let is_per_head = statistic.is_per_head() || app.shows_distance();
    let layers = app.layers_of(grid);
    let heads = layers.iter().map(|layer| layer.heads.len()).max();
    let n_columns = if is_per_head {
        heads.unwrap_or(0).max(1)
    } else {
        1
    };
    let places = (0..layers.len()).flat_map(|layer| (0..n_columns).map(move |head| (layer, head)));
    let value_at = |(layer_idx, head_idx): (usize, usize)| {
        let is_there = !is_per_head || head_idx < layers[layer_idx].heads.len();
        let head_idx = is_per_head.then_some(head_idx);
        let layer_idx = layers[layer_idx].layer_idx;
        let is_defined = why_undefined(app, grid, layer_idx, head_idx).is_none();
        (is_there && is_defined).then(|| value(app, grid, layer_idx, head_idx))
    };
    let values: Vec<Option<f64>> = places.map(value_at).collect();
    let finite = || values.iter().flatten().copied().filter(|v| v.is_finite());
    let differs = app.grid_differs();
    let (low, high) = if differs {
        let most = finite().fold(0.0, |most: f64, v| most.max(v.abs()));
        let most = if most > 0.0 { most } else { 1.0 };
        (-most, most)
    } else {
        colour_range(statistic, finite())
    };
    let theme = if differs {
        printed().diverging()
    } else {
        printed()
    };
    let at = |value: f64| share(value, (low, high));
    let unit = match statistic.unit {
        "" => String::new(),
        unit => format!(", {unit}"),
    };
    let change = if differs { "change of " } else { "" };
    let stack = grid.label().map(|label| format!(" · {label}"));
    let name = app.subject().map(|subject| subject.name());
    Map {
        title: format!("{}{}", name.unwrap_or_default(), stack.unwrap_or_default()),
        rows: Side {
            labels: layers
                .iter()
                .map(|layer| layer.layer_idx.to_string())
                .collect(),
            ..numbered("layer", layers.len())
        },
        columns: if is_per_head {
            numbered("head", n_columns)
        } else {
            Side {
                labels: vec![String::new()],
                ..numbered("", 1)
            }
        },
        cells: values
            .iter()
            .map(|value| Some(rgb(theme.heat(at((*value)?)))))
            .collect(),
        values: values
            .iter()
            .map(|value| match value {
                Some(value) => {
                    let text = figure_within(*value, 5).trim().to_owned();
                    (text, rgb(theme.on_heat(at(*value))))
                }
                None => (String::new(), [0, 0, 0]),
            })
            .collect(),
        bar: bar(
            &theme,
            Scale {
                low: low as f32,
                high: high as f32,
                is_log: false,
            },
            format!("{change}{}{unit}", statistic.title),
        ),
    }
}

fn numbered(title: &str, n: usize) -> Side {
    Side {
        title: title.to_owned(),
        labels: (0..n).map(|idx| idx.to_string()).collect(),
        first: 0,
        step: 1,
    }
}
