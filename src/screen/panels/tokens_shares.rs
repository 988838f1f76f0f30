//! The tokens that the selected one attends to, or that attend to it, as a list: where no predictions take the room below the text.

use std::cmp::Ordering;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::tokens_shades::{Shades, axes};
use crate::figure::{bar, cut_words, figure, fit};
use crate::state::scene::Scene;
use crate::widgets::frame::framed;

/// Columns of a token, of its weight, and of a whole entry at least.
const NAME: usize = 18;
const WEIGHT: usize = 8;
const LEAST: usize = 60;

/// Draws the list, the largest weight first, and why nothing is predicted.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, why: &str) {
    let shades = Shades::of(app);
    let values = shades.values.as_deref().unwrap_or_default();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| {
        let of = |idx: &usize| values[*idx];
        of(b).partial_cmp(&of(a)).unwrap_or(Ordering::Equal)
    });
    let inside = ratatui::widgets::Block::bordered().inner(area);
    let (width, height) = (usize::from(inside.width), usize::from(inside.height));
    // The last line says why nothing is predicted.
    let n_rows = height.saturating_sub(1);
    let n_columns = order
        .len()
        .div_ceil(n_rows.max(1))
        .min(width / LEAST)
        .max(1);
    let n_shown = (n_columns * n_rows).min(order.len());
    let what = if app.tokens_view.shows_received {
        "queries that give most"
    } else {
        "strongest keys"
    };
    let title = if n_shown < order.len() {
        format!(" {what} · {n_shown} of {} ", order.len())
    } else {
        format!(" {what} ")
    };
    framed(frame, area, app, title);
    let theme = &app.theme;
    let entry_width = width / n_columns;
    let n_bar = entry_width.saturating_sub(6 + NAME + 1 + WEIGHT + 2);
    let n_lines = n_shown.div_ceil(n_columns).min(n_rows);
    let mut lines: Vec<Line<'static>> = (0..n_lines)
        .map(|row| {
            let entries = (0..n_columns).filter_map(|column| order.get(column * n_lines + row));
            let spans = entries.flat_map(|idx| {
                let name = fit(&app.token(axes(app).1, *idx), NAME);
                let strip = fit(&bar(shades.at(*idx), n_bar), n_bar);
                let weight = figure(f64::from(values[*idx]), WEIGHT);
                [
                    Span::styled(format!(" {idx:>4} "), theme.dim()),
                    Span::raw(format!("{name} ")),
                    Span::styled(strip, theme.accent()),
                    Span::raw(format!("{weight}  ")),
                ]
            });
            Line::from(spans.collect::<Vec<_>>())
        })
        .collect();
    lines.push(Line::styled(
        format!(" {}", cut_words(why, width.saturating_sub(2))),
        theme.dim(),
    ));
    frame.render_widget(Paragraph::new(lines), inside);
}
