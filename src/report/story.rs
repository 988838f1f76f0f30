//! A story told in pages: each says one thing in a sentence or two, and shows it. Screens and commands tell the same one.

use super::chart::Chart;
use crate::analysis::Pyramid;

/// One page.
#[derive(Debug, Clone)]
pub struct Page {
    pub title: &'static str,
    pub words: String,
    pub picture: Picture,
}

/// What a page shows.
#[derive(Debug, Clone)]
pub enum Picture {
    Charts(Vec<Chart>),
    Table(Table),
    /// Side by side, to be compared.
    Maps(Vec<Map>),
    Passages(Vec<Passage>),
}

/// Rows of cells, each as long as the titles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub titles: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

/// A matrix with words on both sides: of each head of each layer, or one alone.
#[derive(Debug, Clone)]
pub struct Map {
    pub title: String,
    pub row_labels: Vec<String>,
    pub column_labels: Vec<String>,
    /// [layer][head]
    pub sheets: Vec<Vec<Sheet>>,
}

/// One matrix, and what its rows and columns sum to.
#[derive(Debug, Clone)]
pub struct Sheet {
    pub values: Pyramid,
    /// Empty where sums mean nothing. // [row]
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

impl Map {
    /// The matrix of a head; the first one where there is none of its own.
    pub fn sheet(&self, layer_idx: usize, head_idx: usize) -> Option<&Sheet> {
        let own = self.sheets.get(layer_idx).and_then(|of| of.get(head_idx));
        own.or_else(|| self.sheets.first()?.first())
    }

    /// Whether each head has a matrix of its own.
    pub fn is_of_heads(&self) -> bool {
        self.sheets.iter().map(Vec::len).sum::<usize>() > 1
    }
}

impl Sheet {
    /// A matrix whose sums mean nothing.
    pub fn without_sums(values: Pyramid) -> Self {
        Self {
            values,
            row_sums: Vec::new(),
            column_sums: Vec::new(),
        }
    }
}
