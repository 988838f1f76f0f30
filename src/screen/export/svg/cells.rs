//! The visible symbol of each cell, one or two columns wide, with its colours after modifiers.

use ratatui::buffer::Buffer;
use ratatui::style::Modifier;
use unicode_width::UnicodeWidthStr;

use super::page::{Page, Rgb, mixed, rgb};

/// Size of a cell in units: halves are squares, and eighths of both sides are whole numbers.
pub const WIDTH: u32 = 8;
pub const HEIGHT: u32 = 16;

/// Share of its colour that a dim character keeps.
const DIM: f32 = 0.6;

/// A symbol, its position and its style.
#[derive(Debug, Clone)]
pub struct Seen<'a> {
    pub column: u32,
    pub row: u32,
    pub n_columns: u32,
    pub symbol: &'a str,
    pub ink: Rgb,
    pub ground: Rgb,
    pub modifier: Modifier,
}

impl Seen<'_> {
    pub fn x(&self) -> u32 {
        self.column * WIDTH
    }

    pub fn y(&self) -> u32 {
        self.row * HEIGHT
    }

    pub fn width(&self) -> u32 {
        self.n_columns * WIDTH
    }
}

/// All visible symbols in reading order, without the cells that wide ones cover.
pub fn seen<'a>(buffer: &'a Buffer, page: &Page) -> Vec<Seen<'a>> {
    let (n_columns, n_rows) = (buffer.area.width, buffer.area.height);
    let mut all = Vec::with_capacity(usize::from(n_columns) * usize::from(n_rows));
    for row in 0..n_rows {
        let mut column = 0;
        while column < n_columns {
            let cell = &buffer[(buffer.area.x + column, buffer.area.y + row)];
            let wanted = u16::try_from(cell.symbol().width()).unwrap_or(1);
            let n_taken = wanted.clamp(1, n_columns - column);
            let mut ink = rgb(cell.fg, page.ink);
            let mut ground = rgb(cell.bg, page.ground);
            if cell.modifier.contains(Modifier::DIM) {
                ink = mixed(ink, ground, DIM);
            }
            if cell.modifier.contains(Modifier::REVERSED) {
                (ink, ground) = (ground, ink);
            }
            let is_hidden = cell.modifier.contains(Modifier::HIDDEN);
            all.push(Seen {
                column: u32::from(column),
                row: u32::from(row),
                n_columns: u32::from(n_taken),
                symbol: if is_hidden { " " } else { cell.symbol() },
                ink,
                ground,
                modifier: cell.modifier,
            });
            column += n_taken;
        }
    }
    all
}
