//! The legend of an atlas: the colours of its strips and of its maps.

use std::collections::BTreeSet;

use attnscope_checks::stats::HeadType;
use attnscope_compute::attention::Pooled;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::atlas_layout::{Cell, Layout};
use super::grid_scale::{grid_theme, undefined_in};
use super::statistic_figure::UNDEFINED;
use crate::figure::{cut_words, figure, fitting};
use crate::state::runs::Shows;
use crate::state::scene::Scene;
use crate::widgets::legend::legend;
use crate::widgets::thumbnail::Thumbnail;

/// What the strips and what the maps show, a line each.
pub fn draw_legend(
    frame: &mut Frame<'_>,
    app: Scene<'_>,
    layout: &Layout,
    range: (f64, f64),
    most: Option<f32>,
) {
    let n_lines = layout.n_legend.min(layout.inside.height);
    let theme = grid_theme(app);
    let width = usize::from(layout.inside.width);
    let statistic = app.statistic();
    let unit = match statistic.unit {
        "" => String::new(),
        unit => format!(" {unit}"),
    };
    let n_swatches = if width >= 70 { 12 } else { 6 };
    let low = format!(" strips {}", end(range.0));
    let high = format!("{}{unit}", end(range.1));
    let shown = (layout.layers.clone(), layout.heads.clone());
    let undefined = undefined_in(app, layout.stack, shown);
    let strips = match undefined {
        // No value is defined here, so a colour scale would mean nothing.
        Some((_, true)) => Line::default(),
        _ => legend(&theme, &low, &high, n_swatches),
    };
    let meaning = if let Some((why, _)) = undefined {
        format!("{UNDEFINED} {why}")
    } else if app.grid_differs() {
        let second = app.runs.b.as_ref();
        let a = second.map_or("before", |second| second.way.label(Shows::A));
        format!("less ←→ more than {a}")
    } else {
        format!("{} ←→ {}", statistic.low, statistic.high)
    };
    let first = app
        .layers_of(layout.stack)
        .iter()
        .find_map(|layer| layer.heads.first());
    let (maps, about) = match most {
        Some(most) => (
            legend(
                &theme,
                &format!(" maps −{}", figure(most.into(), 0)),
                &figure(most.into(), 0),
                n_swatches,
            ),
            "√ of the change",
        ),
        None => (
            legend(&theme, " maps 0", "1", n_swatches),
            // The shorter words for a narrow atlas.
            match width {
                ..48 => "√(weight ÷ row's max)",
                _ => "√ of weight ÷ row's largest",
            },
        ),
    };
    let per_pixel = first.map_or(String::new(), |head| {
        per_pixel(&head.summary.pooled, layout.cell)
    });
    let about = [about, per_pixel.as_str(), "blank = masked"];
    let types = types(app, layout);
    let mut meanings = vec![meaning.as_str()];
    meanings.extend(types.iter().map(String::as_str));
    let lines = [(strips, meanings), (maps, about.to_vec())];
    let first = lines.len() - usize::from(n_lines).min(lines.len());
    for (nth, (mut line, parts)) in lines.into_iter().skip(first).enumerate() {
        let indent = if line.width() == 0 { " " } else { "   " };
        let room = width.saturating_sub(line.width() + indent.len() + 1);
        let text = match fitting(&parts, room) {
            none if none.is_empty() => cut_words(parts[0], room),
            text => text,
        };
        line.push_span(Span::styled(format!("{indent}{text}"), app.theme.dim()));
        let area = Rect {
            y: layout.inside.bottom() - n_lines + nth as u16,
            height: 1,
            ..layout.inside
        };
        frame.render_widget(Line::from(line.spans), area);
    }
}

/// The letters of the types of heads that are on screen, with their names.
fn types(app: Scene<'_>, layout: &Layout) -> Vec<String> {
    let layers = layout.layers.clone();
    let layers = layers.filter_map(|idx| app.layer_of(layout.stack, idx));
    let shown = layers.flat_map(|layer| layer.heads.get(layout.heads.clone()).unwrap_or_default());
    let kinds: BTreeSet<HeadType> = shown.filter_map(|head| head.kind).collect();
    let name = |kind: HeadType| format!("{} {}", kind.letter(), kind.title());
    kinds.into_iter().map(name).collect()
}

/// How many queries and keys a pixel covers; nothing if it is one of each.
fn per_pixel(map: &Pooled, cell: Cell) -> String {
    let (width, height) = Thumbnail::size((map.n_rows, map.n_cols), cell.pixels);
    let n_covered = |n_cells: usize, per_cell: usize, n_pixels: usize| {
        let (n_cells, n_pixels) = (n_cells * per_cell, n_pixels.max(1));
        n_cells.div_ceil(n_pixels)
    };
    let queries = n_covered(map.n_rows, map.queries_per_cell, height);
    let keys = n_covered(map.n_cols, map.keys_per_cell, width);
    match (queries, keys) {
        (0 | 1, 0 | 1) => String::new(),
        (queries, keys) => format!("pixel = max of {queries} × {keys}"),
    }
}

/// A number at an end of a scale; 0 and 1 need no decimals.
fn end(value: f64) -> String {
    if value == 0.0 || value == 1.0 {
        return format!("{value}");
    }
    figure(value, 0)
}
