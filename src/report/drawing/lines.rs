//! A line chart with its axes and legend, in millimetres.

use super::{Anchor, Area, Rgb, SIZE, Shape, Stroke, Text, cut, text_width};
use crate::chart::labels::{Label, n_rows, placed};
use crate::chart::{Chart, Stroke as Kind};

/// Colours that people with any colour vision can distinguish (Okabe and Ito 2008), and dash patterns for prints without colour.
const LOOKS: [(Rgb, &[f64]); 7] = [
    ([0, 114, 178], &[]),
    ([213, 94, 0], &[1.5, 0.6]),
    ([0, 158, 115], &[0.4, 0.6]),
    ([204, 121, 167], &[2.1, 0.6, 0.4, 0.6]),
    ([0, 0, 0], &[0.9, 0.9]),
    ([230, 159, 0], &[2.5, 0.9]),
    ([86, 180, 233], &[0.2, 0.4]),
];
const INK: Rgb = [30, 30, 30];
const RULE: Rgb = [226, 226, 226];
const AXIS: Rgb = [90, 90, 90];
const MARK: Rgb = [120, 120, 120];

/// Height of a row of mark labels, and the gap between two labels.
const LABEL_ROW: f64 = 1.3 * SIZE;
const LABEL_GAP: f64 = 1.2;

/// Height of a plot divided by its width.
const ASPECT: f64 = 0.55;

/// Position of a plot, and the ends of its axes.
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

    fn is_inside(&self, (x, y): (f64, f64)) -> bool {
        let near = 0.01;
        (self.left - near..=self.right + near).contains(&x)
            && (self.top - near..=self.bottom + near).contains(&y)
    }

    /// Returns a value's place on the page; `None` if an axis cannot hold it.
    fn place(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let holds = self.chart.x.holds(x) && self.chart.y.holds(y);
        holds.then(|| (self.x(x), self.y(y)))
    }

    /// Returns the points of a series within the axes.
    fn dots(&self, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let placed = points.iter().filter_map(|point| self.place(*point));
        placed.filter(|at| self.is_inside(*at)).collect()
    }

    /// Returns the unbroken parts of a line: a point that an axis cannot hold breaks it, and it ends where it leaves the axes.
    fn parts(&self, points: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
        let placed: Vec<Option<(f64, f64)>> = points.iter().map(|at| self.place(*at)).collect();
        let mut parts = Vec::new();
        for run in placed.split(Option::is_none) {
            let run: Vec<(f64, f64)> = run.iter().copied().flatten().collect();
            let mut part: Vec<(f64, f64)> = Vec::new();
            if let [only] = run[..] {
                part.extend(self.is_inside(only).then_some(only));
            }
            for pair in run.windows(2) {
                let Some([from, to]) = self.clipped(pair[0], pair[1]) else {
                    continue;
                };
                if part.last() != Some(&from) {
                    parts.push(std::mem::replace(&mut part, vec![from]));
                }
                part.push(to);
            }
            parts.push(part);
        }
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// Returns the part of a line between two points that is within the axes (Liang and Barsky 1984).
    fn clipped(&self, a: (f64, f64), b: (f64, f64)) -> Option<[(f64, f64); 2]> {
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let mut ends = (0.0f64, 1.0f64);
        let edges = [
            (-dx, a.0 - self.left),
            (dx, self.right - a.0),
            (-dy, a.1 - self.top),
            (dy, self.bottom - a.1),
        ];
        for (along, room) in edges {
            let share = (room + if room.abs() < 0.01 { 0.01 } else { 0.0 }) / along;
            match along {
                0.0 if room < -0.01 => return None,
                0.0 => {}
                along if along < 0.0 => ends.0 = ends.0.max(share),
                _ => ends.1 = ends.1.min(share),
            }
        }
        let at = |share: f64| match share {
            0.0 => a,
            1.0 => b,
            share => (a.0 + share * dx, a.1 + share * dy),
        };
        (ends.0 <= ends.1).then(|| [at(ends.0), at(ends.1)])
    }
}

pub(super) fn words(text: &str, at: (f64, f64), anchor: Anchor) -> Text {
    Text {
        text: text.to_owned(),
        at,
        size: SIZE,
        colour: INK,
        anchor,
        is_upright: false,
    }
}

fn line(points: Vec<(f64, f64)>, colour: Rgb, width: f64, dashes: &[f64]) -> Shape {
    Shape::Line {
        points,
        stroke: Stroke {
            colour,
            width,
            dashes: dashes.to_vec(),
        },
    }
}

/// Draws a chart at a corner with a given width; returns its height.
pub fn draw_chart(shapes: &mut Vec<Shape>, chart: &Chart, (x, y): (f64, f64), width: f64) -> f64 {
    let title = cut(&chart.title, SIZE, width);
    shapes.push(Shape::Text(words(&title, (x, y + SIZE), Anchor::Start)));
    let (Some(xs), Some(ys)) = (chart.x_range(), chart.y_range()) else {
        let at = (x, y + 4.0 * SIZE);
        let none = words("no finite value to draw", at, Anchor::Start);
        shapes.push(Shape::Text(none));
        return 6.0 * SIZE;
    };
    let height = ASPECT * width;
    let legend = draw_legend(shapes, chart, (x, y + 1.8 * SIZE), width);
    let y_ticks = chart.y.ticks(ys, (height / 9.0) as usize);
    let widest = y_ticks.labels().into_iter().map(|l| text_width(&l, SIZE));
    let left = x + 1.8 * SIZE + widest.fold(0.0, f64::max) + 0.8;
    let right = x + width - last_label(chart, xs, width);
    let labels = labels(chart, xs, (left, right));
    let is_labelled = chart.marks.iter().any(|mark| !mark.label.is_empty());
    let n_labels = if is_labelled { n_rows(&labels) } else { 0 };
    let top = y + 2.0 * SIZE + legend + LABEL_ROW * n_labels as f64;
    let plot = Plot {
        chart,
        x: xs,
        y: ys,
        left,
        right,
        top,
        bottom: top + height,
    };
    draw_axes(shapes, &plot, x);
    for series_idx in chart.from_below() {
        draw_series(shapes, &plot, series_idx);
    }
    draw_marks(shapes, &plot, &labels);
    plot.bottom + 3.4 * SIZE - y
}

/// Returns the room that half of the last label needs beyond the plot.
fn last_label(chart: &Chart, ends: (f64, f64), width: f64) -> f64 {
    let labels = chart.x.ticks(ends, (width / 12.0) as usize).labels();
    let last = labels.last().map_or(0.0, |label| text_width(label, SIZE));
    (0.5 * last + 0.2).max(1.0)
}

fn draw_axes(shapes: &mut Vec<Shape>, plot: &Plot<'_>, edge: f64) {
    let (left, right, top, bottom) = (plot.left, plot.right, plot.top, plot.bottom);
    let y_ticks = plot.chart.y.ticks(plot.y, ((bottom - top) / 9.0) as usize);
    for (value, label) in y_ticks.values.iter().zip(y_ticks.labels()) {
        let y = plot.y(*value);
        shapes.push(line(vec![(left, y), (right, y)], RULE, 0.15, &[]));
        let at = (left - 0.8, y + 0.36 * SIZE);
        shapes.push(Shape::Text(words(&label, at, Anchor::End)));
    }
    let x_ticks = plot.chart.x.ticks(plot.x, ((right - left) / 12.0) as usize);
    for (value, label) in x_ticks.values.iter().zip(x_ticks.labels()) {
        let x = plot.x(*value);
        shapes.push(line(vec![(x, top), (x, bottom)], RULE, 0.15, &[]));
        shapes.push(line(vec![(x, bottom), (x, bottom + 0.8)], AXIS, 0.2, &[]));
        let at = (x, bottom + 0.9 + SIZE);
        shapes.push(Shape::Text(words(&label, at, Anchor::Middle)));
    }
    shapes.push(line(
        vec![(left, top), (left, bottom), (right, bottom)],
        AXIS,
        0.2,
        &[],
    ));
    let at = (0.5 * (left + right), bottom + 1.2 + 2.3 * SIZE);
    let label = cut(&plot.chart.x.label, SIZE, right - left);
    shapes.push(Shape::Text(words(&label, at, Anchor::Middle)));
    let at = (edge + SIZE, 0.5 * (top + bottom));
    let label = cut(&plot.chart.y.label, SIZE, 1.2 * (bottom - top));
    shapes.push(Shape::Text(Text {
        is_upright: true,
        ..words(&label, at, Anchor::Middle)
    }));
}

fn draw_series(shapes: &mut Vec<Shape>, plot: &Plot<'_>, series_idx: usize) {
    let series = &plot.chart.series[series_idx];
    let (colour, dashes) = LOOKS[plot.chart.look_of(series_idx) % LOOKS.len()];
    if series.stroke == Kind::Points {
        let dots = plot.dots(&series.points).into_iter();
        shapes.extend(dots.map(|at| Shape::Dot {
            at,
            radius: radius_of(plot.chart, series_idx),
            fill: colour,
        }));
        return;
    }
    for part in plot.parts(&series.points) {
        match series.stroke {
            Kind::Points => {}
            Kind::Edge { .. } => shapes.push(line(part, colour, 0.15, dashes)),
            Kind::Area => {
                if let (Some(first), Some(last)) = (part.first(), part.last()) {
                    let ends = [(last.0, plot.bottom), (first.0, plot.bottom)];
                    let points = part.iter().copied().chain(ends).collect();
                    // A tint: a fifth of the colour on white.
                    let fill = colour.map(|c| 255 - (255 - c) / 5);
                    shapes.push(Shape::Polygon { points, fill });
                }
                shapes.push(line(part, colour, 0.35, &[]));
            }
            Kind::Line | Kind::Rule => shapes.push(line(part, colour, 0.35, dashes)),
        }
    }
}

/// Radius of the dots of a series: larger than those drawn over them, so that all remain visible where they coincide.
fn radius_of(chart: &Chart, series_idx: usize) -> f64 {
    let later = chart.series.iter().skip(series_idx + 1);
    let n_above = later.filter(|series| series.stroke == Kind::Points).count();
    0.6 + 0.25 * n_above as f64
}

/// Places the labels of marks above a plot between two ends.
fn labels(chart: &Chart, ends: (f64, f64), (left, right): (f64, f64)) -> Vec<Label> {
    let marks: Vec<(f64, f64)> = chart
        .marks_inside(ends)
        .iter()
        .map(|mark| {
            let x = left + chart.x.share(mark.at, ends) * (right - left);
            (x, text_width(&mark.label, SIZE))
        })
        .collect();
    placed(&marks, (left, right), LABEL_GAP)
}

/// Draws marks, with their labels above the plot, where no curve crosses them.
fn draw_marks(shapes: &mut Vec<Shape>, plot: &Plot<'_>, labels: &[Label]) {
    let inside = plot.chart.marks_inside(plot.x);
    let foot = |label: &Label| plot.top - 0.4 * SIZE - LABEL_ROW * label.row as f64;
    for (mark, label) in inside.iter().zip(labels) {
        let x = plot.x(mark.at);
        let top = if mark.label.is_empty() {
            plot.top
        } else {
            foot(label) + 0.2 * SIZE
        };
        shapes.push(line(
            vec![(x, top), (x, plot.bottom)],
            MARK,
            0.2,
            &[0.7, 0.7],
        ));
    }
    for (mark, label) in inside
        .iter()
        .zip(labels)
        .filter(|(mark, _)| !mark.label.is_empty())
    {
        let y = foot(label);
        let behind = Area {
            x: label.x - 0.2,
            y: y - 0.8 * SIZE,
            width: text_width(&mark.label, SIZE) + 0.4,
            height: 1.05 * SIZE,
        };
        shapes.push(Shape::Area {
            place: behind,
            fill: [255, 255, 255],
        });
        shapes.push(Shape::Text(words(&mark.label, (label.x, y), Anchor::Start)));
    }
}

/// Draws the names of series above the plot, in as many rows as needed; returns the height.
fn draw_legend(shapes: &mut Vec<Shape>, chart: &Chart, (x, y): (f64, f64), width: f64) -> f64 {
    const SAMPLE: f64 = 6.0;
    let named = chart.legend(true);
    if named.is_empty() {
        return 0.0;
    }
    let (mut left, mut row) = (x, 0.0);
    for series_idx in named {
        let name = &chart.series[series_idx].name;
        let wide = SAMPLE + 1.0 + text_width(name, SIZE) + 3.0;
        if left > x && left + wide > x + width {
            (left, row) = (x, row + 1.0);
        }
        let base = y + (row + 0.9) * 1.4 * SIZE;
        let (colour, dashes) = LOOKS[chart.look_of(series_idx) % LOOKS.len()];
        let middle = base - 0.36 * SIZE;
        shapes.push(match chart.series[series_idx].stroke {
            Kind::Points => Shape::Dot {
                at: (left + 0.5 * SAMPLE, middle),
                radius: radius_of(chart, series_idx),
                fill: colour,
            },
            Kind::Area => line(
                vec![(left, middle), (left + SAMPLE, middle)],
                colour,
                0.35,
                &[],
            ),
            Kind::Edge { .. } => line(
                vec![(left, middle), (left + SAMPLE, middle)],
                colour,
                0.15,
                dashes,
            ),
            _ => line(
                vec![(left, middle), (left + SAMPLE, middle)],
                colour,
                0.35,
                dashes,
            ),
        });
        let at = (left + SAMPLE + 1.0, base);
        shapes.push(Shape::Text(words(name, at, Anchor::Start)));
        left += wide;
    }
    (row + 1.0) * 1.4 * SIZE + 0.6
}
