//! The colours of a page, and the colours of a terminal on it.

use attnscope_terminal::theme::Ground;
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

/// The first sixteen colours as in xterm.
const NAMED: [Rgb; 16] = [
    [0, 0, 0],
    [205, 0, 0],
    [0, 205, 0],
    [205, 205, 0],
    [0, 0, 238],
    [205, 0, 205],
    [0, 205, 205],
    [229, 229, 229],
    [127, 127, 127],
    [255, 0, 0],
    [0, 255, 0],
    [255, 255, 0],
    [92, 92, 255],
    [255, 0, 255],
    [0, 255, 255],
    [255, 255, 255],
];

/// Converts a colour to RGB; `own` is used for the terminal's default colour.
pub fn rgb(colour: Color, own: Rgb) -> Rgb {
    match colour {
        Color::Reset => own,
        Color::Black => NAMED[0],
        Color::Red => NAMED[1],
        Color::Green => NAMED[2],
        Color::Yellow => NAMED[3],
        Color::Blue => NAMED[4],
        Color::Magenta => NAMED[5],
        Color::Cyan => NAMED[6],
        Color::Gray => NAMED[7],
        Color::DarkGray => NAMED[8],
        Color::LightRed => NAMED[9],
        Color::LightGreen => NAMED[10],
        Color::LightYellow => NAMED[11],
        Color::LightBlue => NAMED[12],
        Color::LightMagenta => NAMED[13],
        Color::LightCyan => NAMED[14],
        Color::White => NAMED[15],
        Color::Rgb(r, g, b) => [r, g, b],
        Color::Indexed(n) => indexed(n),
    }
}

/// The 256 indexed colours as in xterm: sixteen named ones, a cube with six levels per side, 24 greys.
fn indexed(n: u8) -> Rgb {
    match n {
        0..16 => NAMED[usize::from(n)],
        16..232 => {
            let n = n - 16;
            [n / 36, n / 6 % 6, n % 6].map(|level| match level {
                0 => 0,
                level => 55 + 40 * level,
            })
        }
        232.. => [8 + 10 * (n - 232); 3],
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
