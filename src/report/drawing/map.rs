//! A colour map of a matrix with labels on both sides and a colour bar.

use super::{Anchor, Area, Rgb, SIZE, Shape, Stroke, Text, cut, text_width};

/// A matrix with its title, labels and colour bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    /// Title above the matrix; empty for none.
    pub title: String,
    pub rows: Side,
    pub columns: Side,
    /// Colours, row by row; `None` leaves the page white.
    pub cells: Vec<Option<Rgb>>,
    /// Text and its colour for each cell, drawn if the cells are large enough. // [row, column]
    pub values: Vec<(String, Rgb)>,
    pub bar: Bar,
}

/// One side of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    pub title: String,
    /// One for each row or column; empty ones belong to the group of the nearest one that is not.
    pub labels: Vec<String>,
    /// Number of the first row or column and the distance between two; used where labels do not fit.
    pub first: usize,
    pub step: usize,
}

/// Colour bar: the scale from bottom to top.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    pub title: String,
    pub colours: Vec<Rgb>,
    /// Position on the bar, from 0 to 1, and its label.
    pub ticks: Vec<(f64, String)>,
}

/// Most width of a row label, and most height of a column label.
const WIDEST: f64 = 18.0;
/// Smallest readable letters, in millimetres (4.5 points).
const LEAST: f64 = 1.6;
/// Gap between parts.
const GAP: f64 = 1.2;
const BAR: f64 = 2.4;
/// Most height of a cell: with few columns, square cells would be too high.
const HIGHEST_CELL: f64 = 7.0;
const HIGHEST_BAR: f64 = 80.0;
const FRAME: Stroke = Stroke {
    colour: [120, 120, 120],
    width: 0.15,
    dashes: Vec::new(),
};
const INK: Rgb = [30, 30, 30];

fn text(words: &str, at: (f64, f64), size: f64, anchor: Anchor) -> Text {
    Text {
        text: words.to_owned(),
        at,
        size,
        colour: INK,
        anchor,
        is_upright: false,
    }
}

fn frame(place: Area) -> Shape {
    let (right, bottom) = (place.right(), place.bottom());
    let corners = [
        (place.x, place.y),
        (right, place.y),
        (right, bottom),
        (place.x, bottom),
        (place.x, place.y),
    ];
    Shape::Line {
        points: corners.to_vec(),
        stroke: FRAME,
    }
}

impl Side {
    /// Returns the labels that fit if each row or column has `room`, and the height of their letters.
    fn fitting(&self, room: f64) -> (Vec<(usize, String)>, f64) {
        let n = self.labels.len();
        let named: Vec<usize> = (0..n).filter(|idx| !self.labels[*idx].is_empty()).collect();
        if !named.is_empty() && named.len() < n {
            // A label for a group of rows has the room of the group.
            let apart = named.windows(2).map(|two| two[1] - two[0]).min();
            let room = room * apart.unwrap_or(n) as f64;
            let every = (LEAST / (0.95 * room)).ceil().max(1.0) as usize;
            let size = (0.95 * room * every as f64).min(SIZE);
            let labels = named.into_iter().step_by(every);
            let label = |idx: usize| (idx, cut(&self.labels[idx], size, WIDEST));
            return (labels.map(label).collect(), size);
        }
        let size = (0.95 * room).min(SIZE);
        if size >= LEAST {
            let labels = self.labels.iter().map(|label| cut(label, size, WIDEST));
            return (labels.enumerate().collect(), size);
        }
        // Too many labels: use round numbers.
        let about = (n as f64 * room / (4.0 * SIZE)).clamp(1.0, 8.0);
        let raw = n as f64 * self.step as f64 / about;
        let power = 10f64.powf(raw.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = steps.into_iter().find(|step| *step >= raw).unwrap_or(raw);
        let step = (step.max(1.0) as usize).div_ceil(self.step).max(1);
        let labels = (0..n).step_by(step);
        let label = |idx: usize| (idx, (self.first + idx * self.step).to_string());
        (labels.map(label).collect(), SIZE)
    }

    fn widest(&self, room: f64) -> f64 {
        let (labels, size) = self.fitting(room);
        let widths = labels.iter().map(|(_, label)| text_width(label, size));
        widths.fold(0.0, f64::max)
    }
}

/// Room on the left of a map for its labels, and on the right for its colour bar.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Margins {
    left: f64,
    right: f64,
}

impl Margins {
    /// The margins that a map of a given width needs.
    pub fn of(map: &Map, width: f64) -> Self {
        let ticks = map.bar.ticks.iter();
        let ticks = ticks.map(|(_, label)| text_width(label, SIZE));
        let right = 2.0 * GAP + BAR + 0.8 + ticks.fold(0.0, f64::max) + 1.7 * SIZE;
        let title_room = 1.6 * SIZE;
        // The labels' width depends on the cells' height, which depends on the labels' width: a few rounds are close enough.
        let mut margins = Self {
            left: title_room + 6.0,
            right,
        };
        for _ in 0..3 {
            let (_, high) = margins.cell(map, width);
            margins.left = title_room + map.rows.widest(high) + GAP;
        }
        margins
    }

    /// The margins that suffice for two maps, so that both are drawn equally large.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            left: self.left.max(other.left),
            right: self.right.max(other.right),
        }
    }

    /// Width and height of a cell.
    fn cell(self, map: &Map, width: f64) -> (f64, f64) {
        let n_columns = map.columns.labels.len().max(1);
        let wide = (width - self.left - self.right).max(10.0) / n_columns as f64;
        (wide, wide.min(HIGHEST_CELL))
    }
}

/// Draws a map at a corner with a given width and at least the given margins; returns its height.
pub fn draw_map(
    shapes: &mut Vec<Shape>,
    map: &Map,
    (x, y): (f64, f64),
    width: f64,
    least: Margins,
) -> f64 {
    let (n_rows, n_columns) = (
        map.rows.labels.len().max(1),
        map.columns.labels.len().max(1),
    );
    let top = if map.title.is_empty() {
        0.5
    } else {
        shapes.push(Shape::Text(text(
            &cut(&map.title, SIZE, width),
            (x, y + SIZE),
            SIZE,
            Anchor::Start,
        )));
        1.8 * SIZE
    };
    let margins = Margins::of(map, width).or(least);
    let cell = margins.cell(map, width);
    let (wide, high) = cell;
    let place = Area {
        x: x + margins.left,
        y: y + top,
        width: wide * n_columns as f64,
        height: high * n_rows as f64,
    };
    shapes.push(Shape::Cells {
        place,
        n_columns,
        cells: map.cells.clone(),
    });
    draw_values(shapes, map, place, cell);
    shapes.push(frame(place));
    draw_rows(shapes, &map.rows, place, high, x);
    let below = draw_columns(shapes, &map.columns, place, wide);
    let bar = draw_bar(shapes, &map.bar, place);
    top + (place.height + below).max(bar)
}

/// Draws numbers in the cells, if all of them fit.
fn draw_values(shapes: &mut Vec<Shape>, map: &Map, place: Area, (wide, high): (f64, f64)) {
    let n_columns = map.columns.labels.len().max(1);
    let size = (0.6 * high).min(SIZE);
    let widest = map.values.iter().map(|(value, _)| text_width(value, size));
    if size < LEAST || widest.fold(0.0, f64::max) > 0.92 * wide {
        return;
    }
    for (idx, (value, colour)) in map.values.iter().enumerate() {
        let x = place.x + ((idx % n_columns) as f64 + 0.5) * wide;
        let y = place.y + ((idx / n_columns) as f64 + 0.5) * high + 0.36 * size;
        shapes.push(Shape::Text(Text {
            colour: *colour,
            ..text(value, (x, y), size, Anchor::Middle)
        }));
    }
}

fn draw_rows(shapes: &mut Vec<Shape>, side: &Side, place: Area, high: f64, left: f64) {
    let (labels, size) = side.fitting(high);
    for (idx, label) in labels {
        let y = place.y + (idx as f64 + 0.5) * high + 0.36 * size;
        let at = (place.x - 0.8, y);
        shapes.push(Shape::Text(text(&label, at, size, Anchor::End)));
    }
    shapes.push(Shape::Text(Text {
        is_upright: true,
        ..text(
            &side.title,
            (left + SIZE, place.y + 0.5 * place.height),
            SIZE,
            Anchor::Middle,
        )
    }));
}

/// Draws the labels below a map: horizontal if they fit side by side, otherwise vertical. Returns their height.
fn draw_columns(shapes: &mut Vec<Shape>, side: &Side, place: Area, wide: f64) -> f64 {
    let (labels, size) = side.fitting(wide);
    let widest = labels.iter().map(|(_, label)| text_width(label, size));
    let widest = widest.fold(0.0, f64::max);
    let apart = match labels.as_slice() {
        [(first, _), (second, _), ..] => (second - first) as f64 * wide,
        _ => place.width,
    };
    let is_level = widest + 0.5 * size <= apart;
    for (idx, label) in labels {
        let x = place.x + (idx as f64 + 0.5) * wide;
        let text = if is_level {
            text(
                &label,
                (x, place.bottom() + 1.3 * size),
                size,
                Anchor::Middle,
            )
        } else {
            Text {
                is_upright: true,
                ..text(
                    &label,
                    (x + 0.36 * size, place.bottom() + 0.8),
                    size,
                    Anchor::End,
                )
            }
        };
        shapes.push(Shape::Text(text));
    }
    let labels = if is_level { 1.5 * size } else { widest + 0.8 };
    let at = (
        place.x + 0.5 * place.width,
        place.bottom() + labels + 1.3 * SIZE,
    );
    shapes.push(Shape::Text(text(&side.title, at, SIZE, Anchor::Middle)));
    labels + 1.8 * SIZE
}

/// Draws the colour bar beside a map; returns its height.
fn draw_bar(shapes: &mut Vec<Shape>, bar: &Bar, map: Area) -> f64 {
    // As high as the map, higher if the title needs it, and at most `HIGHEST_BAR`.
    let height = map.height.min(HIGHEST_BAR);
    let height = height.max(text_width(&bar.title, SIZE).min(HIGHEST_BAR));
    let place = Area {
        x: map.right() + 2.0 * GAP,
        y: map.y,
        width: BAR,
        height,
    };
    shapes.push(Shape::Cells {
        place,
        n_columns: 1,
        cells: bar
            .colours
            .iter()
            .rev()
            .map(|colour| Some(*colour))
            .collect(),
    });
    shapes.push(frame(place));
    let mut widest: f64 = 0.0;
    let mut lowest_free = f64::INFINITY;
    for (share, label) in &bar.ticks {
        let y = place.bottom() - share * place.height;
        if y > lowest_free {
            continue;
        }
        lowest_free = y - 1.3 * SIZE;
        shapes.push(Shape::Line {
            points: vec![(place.right(), y), (place.right() + 0.6, y)],
            stroke: FRAME,
        });
        let at = (place.right() + 0.9, y + 0.36 * SIZE);
        shapes.push(Shape::Text(text(label, at, SIZE, Anchor::Start)));
        widest = widest.max(text_width(label, SIZE));
    }
    shapes.push(Shape::Text(Text {
        is_upright: true,
        ..text(
            &cut(&bar.title, SIZE, height),
            (
                place.right() + 0.9 + widest + 1.35 * SIZE,
                place.y + 0.5 * height,
            ),
            SIZE,
            Anchor::Middle,
        )
    }));
    height
}
