//! A finished frame as an SVG picture: rectangles for backgrounds and blocks, and text that keeps its columns with any font.

mod cells;
mod glyphs;
mod page;
mod solids;
mod words;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use attnscope_terminal::theme::Ground;
use quick_xml::Writer;
use quick_xml::events::BytesText;
use ratatui::buffer::Buffer;
use ratatui::style::Modifier;

use self::cells::{HEIGHT, Seen, WIDTH, seen};
use self::glyphs::{Shape, shape_of};
use self::page::{Page, Rgb, hex, mixed};
use self::solids::{Solid, merged};
use self::words::{Word, words};

/// Units of page around the cells.
const MARGIN: u32 = 8;
/// Text baseline, underline and strikethrough, measured from the top of a cell. An underscore still fits inside the cell.
const BASELINE: f64 = 11.5;
const UNDERLINE: u32 = 13;
const STROKE: u32 = 8;
/// Font size at which characters of common fonts, 0.6 em wide, fill a cell.
const FONT_SIZE: &str = "13.3";
const FONTS: &str =
    "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace";
/// Diameter of a braille dot.
const DOT: &str = "2.6";

/// Title and description of a picture.
#[derive(Debug, Clone)]
pub struct Caption {
    pub title: String,
    pub description: String,
}

type Attributes = Vec<(&'static str, String)>;

/// Draws a frame as SVG.
///
/// # Errors
/// Never in practice: it writes to memory.
pub fn svg(buffer: &Buffer, ground: Ground, caption: &Caption) -> io::Result<Vec<u8>> {
    let page = Page::of(ground);
    let cells = seen(buffer, &page);
    let (width, height) = (
        u32::from(buffer.area.width) * WIDTH + 2 * MARGIN,
        u32::from(buffer.area.height) * HEIGHT + 2 * MARGIN,
    );
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 1);
    let root: Attributes = vec![
        ("xmlns", "http://www.w3.org/2000/svg".to_owned()),
        ("width", width.to_string()),
        ("height", height.to_string()),
        ("viewBox", format!("-{MARGIN} -{MARGIN} {width} {height}")),
        ("role", "img".to_owned()),
    ];
    with(writer.create_element("svg"), &root).write_inner_content(|writer| {
        for (name, text) in [("title", &caption.title), ("desc", &caption.description)] {
            let text = legal(text);
            let element = writer.create_element(name);
            element.write_text_content(BytesText::new(&text))?;
        }
        let paper: Attributes = vec![
            ("x", format!("-{MARGIN}")),
            ("y", format!("-{MARGIN}")),
            ("width", width.to_string()),
            ("height", height.to_string()),
            ("rx", "6".to_owned()),
            ("fill", hex(page.ground)),
        ];
        with(writer.create_element("rect"), &paper).write_empty()?;
        // Without anti-aliasing, adjacent rectangles leave no seam between them.
        for layer in [grounds(&cells, &page), inks(&cells)] {
            group(
                writer,
                &[("shape-rendering", "crispEdges")],
                &merged(layer),
                rect,
            )?;
        }
        let round = [
            ("fill", "none"),
            ("stroke-linecap", "round"),
            ("stroke-width", DOT),
        ];
        group(writer, &round, &dots(&cells), path)?;
        let ink = hex(page.ink);
        let font = [
            ("font-family", FONTS),
            ("font-size", FONT_SIZE),
            ("fill", &ink),
        ];
        group(writer, &font, &words(&cells), |writer, word| {
            text(writer, word, page.ink)
        })
    })?;
    let mut bytes = writer.into_inner();
    bytes.push(b'\n');
    Ok(bytes)
}

fn with<'a, W: io::Write>(
    element: quick_xml::writer::ElementWriter<'a, W>,
    attributes: &[(&'static str, String)],
) -> quick_xml::writer::ElementWriter<'a, W> {
    let attributes = attributes.iter();
    element.with_attributes(attributes.map(|(name, value)| (*name, value.as_str())))
}

/// Writes elements that share attributes as a group; writes nothing if there are none.
fn group<T>(
    writer: &mut Writer<Vec<u8>>,
    attributes: &[(&'static str, &str)],
    items: &[T],
    each: impl Fn(&mut Writer<Vec<u8>>, &T) -> io::Result<()>,
) -> io::Result<()> {
    if items.is_empty() {
        return Ok(());
    }
    let element = writer.create_element("g");
    let element = element.with_attributes(attributes.iter().copied());
    element.write_inner_content(|writer| items.iter().try_for_each(|item| each(writer, item)))?;
    Ok(())
}

/// Rectangles under the text: cell backgrounds that differ from the page, half-blocks and shades.
fn grounds(cells: &[Seen<'_>], page: &Page) -> Vec<Solid> {
    let mut solids = Vec::new();
    for cell in cells {
        let halves = match shape_of(cell.symbol) {
            Shape::Halves(upper, lower) => {
                [upper, lower].map(|is_ink| if is_ink { cell.ink } else { cell.ground })
            }
            Shape::Shade(share) => [mixed(cell.ink, cell.ground, share); 2],
            _ => [cell.ground; 2],
        };
        for (half, fill) in halves.into_iter().enumerate() {
            if fill != page.ground {
                solids.push(Solid {
                    x: cell.x(),
                    y: cell.y() + half as u32 * HEIGHT / 2,
                    width: cell.width(),
                    height: HEIGHT / 2,
                    fill,
                });
            }
        }
    }
    solids
}

/// Rectangles on top of the backgrounds: parts of blocks, box-drawing lines, underlines and strikethroughs.
fn inks(cells: &[Seen<'_>]) -> Vec<Solid> {
    let mut solids = Vec::new();
    for cell in cells {
        if let Shape::Parts(parts) = shape_of(cell.symbol) {
            solids.extend(parts.into_iter().map(|part| Solid {
                x: cell.x() + part.x,
                y: cell.y() + part.y,
                width: part.width,
                height: part.height,
                fill: cell.ink,
            }));
        }
        for (modifier, y) in [
            (Modifier::UNDERLINED, UNDERLINE),
            (Modifier::CROSSED_OUT, STROKE),
        ] {
            if cell.modifier.contains(modifier) {
                solids.push(Solid {
                    x: cell.x(),
                    y: cell.y() + y,
                    width: cell.width(),
                    height: 1,
                    fill: cell.ink,
                });
            }
        }
    }
    solids
}

fn rect(writer: &mut Writer<Vec<u8>>, solid: &Solid) -> io::Result<()> {
    let attributes: Attributes = vec![
        ("x", solid.x.to_string()),
        ("y", solid.y.to_string()),
        ("width", solid.width.to_string()),
        ("height", solid.height.to_string()),
        ("fill", hex(solid.fill)),
    ];
    with(writer.create_element("rect"), &attributes).write_empty()?;
    Ok(())
}

/// Paths of braille dots, by colour.
fn dots(cells: &[Seen<'_>]) -> Vec<(Rgb, String)> {
    let mut paths: BTreeMap<Rgb, String> = BTreeMap::new();
    for cell in cells {
        let Shape::Dots(dots) = shape_of(cell.symbol) else {
            continue;
        };
        let path = paths.entry(cell.ink).or_default();
        for (x, y) in dots {
            // A line of almost zero length with round ends.
            let _ = write!(path, "M{} {}h.01", cell.x() + x, cell.y() + y);
        }
    }
    paths.into_iter().collect()
}

fn path(writer: &mut Writer<Vec<u8>>, (ink, path): &(Rgb, String)) -> io::Result<()> {
    let attributes = vec![("stroke", hex(*ink)), ("d", path.clone())];
    with(writer.create_element("path"), &attributes).write_empty()?;
    Ok(())
}

fn text(writer: &mut Writer<Vec<u8>>, word: &Word, usual: Rgb) -> io::Result<()> {
    let mut attributes: Attributes = vec![
        ("x", (word.column * WIDTH).to_string()),
        ("y", (f64::from(word.row * HEIGHT) + BASELINE).to_string()),
        // The text ends where its cells end, with any font.
        ("textLength", (word.n_columns * WIDTH).to_string()),
        ("lengthAdjust", "spacingAndGlyphs".to_owned()),
    ];
    if word.ink != usual {
        attributes.push(("fill", hex(word.ink)));
    }
    if word.is_bold {
        attributes.push(("font-weight", "bold".to_owned()));
    }
    if word.is_italic {
        attributes.push(("font-style", "italic".to_owned()));
    }
    let letters = legal(&word.text);
    let element = with(writer.create_element("text"), &attributes);
    element.write_text_content(BytesText::new(&letters))?;
    Ok(())
}

/// Replaces characters that XML 1.0 forbids with U+FFFD.
fn legal(text: &str) -> String {
    let is_legal = |c: char| {
        matches!(c, '\t' | '\n' | '\r') || (c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}'))
    };
    text.chars()
        .map(|c| if is_legal(c) { c } else { '\u{fffd}' })
        .collect()
}

#[cfg(test)]
mod tests;
