//! A heat map in half-blocks: two pixels per terminal cell, or a glyph if there is no colour.

use attnscope_compute::attention::Pooled;
use attnscope_run::Pyramid;
use attnscope_terminal::theme::Theme;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::widgets::Widget;

use super::hidden::Hidden;
use super::window::Window;

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

/// Part of a matrix as a picture.
#[derive(Debug, Clone)]
pub struct HeatMap<'a> {
    pub theme: &'a Theme,
    pub values: &'a Pyramid,
    pub hidden: Hidden<'a>,
    pub window: Window,
    pub scale: Scale,
    /// Selected row and column.
    pub crosshair: Option<(usize, usize)>,
}

impl HeatMap<'_> {
    /// The level whose cells are as large as parts of a pixel, or smaller: a part of its height and one of its width.
    pub fn level_at(&self, high: f64, wide: f64) -> usize {
        let Window { queries, keys } = self.window;
        let cells = (high * queries.ratio.cells_of_pixel()).min(wide * keys.ratio.cells_of_pixel());
        cells.log2().floor().max(0.0) as usize
    }

    fn level(&self) -> &Pooled {
        self.values.level(self.window.level())
    }

    /// The value of a pixel: the largest of its cells, −inf if all are hidden; `None` outside the matrix.
    fn value(&self, level: &Pooled, x: usize, y: usize) -> Option<f32> {
        let rows = self.window.queries.tiles_at(y, level.n_rows);
        let cols = self.window.keys.tiles_at(x, level.n_cols);
        if rows.is_empty() || cols.is_empty() {
            return None;
        }
        let all = (rows.clone()).flat_map(|row| cols.clone().map(move |col| level.at(row, col)));
        let value = all.reduce(|best, value| self.values.of_two(best, value))?;
        // A weight on a masked key is a fault, so it is shown.
        let is_hidden = value == 0.0 && self.hidden.hides(self.window.level(), rows, cols);
        Some(if is_hidden { f32::NEG_INFINITY } else { value })
    }

    /// The smallest and the largest finite value that an area shows; `None` if it shows none.
    pub fn extent(&self, area: Rect) -> Option<(f32, f32)> {
        let level = self.level();
        let pixels = (0..2 * area.height as usize)
            .flat_map(|y| (0..area.width as usize).filter_map(move |x| self.value(level, x, y)));
        let finite = pixels.filter(|value| value.is_finite());
        finite.fold(None, |ends, value| {
            let (low, high) = ends.unwrap_or((value, value));
            Some((value.min(low), value.max(high)))
        })
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
                draw_pixels(
                    self.theme,
                    &mut buffer[(area.x + col, area.y + row)],
                    shares,
                );
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
        let rows = self.window.queries.pixels_of(row, height);
        let columns = self.window.keys.pixels_of(col, width);
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
            hidden: Hidden::Nothing,
            window: Window::of_zoom(1, 1, 1),
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
            hidden: Hidden::Nothing,
            window: Window::to_fit((n, n), pixels),
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
}
