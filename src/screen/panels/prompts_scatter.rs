//! All heads of a stack as points: the means of two statistics over the prompts. Letters are types, colours layers.

use std::collections::BTreeSet;

use attnscope_checks::stats::{HeadType, STATISTICS};
use attnscope_report::chart::{Axis as ChartAxis, Chart, Series};
use attnscope_spec::Place;
use attnscope_studies::over_prompts::HeadOver;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::prompts::{counted_prompts, title};
use crate::figure::figure;
use crate::state::scene::Scene;
use crate::widgets::chart::{cells_of, draw_chart};
use crate::widgets::frame::framed;
use crate::widgets::legend::swatch;

/// The mark of a head of no type.
const NO_TYPE: char = '•';

/// Most columns and rows between a click and the head that it selects.
const NEAR: (u16, u16) = (3, 2);

/// Heads of the selected stack whose means of both statistics are known, each with its point.
fn points(app: Scene<'_>) -> Vec<(&HeadOver, (f64, f64))> {
    let [x, y] = app.scatter_axes();
    let heads = app.over_prompts().map_or(&[][..], |over| &over.heads);
    let here = heads
        .iter()
        .filter(|head| head.place.grid() == app.selection.stack);
    let point = |head: &HeadOver| (head.spread(x).mean(), head.spread(y).mean());
    let points = here.map(|head| (head, point(head)));
    points
        .filter(|(_, (x, y))| x.is_finite() && y.is_finite())
        .collect()
}

fn axis(statistic_idx: usize) -> ChartAxis {
    let statistic = STATISTICS[statistic_idx];
    ChartAxis::linear(match statistic.unit {
        "" => format!("mean {}", statistic.title),
        unit => format!("mean {} ({unit})", statistic.title),
    })
}

/// The chart of the panel: a series for each type.
pub fn chart(app: Scene<'_>) -> Option<Chart> {
    let [x, y] = app.scatter_axes().map(axis);
    let points = points(app);
    let of = |kind: Option<HeadType>| {
        let points = points.iter();
        let mut of_kind: Vec<(f64, f64)> = points
            .filter(|(head, _)| head.kind().map(|(kind, _)| kind) == kind)
            .map(|(_, point)| *point)
            .collect();
        of_kind.sort_by(|a, b| a.0.total_cmp(&b.0));
        let name = kind.map_or("no type", HeadType::title);
        (!of_kind.is_empty()).then(|| Series::dots(name, of_kind))
    };
    let kinds = HeadType::ALL.into_iter().map(Some).chain([None]);
    let series: Vec<Series> = kinds.filter_map(of).collect();
    (!series.is_empty()).then(|| Chart {
        title: counted_prompts(app),
        x,
        y,
        series,
        marks: Vec::new(),
    })
}

/// The chart whose axes are drawn on screen: all points in one series, for there are too many types for glyphs.
fn axes_chart(app: Scene<'_>) -> Chart {
    let [x, y] = app.scatter_axes().map(axis);
    let mut points: Vec<(f64, f64)> = points(app).into_iter().map(|(_, point)| point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Chart {
        title: counted_prompts(app),
        x,
        y,
        series: vec![Series::dots("", points)],
        marks: Vec::new(),
    }
}

/// The area of the chart, and that of the legend below it.
fn areas(inside: Rect) -> [Rect; 2] {
    Layout::vertical([Constraint::Min(0), Constraint::Length(2)]).areas(inside)
}

fn is_selected(app: Scene<'_>, head: &HeadOver) -> bool {
    head.place.is_same_head(&app.selected_place())
}

/// Position of a layer's colour in the map. The ends of the map are left out: one of them is close to the background.
fn colour(app: Scene<'_>, layer_idx: usize) -> f32 {
    let last = app.n_layers().saturating_sub(1).max(1);
    0.15 + 0.85 * layer_idx as f32 / last as f32
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let label = app.selection.stack.label();
    let stack = label.map_or(String::new(), |label| format!("{label} · "));
    // The set runs through the checkpoint as it is, whichever run is shown.
    let side = if app.runs.b.is_some() { " · of A" } else { "" };
    let name = format!(" {stack}heads over prompts{side} ");
    let inside = framed(frame, area, app, title(name, area));
    let [plot, below] = areas(inside);
    let chart = axes_chart(app);
    draw_chart(&chart, plot, frame.buffer_mut(), &app.theme);
    let Some(cells) = cells_of(&chart, plot) else {
        return;
    };
    draw_reach(frame, app, &cells);
    let mut points = points(app);
    // The selected head is drawn last, so that no other covers it.
    points.sort_by_key(|(head, _)| is_selected(app, head));
    for (head, point) in &points {
        let letter = head.kind().map_or(NO_TYPE, |(kind, _)| kind.letter());
        let share = colour(app, head.place.layer_idx.unwrap_or(0));
        let theme = &app.theme;
        let style = if is_selected(app, head) {
            theme.selected().patch(theme.strong())
        } else if theme.has_colour() {
            Style::new().bg(theme.heat(share)).fg(theme.on_heat(share))
        } else {
            Style::new()
        };
        let cell = &mut frame.buffer_mut()[cells.at(*point)];
        cell.set_char(letter).set_style(Style::reset().patch(style));
    }
    draw_legend(frame, below, app, &points);
}

/// Draws from the first to the last decile of the selected head along both axes.
fn draw_reach(frame: &mut Frame<'_>, app: Scene<'_>, cells: &crate::widgets::chart::Cells<'_>) {
    let [x_idx, y_idx] = app.scatter_axes();
    let head = app.head_over_prompts();
    let figures = head.map(|head| [x_idx, y_idx].map(|idx| head.spread(idx).figures()));
    let Some([Some(x), Some(y)]) = figures else {
        return;
    };
    let plot = cells.plot();
    let (column, row) = cells.at((x.mean, y.mean));
    let clamped = |point: (f64, f64)| {
        let (column, row) = cells.at(point);
        (
            column.clamp(plot.left(), plot.right() - 1),
            row.clamp(plot.top(), plot.bottom() - 1),
        )
    };
    let buf = frame.buffer_mut();
    let (left, right) = (
        clamped((x.deciles[0], y.mean)).0,
        clamped((x.deciles[8], y.mean)).0,
    );
    for column in left..=right {
        buf.set_string(column, row, "─", app.theme.accent());
    }
    let (bottom, top) = (
        clamped((x.mean, y.deciles[0])).1,
        clamped((x.mean, y.deciles[8])).1,
    );
    for row in top..=bottom {
        buf.set_string(column, row, "│", app.theme.accent());
    }
}

/// The letters that occur with their types, and the colours of the first and last layer.
fn draw_legend(
    frame: &mut Frame<'_>,
    area: Rect,
    app: Scene<'_>,
    points: &[(&HeadOver, (f64, f64))],
) {
    let theme = &app.theme;
    let kinds: BTreeSet<HeadType> = points
        .iter()
        .filter_map(|(head, _)| head.kind().map(|(kind, _)| kind))
        .collect();
    let has_none = points.iter().any(|(head, _)| head.kind().is_none());
    let none = has_none.then_some((NO_TYPE, "no type"));
    let names = kinds.iter().map(|kind| (kind.letter(), kind.title()));
    let mut lines: Vec<Line<'static>> = vec![Line::default()];
    for (letter, name) in names.chain(none) {
        let text = format!(" {letter} {name} ");
        let line = lines.last_mut().map_or(0, |line| line.width());
        if line > 0 && line + text.chars().count() > area.width as usize && lines.len() < 2 {
            lines.push(Line::default());
        }
        if let Some(line) = lines.last_mut() {
            line.push_span(Span::styled(format!(" {letter}"), theme.strong()));
            line.push_span(Span::styled(format!(" {name} "), theme.dim()));
        }
    }
    if theme.has_colour() && app.n_layers() > 1 {
        let last = app.n_layers() - 1;
        let mut line = Line::from(Span::styled(" L0 ", theme.dim()));
        let n = app.n_layers().min(12);
        let layers = (0..n).map(|nth| nth * last / (n - 1).max(1));
        layers.for_each(|layer_idx| line.push_span(swatch(theme, colour(app, layer_idx))));
        line.push_span(Span::styled(format!(" L{last}"), theme.dim()));
        if lines.len() < 2 {
            lines.push(line);
        } else if lines[1].width() + line.width() <= area.width as usize {
            lines[1].extend(line.spans);
        }
    }
    frame.render_widget(ratatui::widgets::Paragraph::new(lines), area);
}

/// The head drawn nearest to a cell of the panel's part; `None` if none is near.
pub fn head_at(app: Scene<'_>, area: Rect, (column, row): (u16, u16)) -> Option<Place> {
    if !area.contains(Position::new(column, row)) {
        return None;
    }
    let inside = ratatui::widgets::Block::bordered().inner(area);
    let [plot, _] = areas(inside);
    let chart = axes_chart(app);
    let cells = cells_of(&chart, plot)?;
    let apart = |point: (f64, f64)| {
        let at = cells.at(point);
        (at.0.abs_diff(column), at.1.abs_diff(row))
    };
    let points = points(app).into_iter();
    let near = points.map(|(head, point)| (head, apart(point)));
    let near = near.filter(|(_, (across, down))| *across <= NEAR.0 && *down <= NEAR.1);
    // A row is about as high as two columns are wide.
    let nearest = near.min_by_key(|(_, (across, down))| across.pow(2) + 4 * down.pow(2));
    nearest.map(|(head, _)| head.place)
}

/// Describes a head: its place, type and both means.
pub fn told_of(app: Scene<'_>, place: Place) -> Option<String> {
    let over = app.over_prompts()?;
    let head = over.head(place.grid(), place.layer_idx?, place.head_idx?)?;
    let kind = head
        .kind()
        .map_or(String::new(), |(kind, _)| format!(" · {}", kind.title()));
    let means = app.scatter_axes().map(|idx| {
        let mean = figure(head.spread(idx).mean(), 0);
        format!("{} {mean}", STATISTICS[idx].title)
    });
    Some(format!("{place}{kind} · mean {} · {}", means[0], means[1]))
}
