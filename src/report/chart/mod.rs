//! A chart as data: series, axes and marks. Screens and files draw the same one.

mod axis;
pub mod labels;

pub use axis::{Axis, Scale, Ticks, tick_label};

/// Margin of an axis beyond the outermost values, as a share of the axis; not used for fixed ends.
const ROOM: f64 = 0.05;

/// One chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    pub marks: Vec<Mark>,
}

/// A named line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub name: String,
    pub stroke: Stroke,
    /// In order of x; a point that is not finite, or not above 0 on a logarithmic axis, breaks the line.
    pub points: Vec<(f64, f64)>,
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    Line,
    /// A thinner line in the look of another series: an edge of its spread.
    Edge {
        of: usize,
    },
    /// A line with the area below it filled.
    Area,
    /// Single points, as measured.
    Points,
    /// A horizontal reference line across the chart, drawn below the other series.
    Rule,
}

/// A labelled vertical line at a value of x.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub at: f64,
    pub label: String,
}

/// Charts side by side, under one title.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub title: String,
    pub charts: Vec<Chart>,
    /// Most charts in a row.
    pub n_columns: usize,
}

impl Series {
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            stroke: Stroke::Line,
            points,
        }
    }

    pub fn area(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            stroke: Stroke::Area,
            ..Self::line(name, points)
        }
    }

    pub fn dots(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            stroke: Stroke::Points,
            ..Self::line(name, points)
        }
    }

    /// Makes a horizontal reference line between two values of x.
    pub fn rule(name: impl Into<String>, (first, last): (f64, f64), at: f64) -> Self {
        Self {
            stroke: Stroke::Rule,
            ..Self::line(name, vec![(first, at), (last, at)])
        }
    }

    fn is_edge(&self) -> bool {
        matches!(self.stroke, Stroke::Edge { .. })
    }
}

impl Chart {
    /// Returns the index of a series' colour and glyph: edges share those of their line.
    pub fn look_of(&self, series_idx: usize) -> usize {
        let line = match self.series[series_idx].stroke {
            Stroke::Edge { of } => of,
            _ => series_idx,
        };
        let before = self.series.iter().take(line);
        before.filter(|series| !series.is_edge()).count()
    }

    /// Returns the indices of the series in drawing order, the bottom one first.
    pub fn from_below(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.series.len()).collect();
        order.sort_by_key(|idx| self.series[*idx].stroke != Stroke::Rule);
        order
    }

    /// Returns the marks within the ends of x.
    pub fn marks_inside(&self, ends: (f64, f64)) -> Vec<&Mark> {
        let is_inside = |mark: &&Mark| (-1e-9..=1.0 + 1e-9).contains(&self.x.share(mark.at, ends));
        self.marks.iter().filter(is_inside).collect()
    }

    /// Returns the indices of the series in the legend; empty if there is only one series. Edges are listed if they have a name.
    pub fn legend(&self, with_edges: bool) -> Vec<usize> {
        let is_named = |idx: &usize| {
            let series = &self.series[*idx];
            !series.name.is_empty() && (with_edges || !series.is_edge())
        };
        let named: Vec<usize> = (0..self.series.len()).filter(is_named).collect();
        match named.len() {
            0 | 1 => Vec::new(),
            _ => named,
        }
    }

    /// Returns the range of x to draw; `None` if no point and no mark can be drawn.
    pub fn x_range(&self) -> Option<(f64, f64)> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let marks = self.marks.iter().map(|mark| mark.at);
        // Single points at the ends need room around them; curves run from end to end.
        let has_points = self.series.iter().any(|s| s.stroke == Stroke::Points);
        let room = if has_points { ROOM } else { 0.0 };
        self.x.range_of(points.map(|(x, _)| *x).chain(marks), room)
    }

    /// Returns the range of y to draw.
    pub fn y_range(&self) -> Option<(f64, f64)> {
        let points = self.series.iter().flat_map(|series| &series.points);
        self.y.range_of(points.map(|(_, y)| *y), ROOM)
    }
}
