//! A chart as data: what is drawn, on which axes, and what is marked. Screens and files draw the same one.

mod axis;
pub mod labels;
mod svg;

pub use axis::{Axis, Scale, Ticks, tick_label};
pub use svg::svg;

/// The share of an axis that is left free beyond the outermost values, where they decide its ends.
const ROOM: f64 = 0.05;

/// One panel.
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
    /// Like the line of another series, thinner: an edge of its spread.
    Edge {
        of: usize,
    },
    /// A line with what lies below it filled.
    Area,
    /// Single points, as measured.
    Points,
    /// A value that the others are judged by, straight across: it lies below all of them.
    Rule,
}

/// A vertical line at a value of x that has a meaning.
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
    /// Charts in a row at most.
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

    /// A level from one end to another.
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
    /// Which colour and glyph a series has: edges share those of their line.
    pub fn look_of(&self, series_idx: usize) -> usize {
        let line = match self.series[series_idx].stroke {
            Stroke::Edge { of } => of,
            _ => series_idx,
        };
        let before = self.series.iter().take(line);
        before.filter(|series| !series.is_edge()).count()
    }

    /// Indices of the series, those first that others lie upon.
    pub fn from_below(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.series.len()).collect();
        order.sort_by_key(|idx| self.series[*idx].stroke != Stroke::Rule);
        order
    }

    /// The marks that lie between the ends of x.
    pub fn marks_inside(&self, ends: (f64, f64)) -> Vec<&Mark> {
        let is_inside = |mark: &&Mark| (-1e-9..=1.0 + 1e-9).contains(&self.x.share(mark.at, ends));
        self.marks.iter().filter(is_inside).collect()
    }

    /// Indices of the series that a legend names: none where there is only one. Edges are named where they have a name.
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

    /// The interval of x that is drawn; `None` where no point and no mark has a place.
    pub fn x_range(&self) -> Option<(f64, f64)> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let marks = self.marks.iter().map(|mark| mark.at);
        // Single points at the ends need room around them; curves run from end to end.
        let has_points = self.series.iter().any(|s| s.stroke == Stroke::Points);
        let room = if has_points { ROOM } else { 0.0 };
        self.x.range_of(points.map(|(x, _)| *x).chain(marks), room)
    }

    /// The interval of y that is drawn.
    pub fn y_range(&self) -> Option<(f64, f64)> {
        let points = self.series.iter().flat_map(|series| &series.points);
        self.y.range_of(points.map(|(_, y)| *y), ROOM)
    }
}
