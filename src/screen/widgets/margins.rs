//! Margins of a heat map: a label and a bar for each row, and for each column below it.

use attnscope_terminal::theme::Theme;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::heatmap::Window;
use crate::figure::{bar, cut, fit};

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// The margin along one side of a map.
pub struct Margin<'a> {
    /// Number of tokens, and tokens per cell.
    pub n: usize,
    pub pooling: usize,
    pub selected: Option<usize>,
    pub label: &'a dyn Fn(usize) -> String,
    /// Length of a token's bar, from 0 to 1; `None` draws none.
    pub share: &'a dyn Fn(usize) -> Option<f32>,
}

impl Margin<'_> {
    fn styles(&self, theme: &Theme, is_selected: bool) -> (Style, Style) {
        if is_selected {
            (theme.selected(), theme.accent())
        } else {
            (theme.dim(), theme.dim())
        }
    }
}

/// Draws row labels in `n_labels` columns left of the map, and their bars in `n_bars` right of it, one column apart.
pub fn draw_rows(
    frame: &mut Frame<'_>,
    map: Rect,
    theme: &Theme,
    window: Window,
    margin: &Margin<'_>,
    (n_labels, n_bars): (u16, u16),
) {
    let at = |x: u16, row: u16, width: u16| Rect {
        x,
        y: map.y + row,
        width,
        height: 1,
    };
    let mut last_labelled = None;
    for row in 0..map.height {
        let [upper, lower] =
            [0, 1].map(|half| window.cells_at(window.first_query, 2 * row as usize + half));
        let covered = upper.start * margin.pooling..lower.end * margin.pooling;
        if covered.start >= margin.n {
            break;
        }
        let selected = margin
            .selected
            .filter(|selected| covered.contains(selected));
        let query = selected.unwrap_or(covered.start);
        let (label_style, bar_style) = margin.styles(theme, selected.is_some());
        if last_labelled != Some(query) {
            let width = n_labels.saturating_sub(1);
            let text = cut(&(margin.label)(query), width as usize);
            let text = format!("{text:>width$}", width = width as usize);
            let line = Line::styled(fit(&text, width as usize), label_style);
            frame.render_widget(line, at(map.x - n_labels, row, width));
        }
        last_labelled = Some(query);
        if let Some(share) = (margin.share)(query) {
            let width = n_bars.saturating_sub(1);
            let line = Line::styled(bar(share, width as usize), bar_style);
            frame.render_widget(line, at(map.right() + 1, row, width));
        }
    }
}

/// Draws column bars in the row below the map, and their labels below, written downwards in `n_labels` rows.
pub fn draw_columns(
    frame: &mut Frame<'_>,
    map: Rect,
    theme: &Theme,
    window: Window,
    margin: &Margin<'_>,
    n_labels: u16,
) {
    let mut last_labelled = None;
    for col in 0..map.width {
        let cells = window.cells_at(window.first_key, col as usize);
        let covered = cells.start * margin.pooling..cells.end * margin.pooling;
        let first = covered.start;
        if first >= margin.n {
            break;
        }
        let selected = margin
            .selected
            .filter(|selected| covered.contains(selected));
        let (label_style, bar_style) = margin.styles(theme, selected.is_some());
        let mut write = |row: u16, text: &str, style: Style| {
            let at = Rect {
                x: map.x + col,
                y: map.bottom() + row,
                width: 1,
                height: 1,
            };
            frame.render_widget(Line::styled(text, style), at);
        };
        let most = covered.filter_map(margin.share).fold(0.0f32, f32::max);
        let eighth = (most * 8.0).round() as usize;
        write(0, EIGHTHS[eighth.min(8)], bar_style);
        let key = selected.unwrap_or(first);
        if last_labelled == Some(key) {
            continue;
        }
        last_labelled = Some(key);
        let label = cut(&(margin.label)(key), n_labels as usize);
        for (row, letter) in (1..=n_labels).zip(label.chars()) {
            write(row, &letter.to_string(), label_style);
        }
    }
}
