//! A drawing for print: shapes on a white page in millimetres, written as SVG, PNG or PDF. Text is drawn as the same outlines in each, or kept as text.

mod figures;
mod font;
mod lines;
mod map;
mod pdf;
mod pdf_font;
mod png;
mod svg;

use std::io;
use std::path::Path;

pub use figures::draw_figures;
pub use font::{lacks, text_width};
pub use lines::draw_chart;
pub use map::{Bar, Map, Margins, Side, draw_map};
pub use pdf::pdf;
pub use png::png;
pub use svg::svg;

/// Red, green and blue.
pub type Rgb = [u8; 3];

/// Height of letters: 6.5 points.
pub const SIZE: f64 = 2.3;

/// A page and its shapes in painting order. All lengths are millimetres from the upper left corner.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawing {
    pub width: f64,
    pub height: f64,
    /// Description for search and screen readers.
    pub title: String,
    pub shapes: Vec<Shape>,
    /// Whether SVG and PDF hold text as text, which can be selected and edited, and not as outlines.
    pub has_live_text: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    Area {
        place: Area,
        fill: Rgb,
    },
    /// A matrix of coloured cells, row by row; `None` leaves the page white.
    Cells {
        place: Area,
        n_columns: usize,
        cells: Vec<Option<Rgb>>,
    },
    Line {
        points: Vec<(f64, f64)>,
        stroke: Stroke,
    },
    Polygon {
        points: Vec<(f64, f64)>,
        fill: Rgb,
    },
    Dot {
        at: (f64, f64),
        radius: f64,
        fill: Rgb,
    },
    Text(Text),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Stroke {
    pub colour: Rgb,
    pub width: f64,
    /// Lengths of dashes and gaps in turn; empty for a solid line.
    pub dashes: Vec<f64>,
}

/// A line of text, anchored on the base line at its start, middle or end.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    pub text: String,
    pub at: (f64, f64),
    /// Height of the font.
    pub size: f64,
    pub colour: Rgb,
    pub anchor: Anchor,
    /// Runs from bottom to top.
    pub is_upright: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A file format of drawings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Svg,
    Png,
    Pdf,
}

impl Format {
    /// Every format's name, which is the extension of its files too.
    pub const NAMES: [&str; 3] = ["svg", "png", "pdf"];

    /// Returns the format of a name; `None` for any other.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "svg" => Some(Self::Svg),
            "png" => Some(Self::Png),
            "pdf" => Some(Self::Pdf),
            _ => None,
        }
    }

    /// Determines the format by a file's extension; `None` for any other.
    pub fn of(path: &Path) -> Option<Self> {
        Self::named(&path.extension()?.to_str()?.to_lowercase())
    }
}

impl Drawing {
    /// Returns the file's contents in a format.
    ///
    /// # Errors
    /// Never in practice: it writes to memory.
    pub fn in_format(&self, format: Format) -> io::Result<Vec<u8>> {
        match format {
            Format::Svg => Ok(svg(self).into_bytes()),
            Format::Png => png(self),
            Format::Pdf => pdf(self),
        }
    }

    /// Returns every text on the page.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.shapes.iter().filter_map(|shape| match shape {
            Shape::Text(text) => Some(text.text.as_str()),
            _ => None,
        })
    }
}

impl Text {
    /// Returns where the text begins, before rotation.
    fn start(&self) -> f64 {
        let width = text_width(&self.text, self.size);
        match self.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -0.5 * width,
            Anchor::End => -width,
        }
    }
}

impl Area {
    pub fn right(&self) -> f64 {
        self.x + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.y + self.height
    }
}

/// Returns the area of each run of cells: neighbours of one colour in a row are merged. Each reaches so far below the cells that
/// are drawn after it, right of it and under it, that viewers which smooth edges show no seam.
fn runs(
    place: Area,
    n_columns: usize,
    cells: &[Option<Rgb>],
    overlap: f64,
) -> impl Iterator<Item = (Area, Rgb)> {
    let n_rows = cells.len() / n_columns.max(1);
    let (wide, high) = (
        place.width / n_columns as f64,
        place.height / n_rows.max(1) as f64,
    );
    let rows = cells.chunks(n_columns.max(1)).enumerate();
    rows.flat_map(move |(row_idx, row)| {
        let mut first = 0;
        row.chunk_by(|a, b| a == b).filter_map(move |run| {
            let begin = first;
            first += run.len();
            let is_drawn = |cell: Option<&Option<Rgb>>| cell.is_some_and(Option::is_some);
            let beside = is_drawn(row.get(first));
            let below = (row_idx + 1) * n_columns;
            let below = (begin..first).all(|column| is_drawn(cells.get(below + column)));
            let under = |is_drawn: bool, side: f64| {
                if is_drawn {
                    overlap.min(0.5 * side)
                } else {
                    0.0
                }
            };
            let place = Area {
                x: place.x + begin as f64 * wide,
                y: place.y + row_idx as f64 * high,
                width: run.len() as f64 * wide + under(beside, wide),
                height: high + under(below, high),
            };
            Some((place, run[0]?))
        })
    })
}

/// Cuts a text to a width, with an ellipsis if something is missing.
pub(super) fn cut(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let mut kept: Vec<char> = text.chars().collect();
    while !kept.is_empty() {
        kept.pop();
        let short: String = kept.iter().chain(['…'].iter()).collect();
        if text_width(&short, size) <= width {
            return short;
        }
    }
    String::new()
}

/// Formats a length: thousandths of a millimetre are finer than any printer.
fn length(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests;
