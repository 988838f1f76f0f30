//! The table as Parquet: optional doubles for statistics, zstd compression, and file metadata that says what was run.

use std::io::Write;
use std::sync::Arc;

use attnscope_checks::stats::STATISTICS;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::columns::{COLUMNS, Kind, SCHEMA};
use super::table::{About, Row, Table};

/// Rows per row group: some megabytes.
const GROUP: usize = 1 << 16;
/// Rows per group in a file that is later read in pieces, together with many others.
const SMALL_GROUP: usize = 1 << 9;

/// Writes a table row by row. The same rows give the same bytes, however they are batched.
pub struct ParquetWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: Vec<Row>,
    n_group: usize,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a table.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn new(to: W) -> Result<Self> {
        Self::begin(to, env!("CARGO_PKG_VERSION"), GROUP)
    }

    /// Begins a table that can be read a few rows at a time, together with many others.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn for_pieces(to: W) -> Result<Self> {
        Self::begin(to, env!("CARGO_PKG_VERSION"), SMALL_GROUP)
    }

    fn begin(to: W, version: &str, n_group: usize) -> Result<Self> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(format!("attnscope {version}"))
            .build();
        Ok(Self {
            writer: SerializedFileWriter::new(to, schema()?, Arc::new(properties))?,
            rows: Vec::new(),
            n_group,
        })
    }

    /// Adds a row; rows have to come in the order of the table.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn add(&mut self, row: Row) -> Result<()> {
        self.rows.push(row);
        if self.rows.len() == self.n_group {
            write_group(&mut self.writer, &self.rows)?;
            self.rows.clear();
        }
        Ok(())
    }

    /// Writes the remaining rows, and the metadata about their origin.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn finish(mut self, about: &About) -> Result<()> {
        if !self.rows.is_empty() {
            write_group(&mut self.writer, &self.rows)?;
        }
        for entry in metadata(about) {
            self.writer.append_key_value_metadata(entry);
        }
        self.writer.close()?;
        Ok(())
    }
}

impl Table {
    /// Writes the table. The same rows give the same bytes.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_parquet(&self, to: &mut (impl Write + Send)) -> Result<()> {
        self.write_in_groups(to, GROUP)
    }

    /// Writes the table so that it can be read a few rows at a time, together with many others.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_part(&self, to: &mut (impl Write + Send)) -> Result<()> {
        self.write_in_groups(to, SMALL_GROUP)
    }

    fn write_in_groups(&self, to: &mut (impl Write + Send), n_group: usize) -> Result<()> {
        let mut writer = ParquetWriter::begin(to, &self.about.version, n_group)?;
        for rows in self.rows.chunks(n_group) {
            write_group(&mut writer.writer, rows)?;
        }
        writer.finish(&self.about)
    }
}

fn write_group<W: Write + Send>(writer: &mut SerializedFileWriter<W>, rows: &[Row]) -> Result<()> {
    let mut group = writer.next_row_group()?;
    write_places(&mut group, rows)?;
    for idx in 0..STATISTICS.len() {
        doubles(&mut group, rows.iter().map(|row| row.stats[idx]))?;
    }
    group.close()?;
    Ok(())
}

fn metadata(about: &About) -> [KeyValue; 4] {
    let what_if = about.what_if.join("; ");
    [
        ("attnscope.version", about.version.clone()),
        ("attnscope.schema", SCHEMA.to_string()),
        ("attnscope.models", about.models.clone()),
        ("attnscope.what_if", what_if),
    ]
    .map(|(key, value)| KeyValue::new(key.to_owned(), value))
}

fn schema() -> Result<TypePtr> {
    let places = COLUMNS.iter().map(|column| {
        let (physical, logical) = match column.kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Integer => (Physical::INT64, None),
            Kind::Number => (Physical::DOUBLE, None),
        };
        (column.name, physical, logical, column.is_required)
    });
    let statistics = STATISTICS
        .iter()
        .map(|s| (s.id, Physical::DOUBLE, None, false));
    let mut fields = Vec::new();
    for (name, physical, logical, is_required) in places.chain(statistics) {
        let repetition = if is_required {
            Repetition::REQUIRED
        } else {
            Repetition::OPTIONAL
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    let schema = Type::group_type_builder("attnscope").with_fields(fields);
    Ok(Arc::new(schema.build()?))
}

type Group<'a, W> = SerializedRowGroupWriter<'a, W>;

/// Writes the columns that identify rows, in their order.
fn write_places<W: Write + Send>(group: &mut Group<'_, W>, rows: &[Row]) -> Result<()> {
    texts(
        group,
        rows.iter().map(|row| Some(row.checkpoint.as_str())),
        true,
    )?;
    integers(group, rows.iter().map(|row| row.step), false)?;
    texts(
        group,
        rows.iter().map(|row| Some(row.prompt.as_str())),
        true,
    )?;
    integers(group, rows.iter().map(|row| Some(row.n_tokens)), true)?;
    doubles(group, rows.iter().map(|row| row.loss))?;
    texts(group, rows.iter().map(|row| row.stack.as_deref()), false)?;
    integers(group, rows.iter().map(|row| Some(row.layer)), true)?;
    integers(group, rows.iter().map(|row| row.head), false)
}

/// Returns the values that exist, and for each row whether it has one.
fn split<T>(values: impl Iterator<Item = Option<T>>) -> (Vec<T>, Vec<i16>) {
    let (mut present, mut levels) = (Vec::new(), Vec::new());
    for value in values {
        levels.push(i16::from(value.is_some()));
        present.extend(value);
    }
    (present, levels)
}

fn texts<'v, W: Write + Send>(
    group: &mut Group<'_, W>,
    values: impl Iterator<Item = Option<&'v str>>,
    is_required: bool,
) -> Result<()> {
    let (present, levels) = split(values.map(|text| text.map(ByteArray::from)));
    write::<ByteArrayType, W>(group, &present, levels, is_required)
}

fn integers<W: Write + Send>(
    group: &mut Group<'_, W>,
    values: impl Iterator<Item = Option<u64>>,
    is_required: bool,
) -> Result<()> {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let (present, levels) = split(values.map(|value| value.map(signed)));
    write::<Int64Type, W>(group, &present, levels, is_required)
}

fn doubles<W: Write + Send>(
    group: &mut Group<'_, W>,
    values: impl Iterator<Item = Option<f64>>,
) -> Result<()> {
    let (present, levels) = split(values);
    write::<DoubleType, W>(group, &present, levels, false)
}

fn write<T: parquet::data_type::DataType, W: Write + Send>(
    group: &mut Group<'_, W>,
    present: &[T::T],
    levels: Vec<i16>,
    is_required: bool,
) -> Result<()> {
    // The schema has as many columns as are written.
    let Some(mut column) = group.next_column()? else {
        return Ok(());
    };
    let levels = (!is_required).then_some(levels);
    column
        .typed::<T>()
        .write_batch(present, levels.as_deref(), None)?;
    column.close()
}
