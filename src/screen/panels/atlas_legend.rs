//! The legend of an atlas: the colours of its strips and of its maps.

use attnscope_compute::attention::Pooled;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::atlas_layout::{Cell, Layout};
use super::grid_scale::{grid_theme, undefined_in};
use super::statistic_figure::UNDEFINED;
use crate::figure::{cut, figure};
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
    let low = format!(" strips {}", figure(range.0, 0));
    let high = format!("{}{unit}", figure(range.1, 0));
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
            "√ of the change".to_owned(),
        ),
        None => (
            legend(&theme, " maps 0", "1", n_swatches),
            "√ of weight ÷ row's largest".to_owned(),
        ),
    };
    let per_pixel = first.map_or(String::new(), |head| {
        per_pixel(&head.summary.pooled, layout.cell)
    });
    let about = format!("{about}{per_pixel} · blank = masked");
    let lines = [(strips, meaning), (maps, about)];
    let first = lines.len() - usize::from(n_lines).min(lines.len());
    for (nth, (mut line, text)) in lines.into_iter().skip(first).enumerate() {
        let room = width.saturating_sub(line.width() + 3);
        line.push_span(Span::styled(
            format!("   {}", cut(&text, room)),
            app.theme.dim(),
        ));
        let area = Rect {
            y: layout.inside.bottom() - n_lines + nth as u16,
            height: 1,
            ..layout.inside
        };
        frame.render_widget(Line::from(line.spans), area);
    }
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
        (queries, keys) => format!(" · pixel = max of {queries} × {keys}"),
    }
}
