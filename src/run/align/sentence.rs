//! Words of one text and their rows in an embedding table.

use attnscope_checkpoint::embeddings::Table;
use attnscope_compute::error::{Error, Result};

/// Maximum number of words in a text: the whole map is kept in memory and drawn.
const MOST_WORDS: usize = 4096;

/// One word of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Lower-cased.
    pub text: String,
    /// Row index in the table; `None` for an unknown word, which gets a row of zeros.
    pub row: Option<usize>,
    /// Whether every number of its row is 0, for known and unknown words. All keys score alike for such a query.
    pub is_zero: bool,
}

impl Word {
    /// Label on the axes: `⟨nurse⟩?` for an unknown word, `⟨the⟩0` for a known word whose row is zero.
    pub fn label(&self) -> String {
        match (self.row, self.is_zero) {
            (None, _) => format!("⟨{}⟩?", self.text),
            (Some(_), true) => format!("⟨{}⟩0", self.text),
            (Some(_), false) => self.text.clone(),
        }
    }
}

/// One side of an alignment.
#[derive(Debug, Clone)]
pub struct Sentence {
    pub words: Vec<Word>,
    /// [word, width]
    pub vectors: Vec<f32>,
    pub width: usize,
}

impl Sentence {
    /// Lower-cases a text, splits it at whitespace, and reads the rows of its words.
    ///
    /// # Errors
    /// When there are no words or too many, or the table is damaged.
    pub(super) fn read(table: &Table, side: &str, text: &str) -> Result<Self> {
        let lower = text.to_lowercase();
        let words: Vec<&str> = lower.split_whitespace().collect();
        if !(1..=MOST_WORDS).contains(&words.len()) {
            let found = words.len();
            return Err(Error::Prompt(format!(
                "the {side} text: expected 1 to {MOST_WORDS} words, found {found}"
            )));
        }
        let width = table.embeddings.width;
        let rows: Vec<Option<usize>> = words
            .iter()
            .map(|word| table.dictionary.row(word))
            .collect();
        let known: Vec<usize> = rows.iter().flatten().copied().collect();
        let read = table.embeddings.rows(&known)?;
        let mut read = read.chunks(width);
        let mut vectors = Vec::with_capacity(words.len() * width);
        let mut found = Vec::new();
        for (word, row) in words.into_iter().zip(rows) {
            let before = vectors.len();
            if row.is_some() {
                vectors.extend_from_slice(read.next().unwrap_or_default());
            }
            vectors.resize(before + width, 0.0);
            found.push(Word {
                text: word.to_owned(),
                row,
                is_zero: vectors[before..].iter().all(|v| *v == 0.0),
            });
        }
        Ok(Self {
            words: found,
            vectors,
            width,
        })
    }

    pub fn text(&self) -> String {
        let words: Vec<&str> = self.words.iter().map(|word| word.text.as_str()).collect();
        words.join(" ")
    }

    /// Row indices as token ids; unknown words get `u32::MAX`.
    pub(super) fn tokens(&self) -> Vec<u32> {
        let id = |word: &Word| word.row.and_then(|row| u32::try_from(row).ok());
        let ids = self.words.iter().map(id);
        ids.map(|id| id.unwrap_or(u32::MAX)).collect()
    }

    /// Words that are not in the dictionary, once per occurrence.
    pub fn unknown(&self) -> Vec<&str> {
        let unknown = self.words.iter().filter(|word| word.row.is_none());
        unknown.map(|word| word.text.as_str()).collect()
    }

    /// Known words whose rows are zero.
    pub fn zero(&self) -> Vec<&str> {
        let zero = self
            .words
            .iter()
            .filter(|word| word.row.is_some() && word.is_zero);
        zero.map(|word| word.text.as_str()).collect()
    }
}
