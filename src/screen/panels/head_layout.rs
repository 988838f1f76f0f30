//! Where the parts of the Head panel are, and which cells its map shows.

use std::ops::Range;

use ratatui::layout::{Constraint, Layout, Rect};

use crate::state::scene::Scene;
use crate::state::views::Axis;
use crate::widgets::margins::Margin;
use crate::widgets::window::{Side, Window};

/// Columns for query labels, one or two in a row; rows for key labels; columns for the row entropies.
const QUERY_LABELS: [u16; 2] = [10, 20];
const KEY_LABELS: u16 = 5;
const KEY_LABELS_LEAST: u16 = 3;
const KEY_LABELS_MOST: u16 = 14;
pub(super) const ENTROPIES: u16 = 6;

/// Layout of the panel.
pub(super) struct Parts {
    pub frame: Rect,
    pub map: Rect,
    pub window: Window,
    /// Columns of query labels, left of the map.
    pub n_query_labels: u16,
    /// Rows of key labels, below the map and its margin.
    pub n_key_labels: u16,
    pub side: Rect,
}

/// The map's area with labels of the given sizes.
fn map_with(frame: Rect, n_query_labels: u16, n_key_labels: u16) -> Rect {
    Rect {
        x: frame.x + 1 + n_query_labels,
        y: frame.y + 1,
        width: frame.width.saturating_sub(2 + n_query_labels + ENTROPIES),
        // Below the map: attention received by keys, key labels, legend.
        height: frame.height.saturating_sub(2 + 1 + n_key_labels + 1),
    }
}

/// The boxes of the panel: the map, and the selected query beside it.
fn boxes(app: Scene<'_>, area: Rect) -> [Rect; 2] {
    let [mut frame, mut side] =
        Layout::horizontal([Constraint::Percentage(66), Constraint::Min(30)]).areas(area);
    app.arrange(area, &mut [&mut frame, &mut side]);
    [frame, side]
}

/// The boxes of the panel.
pub fn panes(app: Scene<'_>, area: Rect) -> Vec<Rect> {
    boxes(app, area).to_vec()
}

pub(super) fn parts(app: Scene<'_>, area: Rect) -> Parts {
    let [frame, side] = boxes(app, area);
    let window_with =
        |n_queries: u16, n_keys: u16| window_in(app, map_with(frame, n_queries, n_keys));
    let mut n_query_labels = QUERY_LABELS[0];
    let needed = |window: &Window| {
        let label = |key_idx: usize| app.token(Axis::Key, key_idx);
        Margin::rows_needed(
            app.n_along(Axis::Key),
            &label,
            window.keys.ratio.pixels_per_cell(),
        )
    };
    // Use fewer rows of labels if those suffice or let the map show more, and more of them if the map leaves rows free.
    let usual = window_with(n_query_labels, KEY_LABELS);
    let needed = needed(&usual).clamp(1, KEY_LABELS_MOST);
    let short = window_with(n_query_labels, KEY_LABELS_LEAST);
    let zoom = |window: &Window| window.queries.ratio.zoom();
    let n_labels = if needed <= KEY_LABELS_LEAST || zoom(&short) > zoom(&usual) {
        KEY_LABELS_LEAST.min(needed)
    } else {
        KEY_LABELS.min(needed)
    };
    let window = window_with(n_query_labels, n_labels);
    let n_pixels = |window: &Window| {
        let [queries, keys] = [window.queries, window.keys].map(|side| side.ratio);
        let n_high = queries.pixels_for(n_cells(app, Axis::Query)).div_ceil(2);
        let n_wide = keys.pixels_for(n_cells(app, Axis::Key));
        [n_high, n_wide].map(|n| u16::try_from(n).unwrap_or(u16::MAX))
    };
    // Where two queries share a row, label both if the map leaves the columns free.
    let [_, n_wide] = n_pixels(&window);
    let [one, two] = QUERY_LABELS;
    let is_free = n_wide + (two - one) <= map_with(frame, one, n_labels).width;
    if window.queries.ratio.pixels == 1 && window.queries.ratio.tiles == 1 && is_free {
        n_query_labels = two;
    }
    let map = map_with(frame, n_query_labels, n_labels);
    let [n_high, n_wide] = n_pixels(&window_in(app, map));
    let n_spare = map.height.saturating_sub(n_high);
    let n_spare = n_spare.min(needed.saturating_sub(n_labels));
    let map = Rect {
        // Align bars and labels with the map, which may be smaller than its area.
        height: (map.height - n_spare).min(n_high),
        width: map.width.min(n_wide),
        ..map
    };
    Parts {
        frame,
        map,
        window: scrolled_window(app, map),
        n_query_labels,
        n_key_labels: n_labels + n_spare,
        side,
    }
}

/// The window of a map at the chosen scale, or at the largest that fits; from the first cell.
fn window_in(app: Scene<'_>, map: Rect) -> Window {
    let [n_queries, n_keys] = [Axis::Query, Axis::Key].map(|axis| n_cells(app, axis));
    let (rows, cols) = (2 * map.height as usize, map.width as usize);
    match app.head_view.zoom {
        Some(zoom) => Window::of_zoom(zoom, n_keys, cols),
        None => Window::to_fit((n_queries, n_keys), (rows, cols)),
    }
}

/// Scrolls a side so that the selected cell is visible.
fn scrolled(
    side: Side,
    first: usize,
    selected: usize,
    (n_cells, n_pixels): (usize, usize),
) -> Side {
    let n_shown = side.cells_in(n_pixels).max(1);
    let last_start = n_cells.saturating_sub(n_shown);
    let kept = first
        .min(selected)
        .max((selected + 1).saturating_sub(n_shown))
        .min(last_start);
    // Zoomed out, a pixel starts at a multiple of the cells that it covers.
    let level = side.ratio.level;
    Side {
        first: kept >> level << level,
        ..side
    }
}

/// The window of the map, with the crosshair in sight.
fn scrolled_window(app: Scene<'_>, map: Rect) -> Window {
    let Window { queries, keys } = window_in(app, map);
    let pooling = app.pooling();
    let n_of = |axis: Axis, n_pixels: usize| (n_cells(app, axis), n_pixels);
    let (view, at) = (&app.head_view, app.selection);
    Window {
        queries: scrolled(
            queries,
            view.first_query,
            at.query_idx / pooling,
            n_of(Axis::Query, 2 * map.height as usize),
        ),
        keys: scrolled(
            keys,
            view.first_key,
            at.key_idx / pooling,
            n_of(Axis::Key, map.width as usize),
        ),
    }
}

/// The current zoom, or the nearest zoom below the scale that fits.
pub fn zoom(app: Scene<'_>, area: Rect) -> i32 {
    // Longer labels only take rows that the map leaves free, so the scale is the same.
    let fits = || parts(app, area).window.queries.ratio.zoom();
    app.head_view.zoom.unwrap_or_else(fits)
}

/// Number of cells of the finest level along an axis.
fn n_cells(app: Scene<'_>, axis: Axis) -> usize {
    let pooling = app.pooling();
    app.n_along(axis).div_ceil(pooling)
}

/// The first query and key to show, so that the crosshair is visible.
pub fn window_start(app: Scene<'_>, area: Rect) -> (usize, usize) {
    let Window { queries, keys } = parts(app, area).window;
    (queries.first, keys.first)
}

/// The visible queries and keys, for a map whose cells are single pairs of tokens.
pub fn shown_cells(app: Scene<'_>, area: Rect) -> (Range<usize>, Range<usize>) {
    cells_in(app, &parts(app, area))
}

/// The visible queries and keys of a layout.
pub(super) fn cells_in(app: Scene<'_>, parts: &Parts) -> (Range<usize>, Range<usize>) {
    let along = |axis: Axis, side: Side, n_pixels: usize| {
        // A partly visible cell counts as visible.
        side.first..(side.first + side.cells_in(n_pixels) + 1).min(n_cells(app, axis))
    };
    let Window { queries, keys } = parts.window;
    (
        along(Axis::Query, queries, 2 * parts.map.height as usize),
        along(Axis::Key, keys, parts.map.width as usize),
    )
}

/// The visible part of the map.
pub struct View {
    pub queries: Range<usize>,
    pub keys: Range<usize>,
    /// A pixel covers 2^`level` cells on a side.
    pub level: usize,
}

/// The visible tokens, including those of partly visible cells.
pub fn view(app: Scene<'_>, area: Rect) -> View {
    view_of(app, &parts(app, area))
}

/// The visible tokens of a layout.
pub(super) fn view_of(app: Scene<'_>, parts: &Parts) -> View {
    let pooling = app.pooling();
    let along = |axis: Axis, side: Side, n_pixels: usize| {
        let last = side.cells_at(n_pixels.saturating_sub(1));
        let end = last.end * pooling;
        let n = app.n_along(axis);
        (side.first * pooling).min(n)..end.min(n)
    };
    let Window { queries, keys } = parts.window;
    View {
        queries: along(Axis::Query, queries, 2 * parts.map.height as usize),
        keys: along(Axis::Key, keys, parts.map.width as usize),
        level: (-queries.ratio.zoom()).max(0) as usize,
    }
}

/// Whether the map shows every cell.
pub(super) fn is_whole(app: Scene<'_>, parts: &Parts) -> bool {
    let View { queries, keys, .. } = view_of(app, parts);
    queries.len() == app.n_along(Axis::Query) && keys.len() == app.n_along(Axis::Key)
}
