//! The cells of an atlas: a head's map in its room, and the bars beside the selected one.

use attnscope_spec::Stack;
use attnscope_terminal::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;

use super::atlas_layout::{BESIDE, Strip};
use crate::state::scene::Scene;
use crate::widgets::heatmap::draw_pixels;
use crate::widgets::thumbnail::Thumbnail;

/// A weight whose glyph is blank, where there is no colour.
const NEARLY_NONE: char = '·';

/// The part of a head's area that its map may fill.
pub(super) fn map_area(area: Rect, strip: Strip) -> Rect {
    let is_above = strip == Strip::Above;
    Rect {
        x: area.x + if is_above { 1 } else { BESIDE },
        y: area.y + u16::from(is_above),
        width: area.width.saturating_sub(BESIDE),
        height: area.height.saturating_sub(u16::from(is_above)),
    }
}

/// Draws bars on both sides of a head, if it is the selected one.
pub(super) fn mark_selected(
    buffer: &mut Buffer,
    app: Scene<'_>,
    (head, strip): ((Stack, usize, usize), Strip),
    area: Rect,
) {
    let at = app.selection;
    if (at.stack, at.layer_idx, at.head_idx) != head {
        return;
    }
    // The gap before the next head, or the end of the strip.
    let right = area.right() - u16::from(strip == Strip::Above);
    for y in area.y..area.bottom() {
        put(buffer, (area.x, y), '▐', app.theme.strong());
        put(buffer, (right, y), '▌', app.theme.strong());
    }
}

pub(super) fn put(buffer: &mut Buffer, at: (u16, u16), shown: char, style: Style) {
    if buffer.area().contains(Position::from(at)) {
        let cell = &mut buffer[at];
        cell.reset();
        cell.set_char(shown).set_style(style);
    }
}

/// Draws a picture from the upper left corner of its area, two pixels a cell.
pub(super) fn draw_map(
    buffer: &mut Buffer,
    area: Rect,
    theme: &Theme,
    picture: &Thumbnail,
    share: impl Fn(usize, usize) -> Option<f32>,
) {
    let n_rows = picture.height.div_ceil(2).min(area.height.into());
    for row in 0..n_rows {
        for x in 0..picture.width.min(area.width.into()) {
            let shares = [2 * row, 2 * row + 1].map(|y| share(x, y));
            let at = (area.x + x as u16, area.y + row as u16);
            if buffer.area().contains(Position::from(at)) {
                let cell = &mut buffer[at];
                draw_pixels(theme, cell, shares);
                // Without colours, a dot tells a small weight from a masked key.
                if cell.symbol() == " " && shares.iter().any(Option::is_some) {
                    cell.set_char(NEARLY_NONE);
                }
            }
        }
    }
}
