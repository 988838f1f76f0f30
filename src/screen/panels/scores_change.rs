//! The statistics of a head with and without the what-ifs: numbers, scores and entropies of both.

use attnscope_checks::stats::{HeadReport, LayerReport, STATISTICS};
use attnscope_report::chart::{Axis, Chart, Series};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::scores;
use super::statistic_figure::{UNDEFINED, change_of};
use crate::figure::fit;
use crate::state::scene::Scene;
use crate::widgets::chart::draw_chart;
use crate::widgets::frame::{framed, selection_title, waiting};

/// Columns of a number.
const FIGURE: usize = 9;

/// Draws a layer's statistics before and after.
pub fn draw(
    frame: &mut Frame<'_>,
    [left, top, bottom]: [Rect; 3],
    app: Scene<'_>,
    both: [&LayerReport; 2],
) {
    draw_table(frame, left, app, both);
    let [a, b] = app.labels();
    let scores = framed(frame, top, app, format!(" scores · {a} and {b} "));
    match app.both_details() {
        None => waiting(frame, scores, app),
        Some(details) => {
            let line =
                |nth: usize, name: &str| Series::line(name, details[nth].histogram.densities());
            let chart = Chart {
                title: String::new(),
                x: Axis::linear("score"),
                y: Axis::linear("density").from(0.0),
                series: vec![line(0, a), line(1, b)],
                marks: Vec::new(),
            };
            draw_chart(&chart, scores, frame.buffer_mut(), &app.theme);
        }
    }
    let entropies = framed(
        frame,
        bottom,
        app,
        format!(" relative entropy · {a} and {b} "),
    );
    let heads = both.map(|layer| layer.heads.get(app.selection.head_idx));
    let [Some(before), Some(after)] = heads else {
        return;
    };
    let line = |head: &HeadReport, name: &str| Series::line(name, scores::relative_entropies(head));
    let chart = Chart {
        title: String::new(),
        x: Axis::linear("query"),
        y: Axis::linear("of log n").from(0.0).to(1.0),
        series: vec![line(before, a), line(after, b)],
        marks: Vec::new(),
    };
    draw_chart(&chart, entropies, frame.buffer_mut(), &app.theme);
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, both: [&LayerReport; 2]) {
    let theme = &app.theme;
    let inside = framed(
        frame,
        area,
        app,
        selection_title(app, " · change of statistics"),
    );
    let name_width = (inside.width as usize).saturating_sub(2 + 3 * FIGURE);
    let header = format!(
        " {}{:>FIGURE$}{:>FIGURE$}{:>FIGURE$}",
        fit("", name_width),
        app.labels()[0],
        app.labels()[1],
        "change"
    );
    let [title, rows] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(inside);
    frame.render_widget(Line::styled(header, theme.dim()), title);
    let head_idx = app.selection.head_idx;
    let n_shown = rows.height as usize;
    let first = (app.statistic_idx + 1)
        .saturating_sub(n_shown)
        .min(STATISTICS.len().saturating_sub(n_shown));
    let shown = STATISTICS.iter().enumerate().skip(first).take(n_shown);
    let lines: Vec<Line<'_>> = shown
        .map(|(idx, statistic)| {
            let value = |layer: &LayerReport| match layer.heads.get(app.selection.head_idx) {
                Some(head) if statistic.is_per_head() => head.stats.at(idx),
                _ => layer.stats.at(idx),
            };
            let [before, after] = both.map(value);
            let style = if idx == app.statistic_idx {
                theme.selected()
            } else {
                Style::new()
            };
            let (figures, moved) =
                change_of(both, (idx, head_idx), [before, after], (FIGURE, FIGURE));
            let moved_style = if matches!(moved.trim(), "0" | UNDEFINED) {
                theme.dim()
            } else {
                theme.accent()
            };
            Line::from(vec![
                Span::styled(format!(" {}", fit(statistic.title, name_width)), style),
                Span::raw(figures.concat()),
                Span::styled(moved, moved_style),
            ])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), rows);
}
