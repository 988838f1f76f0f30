//! Layers × heads by one statistic; beside them the selected head, pooled, with its key figures.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::{selection_title, waiting};
use crate::analysis::{HeadReport, Pyramid};
use crate::attention::Pooled;
use crate::stats::STATISTICS;
use crate::tui::app::App;
use crate::tui::figure::{bar, colour_range, cut, figure, share};
use crate::tui::view::framed;
use crate::tui::widgets::heatmap::{HeatMap, Scale, Window};
use crate::tui::widgets::legend::legend;

/// Columns of a layer's label, and of the strip behind its heads.
const LABEL: usize = 5;
const STRIP: usize = 16;

/// Where things lie inside the panel.
struct Parts {
    grid: Rect,
    map: Rect,
    figures: Rect,
}

fn parts(area: Rect) -> Parts {
    let [grid, side] =
        Layout::horizontal([Constraint::Percentage(52), Constraint::Min(0)]).areas(area);
    let n_figures = if area.height >= 34 { 12 } else { 9 };
    let [map, figures] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(n_figures)]).areas(side);
    Parts { grid, map, figures }
}

/// How the grid of heads lies in its box.
struct Grid {
    inside: Rect,
    cell_width: usize,
    first_head: usize,
    n_heads_shown: usize,
    first_layer: usize,
    n_layers_shown: usize,
}

impl Grid {
    fn of(app: &App, area: Rect) -> Self {
        let inside = Rect {
            x: area.x + 1,
            y: area.y + 1,
            width: area.width.saturating_sub(2),
            height: area.height.saturating_sub(2),
        };
        let room = (inside.width as usize).saturating_sub(LABEL + STRIP);
        let n_heads = app.n_heads();
        let fits = |width: usize| width * n_heads <= room;
        let cell_width = [9, 7, 3, 2]
            .into_iter()
            .find(|width| fits(*width))
            .unwrap_or(2);
        let n_heads_shown = (room / cell_width).min(n_heads);
        // A line of head numbers above; legend and its words below.
        let n_layers_shown = (inside.height as usize)
            .saturating_sub(4)
            .min(app.n_layers());
        let around = |selected: usize, n_shown: usize, n: usize| {
            selected
                .saturating_sub(n_shown / 2)
                .min(n.saturating_sub(n_shown))
        };
        Self {
            inside,
            cell_width,
            first_head: around(app.selection.head_idx, n_heads_shown, n_heads),
            n_heads_shown,
            first_layer: around(app.selection.layer_idx, n_layers_shown, app.n_layers()),
            n_layers_shown,
        }
    }

    fn heads(&self) -> std::ops::Range<usize> {
        self.first_head..self.first_head + self.n_heads_shown
    }
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let parts = parts(area);
    draw_grid(frame, parts.grid, app);
    let title = selection_title(app, " · pattern");
    match app
        .layer()
        .and_then(|layer| layer.heads.get(app.selection.head_idx))
    {
        Some(head) => {
            draw_map(frame, parts.map, app, &head.summary.pooled, &title);
            draw_figures(frame, parts.figures, app, head);
        }
        None => {
            let inside = framed(frame, parts.map, app, title);
            waiting(frame, inside, app);
            framed(frame, parts.figures, app, " key figures ");
        }
    }
}

fn draw_grid(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let theme = &app.theme;
    let statistic = app.statistic();
    let title = format!(
        " {} · {} of {} · m next ",
        statistic.title,
        app.statistic_idx + 1,
        STATISTICS.len()
    );
    framed(frame, area, app, title);
    let grid = Grid::of(app, area);
    let Some(run) = &app.run else {
        return waiting(frame, grid.inside, app);
    };
    let values = |layer: &crate::analysis::LayerReport| -> Vec<f64> {
        if statistic.is_per_head() {
            layer
                .heads
                .iter()
                .map(|head| head.stats.at(app.statistic_idx))
                .collect()
        } else {
            vec![layer.stats.at(app.statistic_idx)]
        }
    };
    let range = colour_range(statistic, run.layers.iter().flat_map(|layer| values(layer)));

    let mut lines = vec![head_numbers(&grid, statistic.is_per_head())];
    for layer_idx in grid.first_layer..grid.first_layer + grid.n_layers_shown {
        let is_selected_layer = layer_idx == app.selection.layer_idx;
        let label_style = if is_selected_layer {
            theme.strong()
        } else {
            theme.dim()
        };
        let mut spans = vec![Span::styled(
            format!("{:<LABEL$}", format!(" L{layer_idx}")),
            label_style,
        )];
        match run.layers.get(layer_idx) {
            None => spans.push(Span::styled(
                "·".repeat(grid.n_heads_shown * grid.cell_width),
                theme.dim(),
            )),
            Some(layer) => {
                for head_idx in grid.heads() {
                    let value = if statistic.is_per_head() {
                        layer.heads[head_idx].stats.at(app.statistic_idx)
                    } else {
                        f64::NAN
                    };
                    let is_selected = is_selected_layer && head_idx == app.selection.head_idx;
                    spans.extend(cell(
                        app,
                        &grid,
                        value,
                        range,
                        is_selected,
                        statistic.is_per_head(),
                    ));
                }
                let value = layer.stats.at(app.statistic_idx);
                let strip = bar(share(value, range), STRIP - 9);
                spans.push(Span::raw(format!(" {}", figure(value, 7))));
                spans.push(Span::styled(format!(" {strip}"), theme.accent()));
            }
        }
        lines.push(Line::from(spans));
    }
    frame.render_widget(Paragraph::new(lines), grid.inside);
    draw_legend(frame, app, &grid, range);
}

fn head_numbers(grid: &Grid, is_per_head: bool) -> Line<'static> {
    let mut text = " ".repeat(LABEL);
    if is_per_head {
        let width = grid.cell_width;
        for head_idx in grid.heads() {
            // Narrow cells have room for a number every few heads.
            let every = if width >= 3 { 1 } else { 5 };
            let label = if head_idx % every == 0 {
                format!("H{head_idx}")
            } else {
                String::new()
            };
            let room = if width >= 3 { width } else { width * every };
            if head_idx % every == 0 {
                text.push_str(&format!(
                    "{:<room$}",
                    if width >= 7 {
                        format!(" {label}")
                    } else {
                        label.replace('H', "")
                    }
                ));
            }
        }
    }
    let at = LABEL + grid.cell_width * grid.n_heads_shown;
    text = text.chars().take(at).collect();
    Line::raw(format!("{text:<at$}    layer"))
}

/// One head: its colour, its value where there is room, and brackets where it is selected.
fn cell(
    app: &App,
    grid: &Grid,
    value: f64,
    range: (f64, f64),
    is_selected: bool,
    is_per_head: bool,
) -> Vec<Span<'static>> {
    let theme = &app.theme;
    let width = grid.cell_width;
    if !is_per_head {
        return vec![Span::raw(" ".repeat(width))];
    }
    let at = share(value, range);
    let filled = if theme.has_colour() {
        Style::new().bg(theme.heat(at)).fg(theme.on_heat(at))
    } else {
        Style::new()
    };
    let glyph = if theme.has_colour() {
        ' '
    } else {
        theme.glyph(at)
    };
    let (open, close) = if is_selected {
        ("▐", "▌")
    } else {
        (" ", " ")
    };
    let mark = theme.strong();
    match width {
        7.. => {
            let number = figure(value, width - 3);
            let number = if theme.has_colour() {
                format!("{number} ")
            } else {
                format!("{glyph}{number}")
            };
            vec![
                Span::styled(open, mark),
                Span::styled(cut(&number, width - 2), filled),
                Span::styled(close, mark),
            ]
        }
        3 => vec![
            Span::styled(open, mark),
            Span::styled(glyph.to_string(), filled),
            Span::styled(close, mark),
        ],
        _ => {
            let text = if is_selected {
                "◆".to_owned()
            } else {
                glyph.to_string()
            };
            vec![Span::styled(text, filled), Span::raw(" ")]
        }
    }
}

fn draw_legend(frame: &mut Frame<'_>, app: &App, grid: &Grid, range: (f64, f64)) {
    let statistic = app.statistic();
    let unit = if statistic.unit.is_empty() {
        String::new()
    } else {
        format!(" {}", statistic.unit)
    };
    let low = figure(range.0, 0);
    let high = format!("{}{unit}", figure(range.1, 0));
    let mut line = legend(&app.theme, &format!(" {low}"), &high, 16);
    line.push_span(Span::styled(
        format!("   {} ←→ {}", statistic.low, statistic.high),
        app.theme.dim(),
    ));
    let bottom = grid.inside.bottom();
    if grid.inside.height < 4 {
        return;
    }
    let width = grid.inside.width;
    frame.render_widget(
        line,
        Rect {
            y: bottom - 2,
            height: 1,
            ..grid.inside
        },
    );
    let definition = cut(&format!(" {}", statistic.definition), width as usize);
    frame.render_widget(
        Line::styled(definition, app.theme.dim()),
        Rect {
            y: bottom - 1,
            height: 1,
            ..grid.inside
        },
    );
}

fn draw_map(frame: &mut Frame<'_>, area: Rect, app: &App, pooled: &Pooled, title: &str) {
    let inside = framed(frame, area, app, title.to_owned());
    let [map, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(inside);
    let zoom = Window::zoom_to_fit(
        pooled.n_rows,
        pooled.n_cols,
        2 * map.height as usize,
        map.width as usize,
    );
    let window = Window {
        first_query: 0,
        first_key: 0,
        zoom,
    };
    // At most 64 × 64 cells: reducing them once a frame costs nothing.
    let pyramid = Pyramid::new(pooled.clone());
    let width = pyramid.level((-zoom).max(0) as usize).n_cols as u16 * zoom.max(1) as u16;
    let map = Rect {
        x: map.x + map.width.saturating_sub(width) / 2,
        ..map
    };
    let largest = pooled
        .cells
        .iter()
        .copied()
        .filter(|v| v.is_finite())
        .fold(0.0f32, f32::max);
    let scale = Scale {
        low: 0.0,
        high: if largest > 0.0 { largest } else { 1.0 },
        is_log: false,
    };
    let map = map.intersection(inside);
    frame.render_widget(
        HeatMap {
            theme: &app.theme,
            values: &pyramid,
            window,
            scale,
            crosshair: None,
        },
        map,
    );
    let mut line = legend(&app.theme, " 0", &figure(f64::from(scale.high), 0), 12);
    let shown = pyramid.level((-zoom).max(0) as usize);
    let per_cell = match (shown.queries_per_cell, shown.keys_per_cell) {
        (1, 1) => "query ↓ key →".to_owned(),
        (queries, keys) => format!("query ↓ key → · cell = max of {queries} × {keys}"),
    };
    line.push_span(Span::styled(format!("  {per_cell}"), app.theme.dim()));
    frame.render_widget(line, below);
}

/// What a person wants to know of a head first, two to a line.
const FIGURES: [[&str; 2]; 10] = [
    ["entropy", "entropy_relative"],
    ["effective_keys", "max_probability"],
    ["saturated_rows", "first_key_mass"],
    ["previous_mass", "diagonal_mass"],
    ["score_mean", "score_std"],
    ["score_max", "max_abs_score"],
    ["score_var_ratio", "qk_cosine"],
    ["head_output_norm", "head_output_share"],
    ["q_norm", "k_norm"],
    ["score_row_norm", "mean_distance"],
];

fn draw_figures(frame: &mut Frame<'_>, area: Rect, app: &App, head: &HeadReport) {
    let inside = framed(frame, area, app, " key figures ");
    let half = inside.width as usize / 2;
    let one = |id: &str| -> Vec<Span<'static>> {
        let Some(idx) = crate::stats::index_of(id) else {
            return Vec::new();
        };
        let statistic = STATISTICS[idx];
        let title = cut(statistic.title, half.saturating_sub(12));
        let value = figure(head.stats.at(idx), 8);
        let used = title.chars().count() + 10;
        vec![
            Span::styled(format!(" {title}"), app.theme.dim()),
            Span::raw(" ".repeat(half.saturating_sub(used))),
            Span::raw(value),
            Span::raw(" "),
        ]
    };
    let lines: Vec<Line<'static>> = FIGURES
        .iter()
        .map(|pair| Line::from(pair.iter().flat_map(|id| one(id)).collect::<Vec<_>>()))
        .collect();
    frame.render_widget(Paragraph::new(lines), inside);
}

/// Selects the head under the pointer.
pub fn click(app: &mut App, area: Rect, (column, row): (u16, u16)) {
    let grid = Grid::of(app, parts(area).grid);
    if !grid.inside.contains(Position::new(column, row)) {
        return;
    }
    let down = (row - grid.inside.y) as usize;
    let across = ((column - grid.inside.x) as usize)
        .checked_sub(LABEL)
        .map(|x| x / grid.cell_width);
    if let Some(layer) = down
        .checked_sub(1)
        .filter(|layer| *layer < grid.n_layers_shown)
    {
        app.selection.layer_idx = grid.first_layer + layer;
        if let Some(head) = across.filter(|head| *head < grid.n_heads_shown) {
            app.selection.head_idx = grid.first_head + head;
        }
    }
}
