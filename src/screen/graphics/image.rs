//! A map as an image with a palette: the content of the screen's half-blocks, at pixel resolution.

use std::ops::Range;

use attnscope_terminal::theme::Theme;
use ratatui::layout::Rect;
use ratatui::style::Color;

use crate::widgets::heatmap::HeatMap;

/// Number of palette colours for the scale.
const N_SHARES: usize = 120;

/// Colour of the frame around the selected cell, which no map uses.
const MARK: [u8; 3] = [255, 80, 80];

/// An image with a palette; colour 0 is transparent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub width: usize,
    pub height: usize,
    /// Transparent, the colours of the scale, the colour of NaN, and the mark of the selected cell.
    pub palette: Vec<[u8; 3]>,
    /// Row by row. // [y, x]
    pub pixels: Vec<u8>,
}

/// The palette of a colour scale: transparent, its colours, and the colour of NaN.
pub struct Palette {
    pub colours: Vec<[u8; 3]>,
}

impl Palette {
    pub fn of(theme: &Theme) -> Self {
        let rgb = |colour: Color| match colour {
            Color::Rgb(r, g, b) => [r, g, b],
            _ => [0, 0, 0],
        };
        let theme = theme.in_all_colours();
        let shares = (0..N_SHARES).map(|i| i as f32 / (N_SHARES - 1) as f32);
        let mut colours = vec![[0, 0, 0]];
        colours.extend(shares.map(|share| rgb(theme.heat(share))));
        colours.push(rgb(theme.heat(f32::NAN)));
        Self { colours }
    }

    /// Index of a share of the scale; that of the transparent colour for none.
    pub fn index(share: Option<f32>) -> u8 {
        match share {
            None => 0,
            Some(share) if share.is_nan() => (1 + N_SHARES) as u8,
            Some(share) => 1 + (share * (N_SHARES - 1) as f32).round() as u8,
        }
    }
}

impl Image {
    /// Draws the map for an area whose cells have the given number of pixels.
    pub fn of(map: &HeatMap<'_>, area: Rect, cell: (u16, u16)) -> Self {
        let mut palette = Palette::of(map.theme).colours;
        palette.push(MARK);
        let (wide, high) = (usize::from(cell.0), usize::from(cell.1));
        let (width, height) = (
            usize::from(area.width) * wide,
            usize::from(area.height) * high,
        );
        let column = |x: usize| map.window.keys.place_at(x as f64 / wide as f64);
        let row = |y: usize| map.window.queries.place_at(2.0 * y as f64 / high as f64);
        let columns: Vec<usize> = (0..width).map(column).collect();
        let level = map.level_at(2.0 / high as f64, 1.0 / wide as f64);
        let rows: Vec<usize> = (0..height).map(row).collect();
        let mut pixels = Vec::with_capacity(width * height);
        for row_idx in &rows {
            let at = |column_idx: &usize| index(map, level, *row_idx, *column_idx);
            pixels.extend(columns.iter().map(at));
        }
        if let Some((query, key)) = map.crosshair
            && let Some(across) = frame_of(&columns, level, key)
            && let Some(down) = frame_of(&rows, level, query)
        {
            // Draw a frame around the selected cell, so that it keeps its colour.
            for y in down.clone() {
                for x in across.clone() {
                    let is_edge = y == down.start
                        || y + 1 == down.end
                        || x == across.start
                        || x + 1 == across.end;
                    if is_edge {
                        pixels[y * width + x] = (2 + N_SHARES) as u8;
                    }
                }
            }
        }
        Self {
            width,
            height,
            palette,
            pixels,
        }
    }
}

/// Palette index of a cell of the matrix.
fn index(map: &HeatMap<'_>, level: usize, row_idx: usize, column_idx: usize) -> u8 {
    let pooled = map.values.level(level);
    let (row, column) = (row_idx >> level, column_idx >> level);
    if row >= pooled.n_rows || column >= pooled.n_cols {
        return 0;
    }
    let value = pooled.at(row, column);
    let is_hidden = || (map.hidden).hides(level, row..row + 1, column..column + 1);
    if value == f32::NEG_INFINITY || value == 0.0 && is_hidden() {
        return 0;
    }
    Palette::index(Some(map.scale.share(value)))
}

/// Range of a cell's frame along one side, given the cells that its pixels show; `None` if the cell is not visible.
fn frame_of(shown: &[usize], level: usize, cell: usize) -> Option<Range<usize>> {
    let shows = |idx: &usize| idx >> level == cell >> level;
    let begins = shown.iter().position(shows)?;
    let n = shown[begins..].iter().take_while(|idx| shows(idx)).count();
    Some(begins.saturating_sub(1)..(begins + n + 1).min(shown.len()))
}
