//! Figures of a statistic for every layer and head.

use attnscope_report::drawing::{Map, Side};
use attnscope_spec::{Place, Stack};
use attnscope_terminal::theme::Theme;
use attnscope_worker::EffectShown;

use super::{bar, printed, rgb};
use crate::figure::{colour_range, figure_within, share};
use crate::panels::effect;
use crate::panels::head_value::{value, why_undefined};
use crate::state::scene::Scene;
use crate::state::shown_name::name_of;
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
    let unit = match statistic.unit {
        "" => String::new(),
        unit => format!(", {unit}"),
    };
    let change = if differs { "change of " } else { "" };
    let stack = grid.label().map(|label| format!(" · {label}"));
    let name = app.subject().map(name_of);
    let bar = format!("{change}{}{unit}", statistic.title);
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
        ..colours_of(&theme, &values, (low, high), bar)
    }
}

/// A map without labels whose cells have these values, written in them.
fn colours_of(theme: &Theme, values: &[Option<f64>], ends: (f64, f64), title: String) -> Map {
    let at = |value: f64| share(value, ends);
    Map {
        title: String::new(),
        rows: numbered("", 0),
        columns: numbered("", 0),
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
            theme,
            Scale {
                low: ends.0 as f32,
                high: ends.1 as f32,
                is_log: false,
            },
            title,
        ),
    }
}

/// The effects of the heads of the selected grid; `None` if no head has a value.
pub fn of_effects(app: Scene<'_>, shown: &EffectShown) -> Option<Map> {
    let grid = app.selection.stack;
    let (n_layers, n_heads) = (app.n_layers(), app.n_heads());
    let places = (0..n_layers).flat_map(|layer| (0..n_heads).map(move |head| (layer, head)));
    let value_at = |(layer_idx, head_idx): (usize, usize)| {
        let place = Place::layer(grid, layer_idx).head(head_idx);
        let found = shown
            .heads
            .iter()
            .find(|(known, _)| known.is_same_head(&place));
        found.map(|(_, value)| *value)
    };
    let values: Vec<Option<f64>> = places.map(value_at).collect();
    values.iter().flatten().next()?;
    let ends = effect::ends(app, shown);
    let theme = if ends.0 < 0.0 {
        printed().diverging()
    } else {
        printed()
    };
    let name = app.subject().map(name_of);
    let measure = app.effect_measure();
    Some(Map {
        title: name.unwrap_or_default(),
        rows: numbered("layer", n_layers),
        columns: numbered("head", n_heads),
        ..colours_of(&theme, &values, ends, measure.title().to_owned())
    })
}

fn numbered(title: &str, n: usize) -> Side {
    Side {
        title: title.to_owned(),
        labels: (0..n).map(|idx| idx.to_string()).collect(),
        first: 0,
        step: 1,
    }
}
