//! Largest probability and entropy of the selected head against the scale of its scores, with the current scale marked.

use attnscope_report::chart::{Axis as ChartAxis, Chart, Mark, Series};
use attnscope_report::{NOW, qk_norm_mark, rule_marks};
use attnscope_run::SweepPoint;
use attnscope_worker::Swept;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use crate::figure::{cut, figure};
use crate::state::scene::Scene;
use crate::state::views::Axis;
use crate::widgets::chart::{chart_places, draw_chart};
use crate::widgets::frame::{draw_reason, framed, selection_title, waiting};

/// A chart's title, axis label, and value at a point.
type Drawn = (&'static str, &'static str, fn(&SweepPoint) -> f64);

const DRAWN: [Drawn; 2] = [
    ("largest probability", "probability", |point| {
        point.max_probability.mean
    }),
    ("entropy / log n", "fraction of log n", |point| {
        point.relative_entropy.mean
    }),
];

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let query = app.selection.query_idx;
    let title = format!(
        " · scores × scale · query {query} “{}”",
        app.token(Axis::Query, query)
    );
    let title = selection_title(app, &title);
    let inside = framed(frame, area, app, cut(&title, area.width as usize - 4));
    if let Some(why) = app.no_sweep() {
        return draw_reason(frame, inside, app, why);
    }
    let Some(swept) = app.swept() else {
        return waiting(frame, inside, app);
    };
    let words = words(app, swept, inside.width as usize);
    let [charts, below] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(words.len() as u16)])
            .areas(inside);
    // Text keeps a column away from the frame.
    let charts = charts.inner(Margin::new(1, 0));
    for (drawn, area) in DRAWN.iter().zip(chart_places(charts, DRAWN.len())) {
        draw_chart(
            &chart(app, swept, drawn),
            area,
            frame.buffer_mut(),
            &app.theme,
        );
    }
    frame.render_widget(Paragraph::new(words), below);
}

/// Scales with a meaning, as multiples of the current one.
pub fn marks(app: Scene<'_>) -> Vec<Mark> {
    let Some(spec) = app.attention() else {
        return Vec::new();
    };
    let row = app.layer().and_then(|layer| {
        let head = layer.heads.get(app.selection.head_idx)?;
        head.summary.rows.get(app.selection.query_idx)
    });
    let mut marks = rule_marks(spec);
    if !app.knows_width() {
        // The head size is unknown, so other scales cannot be named.
        marks.truncate(1);
        marks[0].label = NOW.to_owned();
        return marks;
    }
    marks.extend(qk_norm_mark(spec, row.into_iter()));
    marks
}

/// The charts of the panel, once they are computed.
pub fn charts(app: Scene<'_>) -> Vec<Chart> {
    let drawn = |swept| DRAWN.iter().map(|drawn| chart(app, swept, drawn)).collect();
    app.swept().map(drawn).unwrap_or_default()
}

fn chart(app: Scene<'_>, swept: &Swept, (title, unit, of): &Drawn) -> Chart {
    let line = |name: &str, points: &[SweepPoint]| {
        let points = points.iter().map(|point| (point.scale, of(point)));
        Series::line(name, points.collect())
    };
    let mut series = vec![
        line("this query", &swept.row),
        line("all queries", &swept.all),
    ];
    series.extend(app.swept_layer().map(|points| line("all heads", points)));
    Chart {
        title: (*title).to_owned(),
        x: ChartAxis::logarithmic("scale of the scores"),
        y: ChartAxis::linear(*unit).from(0.0).to(1.0),
        series,
        marks: marks(app),
    }
}

/// The figures at the marked scales.
fn words(app: Scene<'_>, swept: &Swept, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let mut lines = vec![Line::styled(
        " largest probability · entropy / log n of this query, its scores multiplied",
        theme.dim(),
    )];
    let at = |scale: f64| {
        let nearest = swept.row.iter().min_by(|a, b| {
            let off = |point: &SweepPoint| (point.scale / scale).ln().abs();
            off(a).total_cmp(&off(b))
        });
        nearest.map_or_else(String::new, |point| {
            format!(
                "{} · {}",
                figure(point.max_probability.mean, 0),
                figure(point.relative_entropy.mean, 0)
            )
        })
    };
    let mut line = Line::default();
    for mark in marks(app) {
        let name = format!("  {} (×{}): ", mark.label, figure(mark.at, 0));
        let value = at(mark.at);
        if line.width() > 0 && line.width() + name.width() + value.width() > width {
            lines.push(std::mem::take(&mut line));
        }
        line.push_span(Span::styled(name, theme.accent()));
        line.push_span(Span::raw(value));
    }
    lines.push(line);
    let layer = match (app.awaits_layer_sweep(), app.swept_layer()) {
        (true, _) => "running the whole layer …",
        (false, None) => "a adds the whole layer",
        (false, Some(_)) => "a leaves the layer out",
    };
    let suppose = if app.accepts_what_ifs() {
        " · w temperature=T makes it so"
    } else {
        ""
    };
    let hint = format!("  ↑↓ query · ←→ head · {layer}{suppose}");
    lines.push(Line::styled(hint, theme.dim()));
    lines
}
