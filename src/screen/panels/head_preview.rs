//! A small map of a head, with its type and the chosen statistic: what a line of the palette stands for.

use attnscope_spec::{Place, Stack};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::atlas::thumbnails;
use super::atlas_cells::draw_map;
use super::grid_scale::grid_theme;
use super::head_value::value;
use crate::figure::{cut, figure};
use crate::state::scene::Scene;

/// Draws the head's map in the upper part of an area, below two lines of text.
pub fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    app: Scene<'_>,
    (stack, layer_idx, head_idx): (Stack, usize, usize),
) {
    let layer = app.layer_of(stack, layer_idx);
    let Some(head) = layer.and_then(|layer| layer.heads.get(head_idx)) else {
        return;
    };
    let inside = Rect {
        x: area.x + 2,
        width: area.width.saturating_sub(3),
        ..area
    };
    let width = usize::from(inside.width);
    let place = Place::layer(stack, layer_idx).head(head_idx);
    let kind = head
        .kind
        .map_or(String::new(), |kind| format!(" · {}", kind.title()));
    let is_per_head = app.statistic().is_per_head() || app.shows_distance();
    let number = value(app, stack, layer_idx, is_per_head.then_some(head_idx));
    let told = format!("{} {}", app.statistic().title, figure(number, 6).trim());
    let theme = &app.theme;
    let lines = [
        Line::styled(cut(&format!("{place}{kind}"), width), theme.strong()),
        Line::styled(cut(&told, width), theme.dim()),
    ];
    for (row, line) in lines.into_iter().enumerate() {
        let at = Rect {
            y: inside.y + row as u16,
            height: 1,
            ..inside
        };
        frame.render_widget(line, at.intersection(area));
    }
    let map = Rect {
        y: inside.y + 3,
        height: inside.height.saturating_sub(3),
        ..inside
    };
    let most = (width, 2 * usize::from(map.height));
    let side = most.0.min(most.1);
    let heads = (layer_idx, head_idx..head_idx + 1);
    let Some(picture) = thumbnails(app, stack, heads, (side, side)).pop().flatten() else {
        return;
    };
    let (theme, buffer) = (grid_theme(app), frame.buffer_mut());
    if app.grid_differs() {
        let largest = picture.largest();
        draw_map(buffer, map, &theme, &picture, picture.by_change(largest));
    } else {
        draw_map(buffer, map, &theme, &picture, picture.by_row());
    }
}
