//! The text format of word2vec: one line per word, the word and then its numbers; the first line may give the two sizes.
//!
//! Only blanks and tabs separate fields: other kinds of whitespace can be part of a word.

use std::io::{BufRead, BufReader};
use std::ops::Range;

use attnscope_compute::error::{Error, Result};

use super::Dictionary;
use crate::data_file::{DataFile, Reader};

/// Limit on the bytes of a line: a word and a hundred thousand numbers.
const LONGEST_LINE: usize = 1 << 21;

/// A text table and the position of each row.
#[derive(Debug)]
pub(super) struct Lines {
    file: DataFile,
    pub width: usize,
    rows: Vec<Row>,
    dictionary: Dictionary,
}

/// Position of the numbers of a word in the file.
#[derive(Debug, Clone)]
struct Row {
    /// Counted from 1.
    line: usize,
    bytes: Range<usize>,
}

impl Lines {
    /// Finds every row and its word; numbers are parsed on demand.
    ///
    /// # Errors
    /// Names the first line that does not have this format.
    pub fn read(file: DataFile) -> Result<Self> {
        let refused = |problem| Error::file(file.path(), problem);
        let mut text = Text::of(&file)?;
        let Some(first) = text.next()? else {
            return Err(refused(
                "holds nothing: expected a line for each word".to_owned(),
            ));
        };
        let mut waiting = text.next()?;
        let second = waiting.as_ref().map(|line| line.content.as_str());
        let claimed = claims(&first.content, second);
        let width = match claimed {
            Some((_, width)) => width,
            None => fields(&first.content).count().saturating_sub(1),
        };
        if width == 0 {
            let problem = format!("line {}: expected a word and its numbers", first.number);
            return Err(refused(problem));
        }
        let mut rows = Vec::new();
        let mut words = Vec::new();
        let mut next = claimed
            .is_none()
            .then_some(first)
            .or_else(|| waiting.take());
        while let Some(line) = next {
            let Line {
                number,
                start,
                content,
            } = &line;
            let Some(from) = numbers_at(content, width) else {
                let found = fields(content).count().saturating_sub(1);
                return Err(refused(format!(
                    "line {number}: expected a word and {width} numbers, found {found} numbers"
                )));
            };
            let word = content[..from].trim_end_matches(PARTING);
            if word.is_empty() {
                return Err(refused(format!(
                    "line {number}: expected a word before the numbers"
                )));
            }
            words.push((word.to_owned(), rows.len() as i64));
            rows.push(Row {
                line: *number,
                bytes: start + from..start + content.len(),
            });
            next = match waiting.take() {
                Some(line) => Some(line),
                None => text.next()?,
            };
        }
        if let Some((n, _)) = claimed.filter(|(n, _)| *n != rows.len()) {
            let found = rows.len();
            return Err(refused(format!(
                "line 1 says {n} words, {found} follow: truncated or lengthened"
            )));
        }
        let dictionary = Dictionary::of(file.path(), words).map_err(refused)?;
        Ok(Self {
            width,
            rows,
            dictionary,
            file,
        })
    }

    pub fn n_rows(&self) -> usize {
        self.rows.len()
    }

    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// Parses the numbers of a row.
    ///
    /// # Errors
    /// Names the line, and the text that is not a number.
    pub fn row(&self, row: usize) -> Result<Vec<f32>> {
        let Row { line, bytes } = &self.rows[row];
        let refused = |problem| Error::file(self.file.path(), format!("line {line}: {problem}"));
        let bytes = self.file.read(bytes.clone())?;
        let text = std::str::from_utf8(&bytes).map_err(|e| refused(e.to_string()))?;
        let number = |field: &str| {
            let read = field.parse::<f32>();
            read.map_err(|_| refused(format!("expected a number, found {field:?}")))
        };
        let numbers: Vec<f32> = fields(text).map(number).collect::<Result<_>>()?;
        if numbers.len() != self.width {
            let (expected, found) = (self.width, numbers.len());
            return Err(refused(format!(
                "expected {expected} numbers, found {found}"
            )));
        }
        Ok(numbers)
    }
}

/// Separators of the fields of a line.
const PARTING: [char; 2] = [' ', '\t'];

/// A line that is not empty.
struct Line {
    /// Counted from 1.
    number: usize,
    /// Offset of its first byte in the file.
    start: usize,
    /// Text without the line end and trailing blanks.
    content: String,
}

/// Reader of the lines of a file.
struct Text<'f> {
    file: &'f DataFile,
    reader: BufReader<Reader>,
    n_lines: usize,
    at: usize,
}

impl<'f> Text<'f> {
    fn of(file: &'f DataFile) -> Result<Self> {
        Ok(Self {
            file,
            reader: BufReader::with_capacity(1 << 18, file.reader()?),
            n_lines: 0,
            at: 0,
        })
    }

    /// Reads the next line that is not empty.
    fn next(&mut self) -> Result<Option<Line>> {
        let refused = |problem| Error::file(self.file.path(), problem);
        loop {
            let mut bytes = Vec::new();
            let mut limited = std::io::Read::take(&mut self.reader, LONGEST_LINE as u64);
            limited
                .read_until(b'\n', &mut bytes)
                .map_err(|e| refused(format!("cannot be read ({e})")))?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let start = self.at;
            self.at += bytes.len();
            self.n_lines += 1;
            let number = self.n_lines;
            if bytes.len() == LONGEST_LINE {
                return Err(refused(format!(
                    "line {number}: expected at most {LONGEST_LINE} bytes"
                )));
            }
            let mut content = String::from_utf8(bytes).map_err(|_| {
                refused(format!(
                    "line {number} is not text: expected .npz, .npy, .safetensors, or the text format of word2vec"
                ))
            })?;
            let end = content.trim_end_matches([' ', '\t', '\r', '\n']).len();
            content.truncate(end);
            if !content.is_empty() {
                return Ok(Some(Line {
                    number,
                    start,
                    content,
                }));
            }
        }
    }
}

fn fields(line: &str) -> impl Iterator<Item = &str> {
    line.split(PARTING).filter(|field| !field.is_empty())
}

/// Parses a first line `n d`; `None` where the second line shows that the first is a word and its only number.
fn claims(first: &str, second: Option<&str>) -> Option<(usize, usize)> {
    let mut both = fields(first).map(|field| field.parse().ok());
    let (n, d) = (both.next()??, both.next()??);
    if both.next().is_some() {
        return None;
    }
    let is_alike = second.is_none_or(|line| {
        let n_fields = fields(line).count();
        n_fields > d || n_fields != 2
    });
    is_alike.then_some((n, d))
}

/// Finds where the last `width` fields of a line begin: the word itself may contain blanks.
fn numbers_at(line: &str, width: usize) -> Option<usize> {
    let mut at = line.len();
    for _ in 0..width {
        at = line[..at].trim_end_matches(PARTING).rfind(PARTING)? + 1;
    }
    (at > 0).then_some(at)
}
