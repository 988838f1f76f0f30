//! Layers × heads as coloured cells of one statistic, with a strip per layer and a legend.

use std::ops::Range;

use attnscope_checks::Severity;
use attnscope_checks::stats::HeadType;
use attnscope_spec::{Place, Stack};
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::checks_line::{mark, style_of};
use super::grid_scale::{colours, grid_theme, title, undefined_in};
use super::head_value::{value, why_undefined};
use super::marked::marked;
use super::statistic_figure::UNDEFINED;
use crate::figure::{bar, cut, figure, figure_within, share, wrapped};
use crate::state::app::App;
use crate::state::runs::Shows;
use crate::state::scene::Scene;
use crate::widgets::frame::{framed, waiting};
use crate::widgets::legend::{legend, legend_on_frame};

/// Columns of a layer's label, and of its bar if one fits.
const LABEL: usize = 5;

const BAR: usize = 8;

/// Columns of a head, the widest that fits: with a number from 6 on, as a colour alone at 1.
const CELL_WIDTHS: [usize; 7] = [12, 9, 7, 6, 3, 2, 1];

/// Columns of a layer's value.
const VALUE: usize = 8;

/// Rows besides cells: the border, head numbers above, a blank line, legend and definition below.
const AROUND: usize = 6;

/// Rows besides cells in a grid without legend and definition, used when several grids share the height.
const AROUND_COMPACT: usize = 3;

/// Number of rows that the grid needs when a layer takes `pitch` of them.
pub fn height(n_layers: usize, pitch: usize) -> usize {
    AROUND + n_layers * pitch
}

/// Columns that the grid needs to show each head in at least one.
pub fn least_width(n_heads: usize) -> u16 {
    (2 + LABEL + n_heads + VALUE) as u16
}

/// Layout of a grid of heads in its box.
struct Grid {
    grid: Stack,
    inside: Rect,
    /// Columns of a cell, and rows from one layer to the next.
    cell_width: usize,
    pitch: usize,
    bar_width: usize,
    is_compact: bool,
    heads: Range<usize>,
    layers: Range<usize>,
}

impl Grid {
    fn of(app: Scene<'_>, area: Rect, pitch: usize, grid: Stack) -> Self {
        let inside = Rect {
            x: area.x + 1,
            y: area.y + 1,
            width: area.width.saturating_sub(2),
            height: area.height.saturating_sub(2),
        };
        let n_heads = app.n_heads_of(grid);
        let room =
            |bar_width: usize| (inside.width as usize).saturating_sub(LABEL + VALUE + bar_width);
        // A bar gives its room to heads that would not be shown.
        let has_bar = inside.width >= 50 && n_heads <= room(BAR);
        let bar_width = if has_bar { BAR } else { 0 };
        let room = room(bar_width);
        let n_layers = app.n_layers_of(grid);
        let cell_width = CELL_WIDTHS
            .into_iter()
            .find(|width| width * n_heads <= room)
            .unwrap_or(1);
        let is_cramped = (area.height as usize) < height(n_layers, pitch);
        let is_compact = is_cramped && (app.grids().len() > 1 || app.panel.compares());
        let around_rows = if is_compact { AROUND_COMPACT } else { AROUND };
        let n_rows = (area.height as usize).saturating_sub(around_rows);
        let around = |selected: usize, n_shown: usize, n: usize| {
            let first = selected
                .saturating_sub(n_shown / 2)
                .min(n.saturating_sub(n_shown));
            first..first + n_shown
        };
        let n_heads_shown = (room / cell_width).min(n_heads);
        let n_layers_shown = (n_rows / pitch).min(n_layers);
        Self {
            grid,
            inside,
            cell_width,
            pitch,
            bar_width,
            is_compact,
            heads: around(app.selection.head_idx, n_heads_shown, n_heads),
            layers: around(app.selection.layer_idx, n_layers_shown, n_layers),
        }
    }

    /// Filled rows of a cell; the remaining row separates layers.
    fn n_filled(&self) -> usize {
        (self.pitch - 1).max(1)
    }
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, pitch: usize, grid: Stack) {
    let theme = &app.theme;
    let statistic = app.statistic();
    let grid = Grid::of(app, area, pitch, grid);
    let of = (app.n_layers_of(grid.grid), app.n_heads_of(grid.grid));
    let shown = (grid.layers.clone(), grid.heads.clone());
    let title = title(app, grid.grid, grid.inside.width, shown, of);
    let title_width = title.chars().count();
    framed(frame, area, app, title);
    let Some(run) = app.run() else {
        return waiting(frame, grid.inside, app);
    };
    let range = colours(app, grid.grid);
    let mut lines = vec![head_numbers(
        &grid,
        statistic.is_per_head() || app.shows_distance(),
    )];
    for layer_idx in grid.layers.clone() {
        for row in 0..grid.pitch {
            let is_middle = row == (grid.n_filled() - 1) / 2;
            let line = if row < grid.n_filled() {
                layer_line(app, &grid, layer_idx, range, is_middle)
            } else {
                Line::default()
            };
            lines.push(line);
        }
    }
    frame.render_widget(Paragraph::new(lines), grid.inside);
    let nonfinite = run.nonfinite.as_ref().filter(|_| !grid.is_compact);
    if let Some(found) = nonfinite {
        let text = cut(&format!(" {found}"), grid.inside.width as usize);
        frame.render_widget(Line::styled(text, theme.bad()), from_bottom(&grid, 3));
    }
    if grid.is_compact {
        let undefined = undefined_in(app, grid.grid, (grid.layers.clone(), grid.heads.clone()));
        if undefined.is_none_or(|(_, is_all)| !is_all) {
            let [low, high] = [range.0, range.1].map(|end| figure(end, 0));
            let (buf, theme) = (frame.buffer_mut(), grid_theme(app));
            legend_on_frame(buf, area, &theme, title_width, (&low, &high));
        }
    } else {
        draw_legend(frame, app, &grid, range);
    }
}

/// Draws one terminal row of a layer; values are in its middle row only.
fn layer_line(
    app: Scene<'_>,
    grid: &Grid,
    layer_idx: usize,
    range: (f64, f64),
    is_middle: bool,
) -> Line<'static> {
    let theme = &app.theme;
    let is_selected_layer =
        grid.grid == app.selection.stack && layer_idx == app.selection.layer_idx;
    let label_style = if is_selected_layer {
        theme.strong()
    } else {
        theme.dim()
    };
    let label = if is_middle {
        format!(" L{layer_idx}")
    } else {
        String::new()
    };
    let mut spans = vec![Span::styled(format!("{label:<LABEL$}"), label_style)];
    if let (true, Some(worst)) = (is_middle, app.worst_at(grid.grid, layer_idx, None)) {
        let label = format!("{:<width$}", format!("L{layer_idx}"), width = LABEL - 1);
        spans = vec![
            Span::styled(mark(worst), style_of(theme, worst)),
            Span::styled(label, label_style),
        ];
    }
    let Some(layer) = app.layer_of(grid.grid, layer_idx) else {
        let waiting = "·".repeat(grid.heads.len() * grid.cell_width);
        spans.push(Span::styled(waiting, theme.dim()));
        return Line::from(spans);
    };
    for head_idx in grid.heads.clone() {
        if app.statistic().is_per_head() || app.shows_distance() {
            let value = value(app, grid.grid, layer_idx, Some(head_idx));
            let is_selected = is_selected_layer && head_idx == app.selection.head_idx;
            let number = is_middle.then_some(value);
            let kind = layer.heads[head_idx].kind;
            let place = Place::layer(grid.grid, layer_idx).head(head_idx);
            let marks = Marks {
                is_selected,
                worst: app
                    .worst_at(grid.grid, layer_idx, Some(head_idx))
                    .filter(|_| is_middle),
                kind: kind.filter(|_| is_middle),
                is_dimmed: app.is_left_out(place, kind),
                is_undefined: why_undefined(app, grid.grid, layer_idx, Some(head_idx)).is_some(),
            };
            let cell = cell(app, grid.cell_width, share(value, range), number, &marks);
            let is_marked = is_middle && app.marks.has(place);
            spans.extend(marked(&app.theme, cell, is_marked));
        } else {
            spans.push(Span::raw(" ".repeat(grid.cell_width)));
        }
    }
    if is_middle {
        let value = value(app, grid.grid, layer_idx, None);
        let strip = bar(share(value, range), grid.bar_width.saturating_sub(1));
        let has_none = app.shown_type.is_some() && value.is_nan();
        let is_undefined = why_undefined(app, grid.grid, layer_idx, None).is_some();
        let number = if has_none || is_undefined {
            format!("{UNDEFINED:>7}")
        } else {
            figure(value, 7)
        };
        spans.push(Span::raw(format!(" {number}")));
        spans.push(Span::styled(format!(" {strip}"), theme.accent()));
    }
    Line::from(spans)
}

fn head_numbers(grid: &Grid, is_per_head: bool) -> Line<'static> {
    let mut text = " ".repeat(LABEL);
    let at = LABEL + grid.cell_width * grid.heads.len();
    if is_per_head {
        // Narrow cells only have room for a number every few heads.
        let every = match grid.cell_width {
            3.. => 1,
            2 => 5,
            _ => 8,
        };
        let room = grid.cell_width * every;
        for head_idx in grid.heads.clone().filter(|idx| idx % every == 0) {
            let start = LABEL + (head_idx - grid.heads.start) * grid.cell_width;
            text.push_str(&" ".repeat(start.saturating_sub(text.len())));
            let label = if grid.cell_width >= 6 {
                format!(" H{head_idx}")
            } else {
                head_idx.to_string()
            };
            text.push_str(&format!("{label:<room$}"));
        }
    }
    let text: String = text.chars().take(at).collect();
    Line::raw(format!("{text:<at$}   layer"))
}

/// Decorations of a head's cell.
struct Marks {
    is_selected: bool,
    worst: Option<Severity>,
    kind: Option<HeadType>,
    /// Another head type is highlighted.
    is_dimmed: bool,
    /// The value is not defined here, which is no fault.
    is_undefined: bool,
}

/// Draws one row of a head's cell: its colour, its value if it fits, the worst finding before it, the head type after it, and
/// brackets if it is selected.
fn cell(
    app: Scene<'_>,
    width: usize,
    at: f32,
    number: Option<f64>,
    marks: &Marks,
) -> Vec<Span<'static>> {
    let theme = &grid_theme(app);
    let filled = match (theme.has_colour(), marks.is_dimmed || marks.is_undefined) {
        (true, false) => Style::new().bg(theme.heat(at)).fg(theme.on_heat(at)),
        (_, true) => theme.dim(),
        (false, false) => Style::new(),
    };
    let glyph = if theme.has_colour() || marks.is_undefined {
        ' '
    } else {
        theme.glyph(at)
    };
    let strong = theme.strong();
    match width {
        6.. => {
            let inner = width - 2;
            let text = match number {
                Some(_) if marks.is_undefined => UNDEFINED.to_owned(),
                Some(value) if theme.has_colour() => figure_within(value, inner.min(6)),
                Some(value) => format!("{glyph}{}", figure_within(value, inner.min(6) - 1)),
                None => glyph.to_string().repeat(inner),
            };
            let text = format!("{text:^inner$}");
            let letter = marks.kind.map_or(' ', HeadType::letter);
            let (open, close) = match (marks.is_selected, marks.worst) {
                (true, _) => (Span::styled("▐", strong), Span::styled("▌", strong)),
                (false, Some(worst)) => (
                    Span::styled(mark(worst), style_of(theme, worst)),
                    Span::styled(letter.to_string(), theme.dim()),
                ),
                (false, None) => (
                    Span::raw(" "),
                    Span::styled(letter.to_string(), theme.dim()),
                ),
            };
            vec![open, Span::styled(text, filled), close]
        }
        1 => {
            // There is no room beside the colour: a mark stands on it.
            let text = match (marks.is_selected, marks.worst) {
                (true, _) => "◆".to_owned(),
                (false, Some(worst)) => mark(worst).to_owned(),
                (false, None) if marks.is_undefined => UNDEFINED.to_owned(),
                (false, None) => glyph.to_string(),
            };
            vec![Span::styled(text, filled)]
        }
        _ => {
            let mut text = glyph.to_string().repeat(width - 1);
            if marks.is_undefined && number.is_some() {
                text = format!("{UNDEFINED:<room$}", room = width - 1);
            }
            if marks.is_selected {
                text = format!("◆{}", text.chars().skip(1).collect::<String>());
            }
            let after = match marks.worst {
                Some(worst) => Span::styled(mark(worst), style_of(theme, worst)),
                None => Span::raw(" "),
            };
            vec![Span::styled(text, filled), after]
        }
    }
}

/// The `n`th line counted from the bottom, 1 being the last.
fn from_bottom(grid: &Grid, n: u16) -> Rect {
    Rect {
        y: grid.inside.bottom().saturating_sub(n),
        height: 1.min(grid.inside.height),
        ..grid.inside
    }
}

fn draw_legend(frame: &mut Frame<'_>, app: Scene<'_>, grid: &Grid, range: (f64, f64)) {
    let statistic = app.statistic();
    let (unit, definition) = if app.shows_distance() {
        (
            "nats",
            "the mean Jensen–Shannon divergence of the rows of both patterns",
        )
    } else {
        (statistic.unit, statistic.definition)
    };
    let unit = match unit {
        "" => String::new(),
        unit => format!(" {unit}"),
    };
    let low = figure(range.0, 0);
    let high = format!("{}{unit}", figure(range.1, 0));
    let is_wide = grid.inside.width >= 50;
    let n_swatches = if is_wide { 16 } else { 6 };
    let shown = (grid.layers.clone(), grid.heads.clone());
    let undefined = undefined_in(app, grid.grid, shown);
    let mut line = match undefined {
        // No value is defined here, so a colour scale would mean nothing.
        Some((_, true)) => Line::default(),
        _ => legend(&grid_theme(app), &format!(" {low}"), &high, n_swatches),
    };
    let meaning = if let Some((why, is_all)) = undefined {
        let before = if is_all { "" } else { "  " };
        format!("{before} {UNDEFINED} {why}")
    } else if app.shows_distance() {
        "   one pattern ←→ two".to_owned()
    } else if app.grid_differs() {
        let second = app.runs.b.as_ref();
        let a = second.map_or("A", |second| second.way.label(Shows::A));
        let whole = format!("   less ←→ more than {a}");
        let room = (grid.inside.width as usize).saturating_sub(line.width());
        if whole.chars().count() <= room {
            whole
        } else {
            "   less ←→ more".to_owned()
        }
    } else {
        format!("   {} ←→ {}", statistic.low, statistic.high)
    };
    let width = grid.inside.width as usize;
    let room = width.saturating_sub(line.width());
    let fits_on_line = meaning.chars().count() <= room;
    let defined = wrapped(definition, width.saturating_sub(1).max(1));
    let n_taken = 2 + grid.layers.len() * grid.pitch - usize::from(grid.pitch > 1);
    let n_free = (grid.inside.height as usize).saturating_sub(n_taken).max(1);
    // Use lines of their own for the full texts if rows are free; else cut each to one line.
    let mut below = Vec::new();
    let is_whole = usize::from(!fits_on_line) + defined.len() <= n_free;
    if fits_on_line || !is_whole {
        line.push_span(Span::styled(cut(&meaning, room), app.theme.dim()));
    } else {
        below.push(meaning.trim_start().to_owned());
    }
    if is_whole {
        below.extend(defined);
    } else {
        below.push(cut(definition, width.saturating_sub(1)));
    }
    let n_below = below.len() as u16;
    frame.render_widget(line, from_bottom(grid, n_below + 1));
    for (nth, text) in (0..n_below).zip(below) {
        let text = Line::styled(format!(" {text}"), app.theme.dim());
        frame.render_widget(text, from_bottom(grid, n_below - nth));
    }
}

/// The layer under the pointer, and the head if it is over one.
pub fn place_at(
    app: Scene<'_>,
    area: Rect,
    pitch: usize,
    stack: Stack,
    (column, row): (u16, u16),
) -> Option<Place> {
    let grid = Grid::of(app, area, pitch, stack);
    if !grid.inside.contains(Position::new(column, row)) {
        return None;
    }
    let down = ((row - grid.inside.y) as usize).checked_sub(1)?;
    let layer_idx = grid.layers.start + down / grid.pitch;
    if !grid.layers.contains(&layer_idx) {
        return None;
    }
    let layer = Place::layer(stack, layer_idx);
    let across = ((column - grid.inside.x) as usize).checked_sub(LABEL);
    let head_idx = across
        .map(|x| grid.heads.start + x / grid.cell_width)
        .filter(|head_idx| grid.heads.contains(head_idx));
    Some(head_idx.map_or(layer, |head_idx| layer.head(head_idx)))
}

/// Selects the head under the pointer.
pub fn click(app: &mut App, area: Rect, pitch: usize, stack: Stack, at: (u16, u16)) {
    let Some(place) = place_at(app.scene(), area, pitch, stack, at) else {
        return;
    };
    app.select_grid(stack);
    app.selection.layer_idx = place.layer_idx.unwrap_or(0);
    app.selection.head_idx = place.head_idx.unwrap_or(app.selection.head_idx);
}
