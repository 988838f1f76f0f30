//! Reads the table back from Parquet: columns are found by name, and unknown ones are skipped.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use attnscope_checkpoint::caught::caught;
use attnscope_checkpoint::machine::too_much;
use attnscope_checkpoint::{cannot_open, open_regular, will_read};
use attnscope_checks::stats::STATISTICS;
use attnscope_compute::error::{Error, Result};
use bytes::Bytes;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::{ParquetError, Result as Found};
use parquet::file::reader::{
    ChunkReader, FileReader, Length, RowGroupReader, SerializedFileReader,
};

use super::columns::COLUMNS;
use super::table::{About, Row, Table};
use crate::table::Kind;

/// Values of one column; `None` for rows without one.
enum Column {
    Texts(Vec<Option<String>>),
    Integers(Vec<Option<u64>>),
    Numbers(Vec<Option<f64>>),
}

impl Table {
    /// Reads a table that was written as Parquet.
    ///
    /// # Errors
    /// When it cannot be read, lacks a column, or a column has the wrong type.
    pub fn read_parquet(path: &Path) -> Result<Self> {
        let mut reader = ParquetReader::open(path)?;
        will_read(path);
        let mut rows = Vec::new();
        while let Some(more) = reader.next_rows()? {
            rows.extend(more);
        }
        Ok(Self {
            about: reader.about(),
            rows,
        })
    }
}

/// Reads a Parquet table one row group at a time.
pub struct ParquetReader {
    path: PathBuf,
    reader: Box<dyn FileReader>,
    next: usize,
}

impl ParquetReader {
    /// Opens a table and reads its columns.
    ///
    /// # Errors
    /// When it cannot be opened, or is not a table.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_part(path, None)
    }

    /// Opens a table that is a part of a file, given by its offset and length in bytes; `None` is the whole file.
    ///
    /// # Errors
    /// When it cannot be opened, or is not a table.
    pub fn open_part(path: &Path, part: Option<(u64, u64)>) -> Result<Self> {
        let cannot = |e: std::io::Error| cannot_open(path, &e);
        let stretch = Stretch::of(path, part).map_err(cannot)?;
        let damaged = |e: ParquetError| Error::file(path, format!("expected a table, found {e}"));
        let reader = undamaged(path, || -> Result<Box<dyn FileReader>> {
            if stretch.len > SMALL {
                let reader = SerializedFileReader::new(stretch).map_err(damaged)?;
                return Ok(Box::new(reader));
            }
            // Dozens of columns of a few bytes each are read much faster from memory.
            let bytes = stretch.bytes(0, stretch.len as usize).map_err(cannot)?;
            Ok(Box::new(SerializedFileReader::new(bytes).map_err(damaged)?))
        })?;
        Ok(Self {
            path: path.to_path_buf(),
            reader,
            next: 0,
        })
    }

    /// Returns the next rows; `None` at the end.
    ///
    /// # Errors
    /// When they cannot be read, lack a column, or a column has the wrong type.
    pub fn next_rows(&mut self) -> Result<Option<Vec<Row>>> {
        if self.next >= self.reader.num_row_groups() {
            return Ok(None);
        }
        let (path, idx) = (&self.path, self.next);
        let damaged = |e: ParquetError| Error::file(path, format!("expected a table, found {e}"));
        let rows = undamaged(path, || {
            let group = self.reader.get_row_group(idx).map_err(damaged)?;
            rows_of(path, &*group)
        })?;
        self.next += 1;
        Ok(Some(rows))
    }

    /// Returns the metadata about the rows' origin.
    pub fn about(&self) -> About {
        about(&*self.reader)
    }
}

/// Bytes of a table that is read as a whole at most.
const SMALL: u64 = 256 << 10;

/// A part of a file.
struct Stretch {
    file: Arc<File>,
    start: u64,
    len: u64,
}

impl Stretch {
    fn of(path: &Path, part: Option<(u64, u64)>) -> io::Result<Self> {
        let file = open_regular(path)?;
        let (start, len) = match part {
            Some(part) => part,
            None => (0, file.metadata()?.len()),
        };
        Ok(Self {
            file: Arc::new(file),
            start,
            len,
        })
    }

    /// Reads bytes at an offset in this part.
    fn bytes(&self, at: u64, n: usize) -> io::Result<Bytes> {
        if at.checked_add(n as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; n];
        self.file.read_exact_at(&mut bytes, self.start + at)?;
        Ok(bytes.into())
    }
}

impl Length for Stretch {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Stretch {
    type T = BufReader<Rest>;

    fn get_read(&self, start: u64) -> Found<Self::T> {
        Ok(BufReader::new(Rest {
            file: Arc::clone(&self.file),
            at: self.start.saturating_add(start),
            end: self.start.saturating_add(self.len),
        }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Found<Bytes> {
        Ok(self.bytes(start, length)?)
    }
}

/// Reads from an offset to the end of a part.
struct Rest {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Rest {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = (to.len() as u64).min(self.end.saturating_sub(self.at)) as usize;
        let n = self.file.read_at(&mut to[..n], self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// Runs `work` and turns panics into errors: the parquet crate panics on some damaged files.
fn undamaged<T>(path: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(work).unwrap_or_else(|said| {
        let problem = format!("expected a table, found a damaged file ({said})");
        Err(Error::file(path, problem))
    })
}

fn about(reader: &dyn FileReader) -> About {
    let metadata = reader.metadata().file_metadata().key_value_metadata();
    let value = |key: &str| {
        let entry = metadata?.iter().find(|entry| entry.key == key)?;
        entry.value.clone()
    };
    let what_if = value("attnscope.what_if").filter(|text| !text.is_empty());
    About {
        version: value("attnscope.version").unwrap_or_default(),
        models: value("attnscope.models").unwrap_or_default(),
        what_if: what_if.map_or_else(Vec::new, |text| {
            text.split("; ").map(str::to_owned).collect()
        }),
    }
}

fn rows_of(path: &Path, group: &dyn RowGroupReader) -> Result<Vec<Row>> {
    let n_rows = usize::try_from(group.metadata().num_rows())
        .map_err(|_| Error::file(path, "expected a table, found a negative number of rows"))?;
    check_counts(path, group, n_rows)?;
    let schema = group.metadata().schema_descr();
    let place = |name: &str| {
        schema
            .columns()
            .iter()
            .position(|column| column.name() == name)
    };
    let mut columns = Vec::new();
    for column in &COLUMNS {
        columns.push(match place(column.id) {
            Some(at) => read(path, group, (at, column.id), column.kind, n_rows)?,
            None if column.is_required => {
                let problem = format!("expected a table with a column {}, found none", column.id);
                return Err(Error::file(path, problem));
            }
            None => empty(column.kind, n_rows),
        });
    }
    let mut statistics = Vec::new();
    for statistic in STATISTICS {
        let at = place(statistic.id);
        let read = at.map(|at| read(path, group, (at, statistic.id), Kind::Number, n_rows));
        statistics.push(
            read.transpose()?
                .unwrap_or_else(|| empty(Kind::Number, n_rows)),
        );
    }
    let text = |idx: usize, row: usize| match &columns[idx] {
        Column::Texts(values) => values[row].clone(),
        _ => None,
    };
    let integer = |idx: usize, row: usize| match &columns[idx] {
        Column::Integers(values) => values[row],
        _ => None,
    };
    let number = |column: &Column, row: usize| match column {
        Column::Numbers(values) => values[row],
        _ => None,
    };
    let rows = (0..n_rows).map(|row| Row {
        checkpoint: text(0, row).unwrap_or_default(),
        step: integer(1, row),
        prompt: text(2, row).unwrap_or_default(),
        n_tokens: integer(3, row).unwrap_or_default(),
        loss: number(&columns[4], row),
        stack: text(5, row).filter(|stack| !stack.is_empty()),
        layer: integer(6, row).unwrap_or_default(),
        head: integer(7, row),
        stats: statistics
            .iter()
            .map(|column| number(column, row))
            .collect(),
    });
    Ok(rows.collect())
}

/// Checks that every column states as many rows as its group, and that they fit into memory.
fn check_counts(path: &Path, group: &dyn RowGroupReader, n_rows: usize) -> Result<()> {
    let columns = group.metadata().columns();
    if let Some(other) = columns
        .iter()
        .find(|column| column.num_values() != n_rows as i64)
    {
        let problem = format!(
            "expected {n_rows} rows in every column, found {} in {}",
            other.num_values(),
            other.column_path()
        );
        return Err(Error::file(path, problem));
    }
    let of_row = size_of::<Row>() + STATISTICS.len() * 2 * size_of::<Option<f64>>();
    match too_much(n_rows.saturating_mul(of_row)) {
        Some(problem) => Err(Error::file(
            path,
            format!("a table of {n_rows} rows {problem}"),
        )),
        None => Ok(()),
    }
}

fn empty(kind: Kind, n_rows: usize) -> Column {
    match kind {
        Kind::Text => Column::Texts(vec![None; n_rows]),
        Kind::Integer => Column::Integers(vec![None; n_rows]),
        Kind::Number => Column::Numbers(vec![None; n_rows]),
    }
}

/// Reads one whole column.
fn read(
    path: &Path,
    group: &dyn RowGroupReader,
    (at, name): (usize, &str),
    kind: Kind,
    n_rows: usize,
) -> Result<Column> {
    let damaged = |e: ParquetError| Error::file(path, format!("column {name}: {e}"));
    let reader = group.get_column_reader(at).map_err(damaged)?;
    let read = match reader {
        ColumnReader::ByteArrayColumnReader(of) => {
            let texts = values(of, n_rows).map_err(damaged)?.into_iter();
            let text = |bytes: ByteArray| bytes.as_utf8().map(str::to_owned).map_err(damaged);
            Column::Texts(
                texts
                    .map(|bytes| bytes.map(text).transpose())
                    .collect::<Result<_>>()?,
            )
        }
        ColumnReader::Int64ColumnReader(of) => integers(values(of, n_rows).map_err(damaged)?),
        ColumnReader::Int32ColumnReader(of) => integers(values(of, n_rows).map_err(damaged)?),
        ColumnReader::DoubleColumnReader(of) => {
            Column::Numbers(values(of, n_rows).map_err(damaged)?)
        }
        ColumnReader::FloatColumnReader(of) => {
            let values = values(of, n_rows).map_err(damaged)?.into_iter();
            Column::Numbers(values.map(|value| value.map(f64::from)).collect())
        }
        _ => return Err(Error::file(path, wrong(name, kind))),
    };
    match (kind, read) {
        (Kind::Text, read @ Column::Texts(_)) | (Kind::Integer, read @ Column::Integers(_)) => {
            Ok(read)
        }
        (Kind::Number, read @ Column::Numbers(_)) => Ok(read),
        // Other programs write an integer column with missing values as floating-point numbers.
        (Kind::Integer, Column::Numbers(values)) => {
            let whole = |value: f64| (value >= 0.0 && value.fract() == 0.0).then_some(value as u64);
            Ok(Column::Integers(
                values.into_iter().map(|v| v.and_then(whole)).collect(),
            ))
        }
        _ => Err(Error::file(path, wrong(name, kind))),
    }
}

fn wrong(name: &str, kind: Kind) -> String {
    let expected = match kind {
        Kind::Text => "texts",
        Kind::Integer => "integers",
        Kind::Number => "numbers",
    };
    format!("column {name}: expected {expected}, found another type")
}

fn integers<T: Into<i64>>(values: Vec<Option<T>>) -> Column {
    let values = values.into_iter();
    Column::Integers(
        values
            .map(|value| u64::try_from(value?.into()).ok())
            .collect(),
    )
}

/// Returns a column's value for every row; `None` for rows without one.
fn values<T: DataType>(mut column: ColumnReaderImpl<T>, n_rows: usize) -> Found<Vec<Option<T::T>>> {
    let (mut levels, mut present) = (Vec::new(), Vec::new());
    let (n_read, ..) = column.read_records(n_rows, Some(&mut levels), None, &mut present)?;
    if n_read != n_rows {
        let problem = format!("expected {n_rows} rows, found {n_read}");
        return Err(ParquetError::General(problem));
    }
    let mut present = present.into_iter();
    // A column without missing values has no definition levels.
    let has = |row: usize| levels.get(row).is_none_or(|level| *level > 0);
    Ok((0..n_rows)
        .map(|row| if has(row) { present.next() } else { None })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identical_rows_are_read_however_small_their_file_is() {
        let row = Row {
            checkpoint: "collapsed".to_owned(),
            step: None,
            prompt: "prompt".to_owned(),
            n_tokens: 12,
            loss: None,
            stack: None,
            layer: 0,
            head: None,
            stats: vec![None; STATISTICS.len()],
        };
        let table = Table {
            rows: vec![row; 100_000],
            ..Table::default()
        };
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        table.write_parquet(file.as_file_mut()).expect("writes");
        let n_bytes = file.as_file().metadata().expect("a file").len();
        assert!(n_bytes < 100_000, "{n_bytes} bytes: rows of their own");
        let read = Table::read_parquet(file.path()).expect("reads");
        assert_eq!(read.rows, table.rows);
    }
}
