//! A heat map in half-blocks: two pixels per terminal cell, or a glyph if there is no colour.

use std::ops::Range;

use attnscope_compute::attention::Pooled;
use attnscope_run::Pyramid;
use attnscope_terminal::theme::Theme;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::widgets::Widget;

/// Maps values to shares of the colour scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    pub low: f32,
    pub high: f32,
    pub is_log: bool,
}

/// Start of the logarithmic colour scale of a pattern: smaller probabilities are all dark.
pub const LOG_FLOOR: f32 = 1e-4;

impl Scale {
    /// Maps a value to 0..1; NaN stays NaN.
    pub fn share(&self, value: f32) -> f32 {
        let (low, high, value) = if self.is_log {
            let floor = LOG_FLOOR.min(self.high);
            (
                floor.ln(),
                self.high.ln(),
                if value.is_nan() {
                    value
                } else {
                    value.max(floor).ln()
                },
            )
        } else {
            (self.low, self.high, value)
        };
        if high > low {
            ((value - low) / (high - low)).clamp(0.0, 1.0)
        } else {
            value * 0.0 + 1.0
        }
    }
}

/// Which cells of a matrix the pixels show: each covers an equal part, not always a whole number of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub first_query: usize,
    pub first_key: usize,
    pub scale: Ratio,
}

/// A scale at which `pixels` per side show `tiles` of 2^`level` × 2^`level` cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    pub level: usize,
    pub tiles: usize,
    pub pixels: usize,
}

/// A pixel that covers more tiles per side is computed from a coarser level.
const MOST_TILES: usize = 8;

impl Ratio {
    /// Pixels per cell when 1 or more; 2^−zoom cells per pixel when 0 or less.
    pub fn of_zoom(zoom: i32) -> Self {
        Self {
            level: (-zoom).max(0) as usize,
            tiles: 1,
            pixels: zoom.max(1) as usize,
        }
    }

    /// The largest scale at which the cells fit the pixels: whole pixels per cell, or any part of the matrix per pixel.
    pub fn to_fit(n_rows: usize, n_cols: usize, rows: usize, cols: usize) -> Self {
        let zoom = Window::zoom_to_fit(n_rows, n_cols, rows, cols);
        if zoom >= 1 || rows == 0 || cols == 0 {
            return Self::of_zoom(zoom);
        }
        let level = (0..32).find(|level| {
            let n_tiles = |n: usize| n.div_ceil(1 << level);
            n_tiles(n_rows) <= MOST_TILES * rows && n_tiles(n_cols) <= MOST_TILES * cols
        });
        let level = level.unwrap_or_default();
        let [tall, wide] = [n_rows, n_cols].map(|n| n.div_ceil(1 << level));
        // The side that needs the smaller scale decides.
        let (tiles, pixels) = if tall * cols >= wide * rows {
            (tall, rows)
        } else {
            (wide, cols)
        };
        // Never show tiles larger than a pixel, because they would be uneven.
        Self {
            level,
            tiles,
            pixels: pixels.min(tiles),
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

    /// The tiles under a pixel, counted from the first one shown.
    fn tiles_under(self, pixel: usize) -> Range<usize> {
        let begins = pixel * self.tiles / self.pixels;
        let ends = (pixel + 1) * self.tiles / self.pixels;
        begins..ends.max(begins + 1)
    }

    /// Number of cells per pixel side: smallest and largest.
    pub fn cells_per_pixel(self) -> (usize, usize) {
        let (tiles, pixels) = (self.tiles, self.pixels);
        let least = (tiles / pixels).max(1) << self.level;
        (least, tiles.div_ceil(pixels) << self.level)
    }
}

impl Window {
    /// All of a matrix, from its first cell.
    pub fn whole(scale: Ratio) -> Self {
        Self {
            first_query: 0,
            first_key: 0,
            scale,
        }
    }

    fn level(&self) -> usize {
        self.scale.level
    }

    /// The cell of the finest level under a pixel, counted from the window's start.
    pub fn cell_at(&self, first: usize, pixel: usize) -> usize {
        first + (self.scale.tiles_under(pixel).start << self.level())
    }

    /// The cells of the finest level under a pixel.
    pub fn cells_at(&self, first: usize, pixel: usize) -> Range<usize> {
        let tiles = self.scale.tiles_under(pixel);
        first + (tiles.start << self.level())..first + (tiles.end << self.level())
    }

    /// Number of cells that some pixels show.
    pub fn cells_in(&self, n_pixels: usize) -> usize {
        (n_pixels * self.scale.tiles / self.scale.pixels) << self.level()
    }

    /// The largest zoom at which a matrix fits some pixels.
    pub fn zoom_to_fit(n_rows: usize, n_cols: usize, rows: usize, cols: usize) -> i32 {
        let fits = |zoom: i32| {
            let window = Self::whole(Ratio::of_zoom(zoom));
            window.cells_in(rows) >= n_rows && window.cells_in(cols) >= n_cols
        };
        (-24..=6)
            .rev()
            .filter(|zoom| *zoom != 0)
            .find(|zoom| fits(*zoom))
            .unwrap_or(-24)
    }
}

/// Part of a matrix as a picture.
#[derive(Debug, Clone, Copy)]
pub struct HeatMap<'a> {
    pub theme: &'a Theme,
    pub values: &'a Pyramid,
    pub window: Window,
    pub scale: Scale,
    /// Selected row and column.
    pub crosshair: Option<(usize, usize)>,
}

impl HeatMap<'_> {
    /// Cells of the finest level per screen pixel, possibly a fraction.
    fn cells_of_pixel(&self) -> f64 {
        let Ratio {
            level,
            tiles,
            pixels,
        } = self.window.scale;
        (tiles << level) as f64 / pixels as f64
    }

    /// The cell of the finest level at a distance in pixels from the window's start.
    pub fn place_at(&self, first: usize, pixels: f64) -> usize {
        first + (pixels * self.cells_of_pixel()) as usize
    }

    /// The level whose cells are as large as a part of a pixel, or smaller.
    pub fn level_at(&self, part: f64) -> usize {
        (part * self.cells_of_pixel()).log2().floor().max(0.0) as usize
    }

    fn level(&self) -> &Pooled {
        self.values.level(self.window.level())
    }

    /// The value of a pixel: the largest of its cells; `None` outside the matrix.
    fn value(&self, level: &Pooled, x: usize, y: usize) -> Option<f32> {
        let shift = self.window.level();
        let along = |first: usize, pixel: usize, n: usize| {
            let tiles = self.window.scale.tiles_under(pixel);
            let first = first >> shift;
            (first + tiles.start).min(n)..(first + tiles.end).min(n)
        };
        let rows = along(self.window.first_query, y, level.n_rows);
        let cols = along(self.window.first_key, x, level.n_cols);
        if rows.is_empty() || cols.is_empty() {
            return None;
        }
        let all = rows.flat_map(|row| cols.clone().map(move |col| level.at(row, col)));
        all.reduce(|best, value| self.values.of_two(best, value))
    }

    /// The pixels that show a marked cell.
    fn pixels_of(&self, first: usize, cell: usize, n_pixels: usize) -> Option<Range<usize>> {
        let shows = |pixel: &usize| self.window.cells_at(first, *pixel).contains(&cell);
        let begins = (0..n_pixels).find(&shows)?;
        let n = (begins..n_pixels).take_while(shows).count();
        Some(begins..begins + n)
    }
}

impl Widget for HeatMap<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let level = self.level();
        for row in 0..area.height {
            for col in 0..area.width {
                let (x, y) = (col as usize, 2 * row as usize);
                let values = [y, y + 1].map(|y| self.value(level, x, y));
                // Masked cells have no value and keep the background.
                let shares = values.map(|value| self.seen(value));
                draw_pixels(self.theme, &mut buffer[(area.x + col, area.y + row)], shares);
            }
        }
        self.draw_crosshair(area, buffer);
    }
}

/// Draws the upper and the lower pixel of a terminal cell: two colours, or one glyph if there is no colour. A pixel without a
/// share keeps the background.
pub fn draw_pixels(theme: &Theme, cell: &mut Cell, shares: [Option<f32>; 2]) {
    if !theme.has_colour() {
        let largest = |a: f32, b: f32| if a >= b || a.is_nan() { a } else { b };
        if let Some(share) = shares.into_iter().flatten().reduce(largest) {
            cell.set_char(theme.glyph(share));
        }
        return;
    }
    match shares.map(|share| share.map(|share| theme.heat(share))) {
        [None, None] => {}
        [Some(upper), None] => {
            cell.set_char('▀').set_style(Style::new().fg(upper));
        }
        [None, Some(lower)] => {
            cell.set_char('▄').set_style(Style::new().fg(lower));
        }
        [Some(upper), Some(lower)] => {
            cell.set_char('▀')
                .set_style(Style::new().fg(upper).bg(lower));
        }
    }
}

impl HeatMap<'_> {
    /// The colour share of a value; `None` if it is masked.
    fn seen(&self, value: Option<f32>) -> Option<f32> {
        let seen = value.filter(|value| *value != f32::NEG_INFINITY);
        seen.map(|value| self.scale.share(value))
    }

    /// Draws a mark in the middle of the selected cell, which keeps its colour, and lines to it across masked cells.
    fn draw_crosshair(&self, area: Rect, buffer: &mut Buffer) {
        let Some((row, col)) = self.crosshair else {
            return;
        };
        let (height, width) = (2 * area.height as usize, area.width as usize);
        let rows = self.pixels_of(self.window.first_query, row, height);
        let columns = self.pixels_of(self.window.first_key, col, width);
        // Prefer a terminal row that shows only the selected query.
        let at_row = rows.map(|rows| {
            let is_whole = |y: &usize| rows.contains(&(2 * y)) && rows.contains(&(2 * y + 1));
            let all = rows.start / 2..rows.end.div_ceil(2);
            let whole: Vec<usize> = all.clone().filter(is_whole).collect();
            let y = whole.get(whole.len() / 2).copied().unwrap_or(all.start);
            (y, usize::from(!rows.contains(&(2 * y))))
        });
        let at_column = columns.map(|columns| (columns.start + columns.end - 1) / 2);
        let level = self.level();
        let is_bare = |x: usize, y: usize| {
            let values = [2 * y, 2 * y + 1].map(|y| self.value(level, x, y));
            values != [None, None] && values.map(|value| self.seen(value)) == [None, None]
        };
        let cell_at = |x: usize, y: usize| (area.x + x as u16, area.y + y as u16);
        let guide = self.theme.dim();
        if let Some((y, _)) = at_row {
            for x in (0..width).filter(|x| is_bare(*x, y)) {
                buffer[cell_at(x, y)].set_char('─').set_style(guide);
            }
        }
        if let Some(x) = at_column {
            for y in (0..area.height as usize).filter(|y| is_bare(x, *y)) {
                buffer[cell_at(x, y)].set_char('│').set_style(guide);
            }
        }
        if let (Some((y, half)), Some(x)) = (at_row, at_column) {
            let share = self.seen(self.value(level, x, 2 * y + half));
            let style = match share.filter(|_| self.theme.has_colour()) {
                Some(share) => Style::new()
                    .fg(self.theme.on_heat(share))
                    .bg(self.theme.heat(share)),
                None => Style::new().fg(Color::Reset).bg(Color::Reset),
            };
            buffer[cell_at(x, y)].set_char('◆').set_style(style);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_terminal::theme::Depth;

    #[test]
    fn the_scale_that_fits_is_the_largest_that_shows_every_cell() {
        assert_eq!(Window::zoom_to_fit(20, 20, 60, 60), 3);
        assert_eq!(Window::zoom_to_fit(60, 60, 60, 60), 1);
        assert_eq!(Window::zoom_to_fit(61, 61, 60, 60), -1);
        assert_eq!(Window::zoom_to_fit(1000, 1000, 60, 60), -5);
    }

    #[test]
    fn a_logarithmic_scale_spreads_small_probabilities_and_keeps_nan() {
        let log = Scale {
            low: 0.0,
            high: 1.0,
            is_log: true,
        };
        let linear = Scale {
            is_log: false,
            ..log
        };
        assert!(log.share(0.01) > 0.4 && linear.share(0.01) < 0.02);
        assert!(log.share(f32::NAN).is_nan() && linear.share(f32::NAN).is_nan());
        assert_eq!(log.share(0.0), 0.0);
    }

    #[test]
    fn two_rows_of_a_map_share_one_terminal_row() {
        let theme = Theme::new(Depth::Truecolor);
        let mut pooled = Pooled::with_cells(2, 1, 2);
        pooled.add_row(0, &[1.0]);
        let map = HeatMap {
            theme: &theme,
            values: &Pyramid::new(pooled),
            window: Window::whole(Ratio::of_zoom(1)),
            scale: Scale {
                low: 0.0,
                high: 1.0,
                is_log: false,
            },
            crosshair: None,
        };
        let area = Rect::new(0, 0, 2, 1);
        let mut buffer = Buffer::empty(area);
        map.render(area, &mut buffer);
        assert_eq!(buffer[(0, 0)].symbol(), "▀");
        assert_eq!(buffer[(0, 0)].fg, theme.heat(1.0));
        assert_eq!(buffer[(0, 0)].bg, theme.heat(0.0));
        assert_eq!(
            buffer[(1, 0)].symbol(),
            " ",
            "nothing is drawn outside the matrix"
        );
    }

    /// Draws a matrix whose cell (row, column) is its row plus its column, divided by the largest.
    fn drawn(n: usize, pixels: (usize, usize), crosshair: Option<(usize, usize)>) -> Buffer {
        let theme = Theme::new(Depth::Truecolor);
        let mut finest = Pooled::with_cells(n, n, n);
        for row in 0..n {
            let cells: Vec<f32> = (0..n).map(|col| (row + col) as f32).collect();
            finest.add_row(row, &cells);
        }
        let area = Rect::new(0, 0, pixels.1 as u16, pixels.0 as u16 / 2);
        let mut buffer = Buffer::empty(area);
        HeatMap {
            theme: &theme,
            values: &Pyramid::new(finest),
            window: Window::whole(Ratio::to_fit(n, n, pixels.0, pixels.1)),
            scale: Scale {
                low: 0.0,
                high: 2.0 * (n - 1) as f32,
                is_log: false,
            },
            crosshair,
        }
        .render(area, &mut buffer);
        buffer
    }

    #[test]
    fn a_matrix_larger_than_its_area_fills_it_and_every_cell_is_in_one_pixel() {
        for n in [61, 100, 119, 512, 700, 1000, 4096] {
            let ratio = Ratio::to_fit(n, n, 60, 60);
            assert_eq!(ratio.pixels_for(n), 60, "{n}: {ratio:?}");
            let window = Window::whole(ratio);
            let mut next = 0;
            for pixel in 0..60 {
                let cells = window.cells_at(0, pixel);
                assert_eq!(cells.start, next, "{n}: pixel {pixel}");
                next = cells.end;
            }
            assert!(next >= n, "{n}: {next}");
        }
    }

    #[test]
    fn a_pixel_has_the_largest_value_of_its_cells_at_any_pooling() {
        let (n, side) = (50, 20);
        let buffer = drawn(n, (side, side), None);
        let theme = Theme::new(Depth::Truecolor);
        let last = |pixel: usize| (pixel + 1) * n / side - 1;
        for (x, y) in [(0, 0), (3, 7), (19, 19), (10, 5)] {
            let share = (last(x) + last(y)) as f32 / (2 * (n - 1)) as f32;
            let cell = &buffer[(x as u16, y as u16 / 2)];
            let shown = if y % 2 == 0 { cell.fg } else { cell.bg };
            assert_eq!(shown, theme.heat(share), "{x} {y}");
        }
    }

    #[test]
    fn the_crosshair_leaves_the_colours_of_cells_unchanged() {
        for n in [8, 20, 50] {
            let (plain, marked) = (drawn(n, (20, 20), None), drawn(n, (20, 20), Some((3, 5))));
            let is_mark = |symbol: &str| symbol == "◆";
            let mut n_marks = 0;
            for (before, after) in plain.content.iter().zip(&marked.content) {
                if is_mark(after.symbol()) {
                    n_marks += 1;
                    // The background is the colour of one of the two pixels that were there.
                    assert!([before.fg, before.bg].contains(&after.bg), "{after:?}");
                } else {
                    assert_eq!(before, after);
                }
            }
            assert_eq!(n_marks, 1, "{n}");
        }
    }

    #[test]
    fn a_fractional_scale_knows_the_nearest_zoom_below() {
        for (n, zoom) in [(20, 3), (60, 1), (61, -1), (512, -4), (1000, -5)] {
            assert_eq!(Ratio::to_fit(n, n, 60, 60).zoom(), zoom, "{n}");
        }
    }
}
