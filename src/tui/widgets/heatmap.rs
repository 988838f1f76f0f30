//! A heat map in half-blocks: two pixels to a terminal cell, or a glyph where there is no colour.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::widgets::Widget;

use crate::tui::theme::Theme;
use attnscope_engine::analysis::Pyramid;
use attnscope_engine::attention::Pooled;

/// How values become shares of the colour scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    pub low: f32,
    pub high: f32,
    pub is_log: bool,
}

/// Logarithmic colour of a pattern begins here: smaller probabilities are all dark.
pub const LOG_FLOOR: f32 = 1e-4;

impl Scale {
    /// From 0 to 1; NaN stays NaN.
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

/// Pixels per cell when 1 or more; 2^−zoom cells per pixel when 0 or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub first_query: usize,
    pub first_key: usize,
    pub zoom: i32,
}

impl Window {
    fn pixels_per_cell(&self) -> usize {
        self.zoom.max(1) as usize
    }

    fn level(&self) -> usize {
        (-self.zoom).max(0) as usize
    }

    /// The cell of the finest level under a pixel, counted from the window's start.
    pub fn cell_at(&self, first: usize, pixel: usize) -> usize {
        if self.zoom >= 1 {
            first + pixel / self.pixels_per_cell()
        } else {
            first + (pixel << self.level())
        }
    }

    /// How many cells some pixels show.
    pub fn cells_in(&self, n_pixels: usize) -> usize {
        if self.zoom >= 1 {
            n_pixels / self.pixels_per_cell()
        } else {
            n_pixels << self.level()
        }
    }

    /// The largest scale at which n × n cells fit some pixels.
    pub fn zoom_to_fit(n_rows: usize, n_cols: usize, rows: usize, cols: usize) -> i32 {
        let fits = |zoom: i32| {
            let window = Self {
                first_query: 0,
                first_key: 0,
                zoom,
            };
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
    /// Row and column that are marked.
    pub crosshair: Option<(usize, usize)>,
}

impl HeatMap<'_> {
    fn level(&self) -> &Pooled {
        self.values.level(self.window.level())
    }

    /// The value under a pixel; `None` outside the matrix.
    fn value(&self, level: &Pooled, x: usize, y: usize) -> Option<f32> {
        let shift = self.window.level();
        let row_idx = self.window.cell_at(self.window.first_query, y) >> shift;
        let col_idx = self.window.cell_at(self.window.first_key, x) >> shift;
        (row_idx < level.n_rows && col_idx < level.n_cols).then(|| level.at(row_idx, col_idx))
    }

    /// Whether a pixel lies on the marked row or column, and on both.
    fn marks(&self, x: usize, y: usize) -> (bool, bool) {
        let Some((row, col)) = self.crosshair else {
            return (false, false);
        };
        let shift = self.window.level();
        let on_row = self.window.cell_at(self.window.first_query, y) >> shift == row >> shift;
        let on_col = self.window.cell_at(self.window.first_key, x) >> shift == col >> shift;
        (on_row != on_col, on_row && on_col)
    }

    fn colour(&self, level: &Pooled, x: usize, y: usize) -> Option<Color> {
        let value = self.value(level, x, y)?;
        let (is_marked, is_crossing) = self.marks(x, y);
        // Masked cells have no value: the bare background, faintly marked where the crosshair passes.
        if value == f32::NEG_INFINITY {
            return is_marked.then(|| self.theme.heat(0.0));
        }
        let share = self.scale.share(value);
        Some(match (is_marked, is_crossing) {
            (_, true) => self.theme.heat_marked(1.0),
            (true, _) => self.theme.heat_marked(share),
            _ => self.theme.heat(share),
        })
    }
}

impl Widget for HeatMap<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let level = self.level();
        for row in 0..area.height {
            for col in 0..area.width {
                let (x, y) = (col as usize, 2 * row as usize);
                let cell = &mut buffer[(area.x + col, area.y + row)];
                if self.theme.has_colour() {
                    match (self.colour(level, x, y), self.colour(level, x, y + 1)) {
                        (None, None) => {}
                        (Some(upper), None) => {
                            cell.set_char('▀').set_style(Style::new().fg(upper));
                        }
                        (None, Some(lower)) => {
                            cell.set_char('▄').set_style(Style::new().fg(lower));
                        }
                        (Some(upper), Some(lower)) => {
                            cell.set_char('▀')
                                .set_style(Style::new().fg(upper).bg(lower));
                        }
                    }
                    continue;
                }
                let shares = [y, y + 1].map(|y| {
                    self.value(level, x, y)
                        .filter(|v| *v != f32::NEG_INFINITY)
                        .map(|v| self.scale.share(v))
                });
                let is_crossing = self.marks(x, y).1 || self.marks(x, y + 1).1;
                if is_crossing {
                    cell.set_char('◆');
                } else if let Some(share) = shares
                    .into_iter()
                    .flatten()
                    .reduce(|a, b| if a >= b || a.is_nan() { a } else { b })
                {
                    cell.set_char(self.theme.glyph(share));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::Depth;

    #[test]
    fn the_scale_that_fits_is_the_largest_that_shows_everything() {
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
            window: Window {
                first_query: 0,
                first_key: 0,
                zoom: 1,
            },
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
}
