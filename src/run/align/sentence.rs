//! The words of one text, and the rows of a table that stand for them.

use attnscope_checkpoint::embeddings::Table;
use attnscope_compute::error::{Error, Result};

/// Words of a text at most: the whole map is held and drawn.
const MOST_WORDS: usize = 4096;

/// One word of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Lower-cased.
    pub text: String,
    /// Its row; `None` for a word that the dictionary does not have, which stands as a row of zeros.
    pub row: Option<usize>,
    /// Every number of its row is 0, known or not: it has no direction, and all keys are alike to it.
    pub is_zero: bool,
}

impl Word {
    /// As axes show it: `⟨nurse⟩?` for a word that is not known, `⟨the⟩0` for a known one whose row is zero.
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
    /// Lower-cases a text, splits it at blanks, and reads the rows of its words.
    ///
    /// # Errors
    /// When there are no words or too many, or the table turns out to be damaged.
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

    /// Rows as ids; a word that is not known has the largest there is.
    pub(super) fn tokens(&self) -> Vec<u32> {
        let id = |word: &Word| word.row.and_then(|row| u32::try_from(row).ok());
        let ids = self.words.iter().map(id);
        ids.map(|id| id.unwrap_or(u32::MAX)).collect()
    }

    /// Words that the dictionary does not have, once for each time they stand there.
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
