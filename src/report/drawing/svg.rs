//! Drawings as SVG: text is drawn as outlines, so that the file needs no font and looks the same in every program, or kept as text.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{PreEscaped, Render, html};

use super::font::{Glyph, Step, glyphs, outline};
use super::{Anchor, Area, Drawing, Rgb, Shape, Stroke, Text, length, runs};

/// Most cells drawn as rectangles; a larger map is embedded as an image with one pixel per cell.
const MOST_CELLS: usize = 80 * 80;

/// Returns a whole SVG file, with a newline at the end.
pub fn svg(drawing: &Drawing) -> String {
    let (width, height) = (length(drawing.width), length(drawing.height));
    let mut used = BTreeSet::new();
    let mut body = String::new();
    for shape in &drawing.shapes {
        match shape {
            Shape::Text(text) if drawing.has_live_text => write_live(&mut body, text),
            _ => write_shape(&mut body, &mut used, shape),
        }
    }
    let mut letters = String::new();
    for glyph in used {
        let steps = path(&outline(glyph));
        let _ = write!(letters, r#"<path id="g{}" d="{steps}"/>"#, glyph.0);
    }
    let page = html! {
        svg xmlns="http://www.w3.org/2000/svg" width={ (width) "mm" } height={ (height) "mm" } viewBox={ "0 0 " (width) " " (height) } role="img" {
            title { (drawing.title) }
            defs { (PreEscaped(letters)) }
            rect width="100%" height="100%" fill="#ffffff" {}
            (PreEscaped(body))
        }
    };
    page.into_string() + "\n"
}

fn colour([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn points(points: &[(f64, f64)]) -> String {
    let points = points
        .iter()
        .map(|(x, y)| format!("{},{}", length(*x), length(*y)));
    points.collect::<Vec<_>>().join(" ")
}

/// Formats an outline in thousandths of the font height, with y downwards as in SVG.
fn path(steps: &[Step]) -> String {
    let at = |(x, y): (f64, f64)| format!("{} {}", (x * 1000.0).round(), (-y * 1000.0).round());
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Move(to) => path.push_str(&format!("M{}", at(*to))),
            Step::Line(to) => path.push_str(&format!("L{}", at(*to))),
            Step::Curve(by, to) => path.push_str(&format!("Q{} {}", at(*by), at(*to))),
            Step::Close => path.push('Z'),
        }
    }
    path
}

fn rect(place: Area, fill: Rgb) -> String {
    format!(
        r#"<rect x="{}" y="{}" width="{}" height="{}" fill="{}"/>"#,
        length(place.x),
        length(place.y),
        length(place.width),
        length(place.height),
        colour(fill)
    )
}

fn stroked(stroke: &Stroke) -> String {
    let dashes: Vec<String> = stroke.dashes.iter().map(|d| length(*d)).collect();
    let dashed = if dashes.is_empty() {
        String::new()
    } else {
        format!(r#" stroke-dasharray="{}""#, dashes.join(" "))
    };
    format!(
        r#"fill="none" stroke="{}" stroke-width="{}"{dashed}"#,
        colour(stroke.colour),
        length(stroke.width)
    )
}

fn write_shape(body: &mut String, used: &mut BTreeSet<Glyph>, shape: &Shape) {
    match shape {
        Shape::Area { place, fill } => body.push_str(&rect(*place, *fill)),
        Shape::Cells {
            place,
            n_columns,
            cells,
        } => write_cells(body, *place, *n_columns, cells),
        Shape::Line { points: at, stroke } => {
            let _ = write!(
                body,
                r#"<polyline points="{}" {}/>"#,
                points(at),
                stroked(stroke)
            );
        }
        Shape::Polygon { points: at, fill } => {
            let _ = write!(
                body,
                r#"<polygon points="{}" fill="{}"/>"#,
                points(at),
                colour(*fill)
            );
        }
        Shape::Dot { at, radius, fill } => {
            let (x, y) = (length(at.0), length(at.1));
            let (radius, fill) = (length(*radius), colour(*fill));
            let _ = write!(
                body,
                r#"<circle cx="{x}" cy="{y}" r="{radius}" fill="{fill}"/>"#
            );
        }
        Shape::Text(text) => write_text(body, used, text),
    }
}

fn write_cells(body: &mut String, place: Area, n_columns: usize, cells: &[Option<Rgb>]) {
    if cells.len() <= MOST_CELLS {
        // Without smoothing, so that adjacent cells have no seam.
        body.push_str(r#"<g shape-rendering="crispEdges">"#);
        for (place, fill) in runs(place, n_columns, cells, 0.0) {
            let (x, y) = (length(place.x), length(place.y));
            let (wide, high) = (length(place.width), length(place.height));
            let fill = colour(fill);
            let _ = write!(
                body,
                r#"<path fill="{fill}" d="M{x} {y}h{wide}v{high}h-{wide}z"/>"#
            );
        }
        body.push_str("</g>");
        return;
    }
    let Ok(bytes) = super::png::cells(n_columns, cells) else {
        return;
    };
    let _ = write!(
        body,
        r#"<image x="{}" y="{}" width="{}" height="{}" preserveAspectRatio="none" style="image-rendering:pixelated" href="data:image/png;base64,{}"/>"#,
        length(place.x),
        length(place.y),
        length(place.width),
        length(place.height),
        STANDARD.encode(bytes)
    );
}

/// Writes text as text, in the font of drawings if the reader has it.
fn write_live(body: &mut String, text: &Text) {
    let turned = if text.is_upright { " rotate(-90)" } else { "" };
    let anchor = match text.anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    let words = text.text.as_str().render().into_string();
    let _ = write!(
        body,
        r#"<text font-family="DejaVu Sans, Verdana, sans-serif" font-size="{}" text-anchor="{anchor}" fill="{}" transform="translate({} {}){turned}">{words}</text>"#,
        length(text.size),
        colour(text.colour),
        length(text.at.0),
        length(text.at.1)
    );
}

fn write_text(body: &mut String, used: &mut BTreeSet<Glyph>, text: &Text) {
    let turned = if text.is_upright { " rotate(-90)" } else { "" };
    let scale = text.size / 1000.0;
    let start = text.start() / scale;
    let label = text.text.as_str().render().into_string();
    let _ = write!(
        body,
        r#"<g role="img" aria-label="{label}" fill="{}" transform="translate({} {}){turned} scale({scale:.6})">"#,
        colour(text.colour),
        length(text.at.0),
        length(text.at.1)
    );
    for (glyph, x) in glyphs(&text.text).0 {
        let x = length((start + 1000.0 * x).round());
        let _ = write!(body, r##"<use href="#g{}" x="{x}"/>"##, glyph.0);
        used.insert(glyph);
    }
    body.push_str("</g>");
}
