//! One head at full resolution: the map with tokens on both axes, its margins, and the selected query's row.

use std::ops::Range;

use attnscope_checks::stats::HeadType;
use attnscope_compute::attention::HeadSummary;
use attnscope_run::{HeadDetail, HeadMap, Pyramid};
use attnscope_terminal::theme::Theme;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::text::Span;

use super::head_row;
use crate::figure::{cut, figure};
use crate::state::app::App;
use crate::state::scene::Scene;
use crate::state::views::Axis;
use crate::widgets::frame::{framed, selection_title, waiting};
use crate::widgets::heatmap::{HeatMap, LOG_FLOOR, Ratio, Scale, Window};
use crate::widgets::legend::legend;
use crate::widgets::margins::{Margin, draw_columns, draw_rows};

/// Columns for query labels, rows for key labels, columns for the row entropies.
const QUERY_LABELS: u16 = 10;
const KEY_LABELS: u16 = 5;
const KEY_LABELS_LEAST: u16 = 3;
const KEY_LABELS_MOST: u16 = 14;
const ENTROPIES: u16 = 6;

/// Layout of the panel.
struct Parts {
    frame: Rect,
    map: Rect,
    /// Rows of key labels, below the map and its margin.
    n_key_labels: u16,
    side: Rect,
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

fn parts(app: Scene<'_>, area: Rect) -> Parts {
    let [frame, side] = boxes(app, area);
    let map_with = |n_key_labels: u16| Rect {
        x: frame.x + 1 + QUERY_LABELS,
        y: frame.y + 1,
        width: frame.width.saturating_sub(2 + QUERY_LABELS + ENTROPIES),
        // Below the map: attention received by keys, key labels, legend.
        height: frame.height.saturating_sub(2 + 1 + n_key_labels + 1),
    };
    // Use short labels if they let the map show more, and longer ones if it leaves rows free.
    let [usual, short] = [KEY_LABELS, KEY_LABELS_LEAST].map(|n| scale_in(app, map_with(n)));
    let n_labels = if short.zoom() > usual.zoom() {
        KEY_LABELS_LEAST
    } else {
        KEY_LABELS
    };
    let map = map_with(n_labels);
    let scale = scale_in(app, map);
    let [n_pixels, n_across] =
        [Axis::Query, Axis::Key].map(|axis| scale.pixels_for(n_cells(app, axis)));
    let n_used = u16::try_from(n_pixels.div_ceil(2)).unwrap_or(u16::MAX);
    let n_spare = map
        .height
        .saturating_sub(n_used)
        .min(KEY_LABELS_MOST - KEY_LABELS);
    Parts {
        frame,
        map: Rect {
            height: map.height - n_spare,
            // Align the row bars with the map, which may be narrower than its area.
            width: map.width.min(u16::try_from(n_across).unwrap_or(u16::MAX)),
            ..map
        },
        n_key_labels: n_labels + n_spare,
        side,
    }
}

/// The scale of the map: the chosen one, or the largest that fits.
fn scale_in(app: Scene<'_>, map: Rect) -> Ratio {
    let [n_queries, n_keys] = [Axis::Query, Axis::Key].map(|axis| n_cells(app, axis));
    let (rows, cols) = (2 * map.height as usize, map.width as usize);
    let fitting = || Ratio::to_fit(n_queries, n_keys, rows, cols);
    app.head_view.zoom.map_or_else(fitting, Ratio::of_zoom)
}

/// The current zoom, or the nearest zoom below the scale that fits.
pub fn zoom(app: Scene<'_>, area: Rect) -> i32 {
    // Longer labels only take rows that the map leaves free, so the scale is the same.
    let fits = || scale_in(app, parts(app, area).map).zoom();
    app.head_view.zoom.unwrap_or_else(fits)
}

/// Number of cells of the finest level along an axis.
fn n_cells(app: Scene<'_>, axis: Axis) -> usize {
    let pooling = app.pooling();
    app.n_along(axis).div_ceil(pooling)
}

/// The first query and key to show, so that the crosshair is visible.
pub fn window_start(app: Scene<'_>, area: Rect) -> (usize, usize) {
    let map = parts(app, area).map;
    let window = Window::whole(scale_in(app, map));
    let pooling = app.pooling();
    let along = |axis: Axis, first: usize, selected: usize, n_pixels: usize| {
        let n_shown = window.cells_in(n_pixels).max(1);
        let last_start = n_cells(app, axis).saturating_sub(n_shown);
        let kept = first
            .min(selected)
            .max((selected + 1).saturating_sub(n_shown))
            .min(last_start);
        // Zoomed out, a pixel starts at a multiple of the cells that it covers.
        let level = window.scale.level;
        kept >> level << level
    };
    (
        along(
            Axis::Query,
            app.head_view.first_query,
            app.selection.query_idx / pooling,
            2 * map.height as usize,
        ),
        along(
            Axis::Key,
            app.head_view.first_key,
            app.selection.key_idx / pooling,
            map.width as usize,
        ),
    )
}

fn window(app: Scene<'_>, area: Rect) -> Window {
    let (first_query, first_key) = window_start(app, area);
    Window {
        first_query,
        first_key,
        scale: scale_in(app, parts(app, area).map),
    }
}

/// The visible queries and keys, for a map whose cells are single pairs of tokens.
pub fn shown_cells(app: Scene<'_>, area: Rect) -> (Range<usize>, Range<usize>) {
    let (map, window) = (parts(app, area).map, window(app, area));
    let along = |axis: Axis, first: usize, n_pixels: usize| {
        // A partly visible cell counts as visible.
        first..(first + window.cells_in(n_pixels) + 1).min(n_cells(app, axis))
    };
    (
        along(Axis::Query, window.first_query, 2 * map.height as usize),
        along(Axis::Key, window.first_key, map.width as usize),
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
    let (map, window, pooling) = (parts(app, area).map, window(app, area), app.pooling());
    let along = |axis: Axis, first: usize, n_pixels: usize| {
        let last = window.cells_at(first, n_pixels.saturating_sub(1));
        let end = last.end * pooling;
        let n = app.n_along(axis);
        (first * pooling).min(n)..end.min(n)
    };
    View {
        queries: along(Axis::Query, window.first_query, 2 * map.height as usize),
        keys: along(Axis::Key, window.first_key, map.width as usize),
        level: (-window.scale.zoom()).max(0) as usize,
    }
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let parts = parts(app, area);
    let (query, key) = (app.selection.query_idx, app.selection.key_idx);
    let what = match (app.head_map(), app.head_view.hides_first_key) {
        (HeadMap::Pattern, true) => "pattern without first key",
        (HeadMap::Contribution, _) => "contribution α·‖v W_O‖",
        (map, _) => map.name(),
    };
    let change = match (app.shows_difference(), app.shown_difference()) {
        (true, None) => "B · ",
        (true, Some(_)) => "change of ",
        (false, _) => "",
    };
    let head = app
        .layer()
        .and_then(|layer| layer.heads.get(app.selection.head_idx));
    let is_named = head.is_some_and(|head| head.kind == Some(HeadType::Alignment));
    let named = if is_named { " · alignment head" } else { "" };
    let place = format!(
        "{named} · {change}{what} · query {query} “{}” → key {key} “{}”",
        app.token(Axis::Query, query),
        app.token(Axis::Key, key)
    );
    framed(
        frame,
        parts.frame,
        app,
        cut(
            &selection_title(app, &place),
            (parts.frame.width as usize).saturating_sub(4),
        ),
    );
    match app.shown_detail() {
        Some(detail) => {
            if !parts.frame.is_empty() {
                draw_map(frame, area, &parts, app, detail);
            }
            if !parts.side.is_empty() {
                head_row::draw(frame, parts.side, app, detail);
            }
        }
        None => {
            let inside = ratatui::widgets::Block::bordered().inner(parts.frame);
            waiting(frame, inside, app);
            framed(frame, parts.side, app, " query ");
        }
    }
}

/// The theme for values, or for changes.
fn map_theme(app: Scene<'_>) -> Theme {
    match app.shown_difference() {
        Some(_) => app.theme.diverging(),
        None => app.theme.clone(),
    }
}

/// The values shown: the change, or one of the head's maps.
pub fn values<'a>(app: Scene<'a>, detail: &'a HeadDetail) -> &'a Pyramid {
    match app.shown_difference() {
        Some(difference) => difference,
        None => detail.map(app.head_map()).unwrap_or(&detail.pattern),
    }
}

/// The colour scale of the values shown.
pub fn scale(app: Scene<'_>, detail: &HeadDetail) -> Scale {
    if let Some(difference) = app.shown_difference() {
        let most = difference.level(usize::MAX).cells[0].abs();
        let most = if most > 0.0 && most.is_finite() {
            most
        } else {
            1.0
        };
        return Scale {
            low: -most,
            high: most,
            is_log: false,
        };
    }
    scale_of(detail, app.head_map(), app.head_view.is_log)
}

/// The colour scale of one of a head's maps.
pub fn scale_of(detail: &HeadDetail, which: HeadMap, is_log: bool) -> Scale {
    if which == HeadMap::Scores {
        // The histogram contains every score; scanning millions of scores again is too slow for a frame.
        let (low, high) = match &detail.histogram {
            histogram if histogram.n > 0 => (histogram.min, histogram.max),
            _ => (0.0, 1.0),
        };
        return Scale {
            low,
            high,
            is_log: false,
        };
    }
    // The coarsest level holds the maximum of all cells.
    let map = detail.map(which).unwrap_or(&detail.pattern);
    let largest = map.level(usize::MAX).cells[0];
    let high = if largest > 0.0 && largest.is_finite() {
        largest
    } else {
        1.0
    };
    Scale {
        low: 0.0,
        high,
        is_log,
    }
}

/// Passes the map as drawn, and its area, to a function; returns `None` if there is no map yet.
pub fn with_heat_map<T>(
    app: Scene<'_>,
    area: Rect,
    draw: impl FnOnce(Rect, HeatMap<'_>) -> T,
) -> Option<T> {
    let detail = app.shown_detail()?;
    let map = parts(app, area).map;
    let window = window(app, area);
    let scale = scale(app, detail);
    let values = values(app, detail);
    let theme = map_theme(app);
    let pooling = app.pooling();
    let crosshair = Some((
        app.selection.query_idx / pooling,
        app.selection.key_idx / pooling,
    ));
    let mut heat_map = HeatMap {
        theme: &theme,
        values,
        window,
        scale,
        crosshair,
    };
    if app.shows_part() {
        let (queries, keys) = shown_cells(app, area);
        match app.part_with(&queries, &keys) {
            Some(part) => {
                heat_map.values = part.map(app.head_map()).unwrap_or(&part.pattern);
                heat_map.window.first_query -= part.queries.start;
                heat_map.window.first_key -= part.keys.start;
                // Hide a crosshair outside the part.
                heat_map.crosshair = crosshair.and_then(|(query, key)| {
                    let query = query.checked_sub(part.queries.start)?;
                    Some((query, key.checked_sub(part.keys.start)?))
                });
            }
            // Until the part is computed, show the pooled cells.
            None => {
                let coarse = detail.pooling();
                heat_map.window = Window {
                    first_query: window.first_query / coarse,
                    first_key: window.first_key / coarse,
                    scale: Ratio::of_zoom(window.scale.zoom().max(1) * coarse as i32),
                };
                heat_map.crosshair = crosshair.map(|(q, k)| (q / coarse, k / coarse));
            }
        }
    }
    Some(draw(map, heat_map))
}

fn draw_map(frame: &mut Frame<'_>, area: Rect, parts: &Parts, app: Scene<'_>, detail: &HeadDetail) {
    let window = window(app, area);
    let scale = scale(app, detail);
    let (map, pooling) = (parts.map, app.pooling());
    with_heat_map(app, area, |map, heat_map| {
        frame.render_widget(heat_map, map)
    });
    draw_query_axis(frame, map, app, window, pooling);
    draw_key_axis(frame, parts, app, window, pooling);
    draw_legend(frame, parts, app, window, scale, pooling);
}

/// Draws query labels on the left, and the entropy of each row on the right.
fn draw_query_axis(
    frame: &mut Frame<'_>,
    map: Rect,
    app: Scene<'_>,
    window: Window,
    pooling: usize,
) {
    let layer = app.layer();
    let head = layer.and_then(|layer| layer.heads.get(app.selection.head_idx));
    let relative_entropy = |query_idx: usize| {
        let row = head?.summary.rows.get(query_idx)?;
        (row.n_visible >= 2).then(|| row.entropy / (row.n_visible as f32).ln())
    };
    let margin = Margin {
        n: app.n_along(Axis::Query),
        pooling,
        selected: Some(app.selection.query_idx),
        label: &|query_idx| app.token(Axis::Query, query_idx),
        share: &relative_entropy,
    };
    let widths = (QUERY_LABELS, ENTROPIES);
    draw_rows(frame, map, &app.theme, window, &margin, widths);
}

/// Mean attention that a key receives from the queries that see it: later keys are seen by fewer.
pub fn received(app: Scene<'_>, summary: &HeadSummary, key_idx: usize) -> Option<f32> {
    let n = summary.rows.len();
    let spec = app.attention();
    let n_seeing = spec.map_or(n, |spec| summary.n_queries_seeing(spec.mask, key_idx));
    Some(summary.column_sums.get(key_idx)? / n_seeing.max(1) as f32)
}

/// Draws the attention received by keys below the map, and the key labels.
fn draw_key_axis(
    frame: &mut Frame<'_>,
    parts: &Parts,
    app: Scene<'_>,
    window: Window,
    pooling: usize,
) {
    let layer = app.layer();
    let head = layer.and_then(|layer| layer.heads.get(app.selection.head_idx));
    let received = |key_idx: usize| received(app, &head?.summary, key_idx);
    let n = app.n_along(Axis::Key);
    let largest = (0..n)
        .filter_map(received)
        .filter(|v| v.is_finite())
        .fold(f32::MIN_POSITIVE, f32::max);
    let margin = Margin {
        n,
        pooling,
        selected: Some(app.selection.key_idx),
        label: &|key_idx| app.token(Axis::Key, key_idx),
        share: &|key_idx| Some(received(key_idx)? / largest),
    };
    let (map, n_labels) = (parts.map, parts.n_key_labels);
    draw_columns(frame, map, &app.theme, window, &margin, n_labels);
}

fn draw_legend(
    frame: &mut Frame<'_>,
    parts: &Parts,
    app: Scene<'_>,
    window: Window,
    scale: Scale,
    pooling: usize,
) {
    let theme = &app.theme;
    let low = if scale.is_log {
        LOG_FLOOR.min(scale.high)
    } else {
        scale.low
    };
    let resolution = match covered(window.scale, pooling) {
        cells if cells == "1" => String::new(),
        cells => format!(" · 1 cell = max of {cells} × {cells}"),
    };
    let ends = [low, scale.high].map(|end| figure(f64::from(end), 0));
    let log = if scale.is_log { " log" } else { "" };
    // In order of importance, as many as fit uncut.
    let needed = format!("{log}{resolution}");
    let room = (parts.frame.width as usize).saturating_sub(2);
    let free = room.saturating_sub(3 + ends[0].len() + ends[1].len() + needed.chars().count());
    let mut line = legend(
        &map_theme(app),
        &format!(" {}", ends[0]),
        &ends[1],
        free.clamp(4, 12),
    );
    let mut text = cut(&needed, room.saturating_sub(line.width()));
    for part in [" · right: row entropy", " · below: mass received"] {
        if line.width() + text.chars().count() + part.len() <= room {
            text.push_str(part);
        }
    }
    line.push_span(Span::styled(text, theme.dim()));
    let at = Rect {
        x: parts.frame.x + 1,
        y: parts.frame.bottom() - 2,
        width: parts.frame.width - 2,
        height: 1,
    };
    frame.render_widget(line, at);
}

/// Number of tokens per pixel as text: one number, or the smallest and the largest.
pub fn covered(scale: Ratio, pooling: usize) -> String {
    match scale.cells_per_pixel() {
        (least, most) if least == most => (most * pooling).to_string(),
        (least, most) => format!("{}–{}", least * pooling, most * pooling),
    }
}

/// The query and key under the pointer; the first ones if a pixel covers several.
pub fn place_at(app: Scene<'_>, area: Rect, (column, row): (u16, u16)) -> Option<(usize, usize)> {
    let map = parts(app, area).map;
    let [n_queries, n_keys] = [Axis::Query, Axis::Key].map(|axis| app.n_along(axis));
    if !map.contains(Position::new(column, row)) {
        return None;
    }
    let window = window(app, area);
    let pooling = app.pooling();
    let query = window.cell_at(window.first_query, 2 * (row - map.y) as usize) * pooling;
    let key = window.cell_at(window.first_key, (column - map.x) as usize) * pooling;
    (query < n_queries && key < n_keys).then_some((query, key))
}

/// Puts the crosshair under the pointer, or on the key of a clicked line; beyond the last token, selects the last one.
pub fn click(app: &mut App, area: Rect, (column, row): (u16, u16)) {
    let Parts { map, side, .. } = parts(app.scene(), area);
    if let Some(key_idx) = head_row::key_at(app.scene(), side, (column, row)) {
        app.selection.key_idx = key_idx;
        app.keep_crosshair_in_sight();
        return;
    }
    let [n_queries, n_keys] = [Axis::Query, Axis::Key].map(|axis| app.scene().n_along(axis));
    if !map.contains(Position::new(column, row)) || n_queries * n_keys == 0 {
        return;
    }
    let window = window(app.scene(), area);
    let pooling = app.scene().pooling();
    let query = window.cell_at(window.first_query, 2 * (row - map.y) as usize) * pooling;
    let key = window.cell_at(window.first_key, (column - map.x) as usize) * pooling;
    app.selection.query_idx = query.min(n_queries - 1);
    app.selection.key_idx = key.min(n_keys - 1);
    app.keep_crosshair_in_sight();
}
