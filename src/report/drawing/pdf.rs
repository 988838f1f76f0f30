//! Drawings as PDF: one page of vector shapes, text as outlines or as text.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use pdf_writer::{Content, Filter, Finish, Pdf, Rect, Ref, TextStr};

use super::font::{Step, glyphs, outline};
use super::pdf_font::{FONT, FONT_NAME, Letters};
use super::{Area, Drawing, Rgb, Shape, Stroke, Text, runs};

/// Points per millimetre.
const SCALE: f64 = 72.0 / 25.4;

/// Overlap of neighbouring cells in millimetres.
const OVERLAP: f64 = 0.1;

const CATALOG: Ref = Ref::new(1);
const PAGES: Ref = Ref::new(2);
const PAGE: Ref = Ref::new(3);
const CONTENT: Ref = Ref::new(4);
const INFO: Ref = Ref::new(5);

/// Returns a whole PDF file; the bytes do not depend on the date.
///
/// # Errors
/// When compression in memory fails.
pub fn pdf(drawing: &Drawing) -> io::Result<Vec<u8>> {
    let size = [drawing.width, drawing.height].map(|side| (side * SCALE) as f32);
    let mut content = Content::new();
    let mut letters = drawing.has_live_text.then(Letters::default);
    // From here on, units are millimetres from the upper left corner.
    let scale = SCALE as f32;
    content.transform([scale, 0.0, 0.0, -scale, 0.0, size[1]]);
    for shape in &drawing.shapes {
        match (shape, &mut letters) {
            (Shape::Text(text), Some(letters)) => {
                fill_in(&mut content, text.colour);
                letters.write(&mut content, text);
            }
            _ => draw(&mut content, shape),
        }
    }
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&content.finish())?;
    let content = packed.finish()?;

    let mut pdf = Pdf::new();
    pdf.catalog(CATALOG).pages(PAGES);
    pdf.pages(PAGES).kids([PAGE]).count(1);
    let mut page = pdf.page(PAGE);
    page.media_box(Rect::new(0.0, 0.0, size[0], size[1]));
    let mut resources = page.parent(PAGES).contents(CONTENT).resources();
    if letters.is_some() {
        resources.fonts().pair(FONT_NAME, FONT);
    }
    drop(resources);
    page.finish();
    pdf.stream(CONTENT, &content).filter(Filter::FlateDecode);
    if let Some(letters) = &letters {
        letters.embed(&mut pdf)?;
    }
    pdf.document_info(INFO)
        .title(TextStr(&drawing.title))
        .creator(TextStr("attnscope"))
        .finish();
    Ok(pdf.finish())
}

fn fill_in(content: &mut Content, colour: Rgb) {
    let [r, g, b] = colour.map(|part| f32::from(part) / 255.0);
    content.set_fill_rgb(r, g, b);
}

fn fill_area(content: &mut Content, place: Area, fill: Rgb) {
    fill_in(content, fill);
    let [x, y, width, height] =
        [place.x, place.y, place.width, place.height].map(|length| length as f32);
    content.rect(x, y, width, height);
    content.fill_nonzero();
}

fn follow(content: &mut Content, points: &[(f64, f64)]) {
    for (idx, (x, y)) in points.iter().enumerate() {
        match idx {
            0 => content.move_to(*x as f32, *y as f32),
            _ => content.line_to(*x as f32, *y as f32),
        };
    }
}

fn draw(content: &mut Content, shape: &Shape) {
    match shape {
        Shape::Area { place, fill } => fill_area(content, *place, *fill),
        Shape::Cells {
            place,
            n_columns,
            cells,
        } => {
            for (place, fill) in runs(*place, *n_columns, cells, OVERLAP) {
                fill_area(content, place, fill);
            }
        }
        Shape::Line { points, stroke } => {
            pen(content, stroke);
            follow(content, points);
            content.stroke();
        }
        Shape::Polygon { points, fill } => {
            fill_in(content, *fill);
            follow(content, points);
            content.close_path();
            content.fill_nonzero();
        }
        Shape::Dot { at, radius, fill } => {
            fill_in(content, *fill);
            circle(content, *at, *radius);
            content.fill_nonzero();
        }
        Shape::Text(text) => write(content, text),
    }
}

fn pen(content: &mut Content, stroke: &Stroke) {
    let [r, g, b] = stroke.colour.map(|part| f32::from(part) / 255.0);
    content.set_stroke_rgb(r, g, b);
    content.set_line_width(stroke.width as f32);
    content.set_dash_pattern(stroke.dashes.iter().map(|dash| *dash as f32), 0.0);
}

/// Draws a circle as four cubic curves.
fn circle(content: &mut Content, (x, y): (f64, f64), radius: f64) {
    const HANDLE: f64 = 0.552_285;
    let at = |dx: f64, dy: f64| ((x + radius * dx) as f32, (y + radius * dy) as f32);
    let (x0, y0) = at(1.0, 0.0);
    content.move_to(x0, y0);
    let mut from = (1.0, 0.0);
    for to in [(0.0, 1.0), (-1.0, 0.0), (0.0, -1.0), (1.0, 0.0)] {
        let first = at(from.0 + HANDLE * to.0, from.1 + HANDLE * to.1);
        let second = at(to.0 + HANDLE * from.0, to.1 + HANDLE * from.1);
        let end = at(to.0, to.1);
        content.cubic_to(first.0, first.1, second.0, second.1, end.0, end.1);
        from = to;
    }
}

fn write(content: &mut Content, text: &Text) {
    content.save_state();
    fill_in(content, text.colour);
    let size = text.size as f32;
    let (x, y) = (text.at.0 as f32, text.at.1 as f32);
    // From here on, units are font heights, upwards from the text's origin.
    content.transform(if !text.is_upright {
        [size, 0.0, 0.0, -size, x, y]
    } else {
        [0.0, -size, -size, 0.0, x, y]
    });
    let start = text.start() / text.size;
    for (glyph, at) in glyphs(&text.text).0 {
        let mut last = (0.0, 0.0);
        let steps = outline(glyph);
        for step in &steps {
            let place = |(x, y): (f64, f64)| (start + at + x, y);
            match *step {
                Step::Move(to) => {
                    last = place(to);
                    content.move_to(last.0 as f32, last.1 as f32);
                }
                Step::Line(to) => {
                    last = place(to);
                    content.line_to(last.0 as f32, last.1 as f32);
                }
                Step::Curve(by, to) => {
                    let (by, to) = (place(by), place(to));
                    // A quadratic curve as a cubic one: each handle is two thirds of the way to the quadratic handle.
                    let [a, b] = [last, to].map(|end| {
                        let towards = |end: f64, by: f64| (end + 2.0 * (by - end) / 3.0) as f32;
                        (towards(end.0, by.0), towards(end.1, by.1))
                    });
                    content.cubic_to(a.0, a.1, b.0, b.1, to.0 as f32, to.1 as f32);
                    last = to;
                }
                Step::Close => {
                    content.close_path();
                }
            }
        }
        if !steps.is_empty() {
            content.fill_nonzero();
        }
    }
    content.restore_state();
}
