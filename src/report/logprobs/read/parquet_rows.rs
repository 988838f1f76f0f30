//! Rows of any Parquet file as records: trainers keep rollouts with lists in their columns.

use std::path::Path;

use attnscope_checkpoint::caught::caught;
use attnscope_checkpoint::{DOCUMENT, cannot_open, open_regular};
use attnscope_compute::error::{Error, Result};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

use super::tree::Tree;

/// Most values of a file.
const MOST_VALUES: usize = 1 << 25;

/// Reads all rows of a file; `wants` says which columns are of interest.
///
/// # Errors
/// When the file is damaged or too large.
pub(super) fn records(path: &Path, wants: &dyn Fn(&str) -> bool) -> Result<Vec<Tree>> {
    let damaged = |e: ParquetError| Error::file(path, format!("expected Parquet, found {e}"));
    let file = open_regular(path).map_err(|e| cannot_open(path, &e))?;
    let read = || -> Result<Vec<Tree>> {
        let reader = SerializedFileReader::new(file).map_err(damaged)?;
        let groups = reader.metadata().row_groups().iter();
        let n_bytes: i64 = groups.map(|group| group.total_byte_size()).sum();
        if usize::try_from(n_bytes).map_or(true, |n_bytes| n_bytes > DOCUMENT) {
            return Err(Error::file(
                path,
                format!("expected at most {DOCUMENT} bytes, found {n_bytes}"),
            ));
        }
        let (mut records, mut n_values) = (Vec::new(), 0);
        for row in reader.get_row_iter(None).map_err(damaged)? {
            let record = of_row(&row.map_err(damaged)?, wants);
            n_values += record.n_values();
            // A few bytes of a column can stand for any number of equal values.
            if n_values > MOST_VALUES {
                return Err(Error::file(
                    path,
                    format!("expected at most {MOST_VALUES} values, found more"),
                ));
            }
            records.push(record);
        }
        Ok(records)
    };
    caught(read).unwrap_or_else(|e| Err(Error::file(path, format!("expected Parquet, found {e}"))))
}

fn of_row(row: &Row, wants: &dyn Fn(&str) -> bool) -> Tree {
    let columns = row.get_column_iter().filter(|(name, _)| wants(name));
    Tree::Object(
        columns
            .map(|(name, field)| (name.clone(), of_field(field, wants)))
            .collect(),
    )
}

fn of_field(field: &Field, wants: &dyn Fn(&str) -> bool) -> Tree {
    match field {
        Field::Bool(value) => Tree::Number(f64::from(u8::from(*value))),
        Field::Byte(value) => Tree::Number(f64::from(*value)),
        Field::Short(value) => Tree::Number(f64::from(*value)),
        Field::Int(value) => Tree::Number(f64::from(*value)),
        Field::Long(value) => Tree::Number(*value as f64),
        Field::UByte(value) => Tree::Number(f64::from(*value)),
        Field::UShort(value) => Tree::Number(f64::from(*value)),
        Field::UInt(value) => Tree::Number(f64::from(*value)),
        Field::ULong(value) => Tree::Number(*value as f64),
        Field::Float16(value) => Tree::Number(f64::from(f32::from(*value))),
        Field::Float(value) => Tree::Number(f64::from(*value)),
        Field::Double(value) => Tree::Number(*value),
        Field::Str(text) => Tree::Text(text.clone()),
        Field::Group(row) => of_row(row, wants),
        Field::ListInternal(list) => Tree::List(
            list.elements()
                .iter()
                .map(|field| of_field(field, wants))
                .collect(),
        ),
        _ => Tree::Null,
    }
}

/// Whether a file has one of some columns.
pub(super) fn has_column(path: &Path, wants: &dyn Fn(&str) -> bool) -> bool {
    let Ok(file) = open_regular(path) else {
        return false;
    };
    let found = || {
        let reader = SerializedFileReader::new(file).ok()?;
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let mut columns = schema.root_schema().get_fields().iter();
        columns.any(|column| wants(column.name())).then_some(())
    };
    caught(found).is_ok_and(|found| found.is_some())
}
