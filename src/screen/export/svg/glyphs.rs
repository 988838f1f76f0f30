//! Symbols drawn as shapes instead of text: blocks, box-drawing lines, braille. Many fonts draw them with seams, or lack them.

use super::cells::{HEIGHT, WIDTH};

/// A rectangle inside a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

/// The shape of a symbol.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    Nothing,
    /// Whether the upper and the lower half are filled.
    Halves(bool, bool),
    /// The whole cell filled with this density.
    Shade(f32),
    Parts(Vec<Part>),
    /// Centres of dots.
    Dots(Vec<(u32, u32)>),
    Letters,
}

const fn part(x: u32, y: u32, width: u32, height: u32) -> Part {
    Part {
        x,
        y,
        width,
        height,
    }
}

pub fn shape_of(symbol: &str) -> Shape {
    let mut letters = symbol.chars();
    let (Some(c), None) = (letters.next(), letters.next()) else {
        return if symbol.trim().is_empty() {
            Shape::Nothing
        } else {
            Shape::Letters
        };
    };
    match c {
        c if c.is_whitespace() => Shape::Nothing,
        '▀' => Shape::Halves(true, false),
        '▄' => Shape::Halves(false, true),
        '█' => Shape::Halves(true, true),
        '░' => Shape::Shade(0.25),
        '▒' => Shape::Shade(0.5),
        '▓' => Shape::Shade(0.75),
        '▁'..='▇' => {
            let height = (c as u32 - '▁' as u32 + 1) * HEIGHT / 8;
            Shape::Parts(vec![part(0, HEIGHT - height, WIDTH, height)])
        }
        '▉'..='▏' => {
            let width = ('▏' as u32 - c as u32 + 1) * WIDTH / 8;
            Shape::Parts(vec![part(0, 0, width, HEIGHT)])
        }
        '▐' => Shape::Parts(vec![part(WIDTH / 2, 0, WIDTH / 2, HEIGHT)]),
        '▔' => Shape::Parts(vec![part(0, 0, WIDTH, HEIGHT / 8)]),
        '▕' => Shape::Parts(vec![part(WIDTH - WIDTH / 8, 0, WIDTH / 8, HEIGHT)]),
        '▖'..='▟' => Shape::Parts(quadrants(c)),
        '\u{2800}'..='\u{28ff}' => Shape::Dots(braille(c as u32 - 0x2800)),
        c => lines(c).map_or(Shape::Letters, Shape::Parts),
    }
}

/// The quarters that a quadrant block fills.
fn quadrants(c: char) -> Vec<Part> {
    const FILLED: [(char, &str); 10] = [
        ('▖', "l"),
        ('▗', "r"),
        ('▘', "L"),
        ('▙', "Llr"),
        ('▚', "Lr"),
        ('▛', "LRl"),
        ('▜', "LRr"),
        ('▝', "R"),
        ('▞', "Rl"),
        ('▟', "Rlr"),
    ];
    let (width, height) = (WIDTH / 2, HEIGHT / 2);
    let filled = FILLED.iter().find(|(block, _)| *block == c);
    let quarter = |place: char| match place {
        'L' => part(0, 0, width, height),
        'R' => part(width, 0, width, height),
        'l' => part(0, height, width, height),
        _ => part(width, height, width, height),
    };
    filled.map_or_else(Vec::new, |(_, places)| {
        places.chars().map(quarter).collect()
    })
}

/// The dots of a braille pattern, two across and four down. Unicode counts the upper six by columns, then the lowest row.
fn braille(bits: u32) -> Vec<(u32, u32)> {
    const PLACES: [(u32, u32); 8] = [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
        (0, 3),
        (1, 3),
    ];
    let is_set = |bit: &usize| bits >> bit & 1 == 1;
    (0..8)
        .filter(is_set)
        .map(|bit| PLACES[bit])
        .map(|(column, row)| {
            (
                WIDTH / 4 + column * WIDTH / 2,
                HEIGHT / 8 + row * HEIGHT / 4,
            )
        })
        .collect()
}

/// The lines of a box-drawing symbol, light or heavy throughout.
fn lines(c: char) -> Option<Vec<Part>> {
    // Ends: u up, r right, d down, l left.
    const LINES: [(&str, &str); 15] = [
        ("─━", "lr"),
        ("│┃", "ud"),
        ("┌┏", "rd"),
        ("┐┓", "dl"),
        ("└┗", "ur"),
        ("┘┛", "ul"),
        ("├┣", "urd"),
        ("┤┫", "udl"),
        ("┬┳", "rdl"),
        ("┴┻", "url"),
        ("┼╋", "urdl"),
        ("╴╸", "l"),
        ("╵╹", "u"),
        ("╶╺", "r"),
        ("╷╻", "d"),
    ];
    let (symbols, ends) = LINES.iter().find(|(symbols, _)| symbols.contains(c))?;
    let thickness = if symbols.starts_with(c) { 1 } else { 2 };
    let (x, y) = (WIDTH / 2 + 1 - thickness, HEIGHT / 2 + 1 - thickness);
    let goes = |end: char| ends.contains(end);
    let mut parts = Vec::new();
    if goes('l') || goes('r') {
        let from = if goes('l') { 0 } else { x };
        let to = if goes('r') { WIDTH } else { x + thickness };
        parts.push(part(from, y, to - from, thickness));
    }
    if goes('u') || goes('d') {
        let from = if goes('u') { 0 } else { y };
        let to = if goes('d') { HEIGHT } else { y + thickness };
        parts.push(part(x, from, thickness, to - from));
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighths_have_their_size() {
        for (n, c) in "▁▂▃"
            .chars()
            .chain("▅▆▇".chars())
            .zip([1, 2, 3, 5, 6, 7])
            .map(|(c, n)| (n, c))
        {
            let Shape::Parts(parts) = shape_of(&c.to_string()) else {
                panic!("{c}")
            };
            assert_eq!(parts, [part(0, 16 - 2 * n, 8, 2 * n)]);
        }
        for (c, n) in "▏▎▍▌▋▊▉".chars().zip(1..) {
            assert_eq!(
                shape_of(&c.to_string()),
                Shape::Parts(vec![part(0, 0, n, 16)])
            );
        }
    }

    #[test]
    fn lines_of_adjacent_cells_touch() {
        let edges = |c: char| -> Vec<(char, u32, u32)> {
            let parts = lines(c).expect("a line");
            let ends = parts.iter().flat_map(|p| {
                let is_across = p.width > p.height;
                let at = [
                    (is_across && p.x == 0, 'l', p.y, p.height),
                    (is_across && p.x + p.width == WIDTH, 'r', p.y, p.height),
                    (!is_across && p.y == 0, 'u', p.x, p.width),
                    (!is_across && p.y + p.height == HEIGHT, 'd', p.x, p.width),
                ];
                at.into_iter()
                    .filter(|(meets, ..)| *meets)
                    .map(|(_, end, from, n)| (end, from, n))
            });
            ends.collect()
        };
        // Light lines meet at 4 and 8, heavy ones are two units thick.
        for (c, ends) in [
            ('┼', "lrud"),
            ('┌', "rd"),
            ('┘', "lu"),
            ('├', "rud"),
            ('─', "lr"),
        ] {
            let found = edges(c);
            assert_eq!(found.iter().map(|(end, ..)| *end).collect::<String>(), ends);
            for (end, from, n) in found {
                let middle = if "lr".contains(end) { 8 } else { 4 };
                assert_eq!((from, n), (middle, 1), "{c} {end}");
            }
        }
        assert_eq!(lines('━'), Some(vec![part(0, 7, 8, 2)]));
        assert_eq!(lines('a'), None);
    }

    #[test]
    fn braille_dots_have_the_positions_of_unicode() {
        assert_eq!(braille(0), []);
        // ⡀ is the lowest dot on the left, ⠈ the highest on the right.
        assert_eq!(shape_of("⡀"), Shape::Dots(vec![(2, 14)]));
        assert_eq!(shape_of("⠈"), Shape::Dots(vec![(6, 2)]));
        assert_eq!(shape_of("⣿"), Shape::Dots(braille(255)));
        assert_eq!(braille(255).len(), 8);
    }
}
