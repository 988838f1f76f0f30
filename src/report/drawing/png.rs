//! Drawings as PNG, at 300 dots per inch.

use std::io;

use tiny_skia::{
    Color, FillRule, Paint, Path, PathBuilder, Pixmap, Rect, Stroke as Pen, StrokeDash, Transform,
};

use super::font::{Step, glyphs, outline};
use super::{Area, Drawing, Rgb, Shape, Stroke, Text, runs};

/// Pixels per millimetre.
const SCALE: f64 = 300.0 / 25.4;

/// Pixels per metre, the unit in which PNG states resolution.
const PIXELS_PER_METRE: u32 = 11_811;

fn failed(problem: impl std::fmt::Display) -> io::Error {
    io::Error::other(problem.to_string())
}

/// Returns a whole PNG file.
///
/// # Errors
/// When the page has no size, or is too large for memory.
pub fn png(drawing: &Drawing) -> io::Result<Vec<u8>> {
    let side = |length: f64| (length * SCALE).round() as u32;
    let (width, height) = (side(drawing.width), side(drawing.height));
    let mut page = Pixmap::new(width, height)
        .ok_or_else(|| failed(format!("{width} x {height} pixels cannot be drawn")))?;
    page.fill(Color::WHITE);
    for shape in &drawing.shapes {
        draw(&mut page, shape);
    }
    // Every pixel is opaque: drop the alpha channel.
    let pixels = page.data().chunks_exact(4).flat_map(|pixel| &pixel[..3]);
    let pixels: Vec<u8> = pixels.copied().collect();
    encoded((width, height), ::png::ColorType::Rgb, &pixels, true)
}

/// Returns an image with one pixel per cell; cells without a colour are transparent.
pub(super) fn cells(n_columns: usize, cells: &[Option<Rgb>]) -> io::Result<Vec<u8>> {
    let pixels = cells.iter().flat_map(|cell| match cell {
        Some([r, g, b]) => [*r, *g, *b, 255],
        None => [255, 255, 255, 0],
    });
    let pixels: Vec<u8> = pixels.collect();
    let n_rows = cells.len() / n_columns.max(1);
    let size = (n_columns as u32, n_rows as u32);
    encoded(size, ::png::ColorType::Rgba, &pixels, false)
}

fn encoded(
    (width, height): (u32, u32),
    kind: ::png::ColorType,
    pixels: &[u8],
    has_size: bool,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(kind);
    encoder.set_depth(::png::BitDepth::Eight);
    if has_size {
        encoder.set_pixel_dims(Some(::png::PixelDimensions {
            xppu: PIXELS_PER_METRE,
            yppu: PIXELS_PER_METRE,
            unit: ::png::Unit::Meter,
        }));
    }
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}

fn pixel(length: f64) -> f32 {
    (length * SCALE) as f32
}

fn paint([r, g, b]: Rgb, is_smooth: bool) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(r, g, b, 255);
    paint.anti_alias = is_smooth;
    paint
}

fn fill_area(page: &mut Pixmap, place: Area, fill: Rgb) {
    // Whole pixels, so that adjacent cells have no seam.
    let [left, right] = [place.x, place.right()].map(|x| (x * SCALE).round() as f32);
    let [top, bottom] = [place.y, place.bottom()].map(|y| (y * SCALE).round() as f32);
    if let Some(rect) = Rect::from_ltrb(left, top, right, bottom) {
        page.fill_rect(rect, &paint(fill, false), Transform::identity(), None);
    }
}

fn joined(points: &[(f64, f64)], is_closed: bool) -> Option<Path> {
    let mut path = PathBuilder::new();
    for (idx, (x, y)) in points.iter().enumerate() {
        match idx {
            0 => path.move_to(pixel(*x), pixel(*y)),
            _ => path.line_to(pixel(*x), pixel(*y)),
        }
    }
    if is_closed {
        path.close();
    }
    path.finish()
}

fn draw(page: &mut Pixmap, shape: &Shape) {
    let identity = Transform::identity();
    let mut fill_path = |path: Option<Path>, fill: Rgb, transform: Transform| {
        if let Some(path) = path {
            page.fill_path(
                &path,
                &paint(fill, true),
                FillRule::Winding,
                transform,
                None,
            );
        }
    };
    match shape {
        Shape::Area { place, fill } => fill_area(page, *place, *fill),
        Shape::Cells {
            place,
            n_columns,
            cells,
        } => {
            for (place, fill) in runs(*place, *n_columns, cells, 0.0) {
                fill_area(page, place, fill);
            }
        }
        Shape::Line { points, stroke } => draw_line(page, points, stroke),
        Shape::Polygon { points, fill } => fill_path(joined(points, true), *fill, identity),
        Shape::Dot { at, radius, fill } => {
            let circle = PathBuilder::from_circle(pixel(at.0), pixel(at.1), pixel(*radius));
            fill_path(circle, *fill, identity);
        }
        Shape::Text(text) => fill_path(letters(text), text.colour, placed(text)),
    }
}

fn draw_line(page: &mut Pixmap, points: &[(f64, f64)], stroke: &Stroke) {
    let Some(path) = joined(points, false) else {
        return;
    };
    let dashes = stroke.dashes.iter().map(|dash| pixel(*dash)).collect();
    let pen = Pen {
        width: pixel(stroke.width),
        dash: StrokeDash::new(dashes, 0.0),
        ..Pen::default()
    };
    let paint = paint(stroke.colour, true);
    page.stroke_path(&path, &paint, &pen, Transform::identity(), None);
}

/// Returns the letters of a text as one path, in font heights from the text's origin.
fn letters(text: &Text) -> Option<Path> {
    let mut path = PathBuilder::new();
    let start = text.start() / text.size;
    for (glyph, x) in glyphs(&text.text).0 {
        let at = |(dx, dy): (f64, f64)| ((start + x + dx) as f32, -dy as f32);
        for step in outline(glyph) {
            match step {
                Step::Move(to) => path.move_to(at(to).0, at(to).1),
                Step::Line(to) => path.line_to(at(to).0, at(to).1),
                Step::Curve(by, to) => path.quad_to(at(by).0, at(by).1, at(to).0, at(to).1),
                Step::Close => path.close(),
            }
        }
    }
    path.finish()
}

fn placed(text: &Text) -> Transform {
    let size = pixel(text.size);
    let turned = if text.is_upright {
        Transform::from_rotate(-90.0)
    } else {
        Transform::identity()
    };
    Transform::from_scale(size, size)
        .post_concat(turned)
        .post_translate(pixel(text.at.0), pixel(text.at.1))
}
