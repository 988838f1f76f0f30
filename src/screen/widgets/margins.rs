//! Margins of a heat map: a label and a bar for each row, and for each column below it.

use attnscope_terminal::theme::Theme;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use super::window::Side;
use crate::figure::{bar, cut, fit};

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Longest row labels of which two stand side by side.
const OF_TWO: u16 = 10;
/// Beyond so many tokens, column labels are taken to be long without looking.
const MANY: usize = 256;

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

    /// The rows that column labels need to be uncut, if each cell has so many columns.
    pub fn rows_needed(n: usize, label: &dyn Fn(usize) -> String, columns_per_cell: usize) -> u16 {
        if n > MANY {
            return u16::MAX;
        }
        let longest = (0..n).map(|idx| label(idx).width()).max();
        let rows = (longest.unwrap_or(0) + 1).div_ceil(columns_per_cell.max(1));
        u16::try_from(rows).unwrap_or(u16::MAX)
    }
}

/// Whether the labels of two rows of a map that share a terminal row fit side by side.
pub fn has_two_columns(n_labels: u16) -> bool {
    n_labels >= 2 * OF_TWO
}

/// Draws row labels in `n_labels` columns left of the map, and their bars in `n_bars` right of it, one column apart.
pub fn draw_rows(
    frame: &mut Frame<'_>,
    map: Rect,
    theme: &Theme,
    side: Side,
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
        let [upper, lower] = [0, 1].map(|half| side.cells_at(2 * row as usize + half));
        let [upper, lower] =
            [upper, lower].map(|cells| cells.start * margin.pooling..cells.end * margin.pooling);
        let covered = upper.start..lower.end;
        if covered.start >= margin.n {
            break;
        }
        let selected = margin
            .selected
            .filter(|selected| covered.contains(selected));
        let query = selected.unwrap_or(covered.start);
        let mut write = |query: usize, x: u16, width: u16| {
            let (style, _) = margin.styles(theme, margin.selected == Some(query));
            let text = cut(&(margin.label)(query), width as usize);
            let text = format!("{text:>width$}", width = width as usize);
            frame.render_widget(
                Line::styled(fit(&text, width as usize), style),
                at(x, row, width),
            );
        };
        let x = map.x - n_labels;
        // Two rows of the map may share a terminal row.
        let of_each = [upper, lower].map(|half| {
            let selected = selected.filter(|selected| half.contains(selected));
            selected.unwrap_or(half.start)
        });
        if has_two_columns(n_labels) && of_each[0] != of_each[1] {
            let width = n_labels / 2 - 1;
            for (half, query) in of_each.into_iter().enumerate() {
                if query < margin.n && last_labelled != Some(query) {
                    write(query, x + half as u16 * (width + 1), width);
                }
                last_labelled = Some(query);
            }
        } else {
            if last_labelled != Some(query) {
                write(query, x, n_labels.saturating_sub(1));
            }
            last_labelled = Some(query);
        }
        let (_, bar_style) = margin.styles(theme, selected.is_some());
        if let Some(share) = (margin.share)(query) {
            let width = n_bars.saturating_sub(1);
            let line = Line::styled(bar(share, width as usize), bar_style);
            frame.render_widget(line, at(map.right() + 1, row, width));
        }
    }
}

/// Draws column bars in the row below the map, and their labels below in `n_labels` rows. Labels are read across: each begins under
/// its column, one row below the label before it, so that it has the width of `n_labels` cells.
pub fn draw_columns(
    frame: &mut Frame<'_>,
    map: Rect,
    theme: &Theme,
    side: Side,
    margin: &Margin<'_>,
    n_labels: u16,
) {
    let mut labelled: Vec<(u16, usize)> = Vec::new();
    for col in 0..map.width {
        let cells = side.cells_at(col as usize);
        let covered = cells.start * margin.pooling..cells.end * margin.pooling;
        if covered.start >= margin.n {
            break;
        }
        let selected = margin
            .selected
            .filter(|selected| covered.contains(selected));
        let (_, style) = margin.styles(theme, selected.is_some());
        let most = covered
            .clone()
            .filter_map(margin.share)
            .fold(0.0f32, f32::max);
        let eighth = (most * 8.0).round() as usize;
        let at = Rect {
            x: map.x + col,
            y: map.bottom(),
            width: 1,
            height: 1,
        };
        frame.render_widget(Line::styled(EIGHTHS[eighth.min(8)], style), at);
        let key = selected.unwrap_or(covered.start);
        if labelled.last().is_none_or(|(_, last)| *last != key) {
            labelled.push((col, key));
        }
    }
    if n_labels == 0 {
        return;
    }
    let n = usize::from(n_labels);
    let buffer_end = frame.area().right();
    let mut write = |nth: usize, width: u16, style: Style| {
        let (col, key) = labelled[nth];
        let text = cut(&(margin.label)(key), usize::from(width));
        let at = Rect {
            x: map.x + col,
            y: map.bottom() + 1 + (nth % n) as u16,
            width: text.width() as u16,
            height: 1,
        };
        frame.render_widget(Line::styled(text, style), at);
    };
    // The last labels may run on to the right of the map.
    let end = (map.right() + LABELS_BEYOND).min(buffer_end.saturating_sub(1)) - map.x;
    let is_selected = |(_, key): &(u16, usize)| margin.selected == Some(*key);
    for nth in (0..labelled.len()).filter(|nth| !is_selected(&labelled[*nth])) {
        let next = labelled.get(nth + n).map_or(end, |(col, _)| *col);
        let width = (next.min(end)).saturating_sub(labelled[nth].0 + 1);
        write(nth, width, theme.dim());
    }
    // The selected one is never cut, and drawn over others.
    if let Some(nth) = labelled.iter().position(is_selected) {
        write(nth, end - labelled[nth].0, theme.selected());
    }
}

/// Columns to the right of a map into which its last labels may run.
const LABELS_BEYOND: u16 = 5;
