//! The font of drawings, compiled in: glyph outlines and text widths. No system font is used.

use std::sync::LazyLock;

use ttf_parser::{Face, OutlineBuilder};

/// DejaVu Sans, cut down by `font/subset.sh`; its licence is in the same folder.
static BYTES: &[u8] = include_bytes!("font/DejaVuSans-figures.ttf");

/// Shown for letters that the font lacks.
const REPLACEMENT: char = '\u{FFFD}';

static FACE: LazyLock<Option<Face<'static>>> = LazyLock::new(|| Face::parse(BYTES, 0).ok());

/// A segment of an outline. The base line is at 0, y grows upwards, and the font's height is 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    Move((f64, f64)),
    Line((f64, f64)),
    Curve((f64, f64), (f64, f64)),
    Close,
}

/// A glyph of the font.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Glyph(pub u16);

struct Outline {
    steps: Vec<Step>,
    unit: f64,
}

impl Outline {
    fn at(&self, x: f32, y: f32) -> (f64, f64) {
        (f64::from(x) / self.unit, f64::from(y) / self.unit)
    }
}

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.steps.push(Step::Move(self.at(x, y)));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.steps.push(Step::Line(self.at(x, y)));
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.steps.push(Step::Curve(self.at(x1, y1), self.at(x, y)));
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        // The font has no cubic curves; a quadratic one through the middle of the handles approximates one.
        let middle = self.at((x1 + x2) / 2.0, (y1 + y2) / 2.0);
        self.steps.push(Step::Curve(middle, self.at(x, y)));
    }

    fn close(&mut self) {
        self.steps.push(Step::Close);
    }
}

fn unit(face: &Face<'_>) -> f64 {
    f64::from(face.units_per_em())
}

/// Returns the file of the font.
pub(super) fn file() -> &'static [u8] {
    BYTES
}

/// Returns each letter of a text that has a glyph, with the glyph.
pub(super) fn glyphs_of(text: &str) -> Vec<(Glyph, char)> {
    let Some(face) = FACE.as_ref() else {
        return Vec::new();
    };
    let found = text.chars().filter_map(|c| {
        let index = face
            .glyph_index(c)
            .or_else(|| face.glyph_index(REPLACEMENT));
        Some((Glyph(index?.0), c))
    });
    found.collect()
}

/// Returns the width of a glyph at a font height of 1.
pub(super) fn advance(glyph: Glyph) -> f64 {
    let Some(face) = FACE.as_ref() else {
        return 0.0;
    };
    let advance = face.glyph_hor_advance(ttf_parser::GlyphId(glyph.0));
    f64::from(advance.unwrap_or(0)) / unit(face)
}

/// Returns a text's glyphs with their offsets, and the total width.
pub(super) fn glyphs(text: &str) -> (Vec<(Glyph, f64)>, f64) {
    let mut x = 0.0;
    let mut found = Vec::new();
    for (glyph, _) in glyphs_of(text) {
        found.push((glyph, x));
        x += advance(glyph);
    }
    (found, x)
}

/// Returns the outline of a glyph.
pub(super) fn outline(glyph: Glyph) -> Vec<Step> {
    let Some(face) = FACE.as_ref() else {
        return Vec::new();
    };
    let mut outline = Outline {
        steps: Vec::new(),
        unit: unit(face),
    };
    face.outline_glyph(ttf_parser::GlyphId(glyph.0), &mut outline);
    outline.steps
}

/// Returns the width of a text at a font height.
pub fn text_width(text: &str, size: f64) -> f64 {
    glyphs(text).1 * size
}

/// Whether the font lacks a letter of the text.
pub fn lacks(text: &str) -> bool {
    let Some(face) = FACE.as_ref() else {
        return true;
    };
    text.chars().any(|c| face.glyph_index(c).is_none())
}
