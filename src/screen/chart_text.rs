//! Charts as plain text, for commands: the cells of the screen without colour.

use attnscope_report::chart::Figure;
use attnscope_terminal::theme::{Depth, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::widgets::chart::draw_chart;

/// Columns that a chart needs when it is next to others.
const LEAST_WIDTH: u16 = 19;
/// Rows of charts side by side, and of a single chart.
const ROWS: u16 = 13;
const ROWS_ALONE: u16 = 20;

/// Columns of the terminal behind standard output; `None` if it is not a terminal.
pub fn terminal_width() -> Option<u16> {
    use std::io::IsTerminal;
    if !std::io::stdout().is_terminal() {
        return None;
    }
    crossterm::terminal::size().ok().map(|(width, _)| width)
}

/// Renders a figure as lines of at most `width` columns, its title first.
pub fn figure_text(figure: &Figure, width: u16) -> String {
    let theme = Theme::new(Depth::None);
    let mut text = figure.title.clone() + "\n\n";
    let fits = (width / LEAST_WIDTH).max(1) as usize;
    let most = figure
        .n_columns
        .clamp(1, fits)
        .min(figure.charts.len().max(1));
    // Spread charts evenly: four charts, of which three fit in a row, become two rows of two.
    let n_rows = figure.charts.len().div_ceil(most);
    let n_columns = figure.charts.len().div_ceil(n_rows.max(1)).max(1);
    let height = match figure.charts.len() {
        0 | 1 => ROWS_ALONE,
        _ => ROWS,
    };
    for row in figure.charts.chunks(n_columns) {
        let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
        let each = width / n_columns as u16;
        for (nth, chart) in row.iter().enumerate() {
            // One column stays free before the next chart.
            let area = Rect::new(nth as u16 * each, 0, each - 1, height);
            draw_chart(chart, area, &mut buf, &theme);
        }
        text += &lines_of(&buf);
        text.push('\n');
    }
    text
}

fn lines_of(buf: &Buffer) -> String {
    let rows = buf.content().chunks(buf.area.width as usize);
    let line = |row: &[ratatui::buffer::Cell]| {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    };
    rows.map(line).collect()
}
