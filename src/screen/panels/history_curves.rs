//! Curves of the selected head over the steps: the chosen statistic and early-warning ones, with the thresholds of checks.

use attnscope_checks::stats::{Compute, Span, Stat, Statistic, index_of};
use attnscope_history::lines_of;
use attnscope_report::chart::{Axis, Chart, Mark, Series};
use attnscope_report::digits;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::history_strip::is_of_layers;
use crate::state::history_view::HistoryView;
use crate::state::scene::Scene;
use crate::state::statistics::statistic;
use crate::widgets::chart::{RULE, draw_chart};

/// Minimum rows of a chart.
const ROWS: u16 = 9;
/// Statistics shown next to the chosen one, in this order.
const COMPANIONS: [Stat; 3] = [
    Stat::EntropyRelative,
    Stat::MaxAbsScore,
    Stat::SaturatedRows,
];
/// A threshold further from the values than this many times their range is left out, because it would flatten the curve.
const FAR: f64 = 3.0;
/// A curve that spans more than this factor is drawn on a logarithmic axis.
const EXPLODES: f64 = 30.0;
/// Maximum points of a curve: more than any chart has columns.
const MOST_POINTS: usize = 2000;

/// The recorded statistics to draw, the chosen one first.
fn shown(app: Scene<'_>, view: &HistoryView, n: usize) -> Vec<&'static Statistic> {
    let companions = COMPANIONS.iter().map(|stat| stat.idx());
    let chosen = std::iter::once(app.statistic_idx);
    let others = companions.filter(|idx| *idx != app.statistic_idx);
    let mut indices: Vec<usize> = chosen
        .chain(others)
        .filter(|idx| view.knows(*idx))
        .collect();
    indices.truncate(n);
    indices.into_iter().map(statistic).collect()
}

/// Draws as many charts as fit, one below the other.
pub fn draw(area: Rect, view: &HistoryView, app: Scene<'_>, buf: &mut Buffer) {
    let n = (area.height / ROWS).clamp(1, 3);
    let all = shown(app, view, n as usize);
    let each = area.height / (all.len().max(1) as u16);
    for (nth, statistic) in all.into_iter().enumerate() {
        let place = Rect {
            y: area.y + nth as u16 * each,
            height: each,
            ..area
        };
        // A legend takes a row for each threshold, so the title of a small chart lists their values instead.
        let names_lines = place.width >= 48 && place.height >= 12;
        draw_chart(
            &chart(app, view, statistic, names_lines),
            place,
            buf,
            &app.theme,
        );
    }
}

/// The charts of a figure: the chosen statistic and its companions.
pub fn charts(app: Scene<'_>) -> Vec<Chart> {
    let Some(view) = app.training.as_ref() else {
        return Vec::new();
    };
    let all = shown(app, view, COMPANIONS.len() + 1).into_iter();
    all.map(|statistic| chart(app, view, statistic, true))
        .collect()
}

/// Formats a threshold without trailing zeros.
fn short(at: f64) -> String {
    let digits = digits(at);
    if digits.contains('.') {
        digits
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    } else {
        digits
    }
}

/// Chart of one statistic of the selected head, or of its layer.
fn chart(
    app: Scene<'_>,
    view: &HistoryView,
    statistic: &'static Statistic,
    names_lines: bool,
) -> Chart {
    let history = &view.history;
    let is_of_layer = matches!(statistic.compute, Compute::Layer(_))
        || is_of_layers(app) && index_of(statistic.id) == Some(app.statistic_idx);
    let place = app.history_place(is_of_layer);
    let cell = history.grid().cell(&place).unwrap_or(0);
    let column = history.column(statistic.id);
    let n = history.records().len();
    let every = n.div_ceil(MOST_POINTS).max(1);
    let is_read = |idx: &usize| history.records()[*idx].numbers.is_some();
    let value = |idx: usize| column.map_or(f64::NAN, |column| history.value(idx, column, cell));
    let points: Vec<(f64, f64)> = (0..n)
        .filter(|idx| idx % every == 0 || idx + 1 == n)
        .filter(is_read)
        .map(|idx| (history.x(idx), value(idx)))
        .collect();
    let finite = points.iter().map(|(_, y)| *y).filter(|y| y.is_finite());
    let (low, high) = finite.fold((f64::MAX, f64::MIN), |(low, high), y| {
        (low.min(y), high.max(y))
    });
    // Scores can explode by powers of ten; a logarithmic axis keeps the values before that visible.
    let is_logarithmic =
        matches!(statistic.span, Span::Positive) && low > 0.0 && high > EXPLODES * low;
    let reach = FAR * (high - low).max(0.1 * high.abs()).max(1e-9);
    let ends = (points.first().map(|p| p.0), points.last().map(|p| p.0));
    let (mut unnamed, mut out_of_sight) = (Vec::new(), Vec::new());
    let mut series = vec![Series::line("", points)];
    for (check, at) in lines_of(statistic.id, view.judge.thresholds()) {
        let is_near = is_logarithmic || at >= low - reach && at <= high + reach;
        match ends {
            (Some(first), Some(last)) if is_near => {
                let name = if names_lines {
                    format!("{check} {}", short(at))
                } else {
                    unnamed.push(short(at));
                    String::new()
                };
                series.push(Series::rule(name, (first, last), at));
            }
            _ => out_of_sight.push(short(at)),
        }
    }
    if series.len() > 1 && names_lines {
        series[0].name = "head".to_owned();
        if is_of_layer {
            series[0].name = "layer".to_owned();
        }
    }
    let mut title = statistic.title.to_owned();
    if !unnamed.is_empty() {
        title += &format!(" {RULE} {}", unnamed.join(", "));
    }
    if !out_of_sight.is_empty() {
        title += &format!(" · threshold {}", out_of_sight.join(", "));
    }
    let here = view.record().map(|_| Mark {
        at: history.x(view.at),
        label: String::new(),
    });
    Chart {
        title,
        x: Axis::linear(""),
        y: if is_logarithmic {
            Axis::logarithmic("")
        } else {
            Axis::linear("")
        },
        series,
        marks: here.into_iter().collect(),
    }
}
