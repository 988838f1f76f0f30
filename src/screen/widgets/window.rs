//! Which cells of a matrix the pixels of a map show, and the scale at which all of them fit.

use std::ops::Range;

/// A scale of one side of a matrix: `pixels` show `tiles` of 2^`level` cells each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    pub level: usize,
    pub tiles: usize,
    pub pixels: usize,
}

/// A pixel that covers more tiles per side is computed from a coarser level.
const MOST_TILES: usize = 8;
/// Cells may be at most so many times as wide as they are high, or as high as they are wide.
const WIDEST: usize = 3;
const TALLEST: usize = 2;
/// Most pixels along the height of a cell.
const MOST_PIXELS: usize = 8;

impl Ratio {
    /// Pixels per cell when 1 or more; 2^−zoom cells per pixel when 0 or less.
    pub fn of_zoom(zoom: i32) -> Self {
        Self {
            level: (-zoom).max(0) as usize,
            tiles: 1,
            pixels: zoom.max(1) as usize,
        }
    }

    /// The scale of `n` tiles on at most `pixels`: whole pixels for each tile, or any number of tiles for each pixel.
    fn of_tiles(level: usize, n: usize, pixels: usize) -> Self {
        let n = n.max(1);
        if pixels >= n {
            // Never show tiles of several cells larger than a pixel, because they would be uneven.
            let pixels = if level == 0 { pixels / n } else { 1 };
            return Self {
                level,
                tiles: 1,
                pixels,
            };
        }
        Self {
            level,
            tiles: n,
            pixels: pixels.max(1),
        }
    }

    /// The zoom nearest below this scale, for when none was chosen and the matrix does not fit.
    pub fn zoom(self) -> i32 {
        if self.pixels >= self.tiles && self.level == 0 {
            return (self.pixels / self.tiles) as i32;
        }
        let cells = (self.tiles << self.level).div_ceil(self.pixels);
        -(cells.next_power_of_two().ilog2() as i32)
    }

    /// Number of pixels that show some cells.
    pub fn pixels_for(self, n_cells: usize) -> usize {
        (n_cells.div_ceil(1 << self.level) * self.pixels).div_ceil(self.tiles)
    }

    /// Whole pixels of a cell; 1 if a pixel covers several cells.
    pub fn pixels_per_cell(self) -> usize {
        (self.pixels / self.tiles).max(1)
    }

    /// The tiles under a pixel, counted from the first one shown.
    pub(super) fn tiles_under(self, pixel: usize) -> Range<usize> {
        let begins = pixel * self.tiles / self.pixels;
        let ends = (pixel + 1) * self.tiles / self.pixels;
        begins..ends.max(begins + 1)
    }

    /// Number of cells per pixel: smallest and largest.
    pub fn cells_per_pixel(self) -> (usize, usize) {
        let (tiles, pixels) = (self.tiles, self.pixels);
        let least = (tiles / pixels).max(1) << self.level;
        (least, tiles.div_ceil(pixels) << self.level)
    }

    /// Cells per pixel, possibly a fraction.
    pub(super) fn cells_of_pixel(self) -> f64 {
        (self.tiles << self.level) as f64 / self.pixels as f64
    }
}

/// The cells that the pixels along one side of a map show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    /// The first cell of the finest level that is shown.
    pub first: usize,
    pub ratio: Ratio,
}

impl Side {
    /// The first cell of the finest level under a pixel.
    pub fn cell_at(self, pixel: usize) -> usize {
        self.first + (self.ratio.tiles_under(pixel).start << self.ratio.level)
    }

    /// The cells of the finest level under a pixel.
    pub fn cells_at(self, pixel: usize) -> Range<usize> {
        let tiles = self.ratio.tiles_under(pixel);
        let level = self.ratio.level;
        self.first + (tiles.start << level)..self.first + (tiles.end << level)
    }

    /// Number of cells that some pixels show.
    pub fn cells_in(self, n_pixels: usize) -> usize {
        (n_pixels * self.ratio.tiles / self.ratio.pixels) << self.ratio.level
    }

    /// The cell of the finest level at a distance in pixels from the first one.
    pub fn place_at(self, pixels: f64) -> usize {
        self.first + (pixels * self.ratio.cells_of_pixel()) as usize
    }

    /// The tiles under a pixel of a level that has `n` of them.
    pub(super) fn tiles_at(self, pixel: usize, n: usize) -> Range<usize> {
        let tiles = self.ratio.tiles_under(pixel);
        let first = self.first >> self.ratio.level;
        (first + tiles.start).min(n)..(first + tiles.end).min(n)
    }

    /// The pixels that show a marked cell.
    pub(super) fn pixels_of(self, cell: usize, n_pixels: usize) -> Option<Range<usize>> {
        let shows = |pixel: &usize| self.cells_at(*pixel).contains(&cell);
        let begins = (0..n_pixels).find(&shows)?;
        let n = (begins..n_pixels).take_while(shows).count();
        Some(begins..begins + n)
    }
}

/// Which cells of a matrix the pixels show. Both sides have the same level; a cell may be wider than it is high.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub queries: Side,
    pub keys: Side,
}

impl Window {
    /// All of a matrix, from its first cell, at the scales of rows and columns.
    fn whole([rows, columns]: [Ratio; 2]) -> Self {
        let side = |ratio: Ratio| Side { first: 0, ratio };
        Self {
            queries: side(rows),
            keys: side(columns),
        }
    }

    /// The largest scale at which the cells fit the pixels.
    pub fn to_fit((n_rows, n_cols): (usize, usize), (rows, cols): (usize, usize)) -> Self {
        if rows == 0 || cols == 0 || n_rows == 0 || n_cols == 0 {
            return Self::of_zoom(1, n_cols, cols);
        }
        let n_tiles = |n: usize, level: usize| n.div_ceil(1 << level);
        let fits = |level: &usize| {
            n_tiles(n_rows, *level) <= MOST_TILES * rows
                && n_tiles(n_cols, *level) <= MOST_TILES * cols
        };
        let level = (0..32).find(fits).unwrap_or_default();
        let [tall, wide] = [n_rows, n_cols].map(|n| n_tiles(n, level));
        // Pixels for all tiles of a side, limited by the shape of a cell: rows · wide and cols · tall compare pixels per tile.
        let high = rows.min((TALLEST * cols * tall / wide).max(1));
        let down = Ratio::of_tiles(level, tall, high.min(MOST_PIXELS * tall));
        let broad = (WIDEST * down.pixels * wide).div_ceil(down.tiles);
        Self::whole([down, Ratio::of_tiles(level, wide, cols.min(broad))])
    }

    /// A chosen zoom: pixels per cell when 1 or more, 2^−zoom cells per pixel when 0 or less. Cells are wider where all `n_cols`
    /// of them fit.
    pub fn of_zoom(zoom: i32, n_cols: usize, cols: usize) -> Self {
        let ratio = Ratio::of_zoom(zoom);
        let wide = if zoom < 1 {
            ratio
        } else {
            let fits = cols / n_cols.max(1);
            Ratio {
                pixels: fits.clamp(ratio.pixels, WIDEST * ratio.pixels),
                ..ratio
            }
        };
        Self::whole([ratio, wide])
    }

    /// The level of the matrix that pixels are read from.
    pub fn level(&self) -> usize {
        self.queries.ratio.level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixels(n: usize, rows: usize, cols: usize) -> (usize, usize) {
        let window = Window::to_fit((n, n), (rows, cols));
        let [down, across] = [window.queries, window.keys].map(|side| side.ratio.pixels_for(n));
        (down, across)
    }

    #[test]
    fn a_small_matrix_takes_the_room_that_there_is_with_whole_pixels_for_each_cell() {
        // 33 tokens: cells of 1 × 2 pixels, then of 2 × 3.
        assert_eq!(pixels(33, 60, 70), (33, 66));
        assert_eq!(pixels(33, 96, 114), (66, 99));
        // No cell is more than three times as wide as high, or more than twice as high as wide.
        assert_eq!(pixels(10, 10, 100), (10, 30));
        assert_eq!(pixels(10, 100, 10), (20, 10));
    }

    #[test]
    fn a_matrix_larger_than_its_area_fills_it_and_every_cell_is_in_one_pixel() {
        for n in [100, 119, 512, 700, 1000, 4096] {
            let window = Window::to_fit((n, n), (60, 90));
            for (side, n_pixels) in [(window.queries, 60), (window.keys, 90)] {
                assert_eq!(side.ratio.pixels_for(n), n_pixels, "{n}: {side:?}");
                let mut next = 0;
                for pixel in 0..n_pixels {
                    let cells = side.cells_at(pixel);
                    assert_eq!(cells.start, next, "{n}: pixel {pixel}");
                    next = cells.end;
                }
                assert!(next >= n, "{n}: {next}");
            }
        }
    }

    #[test]
    fn a_fractional_scale_knows_the_nearest_zoom_below() {
        for (n, zoom) in [(20, 3), (60, 1), (61, -1), (512, -4), (1000, -5)] {
            let window = Window::to_fit((n, n), (60, 60));
            assert_eq!(window.queries.ratio.zoom(), zoom, "{n}");
        }
    }
}
