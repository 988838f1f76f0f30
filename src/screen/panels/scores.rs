//! The statistics of a head next to its layer's and the model's, its scores against chance, and its rows one by one.

use attnscope_checks::stats::{HeadReport, LayerReport, STATISTICS, Stat};
use attnscope_compute::attention::RowSummary;
use attnscope_run::Histogram;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Position, Rect};
use ratatui::style::Style;
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Paragraph};

use super::scores_change;
use super::statistic_figure::{UNDEFINED, statistic_figure};
use crate::figure::{cut, figure, fit, share, wrapped};
use crate::state::app::App;
use crate::state::filter::List;
use crate::state::keys::Action;
use crate::state::scene::Scene;
use crate::widgets::frame::{draw_reason, framed, selection_title, waiting};

/// The boxes of the panel: the statistics, and two charts beside them.
fn boxes(app: Scene<'_>, area: Rect) -> [Rect; 3] {
    let left_share = if area.width < 100 { 61 } else { 58 };
    let [mut left, right] =
        Layout::horizontal([Constraint::Percentage(left_share), Constraint::Min(0)]).areas(area);
    let [mut top, mut bottom] =
        Layout::vertical([Constraint::Percentage(50), Constraint::Min(0)]).areas(right);
    app.arrange(area, &mut [&mut left, &mut top, &mut bottom]);
    [left, top, bottom]
}

/// The boxes of the panel.
pub fn panes(app: Scene<'_>, area: Rect) -> Vec<Rect> {
    boxes(app, area).to_vec()
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let [left, top, bottom] = boxes(app, area);
    let grid = app.selection.stack;
    let both = app.both_layers(grid, app.selection.layer_idx);
    if let Some(both) = both.filter(|_| app.shows_difference()) {
        return scores_change::draw(frame, [left, top, bottom], app, both);
    }
    match app
        .layer()
        .and_then(|layer| Some((layer, layer.heads.get(app.selection.head_idx)?)))
    {
        Some((layer, head)) => {
            draw_table(frame, left, app, layer, head);
            draw_histogram(frame, top, app, head);
            draw_rows(frame, bottom, app, head);
        }
        None => {
            let inside = framed(frame, left, app, selection_title(app, " · statistics"));
            waiting(frame, inside, app);
            framed(frame, top, app, " score distribution ");
            framed(frame, bottom, app, " by query ");
        }
    }
}

/// Smallest and largest finite value.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .filter(|v| v.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(v), high.max(v))
        })
}

/// Ranges of a statistic; (infinity, −infinity) if it has none.
pub struct Ranges {
    pub in_layer: (f64, f64),
    pub in_model: (f64, f64),
}

/// Ranges of a statistic among the heads of a layer and of all layers of the stack; among layers only, for a layer statistic.
pub fn ranges(app: Scene<'_>, layer: &LayerReport, idx: usize) -> Ranges {
    let layers = app.layers_of(app.selection.stack).iter();
    let of_heads = |layer: &LayerReport| -> Vec<f64> {
        layer.heads.iter().map(|head| head.stats.at(idx)).collect()
    };
    if !STATISTICS[idx].is_per_head() {
        return Ranges {
            in_layer: range(std::iter::empty()),
            in_model: range(layers.map(|layer| layer.stats.at(idx))),
        };
    }
    Ranges {
        in_layer: range(of_heads(layer).into_iter()),
        in_model: range(layers.flat_map(|layer| of_heads(layer))),
    }
}

/// Columns of two numbers, and of the gauge that shows a value in the model's range.
const RANGE: usize = 14;
const GAUGE: usize = 8;

/// Formats a range as `0.12   0.98`, or blank if the statistic has none.
fn range_text((low, high): (f64, f64)) -> String {
    if low > high {
        fit("", RANGE)
    } else {
        format!(" {} {}", figure(low, 6), figure(high, 6))
    }
}

fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    app: Scene<'_>,
    layer: &LayerReport,
    head: &HeadReport,
) {
    if area.is_empty() {
        return;
    }
    let theme = &app.theme;
    let inside = ratatui::widgets::Block::bordered().inner(area);
    // A space, the head's value, the layer's range, the model's range if it fits, the gauge.
    let fixed = 1 + 7 + RANGE;
    let wide = inside.width as usize >= fixed + RANGE + GAUGE + 14;
    let fixed = fixed + GAUGE + if wide { RANGE } else { 0 };
    let title_width = (inside.width as usize).saturating_sub(fixed);
    let model = if wide { " in model     " } else { "" };
    let header = format!(
        " {}{:>7} {:<13}{model}  {:<6}",
        fit("", title_width),
        "head",
        "in layer",
        "model"
    );
    let notes = notes(app, layer, inside);
    let (first, n_rows) = window(app, inside, notes.len());
    let n_listed = listed(app).count();
    // The heading is a line too.
    let heading = (first == 0).then(|| Line::styled(header, theme.dim()));
    let mut lines: Vec<Line<'static>> = heading.into_iter().collect();
    let n_left = n_rows.saturating_sub(lines.len());
    for idx in listed(app).skip(first.saturating_sub(1)).take(n_left) {
        let statistic = STATISTICS[idx];
        let is_per_head = statistic.is_per_head();
        let value = if is_per_head {
            head.stats.at(idx)
        } else {
            layer.stats.at(idx)
        };
        let Ranges { in_layer, in_model } = ranges(app, layer, idx);
        let is_chosen = idx == app.statistic_idx;
        let style = if is_chosen {
            theme.selected()
        } else {
            Style::new()
        };
        let mut spans = vec![
            Span::styled(format!(" {}", fit(statistic.title, title_width)), style),
            Span::styled(
                statistic_figure(layer, (idx, app.selection.head_idx), value, 7),
                theme.strong(),
            ),
            Span::styled(range_text(in_layer), theme.dim()),
        ];
        if wide {
            spans.push(Span::styled(range_text(in_model), theme.dim()));
        }
        spans.push(Span::styled(gauge(value, in_model), theme.accent()));
        lines.push(Line::from(spans));
    }
    let range = if n_listed + 1 > n_rows {
        let key = app.keys.key(Action::NextStatistic);
        let (from, to) = (first.max(1), (first + lines.len()).saturating_sub(1));
        format!(" · {from}–{to} of {n_listed} statistics · {key} next")
    } else {
        " · statistics".to_owned()
    };
    if n_listed == 0 {
        lines.push(Line::styled(" no statistic matches", theme.dim()));
    }
    let title = selection_title(app, &range) + &app.filter_note(List::Statistics);
    framed(frame, area, app, title);
    frame.render_widget(Paragraph::new(lines), inside);
    let n_notes = notes.len() as u16;
    let note = Rect {
        y: inside.bottom().saturating_sub(n_notes),
        height: n_notes.min(inside.height),
        ..inside
    };
    let width = inside.width as usize - 1;
    let notes: Vec<Line<'static>> = notes
        .iter()
        .map(|text| Line::styled(format!(" {}", cut(text, width)), theme.dim()))
        .collect();
    frame.render_widget(Paragraph::new(notes), note);
}

/// The statistics of the list: those that are known here and that the filter leaves.
fn listed(app: Scene<'_>) -> impl Iterator<Item = usize> + '_ {
    (0..STATISTICS.len()).filter(move |idx| app.knows(*idx) && app.keeps(List::Statistics, *idx))
}

/// What the chosen statistic means, or why it has no value here, and where it comes from.
fn notes(app: Scene<'_>, layer: &LayerReport, inside: Rect) -> Vec<String> {
    let chosen = app.statistic();
    let width = (inside.width as usize).saturating_sub(1);
    let why = layer.why_undefined(app.statistic_idx, Some(app.selection.head_idx));
    let definition = match why {
        Some(why) => format!("{UNDEFINED} {why}"),
        None => chosen.definition.to_owned(),
    };
    let texts = [
        format!("{}: {definition}", chosen.title),
        format!("source: {}", chosen.source),
    ];
    // Wrap both if that takes at most a third of the rows; else the source, which m shows too, keeps to one.
    let most = (inside.height as usize / 3).max(2);
    let [mut notes, source] = texts.each_ref().map(|text| wrapped(text, width));
    if notes.len() + source.len() <= most {
        notes.extend(source);
    } else {
        notes.truncate(most - 1);
        notes.push(texts[1].clone());
    }
    notes
}

/// The first line of the table that is shown, counted from its heading, and how many lines there is room for above the notes.
fn window(app: Scene<'_>, inside: Rect, n_notes: usize) -> (usize, usize) {
    let n_lines = 1 + listed(app).count();
    let n_rows = (inside.height as usize).saturating_sub(n_notes);
    let nth = listed(app).position(|idx| idx == app.statistic_idx);
    let first = (nth.unwrap_or(0) + 2)
        .saturating_sub(n_rows)
        .min(n_lines.saturating_sub(n_rows));
    (first, n_rows)
}

/// Chooses the statistic under the pointer.
pub fn click(app: &mut App, area: Rect, (column, row): (u16, u16)) {
    let scene = app.scene();
    let [left, ..] = boxes(scene, area);
    let inside = ratatui::widgets::Block::bordered().inner(left);
    let is_hit = inside.contains(Position::new(column, row));
    let Some(layer) = scene
        .layer()
        .filter(|_| is_hit && !scene.shows_difference())
    else {
        return;
    };
    let (first, n_rows) = window(scene, inside, notes(scene, layer, inside).len());
    let down = (row - inside.y) as usize;
    let nth = (first + down).checked_sub(1).filter(|_| down < n_rows);
    let chosen = nth.and_then(|nth| listed(scene).nth(nth));
    if let Some(idx) = chosen {
        app.statistic_idx = idx;
    }
}

/// A value's position in a range: a mark on a line.
fn gauge(value: f64, (low, high): (f64, f64)) -> String {
    let width = GAUGE - 2;
    if !value.is_finite() || low >= high {
        return fit("", GAUGE);
    }
    let at = (share(value, (low, high)) * (width - 1) as f32).round() as usize;
    let line: String = (0..width)
        .map(|i| if i == at { '●' } else { '─' })
        .collect();
    format!("  {line}")
}

/// Draws a chart's legend in lines above it, where it covers no data; returns the remaining area.
fn below_names(frame: &mut Frame<'_>, area: Rect, names: &[(&'static str, Style)]) -> Rect {
    let width = area.width as usize;
    let mut lines: Vec<Line<'static>> = vec![Line::raw(" ")];
    for (name, style) in names {
        let span = Span::styled(*name, *style);
        match lines.last_mut() {
            Some(line) if line.width() <= 1 || line.width() + 2 + span.width() <= width => {
                if line.width() > 1 {
                    line.push_span(Span::raw("  "));
                }
                line.push_span(span);
            }
            _ => lines.push(Line::from(vec![Span::raw(" "), span])),
        }
    }
    let [above, below] =
        Layout::vertical([Constraint::Length(lines.len() as u16), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(lines), above);
    below
}

fn axis(app: Scene<'_>, bounds: [f64; 2]) -> Axis<'static> {
    let labels = vec![figure(bounds[0], 0), figure(bounds[1], 0)];
    Axis::default()
        .style(app.theme.dim())
        .bounds(bounds)
        .labels(labels)
        .labels_alignment(Alignment::Right)
}

/// The density of a normal distribution with mean 0.
pub fn normal_density(variance: f64, x: f64) -> f64 {
    (-x * x / (2.0 * variance)).exp() / (std::f64::consts::TAU * variance).sqrt()
}

/// The normal density expected for independent components.
fn predicted_normal(variance: f64, low: f64, high: f64) -> Vec<(f64, f64)> {
    const STEPS: usize = 120;
    (0..=STEPS)
        .map(|i| low + (high - low) * i as f64 / STEPS as f64)
        .map(|x| (x, normal_density(variance, x)))
        .collect()
}

fn draw_histogram(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, head: &HeadReport) {
    let variance = head.stats.of(Stat::ScoreVarPredicted);
    // Without the norms of queries and keys nothing is predicted.
    let title = if variance > 0.0 {
        " scores · predicted normal "
    } else {
        " scores "
    };
    let inside = framed(frame, area, app, title);
    let Some(histogram) = app.shown_detail().map(|detail| &detail.histogram) else {
        return waiting(frame, inside, app);
    };
    if let Some(why) = app.no_scores() {
        return draw_reason(frame, inside, app, why);
    }
    if histogram.bin_width() == 0.0 {
        let why = "all scores are alike: nothing to draw";
        return draw_reason(frame, inside, app, why);
    }
    draw_densities(frame, inside, app, histogram, variance);
}

/// The densities as points close enough that bins wider than a column leave no gaps, which would look like empty bins.
fn filled(histogram: &Histogram) -> Vec<(f64, f64)> {
    const POINTS: i32 = 8;
    let width = histogram.bin_width() / f64::from(POINTS);
    let of_bin = |(middle, density): (f64, f64)| {
        let points = (0..POINTS).map(move |i| f64::from(i) - f64::from(POINTS - 1) / 2.0);
        points.map(move |at| (middle + at * width, density))
    };
    histogram.densities().into_iter().flat_map(of_bin).collect()
}

fn draw_densities(
    frame: &mut Frame<'_>,
    area: Rect,
    app: Scene<'_>,
    histogram: &Histogram,
    variance: f64,
) {
    let observed = filled(histogram);
    let spread = 3.0 * variance.sqrt();
    let (low, high) = (f64::from(histogram.min), f64::from(histogram.max));
    let (low, high) = if spread.is_finite() {
        (low.min(-spread), high.max(spread))
    } else {
        (low, high)
    };
    let normal = if variance > 0.0 {
        predicted_normal(variance, low, high)
    } else {
        Vec::new()
    };
    let top = observed
        .iter()
        .chain(&normal)
        .map(|(_, d)| *d)
        .fold(0.0, f64::max);
    let datasets = vec![
        Dataset::default()
            .name("observed")
            .marker(Marker::HalfBlock)
            .graph_type(GraphType::Bar)
            .style(app.theme.accent())
            .data(&observed),
        Dataset::default()
            .name("predicted")
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(app.theme.notable())
            .data(&normal),
    ];
    let chart = Chart::new(datasets)
        .x_axis(axis(app, [low, high]))
        .y_axis(axis(app, [0.0, top]))
        .legend_position(None);
    let names = [
        ("↑ density → score", app.theme.dim()),
        ("▄ observed", app.theme.accent()),
        ("⠒ predicted", app.theme.notable()),
    ];
    let n_names = names.len() - usize::from(normal.is_empty());
    let place = below_names(frame, area, &names[..n_names]);
    frame.render_widget(chart, place);
}

/// Rows that see enough keys for an entropy, by query.
fn judged_rows(head: &HeadReport) -> impl Iterator<Item = (usize, &RowSummary)> {
    let rows = head.summary.rows.iter().enumerate();
    rows.filter(|(_, row)| row.is_real && row.n_visible >= 2 && row.entropy.is_finite())
}

/// Entropy of each row divided by log n, by query.
pub fn relative_entropies(head: &HeadReport) -> Vec<(f64, f64)> {
    let relative = |row: &RowSummary| f64::from(row.entropy) / f64::from(row.n_visible).ln();
    judged_rows(head)
        .map(|(i, row)| (i as f64, relative(row)))
        .collect()
}

fn draw_rows(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, head: &HeadReport) {
    let inside = framed(frame, area, app, " by query ");
    let entropy = relative_entropies(head);
    let largest: Vec<(f64, f64)> = judged_rows(head)
        .map(|(i, row)| (i as f64, f64::from(row.top1)))
        .collect();
    if entropy.is_empty() {
        let why = "no query sees two keys with finite scores: nothing to draw";
        return draw_reason(frame, inside, app, why);
    }
    let line = |name, style, marker, graph_type, data| {
        Dataset::default()
            .name(name)
            .marker(marker)
            .graph_type(graph_type)
            .style(style)
            .data(data)
    };
    let datasets = vec![
        line(
            "relative entropy",
            app.theme.accent(),
            Marker::Braille,
            GraphType::Line,
            &entropy,
        ),
        line(
            "max probability",
            app.theme.notable(),
            Marker::Dot,
            GraphType::Scatter,
            &largest,
        ),
    ];
    let last = head.summary.rows.len().saturating_sub(1).max(1) as f64;
    let chart = Chart::new(datasets)
        .x_axis(
            Axis::default()
                .style(app.theme.dim())
                .bounds([0.0, last])
                .labels(vec!["0".to_owned(), format!("{last:.0}")]),
        )
        .y_axis(axis(app, [0.0, 1.0]))
        .legend_position(None);
    let names = [
        ("→ query", app.theme.dim()),
        ("⠒ relative entropy", app.theme.accent()),
        ("• max probability", app.theme.notable()),
    ];
    let place = below_names(frame, inside, &names);
    frame.render_widget(chart, place);
}
