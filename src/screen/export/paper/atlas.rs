//! Figures of every head's map: layers one below the other, heads side by side.

use std::sync::Arc;

use attnscope_report::drawing::{Map, Side};
use attnscope_spec::Stack;

use super::{bar, printed, rgb};
use crate::panels::atlas::{most_heads, thumbnails};
use crate::state::scene::Scene;
use crate::widgets::heatmap::Scale;
use crate::widgets::thumbnail::Thumbnail;

/// Largest side of a head's picture, in pixels, and the gap between two.
const SIDE: usize = 32;
const GAP: usize = 2;

/// A figure for each grid of the model, or for the selected layer if it is shown alone.
pub fn of_overview(app: Scene<'_>) -> Vec<Map> {
    if app.overview_view.is_of_layer {
        let at = app.selection;
        return vec![of_layers(app, at.stack, &[at.layer_idx])];
    }
    let grids = app.grids().into_iter();
    let grids = grids.filter(|grid| !app.layers_of(*grid).is_empty());
    grids
        .map(|grid| {
            let layers = app.layers_of(grid).iter().map(|layer| layer.layer_idx);
            of_layers(app, grid, &layers.collect::<Vec<_>>())
        })
        .collect()
}

fn of_layers(app: Scene<'_>, stack: Stack, layers: &[usize]) -> Map {
    let n_heads = most_heads(app, stack);
    let pictures: Vec<Vec<Option<Arc<Thumbnail>>>> = layers
        .iter()
        .map(|layer_idx| thumbnails(app, stack, (*layer_idx, 0..n_heads), (SIDE, SIDE)))
        .collect();
    let all = || pictures.iter().flatten().flatten();
    let most = all().fold(0.0, |most: f32, picture| most.max(picture.largest()));
    let side = |of: fn(&Thumbnail) -> usize| all().map(|picture| of(picture)).max().unwrap_or(1);
    let (wide, high) = (
        side(|picture| picture.width),
        side(|picture| picture.height),
    );
    let differs = app.grid_differs();
    let theme = if differs {
        printed().diverging()
    } else {
        printed()
    };
    let n_rows = (layers.len() * (high + GAP)).saturating_sub(GAP);
    let n_columns = (n_heads * (wide + GAP)).saturating_sub(GAP).max(1);
    let mut cells = vec![None; n_rows * n_columns];
    for (nth_layer, row) in pictures.iter().enumerate() {
        for (head_idx, picture) in row.iter().enumerate() {
            let Some(picture) = picture else { continue };
            let (by_row, by_change) = (picture.by_row(), picture.by_change(most));
            for y in 0..picture.height {
                let at = (nth_layer * (high + GAP) + y) * n_columns + head_idx * (wide + GAP);
                for x in 0..picture.width {
                    let share = if differs {
                        by_change(x, y)
                    } else {
                        by_row(x, y)
                    };
                    cells[at + x] = share.map(|share| rgb(theme.heat(share)));
                }
            }
        }
    }
    let scale = Scale {
        low: if differs { -1.0 } else { 0.0 },
        high: 1.0,
        is_log: false,
    };
    let what = if differs {
        format!("√ of change ÷ {most:.2}")
    } else {
        "√ of weight ÷ largest of its row".to_owned()
    };
    let name = app.subject().map(|subject| subject.name());
    let stack = stack.label().map(|label| format!(" · {label}"));
    Map {
        title: format!("{}{}", name.unwrap_or_default(), stack.unwrap_or_default()),
        rows: grouped("layer", layers, high),
        columns: grouped("head", &(0..n_heads).collect::<Vec<_>>(), wide),
        cells,
        values: Vec::new(),
        bar: bar(&theme, scale, what),
    }
}

/// One label in the middle of each picture.
fn grouped(title: &str, numbers: &[usize], size: usize) -> Side {
    let n = (numbers.len() * (size + GAP)).saturating_sub(GAP).max(1);
    let mut labels = vec![String::new(); n];
    for (nth, number) in numbers.iter().enumerate() {
        labels[nth * (size + GAP) + size / 2] = number.to_string();
    }
    Side {
        title: title.to_owned(),
        labels,
        first: 0,
        step: 1,
    }
}
