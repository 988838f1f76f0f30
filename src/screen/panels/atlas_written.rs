//! The atlas while the model writes: what each head looked at for the last tokens, a row for each.

use std::sync::Arc;

use attnscope_spec::Stack;
use attnscope_worker::WrittenToken;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::atlas::{draw_head_numbers, draw_label};
use super::atlas_cells::{draw_map, map_area, mark_selected};
use super::atlas_layout::{BESIDE, Layout, Strip};
use crate::figure::{fit, token_label};
use crate::state::scene::Scene;
use crate::state::writing_view::WritingView;
use crate::widgets::frame::framed;
use crate::widgets::thumbnail::Thumbnail;

/// Rows of a box from which one is left for the legend.
const WITH_LEGEND: u16 = 10;

/// Draws every head that fits, around the selected one.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, view: &WritingView) {
    let stack = app.selection.stack;
    let n_legend = u16::from(area.height >= WITH_LEGEND);
    let layout = Layout::of(app, area, stack, n_legend);
    let title = if layout.is_whole(app) {
        " every head ".to_owned()
    } else {
        let (layers, heads) = (&layout.layers, &layout.heads);
        let last = |range: &std::ops::Range<usize>| range.end.saturating_sub(1);
        format!(
            " L{}–{} · H{}–{} ",
            layers.start,
            last(layers),
            heads.start,
            last(heads)
        )
    };
    framed(frame, area, app, title);
    let Some((at, _)) = view.shown() else { return };
    let n_half_rows = layout.cell.pixels.1.max(1);
    let tokens = &view.tokens()[..=at];
    let tokens = &tokens[tokens.len().saturating_sub(n_half_rows)..];
    let buffer = frame.buffer_mut();
    if layout.cell.strip == Strip::Left {
        draw_head_numbers(buffer, app, &layout);
    }
    for (nth_row, row) in layout.rows.iter().enumerate() {
        let is_first = nth_row == 0 || layout.rows[nth_row - 1].layer_idx != row.layer_idx;
        let label = layout.cell_at(nth_row, 0);
        draw_label(buffer, app, stack, (row.layer_idx, is_first), label);
        for (nth_head, head_idx) in row.heads.clone().enumerate() {
            let area = layout.cell_at(nth_row, nth_head);
            let head = (stack, row.layer_idx, head_idx);
            let picture = picture(view, tokens, head, layout.cell.pixels);
            let map = map_area(area, layout.cell.strip);
            draw_map(buffer, map, &app.theme, &picture, picture.by_row());
            if layout.cell.strip == Strip::Above {
                let text = looked_at(view, tokens, head);
                let width = usize::from(area.width.saturating_sub(BESIDE));
                let style = app.theme.dim();
                buffer.set_stringn(area.x + 1, area.y, fit(&text, width), width, style);
            }
            mark_selected(buffer, app, (head, layout.cell.strip), area);
        }
    }
    if n_legend > 0 {
        let n = tokens.len();
        let words = match n {
            1 => " row: the token".to_owned(),
            n => format!(" rows: the last {n} tokens, the newest lowest"),
        };
        let words = format!("{words} · columns: keys · √ of weight ÷ row's largest");
        let below = Rect {
            y: layout.inside.bottom().saturating_sub(1),
            height: 1,
            ..layout.inside
        };
        let line = Line::styled(fit(&words, below.width.into()), app.theme.dim());
        frame.render_widget(line, below);
    }
}

/// The rows of a head, in a picture whose columns stay where they are while the text grows.
fn picture(
    view: &WritingView,
    tokens: &[Arc<WrittenToken>],
    head: (Stack, usize, usize),
    most: (usize, usize),
) -> Thumbnail {
    let n_keys = match (&view.keys, head.0) {
        (Some(keys), Stack::Cross) => keys.len(),
        _ => view.given.len() + view.n_most,
    };
    let rows = tokens.iter().map(|token| token.rows.get(&head));
    let rows: Vec<&[f32]> = rows.map(|row| row.map_or(&[][..], Vec::as_slice)).collect();
    Thumbnail::of_rows(&rows, n_keys, most)
}

/// The head, and the token that it looked at most for the selected token.
fn looked_at(
    view: &WritingView,
    tokens: &[Arc<WrittenToken>],
    head: (Stack, usize, usize),
) -> String {
    let row = tokens.last().and_then(|token| token.rows.get(&head));
    let strongest = row.and_then(|row| {
        let keys = row.iter().enumerate();
        keys.max_by(|a, b| a.1.total_cmp(b.1))
    });
    match strongest {
        Some((key, _)) => {
            let label = token_label(view.label(head.0 == Stack::Cross, key));
            format!("H{} {label}", head.2)
        }
        None => format!("H{}", head.2),
    }
}
