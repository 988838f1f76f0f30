//! The colours of a page, and the colours of a terminal on it.

use attnscope_terminal::theme::{Ground, rgb_of};
use ratatui::style::Color;

pub type Rgb = [u8; 3];

/// Colours used for the terminal's default colours.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    pub ground: Rgb,
    pub ink: Rgb,
}

impl Page {
    pub fn of(ground: Ground) -> Self {
        match ground {
            Ground::Dark => Self {
                ground: [17, 19, 25],
                ink: [224, 227, 233],
            },
            Ground::Light => Self {
                ground: [255, 255, 255],
                ink: [31, 35, 43],
            },
        }
    }
}

/// Converts a colour to RGB; `own` is used for the terminal's default colour.
pub fn rgb(colour: Color, own: Rgb) -> Rgb {
    match colour {
        Color::Reset => own,
        Color::Black => rgb_of(0),
        Color::Red => rgb_of(1),
        Color::Green => rgb_of(2),
        Color::Yellow => rgb_of(3),
        Color::Blue => rgb_of(4),
        Color::Magenta => rgb_of(5),
        Color::Cyan => rgb_of(6),
        Color::Gray => rgb_of(7),
        Color::DarkGray => rgb_of(8),
        Color::LightRed => rgb_of(9),
        Color::LightGreen => rgb_of(10),
        Color::LightYellow => rgb_of(11),
        Color::LightBlue => rgb_of(12),
        Color::LightMagenta => rgb_of(13),
        Color::LightCyan => rgb_of(14),
        Color::White => rgb_of(15),
        Color::Rgb(r, g, b) => [r, g, b],
        Color::Indexed(n) => rgb_of(n),
    }
}

/// Blends a colour over another with weight `share`.
pub fn mixed(over: Rgb, under: Rgb, share: f32) -> Rgb {
    let mix = |i: usize| {
        let (over, under) = (f32::from(over[i]), f32::from(under[i]));
        (under + share * (over - under)).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

pub fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexed_colours_are_those_of_xterm() {
        // From the table of 256 colours that xterm documents.
        for (n, expected) in [
            (1, "#cd0000"),
            (12, "#5c5cff"),
            (16, "#000000"),
            (52, "#5f0000"),
            (123, "#87ffff"),
            (196, "#ff0000"),
            (231, "#ffffff"),
            (232, "#080808"),
            (255, "#eeeeee"),
        ] {
            assert_eq!(hex(rgb(Color::Indexed(n), [1, 2, 3])), expected, "{n}");
        }
        assert_eq!(rgb(Color::Reset, [1, 2, 3]), [1, 2, 3]);
        assert_eq!(hex(rgb(Color::LightBlue, [0; 3])), "#5c5cff");
        assert_eq!(mixed([200, 0, 100], [0, 100, 100], 0.25), [50, 75, 100]);
    }
}
