//! One head at full resolution: the map with tokens on both axes, its margins, and the selected query's row.

use attnscope_checks::stats::HeadType;
use attnscope_compute::attention::HeadSummary;
use attnscope_run::{HeadDetail, HeadMap, Pyramid};
use attnscope_terminal::theme::Theme;
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use super::head_layout::{ENTROPIES, Parts, View, cells_in, is_whole, parts, view_of};
use super::{head_row, hidden_cells};
use crate::figure::{cut, figure};
use crate::state::app::App;
use crate::state::scene::Scene;
use crate::state::views::Axis;
use crate::widgets::frame::{framed, selection_title, waiting};
use crate::widgets::heatmap::{HeatMap, LOG_FLOOR, Scale};
use crate::widgets::hidden::Hidden;
use crate::widgets::legend::legend;
use crate::widgets::margins::{Margin, draw_columns, draw_rows};
use crate::widgets::window::{Side, Window};

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
    let what = format!("{named} · {change}{what} · query {query}");
    let place = format!(
        "{what} “{}” → key {key} “{}”",
        app.token(Axis::Query, query),
        app.token(Axis::Key, key)
    );
    // The tokens stand beside the map too.
    let room = usize::from(parts.frame.width).saturating_sub(2);
    let place = if selection_title(app, &place).width() <= room {
        place
    } else {
        format!("{what} → key {key}")
    };
    framed(frame, parts.frame, app, selection_title(app, &place));
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
    let parts = parts(app, area);
    let Parts { map, window, .. } = parts;
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
        hidden: hidden_cells::of_map(app, detail, values),
        window,
        scale: scale(app, detail),
        crosshair,
    };
    if app.shows_part() {
        let (queries, keys) = cells_in(app, &parts);
        match app.part_with(&queries, &keys) {
            Some(part) => {
                heat_map.values = part.map(app.head_map()).unwrap_or(&part.pattern);
                heat_map.hidden = Hidden::of(heat_map.values, &part.scores, None);
                heat_map.window.queries.first -= part.queries.start;
                heat_map.window.keys.first -= part.keys.start;
                // Hide a crosshair outside the part.
                heat_map.crosshair = crosshair.and_then(|(query, key)| {
                    let query = query.checked_sub(part.queries.start)?;
                    Some((query, key.checked_sub(part.keys.start)?))
                });
            }
            // Until the part is computed, show the pooled cells.
            None => {
                let coarse = detail.pooling();
                for side in [&mut heat_map.window.queries, &mut heat_map.window.keys] {
                    side.first /= coarse;
                    side.ratio.pixels *= coarse;
                }
                heat_map.crosshair = crosshair.map(|(q, k)| (q / coarse, k / coarse));
            }
        }
    }
    if !is_whole(app, &parts) {
        heat_map.scale = of_visible(heat_map.scale, heat_map.extent(map));
    }
    Some(draw(map, heat_map))
}

/// The colour scale of a part of a map: from 0, around 0, or between its ends, as the scale of the whole map is.
fn of_visible(scale: Scale, extent: Option<(f32, f32)>) -> Scale {
    let Some((low, high)) = extent.filter(|(low, high)| low < high) else {
        return scale;
    };
    let most = low.abs().max(high.abs());
    match scale.low {
        0.0 => Scale { high, ..scale },
        start if start == -scale.high => Scale {
            low: -most,
            high: most,
            ..scale
        },
        _ => Scale { low, high, ..scale },
    }
}

fn draw_map(frame: &mut Frame<'_>, area: Rect, parts: &Parts, app: Scene<'_>, detail: &HeadDetail) {
    let window = parts.window;
    let pooling = app.pooling();
    let drawn = with_heat_map(app, area, |map, heat_map| {
        let scale = heat_map.scale;
        frame.render_widget(heat_map, map);
        scale
    });
    let scale = drawn.unwrap_or_else(|| scale(app, detail));
    draw_query_axis(frame, parts, app, window.queries, pooling);
    draw_key_axis(frame, parts, app, window.keys, pooling);
    let shown = (!is_whole(app, parts)).then(|| view_of(app, parts));
    draw_legend(frame, parts, app, (window, scale), shown.as_ref());
}

/// Draws query labels on the left, and the entropy of each row on the right.
fn draw_query_axis(
    frame: &mut Frame<'_>,
    parts: &Parts,
    app: Scene<'_>,
    side: Side,
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
    let widths = (parts.n_query_labels, ENTROPIES);
    draw_rows(frame, parts.map, &app.theme, side, &margin, widths);
}

/// Mean attention that a key receives from the queries that see it: later keys are seen by fewer.
pub fn received(app: Scene<'_>, summary: &HeadSummary, key_idx: usize) -> Option<f32> {
    let n = summary.rows.len();
    let spec = app.attention();
    let n_seeing = spec.map_or(n, |spec| summary.n_queries_seeing(spec.mask, key_idx));
    Some(summary.column_sums.get(key_idx)? / n_seeing.max(1) as f32)
}

/// Draws the attention received by keys below the map, and the key labels.
fn draw_key_axis(frame: &mut Frame<'_>, parts: &Parts, app: Scene<'_>, side: Side, pooling: usize) {
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
    draw_columns(frame, map, &app.theme, side, &margin, n_labels);
}

/// Draws the legend of the colours, of a cell, and of the part that is shown.
fn draw_legend(
    frame: &mut Frame<'_>,
    parts: &Parts,
    app: Scene<'_>,
    (window, scale): (Window, Scale),
    shown: Option<&View>,
) {
    let theme = &app.theme;
    let low = if scale.is_log {
        LOG_FLOOR.min(scale.high)
    } else {
        scale.low
    };
    let mut resolution = match per_cell(window, [app.pooling(); 2]) {
        Some(cells) => format!(" · 1 cell = max of {cells}"),
        None => String::new(),
    };
    if let Some(View { queries, keys, .. }) = shown {
        let [queries, keys] = [queries, keys].map(|range| {
            let last = range.end.saturating_sub(1).max(range.start);
            format!("{}–{last}", range.start)
        });
        resolution = format!(" · queries {queries} · keys {keys}{resolution}");
    }
    let ends = [low, scale.high].map(|end| figure(f64::from(end), 0));
    let log = if scale.is_log { " log" } else { "" };
    // In order of importance, as many as fit uncut.
    let needed = format!("{log}{resolution}");
    let room = (parts.frame.width as usize).saturating_sub(2);
    let free = room.saturating_sub(4 + ends[0].len() + ends[1].len() + needed.chars().count());
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

/// Number of queries and keys per pixel as text, with the queries and keys per cell; `None` if each pixel shows one pair at most.
pub fn per_cell(window: Window, pooling: [usize; 2]) -> Option<String> {
    let sides = [window.queries, window.keys].map(|side| side.ratio.cells_per_pixel());
    let text = |(least, most): (usize, usize), pooling: usize| match most {
        _ if least == most => (most * pooling).to_string(),
        _ => format!("{}–{}", least * pooling, most * pooling),
    };
    let [queries, keys] = [0, 1].map(|idx| text(sides[idx], pooling[idx]));
    (queries != "1" || keys != "1").then(|| format!("{queries} × {keys}"))
}

/// The query and key under the pointer; the first ones if a pixel covers several.
pub fn place_at(app: Scene<'_>, area: Rect, (column, row): (u16, u16)) -> Option<(usize, usize)> {
    let Parts { map, window, .. } = parts(app, area);
    let [n_queries, n_keys] = [Axis::Query, Axis::Key].map(|axis| app.n_along(axis));
    if !map.contains(Position::new(column, row)) {
        return None;
    }
    let pooling = app.pooling();
    let query = window.queries.cell_at(2 * (row - map.y) as usize) * pooling;
    let key = window.keys.cell_at((column - map.x) as usize) * pooling;
    (query < n_queries && key < n_keys).then_some((query, key))
}

/// Puts the crosshair under the pointer, or on the key of a clicked line; beyond the last token, selects the last one.
pub fn click(app: &mut App, area: Rect, (column, row): (u16, u16)) {
    let Parts {
        map, side, window, ..
    } = parts(app.scene(), area);
    if let Some(key_idx) = head_row::key_at(app.scene(), side, (column, row)) {
        app.selection.key_idx = key_idx;
        app.keep_crosshair_in_sight();
        return;
    }
    let [n_queries, n_keys] = [Axis::Query, Axis::Key].map(|axis| app.scene().n_along(axis));
    if !map.contains(Position::new(column, row)) || n_queries * n_keys == 0 {
        return;
    }
    let pooling = app.scene().pooling();
    let query = window.queries.cell_at(2 * (row - map.y) as usize) * pooling;
    let key = window.keys.cell_at((column - map.x) as usize) * pooling;
    app.selection.query_idx = query.min(n_queries - 1);
    app.selection.key_idx = key.min(n_keys - 1);
    app.keep_crosshair_in_sight();
}
