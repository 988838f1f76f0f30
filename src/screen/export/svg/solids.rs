//! Merges rectangles of one colour into fewer that cover the same area.

use super::page::Rgb;

/// A filled rectangle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Solid {
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
    pub fill: Rgb,
}

/// Joins adjacent rectangles of one colour: within a row, then equal ones of consecutive rows. The result is in reading order.
pub fn merged(mut solids: Vec<Solid>) -> Vec<Solid> {
    solids.sort_by_key(|s| (s.y, s.height, s.fill, s.x));
    solids.dedup_by(|next, last| {
        let meets = (next.y, next.height, next.fill) == (last.y, last.height, last.fill)
            && next.x == last.x + last.width;
        if meets {
            last.width += next.width;
        }
        meets
    });
    solids.sort_by_key(|s| (s.x, s.width, s.fill, s.y));
    solids.dedup_by(|next, last| {
        let meets = (next.x, next.width, next.fill) == (last.x, last.width, last.fill)
            && next.y == last.y + last.height;
        if meets {
            last.height += next.height;
        }
        meets
    });
    solids.sort_by_key(|s| (s.y, s.x));
    solids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_rectangles_cover_the_same_area_and_are_fewer() {
        const RED: Rgb = [255, 0, 0];
        const BLUE: Rgb = [0, 0, 255];
        let picture = ["rrr.", "rrr.", "bbrb", "bb.b"];
        let unit = |(row, column): (usize, usize), c: char| Solid {
            x: 8 * column as u32,
            y: 8 * row as u32,
            width: 8,
            height: 8,
            fill: if c == 'r' { RED } else { BLUE },
        };
        let units: Vec<Solid> = picture
            .iter()
            .enumerate()
            .flat_map(|(row, line)| {
                let cells = line.chars().enumerate().filter(|(_, c)| *c != '.');
                cells.map(move |(column, c)| unit((row, column), c))
            })
            .collect();
        let covers = |solids: &[Solid], x: u32, y: u32| -> Vec<Rgb> {
            let here = solids.iter().filter(|s| {
                (s.x..s.x + s.width).contains(&x) && (s.y..s.y + s.height).contains(&y)
            });
            here.map(|s| s.fill).collect()
        };
        let few = merged(units.clone());
        for y in 0..32 {
            for x in 0..32 {
                assert_eq!(covers(&few, x, y), covers(&units, x, y), "{x} {y}");
            }
        }
        assert_eq!(few.len(), 4);
    }
}
