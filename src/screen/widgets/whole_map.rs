//! A whole matrix, as large as fits, above the legend of its scale; with margins if they fit.

use attnscope_run::Pyramid;
use attnscope_terminal::theme::Theme;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};

use super::heatmap::{HeatMap, Scale};
use super::hidden::Hidden;
use super::legend::legend;
use super::margins::{Margin, draw_columns, draw_rows};
use super::window::Window;
use crate::figure::figure;

/// Maximum columns of the scale in the legend.
const MOST_SWATCHES: usize = 12;
/// Columns of row labels, and rows of column labels: fewer if that makes the map larger.
const ROW_LABELS: [u16; 3] = [10, 6, 1];
const COLUMN_LABELS: [u16; 3] = [7, 3, 0];
/// Columns of row bars.
const ROW_BARS: u16 = 5;

/// A matrix and how it is drawn.
pub struct WholeMap<'a> {
    pub theme: &'a Theme,
    pub values: &'a Pyramid,
    pub hidden: Hidden<'a>,
    pub scale: Scale,
    /// Selected row and column.
    pub crosshair: Option<(usize, usize)>,
    /// Margins of rows and of columns.
    pub margins: Option<[Margin<'a>; 2]>,
}

/// Area of the map, and the room left for labels.
struct Place {
    map: Rect,
    window: Window,
    n_row_labels: u16,
    n_column_labels: u16,
}

/// The layout with the given numbers of label rows and columns.
fn place(values: &Pyramid, inside: Rect, n_row_labels: u16, n_column_labels: u16) -> Place {
    let map = Rect {
        x: inside.x + n_row_labels,
        width: inside.width.saturating_sub(n_row_labels + ROW_BARS + 1),
        height: inside.height.saturating_sub(1 + n_column_labels),
        ..inside
    };
    let finest = values.finest();
    let (rows, cols) = (2 * map.height as usize, map.width as usize);
    Place {
        map,
        window: Window::to_fit((finest.n_rows, finest.n_cols), (rows, cols)),
        n_row_labels,
        n_column_labels,
    }
}

/// The layout with the largest map; among equally large ones, the one with most labels.
fn best_place(map: &WholeMap<'_>, inside: Rect) -> Place {
    if map.margins.is_none() {
        let finest = map.values.finest();
        let (rows, cols) = (2 * inside.height as usize, inside.width as usize);
        return Place {
            map: inside,
            window: Window::to_fit((finest.n_rows, finest.n_cols), (rows, cols)),
            n_row_labels: 0,
            n_column_labels: 0,
        };
    }
    // Labels take at most a third of the rows, and give way only for cells of whole pixels.
    let fits = |n_columns: &u16| *n_columns <= inside.height / 3;
    let column_labels: Vec<u16> = COLUMN_LABELS.into_iter().filter(fits).collect();
    let most = column_labels.first().copied().unwrap_or(0);
    let mut best = place(map.values, inside, ROW_LABELS[0], most);
    for n_rows in ROW_LABELS {
        for n_columns in &column_labels {
            let other = place(map.values, inside, n_rows, *n_columns);
            let zoom = |place: &Place| place.window.queries.ratio.zoom().max(0);
            if zoom(&other) > zoom(&best) {
                best = other;
            }
        }
    }
    if let Some([_, columns]) = &map.margins {
        let per_cell = best.window.keys.ratio.pixels_per_cell();
        let needed = Margin::rows_needed(columns.n, columns.label, per_cell);
        if needed < best.n_column_labels {
            return place(map.values, inside, best.n_row_labels, needed);
        }
    }
    best
}

/// Draws the map, its margins and its legend.
pub fn draw_whole(frame: &mut Frame<'_>, area: Rect, map: &WholeMap<'_>) {
    let theme = map.theme;
    let [inside, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(area);
    let place = best_place(map, inside);
    let window = place.window;
    // Align bars and labels with the map, which may be smaller than its area.
    let finest = map.values.finest();
    let n_wide = window.keys.ratio.pixels_for(finest.n_cols);
    let n_high = window.queries.ratio.pixels_for(finest.n_rows);
    let fitted = Rect {
        width: place.map.width.min(n_wide as u16),
        height: place.map.height.min(n_high.div_ceil(2) as u16),
        ..place.map
    };
    let heat_map = HeatMap {
        theme,
        values: map.values,
        hidden: map.hidden.clone(),
        window,
        scale: map.scale,
        crosshair: map.crosshair,
    };
    frame.render_widget(heat_map, fitted);
    if let Some([rows, columns]) = &map.margins {
        let widths = (place.n_row_labels, ROW_BARS);
        draw_rows(frame, fitted, theme, window.queries, rows, widths);
        let n_labels = place.n_column_labels;
        draw_columns(frame, fitted, theme, window.keys, columns, n_labels);
    }
    let ends = [map.scale.low, map.scale.high].map(|end| figure(f64::from(end), 0));
    let room = (below.width as usize).saturating_sub(ends[0].len() + ends[1].len() + 3);
    let low = format!(" {}", ends[0]);
    let line = legend(theme, &low, &ends[1], room.min(MOST_SWATCHES));
    frame.render_widget(line, below);
}
