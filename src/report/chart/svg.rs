//! Charts as SVG: one file on a white background, so that it looks the same on light and dark pages.

use maud::{Markup, PreEscaped, html};

use super::labels::{Label, n_rows, placed};
use super::{Chart, Figure, Series, Stroke, tick_label};

/// Margins around a plot, in SVG units.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
/// Height of the title above all charts, and of a legend row.
const TITLE: f64 = 34.0;
const ROW: f64 = 18.0;
/// Average width of a letter at the size of labels.
const LETTER: f64 = 6.1;
/// Height of a row of mark labels, and the gap between two labels.
const LABEL_ROW: f64 = 14.0;
const LABEL_GAP: f64 = 8.0;
/// Approximate distance between ticks.
const TICK_X: f64 = 55.0;
const TICK_Y: f64 = 42.0;

/// Colours that people with any colour vision can distinguish (Okabe and Ito 2008), except the yellow: too light for lines.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9",
];
/// Dash patterns, for prints without colour.
const DASHES: [&str; 7] = ["", "7 3", "2 3", "10 3 2 3", "4 4", "12 4", "1 2"];

const STYLE: &str = "text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:11px;fill:#333}\
.title{font-size:15px;font-weight:600;fill:#111}.name{font-size:12.5px;font-weight:600;fill:#111}\
.axis{stroke:#555;stroke-width:1}.rule{stroke:#e4e4e4;stroke-width:1}.mark{stroke:#777;stroke-width:1;stroke-dasharray:3 3}\
.line{fill:none;stroke-width:1.8;stroke-linejoin:round}.edge{fill:none;stroke-width:.8;opacity:.7}";

/// Draws figures one below the other as a whole SVG file, with a newline at the end.
pub fn svg(figures: &[Figure]) -> String {
    let mut total_width: f64 = 0.0;
    let mut bottom = 0.0;
    let mut n_drawn = 0;
    let mut drawings = Vec::new();
    for figure in figures {
        let (width, height) = panel_size(figure);
        let n_columns = columns(figure);
        total_width = total_width.max(width * n_columns as f64);
        drawings.push(html! {
            text.title x="14" y=(at(bottom + 22.0)) { (figure.title) }
        });
        bottom += TITLE;
        for row in figure.charts.chunks(n_columns) {
            let above = row
                .iter()
                .map(|chart| legend_height(chart, width) + labels_height(chart, width));
            let above = above.fold(0.0, f64::max);
            for (column, chart) in row.iter().enumerate() {
                let x = at(column as f64 * width);
                drawings.push(html! {
                    g transform={ "translate(" (x) " " (at(bottom)) ")" } {
                        (panel(chart, n_drawn, width, height + above, above))
                    }
                });
                n_drawn += 1;
            }
            bottom += height + above;
        }
    }
    let titles: Vec<&str> = figures.iter().map(|figure| figure.title.as_str()).collect();
    let drawing = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(total_width) height=(bottom)
            viewBox={ "0 0 " (total_width) " " (bottom) } role="img" {
            title { (titles.join(" · ")) }
            style { (PreEscaped(STYLE)) }
            rect width="100%" height="100%" fill="#ffffff" {}
            @for drawing in &drawings { (drawing) }
        }
    };
    drawing.into_string() + "\n"
}

fn columns(figure: &Figure) -> usize {
    figure.n_columns.clamp(1, figure.charts.len().max(1))
}

/// Single charts are drawn larger.
fn panel_size(figure: &Figure) -> (f64, f64) {
    match columns(figure) {
        1 => (720.0, 400.0),
        2 => (500.0, 330.0),
        _ => (330.0, 250.0),
    }
}

/// Position of a chart's plot, and the ends of its axes.
struct Plot<'a> {
    chart: &'a Chart,
    x: (f64, f64),
    y: (f64, f64),
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Plot<'_> {
    fn x(&self, value: f64) -> f64 {
        self.left + self.chart.x.share(value, self.x) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.chart.y.share(value, self.y) * (self.bottom - self.top)
    }

    /// Returns the unbroken parts of a series, in SVG units.
    fn parts(&self, series: &Series) -> Vec<Vec<(f64, f64)>> {
        let holds = |x: f64, y: f64| self.chart.x.holds(x) && self.chart.y.holds(y);
        let parts = series.points.split(|(x, y)| !holds(*x, *y));
        parts
            .filter(|part| !part.is_empty())
            .map(|part| part.iter().map(|(x, y)| (self.x(*x), self.y(*y))).collect())
            .collect()
    }
}

fn panel(chart: &Chart, nth: usize, width: f64, height: f64, above: f64) -> Markup {
    let name = html! { text.name x=(LEFT) y="14" { (chart.title) } };
    let (Some(x), Some(y)) = (chart.x_range(), chart.y_range()) else {
        return html! {
            (name)
            text x=(LEFT) y=(height / 2.0) { "no finite value to draw" }
        };
    };
    let plot = Plot {
        chart,
        x,
        y,
        left: LEFT,
        right: width - RIGHT,
        top: TOP + above,
        bottom: height - BOTTOM,
    };
    let (left, right, top, bottom) = (plot.left, plot.right, plot.top, plot.bottom);
    let x_ticks = chart.x.ticks(x, ((right - left) / TICK_X) as usize);
    let y_ticks = chart.y.ticks(y, ((bottom - top) / TICK_Y) as usize);
    let clip = format!("plot{nth}");
    html! {
        (name)
        clipPath id=(clip) { rect x=(left) y=(at(top)) width=(at(right - left)) height=(at(bottom - top)) {} }
        @for (value, label) in y_ticks.values.iter().zip(y_ticks.labels()) {
            @let y = at(plot.y(*value));
            line.rule x1=(left) x2=(right) y1=(y) y2=(y) {}
            text x=(left - 6.0) y=(y) dy="3.8" text-anchor="end" { (label) }
        }
        @for (value, label) in x_ticks.values.iter().zip(x_ticks.labels()) {
            @let x = at(plot.x(*value));
            line.rule x1=(x) x2=(x) y1=(at(top)) y2=(at(bottom)) {}
            line.axis x1=(x) x2=(x) y1=(at(bottom)) y2=(at(bottom + 4.0)) {}
            text x=(x) y=(at(bottom + 16.0)) text-anchor="middle" { (label) }
        }
        g clip-path={ "url(#" (clip) ")" } {
            @for series_idx in chart.from_below() { (line(&plot, series_idx)) }
        }
        line.axis x1=(left) x2=(right) y1=(at(bottom)) y2=(at(bottom)) {}
        line.axis x1=(left) x2=(left) y1=(at(top)) y2=(at(bottom)) {}
        (marks(&plot))
        text x=(at(0.5 * (left + right))) y=(at(bottom + 34.0)) text-anchor="middle" { (chart.x.label) }
        text transform={ "translate(13 " (at(0.5 * (top + bottom))) ") rotate(-90)" } text-anchor="middle" { (chart.y.label) }
        (legend_of(chart, width))
    }
}

fn line(plot: &Plot<'_>, series_idx: usize) -> Markup {
    let series = &plot.chart.series[series_idx];
    let look = plot.chart.look_of(series_idx);
    let (colour, dashes) = (COLOURS[look % COLOURS.len()], DASHES[look % DASHES.len()]);
    html! {
        @for part in plot.parts(series) {
            @match series.stroke {
                Stroke::Points => { @for (x, y) in &part { (dot(look, *x, *y, &value_of(plot, *x, *y))) } }
                Stroke::Edge { .. } => { polyline.edge points=(path(&part)) stroke=(colour) stroke-dasharray=[dash(dashes)] {} }
                Stroke::Area => {
                    @if let (Some(first), Some(last)) = (part.first(), part.last()) {
                        polygon points={ (at(first.0)) "," (at(plot.bottom)) " " (path(&part)) " " (at(last.0)) "," (at(plot.bottom)) }
                            fill=(colour) opacity="0.18" {}
                    }
                    polyline.line points=(path(&part)) stroke=(colour) {}
                }
                Stroke::Line | Stroke::Rule => { polyline.line points=(path(&part)) stroke=(colour) stroke-dasharray=[dash(dashes)] {} }
            }
        }
    }
}

/// The tooltip of a point.
fn value_of(plot: &Plot<'_>, x: f64, y: f64) -> Markup {
    let near =
        |(a, b): &&(f64, f64)| (plot.x(*a) - x).abs() < 0.01 && (plot.y(*b) - y).abs() < 0.01;
    let mut points = plot.chart.series.iter().flat_map(|series| &series.points);
    html! {
        @if let Some((x, y)) = points.find(near) { title { (tick_label(*x)) ": " (tick_label(*y)) } }
    }
}

/// Places the labels of marks above a plot between two ends.
fn labels(chart: &Chart, ends: (f64, f64), (left, right): (f64, f64)) -> Vec<Label> {
    let marks: Vec<(f64, f64)> = chart
        .marks_inside(ends)
        .iter()
        .map(|mark| {
            let x = left + chart.x.share(mark.at, ends) * (right - left);
            (x, LETTER * mark.label.chars().count() as f64)
        })
        .collect();
    placed(&marks, (left, right), LABEL_GAP)
}

/// Returns the height of the mark labels above the plot.
fn labels_height(chart: &Chart, width: f64) -> f64 {
    if chart.marks.iter().all(|mark| mark.label.is_empty()) {
        return 0.0;
    }
    let labels = chart
        .x_range()
        .map(|ends| labels(chart, ends, (LEFT, width - RIGHT)));
    LABEL_ROW * n_rows(&labels.unwrap_or_default()) as f64
}

/// Draws marks, with their labels above the plot, where no curve crosses them.
fn marks(plot: &Plot<'_>) -> Markup {
    let labels = labels(plot.chart, plot.x, (plot.left, plot.right));
    html! {
        @for (mark, label) in plot.chart.marks_inside(plot.x).iter().zip(labels) {
            @let x = plot.x(mark.at);
            @let base = plot.top - 4.0 - LABEL_ROW * label.row as f64;
            @let top = if mark.label.is_empty() { plot.top } else { base + 2.0 };
            line.mark x1=(at(x)) x2=(at(x)) y1=(at(top)) y2=(at(plot.bottom)) {}
            text x=(at(label.x)) y=(at(base)) paint-order="stroke" stroke="#fff" stroke-width="3" { (mark.label) }
        }
    }
}

/// Lays out the legend: left end, row, and index of the series.
fn entries(chart: &Chart, width: f64) -> Vec<(f64, usize, usize)> {
    let (mut x, mut row) = (LEFT, 0);
    let entry = |series_idx: usize| {
        let n_letters = chart.series[series_idx].name.chars().count();
        let wide = 30.0 + LETTER * n_letters as f64 + 12.0;
        if x > LEFT && x + wide > width - RIGHT {
            (x, row) = (LEFT, row + 1);
        }
        let place = (x, row, series_idx);
        x += wide;
        place
    };
    chart.legend(true).into_iter().map(entry).collect()
}

fn legend_height(chart: &Chart, width: f64) -> f64 {
    entries(chart, width)
        .last()
        .map_or(0.0, |(_, row, _)| ROW * (*row + 1) as f64 - 6.0)
}

fn legend_of(chart: &Chart, width: f64) -> Markup {
    html! {
        @for (x, row, series_idx) in entries(chart, width) {
            @let y = TOP - 6.0 + ROW * row as f64;
            @let series = &chart.series[series_idx];
            @let look = chart.look_of(series_idx);
            @let (colour, dashes) = (COLOURS[look % COLOURS.len()], DASHES[look % DASHES.len()]);
            @match series.stroke {
                Stroke::Points => { (dot(look, x + 12.0, y, &html! {})) }
                Stroke::Edge { .. } => { line.edge x1=(at(x)) x2=(at(x + 24.0)) y1=(at(y)) y2=(at(y)) stroke=(colour) {} }
                _ => { line.line x1=(at(x)) x2=(at(x + 24.0)) y1=(at(y)) y2=(at(y)) stroke=(colour) stroke-dasharray=[dash(dashes)] {} }
            }
            text x=(at(x + 30.0)) y=(at(y)) dy="3.8" { (series.name) }
        }
    }
}

/// Draws a point: filled, or as a ring that leaves points below it visible.
fn dot(look: usize, x: f64, y: f64, inside: &Markup) -> Markup {
    let colour = COLOURS[look % COLOURS.len()];
    html! {
        @if look.is_multiple_of(2) {
            circle cx=(at(x)) cy=(at(y)) r="3.2" fill=(colour) { (inside) }
        } @else {
            circle cx=(at(x)) cy=(at(y)) r="5.2" fill="none" stroke=(colour) stroke-width="1.6" { (inside) }
        }
    }
}

fn dash(dashes: &str) -> Option<&str> {
    Some(dashes).filter(|dashes| !dashes.is_empty())
}

/// Formats a coordinate: hundredths are finer than any screen.
fn at(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn path(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{},{}", at(*x), at(*y)))
        .collect();
    points.join(" ")
}
