//! A story without a screen: its pages as text.

use attnscope_report::chart::Figure;
use attnscope_report::{Map, Page, Picture, text_table, wrapped};
use attnscope_screen::{figure_text, terminal_width};

/// Columns of text that goes to no terminal.
const WIDTH: u16 = 110;

/// Every page, one after the other.
pub fn told(pages: &[Page]) -> String {
    let width = terminal_width().unwrap_or(WIDTH).clamp(60, 160);
    let texts: Vec<String> = pages
        .iter()
        .enumerate()
        .map(|(nth, page)| {
            let heading = format!("{} · {}\n\n", nth + 1, page.title);
            heading + &wrapped(&page.words, width as usize, "") + "\n" + &picture(page, width)
        })
        .collect();
    texts.join("\n")
}

fn picture(page: &Page, width: u16) -> String {
    match &page.picture {
        Picture::Charts(charts) => {
            let figure = Figure {
                title: String::new(),
                charts: charts.clone(),
                n_columns: 2,
            };
            figure_text(&figure, width).trim_start().to_owned()
        }
        // A terminal would break lines in the middle of numbers.
        Picture::Table(table) => {
            let most = terminal_width().map_or(usize::MAX, usize::from);
            table.text_within(most).0
        }
        Picture::Maps(maps) => maps.iter().map(map).collect(),
        Picture::Passages(passages) => {
            let paragraph = |text: &str| wrapped(&format!("  {text}"), width as usize, "    ");
            let passage = |title: &str, text: &str| {
                let text: String = text.lines().map(paragraph).collect();
                format!("{title}\n{text}")
            };
            let texts = passages.iter().map(|of| passage(&of.title, &of.text));
            texts.collect()
        }
    }
}

/// The largest cell of each row: a map of words would be as wide as the text is long.
fn map(map: &Map) -> String {
    let Some(sheet) = map.sheet(0, 0) else {
        return String::new();
    };
    let finest = sheet.values.finest();
    let rows = finest.cells.chunks(finest.n_cols.max(1)).enumerate();
    let rows: Vec<Vec<String>> = rows
        .filter_map(|(idx, cells)| {
            let label = map.row_labels.get(idx * finest.queries_per_cell)?;
            let most = cells.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            let (column, value) = most?;
            let at = map.column_labels.get(column * finest.keys_per_cell)?;
            let at = if *value > 0.0 { at.as_str() } else { "nowhere" };
            let sum = sheet.row_sums.get(idx).map(|sum| format!("{sum:.2}"));
            let cells = [label.clone(), at.to_owned(), format!("{value:.3}")];
            Some(cells.into_iter().chain(sum).collect())
        })
        .collect();
    let place = if map.is_of_heads() { ", L0 H0" } else { "" };
    let titles = ["row", "most at", "value", "row sum"];
    let n_columns = rows.first().map_or(0, Vec::len);
    let table = text_table(&titles[..n_columns], &rows);
    format!("{}{place}\n{table}\n", map.title)
}
