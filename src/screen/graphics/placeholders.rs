//! Pictures of kitty's protocol inside tmux: cells hold placeholders, which tmux moves and hides as it does letters, and the picture goes
//! through to the terminal.
//!
//! A placeholder is U+10EEEE with two combining characters, for the row and the column of the picture that the cell shows. Its foreground
//! is the number of the picture.

use std::io::{self, Write};

use ratatui::buffer::Cell;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Style};

use super::image::Image;
use super::kitty::{self, Placement};

/// Number of our only picture: an indexed colour, since tmux may round others.
pub const ID: u8 = 207;

const PLACEHOLDER: char = '\u{10EEEE}';

/// The combining characters that count rows and columns, as the first of each run and its length: those of class 230 without
/// decomposition in Unicode 6.0.
const MARKS: [(u32, u32); 71] = [
    (0x0305, 1),
    (0x030d, 2),
    (0x0310, 1),
    (0x0312, 1),
    (0x033d, 3),
    (0x0346, 1),
    (0x034a, 3),
    (0x0350, 3),
    (0x0357, 1),
    (0x035b, 1),
    (0x0363, 13),
    (0x0483, 5),
    (0x0592, 4),
    (0x0597, 3),
    (0x059c, 6),
    (0x05a8, 2),
    (0x05ab, 2),
    (0x05af, 1),
    (0x05c4, 1),
    (0x0610, 8),
    (0x0657, 5),
    (0x065d, 2),
    (0x06d6, 7),
    (0x06df, 4),
    (0x06e4, 1),
    (0x06e7, 2),
    (0x06eb, 2),
    (0x0730, 1),
    (0x0732, 2),
    (0x0735, 2),
    (0x073a, 1),
    (0x073d, 1),
    (0x073f, 3),
    (0x0743, 1),
    (0x0745, 1),
    (0x0747, 1),
    (0x0749, 2),
    (0x07eb, 7),
    (0x07f3, 1),
    (0x0816, 4),
    (0x081b, 9),
    (0x0825, 3),
    (0x0829, 5),
    (0x0951, 1),
    (0x0953, 2),
    (0x0f82, 2),
    (0x0f86, 2),
    (0x135d, 3),
    (0x17dd, 1),
    (0x193a, 1),
    (0x1a17, 1),
    (0x1a75, 8),
    (0x1b6b, 1),
    (0x1b6d, 7),
    (0x1cd0, 3),
    (0x1cda, 2),
    (0x1ce0, 1),
    (0x1dc0, 2),
    (0x1dc3, 7),
    (0x1dcb, 2),
    (0x1dd1, 22),
    (0x1dfe, 1),
    (0x20d0, 2),
    (0x20d4, 4),
    (0x20db, 2),
    (0x20e1, 1),
    (0x20e7, 1),
    (0x20e9, 1),
    (0x20f0, 1),
    (0x2cef, 3),
    (0x2de0, 32),
];

/// Most rows or columns that can be counted.
pub fn most() -> usize {
    MARKS.iter().map(|(_, n)| *n as usize).sum()
}

/// The combining character of a row or column.
fn mark(idx: usize) -> Option<char> {
    let all = MARKS.iter().flat_map(|(first, n)| *first..first + n);
    all.into_iter().nth(idx).and_then(char::from_u32)
}

/// Fills a cell with the placeholder of its part of a picture over `area`.
pub fn fill(cell: &mut Cell, at: Position, area: Rect) {
    let (row, column) = (at.y.saturating_sub(area.y), at.x.saturating_sub(area.x));
    let marks = [row, column].map(|idx| mark(idx.into()));
    cell.reset();
    if let [Some(row), Some(column)] = marks {
        cell.set_symbol(&format!("{PLACEHOLDER}{row}{column}"));
        cell.set_style(Style::new().fg(Color::Indexed(ID)));
    }
}

/// Sends an image, with a size in cells, through tmux.
pub fn write(image: &Image, area: Rect, out: &mut impl Write) -> io::Result<()> {
    let mut commands = Vec::new();
    kitty::write(image, area, Placement::Placeholders(ID), &mut commands)?;
    through(&commands, out)
}

/// Deletes the picture.
pub fn delete(out: &mut impl Write) -> io::Result<()> {
    let mut commands = Vec::new();
    kitty::delete(ID.into(), &mut commands)?;
    through(&commands, out)
}

/// Wraps each command so that tmux hands it on (`allow-passthrough` has to be on).
fn through(commands: &[u8], out: &mut impl Write) -> io::Result<()> {
    for command in commands.split_inclusive(|byte| *byte == b'\\') {
        out.write_all(b"\x1bPtmux;")?;
        for byte in command {
            if *byte == 0x1b {
                out.write_all(b"\x1b")?;
            }
            out.write_all(&[*byte])?;
        }
        out.write_all(b"\x1b\\")?;
    }
    Ok(())
}
