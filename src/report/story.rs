//! A story told in pages: each makes one point in a sentence or two, with a picture. Screens and commands share the pages.

use attnscope_run::Pyramid;

use super::chart::Chart;
use super::text_table::{n_columns_within, text_table};

/// One page.
#[derive(Debug, Clone)]
pub struct Page {
    pub title: &'static str,
    pub words: String,
    pub picture: Picture,
}

/// Content of a page.
#[derive(Debug, Clone)]
pub enum Picture {
    Charts(Vec<Chart>),
    Table(Table),
    /// Maps side by side, for comparison.
    Maps(Vec<Map>),
    Passages(Vec<Passage>),
}

/// A table; each row has as many cells as there are titles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub titles: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

/// A matrix with labels on both sides: one per layer and head, or a single one.
#[derive(Debug, Clone)]
pub struct Map {
    pub title: String,
    pub row_labels: Vec<String>,
    pub column_labels: Vec<String>,
    /// Whether it shows patterns of the model's heads, of which its mask hides cells.
    pub is_pattern: bool,
    /// [layer][head]
    pub sheets: Vec<Vec<Sheet>>,
}

/// A matrix with the sums of its rows and columns.
#[derive(Debug, Clone)]
pub struct Sheet {
    pub values: Pyramid,
    /// Empty if sums mean nothing. // [row]
    pub row_sums: Vec<f32>,
    /// [column]
    pub column_sums: Vec<f32>,
}

/// A text with a heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    pub title: String,
    pub text: String,
}

impl Table {
    /// Formats the table within a width, and returns how many columns were left out: a number cut short would be wrong.
    pub fn text_within(&self, width: usize) -> (String, usize) {
        let Self { titles, rows } = self;
        let n = n_columns_within(titles, rows, width)
            .max(1)
            .min(titles.len());
        let fitting: Vec<Vec<String>> = rows.iter().map(|row| row[..n].to_vec()).collect();
        (text_table(&titles[..n], &fitting), titles.len() - n)
    }
}

impl Map {
    /// Returns a head's matrix; the first one if heads have none of their own.
    pub fn sheet(&self, layer_idx: usize, head_idx: usize) -> Option<&Sheet> {
        let own = self.sheets.get(layer_idx).and_then(|of| of.get(head_idx));
        own.or_else(|| self.sheets.first()?.first())
    }

    /// Whether each head has its own matrix.
    pub fn is_of_heads(&self) -> bool {
        self.sheets.iter().map(Vec::len).sum::<usize>() > 1
    }
}

impl Sheet {
    /// Makes a matrix without sums.
    pub fn without_sums(values: Pyramid) -> Self {
        Self {
            values,
            row_sums: Vec::new(),
            column_sums: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_table_drops_whole_columns_but_never_the_first() {
        let table = Table {
            titles: vec!["word", "loss", "right"],
            rows: vec![vec![
                "thousand".to_owned(),
                "0.25".to_owned(),
                "1".to_owned(),
            ]],
        };
        let (whole, n_left_out) = table.text_within(80);
        assert_eq!(
            (whole.lines().next(), n_left_out),
            (Some("word      loss  right"), 0)
        );
        let (text, n_left_out) = table.text_within(15);
        assert_eq!(
            (text.as_str(), n_left_out),
            ("word      loss\nthousand  0.25\n", 1)
        );
        assert_eq!(table.text_within(3).1, 2);
    }
}
