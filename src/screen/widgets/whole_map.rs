//! A whole matrix, as large as fits, above the legend of its scale; with margins if they fit.

use attnscope_run::Pyramid;
use attnscope_terminal::theme::Theme;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};

use super::heatmap::{HeatMap, Ratio, Scale, Window};
use super::legend::legend;
use super::margins::{Margin, draw_columns, draw_rows};
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
    pub scale: Scale,
    /// Selected row and column.
    pub crosshair: Option<(usize, usize)>,
    /// Margins of rows and of columns.
    pub margins: Option<[Margin<'a>; 2]>,
}

/// Area of the map, and the room left for labels.
struct Place {
    map: Rect,
    ratio: Ratio,
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
        ratio: Ratio::to_fit(finest.n_rows, finest.n_cols, rows, cols),
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
            ratio: Ratio::to_fit(finest.n_rows, finest.n_cols, rows, cols),
            n_row_labels: 0,
            n_column_labels: 0,
        };
    }
    let mut best = place(map.values, inside, ROW_LABELS[0], COLUMN_LABELS[0]);
    for n_rows in ROW_LABELS {
        for n_columns in COLUMN_LABELS {
            let other = place(map.values, inside, n_rows, n_columns);
            if other.ratio.zoom() > best.ratio.zoom() {
                best = other;
            }
        }
    }
    best
}

/// Draws the map, its margins and its legend.
pub fn draw_whole(frame: &mut Frame<'_>, area: Rect, map: &WholeMap<'_>) {
    let theme = map.theme;
    let [inside, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(area);
    let place = best_place(map, inside);
    let window = Window::whole(place.ratio);
    // Align bars and labels with the map, which may be smaller than its area.
    let n_pixels = |n: usize| place.ratio.pixels_for(n);
    let finest = map.values.finest();
    let fitted = Rect {
        width: place.map.width.min(n_pixels(finest.n_cols) as u16),
        height: (place.map.height).min(n_pixels(finest.n_rows).div_ceil(2) as u16),
        ..place.map
    };
    let heat_map = HeatMap {
        theme,
        values: map.values,
        window,
        scale: map.scale,
        crosshair: map.crosshair,
    };
    frame.render_widget(heat_map, fitted);
    if let Some([rows, columns]) = &map.margins {
        let widths = (place.n_row_labels, ROW_BARS);
        draw_rows(frame, fitted, theme, window, rows, widths);
        draw_columns(frame, fitted, theme, window, columns, place.n_column_labels);
    }
    let ends = [map.scale.low, map.scale.high].map(|end| figure(f64::from(end), 0));
    let room = (below.width as usize).saturating_sub(ends[0].len() + ends[1].len() + 3);
    let low = format!(" {}", ends[0]);
    let line = legend(theme, &low, &ends[1], room.min(MOST_SWATCHES));
    frame.render_widget(line, below);
}
