//! The text format of word2vec: a line for each word, the word and then its numbers; the first line may say how many there are.

use std::ops::Range;

use super::Dictionary;
use crate::checkpoint::map::Bytes;

/// A table of text: where each row stands.
#[derive(Debug)]
pub(super) struct Lines {
    bytes: Bytes,
    pub width: usize,
    /// The numbers of each row.
    rows: Vec<Range<usize>>,
    dictionary: Dictionary,
}

impl Lines {
    /// Finds every row and its word; numbers are read when they are asked for.
    ///
    /// # Errors
    /// One clause that names the line.
    pub fn read(bytes: Bytes) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes.as_slice()).map_err(|e| {
            let line = 1 + bytes.as_slice()[..e.valid_up_to()].iter().filter(|b| **b == b'\n').count();
            format!(
                "line {line} is no text: expected .npz, .npy, .safetensors, or the text format of word2vec"
            )
        })?;
        let mut lines = lines_of(text)
            .filter(|(_, line)| !line.is_empty())
            .peekable();
        let Some(first) = lines.next() else {
            return Err("holds nothing: expected a line for each word".to_owned());
        };
        let claimed = claims(first.1, lines.peek().map(|(_, line)| *line));
        let width = match claimed {
            Some((_, width)) => width,
            None => n_fields(first.1) - 1,
        };
        if width == 0 {
            return Err("line 1: expected a word and its numbers".to_owned());
        }
        let mut rows = Vec::new();
        let mut words = Vec::new();
        let own = claimed.is_none().then_some(first);
        for (start, line) in own.into_iter().chain(lines) {
            let at = || 1 + text[..start].matches('\n').count();
            let Some(from) = numbers_at(line, width) else {
                let found = n_fields(line) - 1;
                return Err(format!(
                    "line {}: expected a word and {width} numbers, found {found} numbers",
                    at()
                ));
            };
            let word = line[..from].trim_end();
            if word.is_empty() {
                return Err(format!("line {}: expected a word before the numbers", at()));
            }
            words.push((word.to_owned(), rows.len() as i64));
            rows.push(start + from..start + line.len());
        }
        if let Some((n, _)) = claimed.filter(|(n, _)| *n != rows.len()) {
            let found = rows.len();
            return Err(format!(
                "line 1 says {n} words, {found} follow: truncated or lengthened"
            ));
        }
        let dictionary = Dictionary::of(bytes.path(), words)?;
        Ok(Self {
            width,
            rows,
            dictionary,
            bytes,
        })
    }

    pub fn n_rows(&self) -> usize {
        self.rows.len()
    }

    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// The numbers of a row.
    ///
    /// # Errors
    /// One clause that names the line.
    pub fn row(&self, row: usize) -> Result<Vec<f32>, String> {
        let range = self.rows[row].clone();
        let data = self.bytes.as_slice();
        let start = range.start;
        let line = || 1 + data[..start].iter().filter(|b| **b == b'\n').count();
        let text =
            std::str::from_utf8(&data[range]).map_err(|e| format!("line {}: {e}", line()))?;
        let number = |field: &str| {
            let read = field.parse::<f32>();
            read.map_err(|_| format!("line {}: expected a number, found {field:?}", line()))
        };
        text.split_ascii_whitespace().map(number).collect()
    }
}

/// Every line without its end and the blanks before it, with where it begins.
fn lines_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split_inclusive('\n').map(move |line| {
        let start = at;
        at += line.len();
        (start, line.trim_ascii_end())
    })
}

fn n_fields(line: &str) -> usize {
    line.split_ascii_whitespace().count()
}

/// `n d`, where the line after has as many numbers.
fn claims(first: &str, second: Option<&str>) -> Option<(usize, usize)> {
    let (n, d) = first.split_once([' ', '\t'])?;
    let (n, d): (usize, usize) = (n.parse().ok()?, d.trim().parse().ok()?);
    let is_alike = second.is_none_or(|line| n_fields(line) > d || n_fields(line) != 2);
    is_alike.then_some((n, d))
}

/// Where the last `width` fields of a line begin: a word may hold blanks itself.
fn numbers_at(line: &str, width: usize) -> Option<usize> {
    let mut at = line.len();
    for _ in 0..width {
        at = line[..at].trim_ascii_end().rfind([' ', '\t'])? + 1;
    }
    (at > 0).then_some(at)
}
