//! A table as Parquet: zstd compression, and metadata about the rows' origin. The same rows give the same bytes, however they are batched.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::{Cell, Column, Kind, Table};

impl Table {
    /// Writes the table in one row group, with entries of metadata.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_parquet(
        &self,
        metadata: &[(&str, String)],
        to: &mut (impl Write + Send),
    ) -> Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        let mut writer = TableWriter::new(to, self.columns.clone(), version, usize::MAX)?;
        writer.write_group(&self.rows)?;
        writer.finish(metadata)
    }
}

fn properties(version: &str) -> WriterPropertiesBuilder {
    WriterProperties::builder().set_created_by(format!("attnscope {version}"))
}

fn zstd() -> Compression {
    Compression::ZSTD(ZstdLevel::default())
}

/// Writes a table row by row.
pub struct TableWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    group_len: usize,
}

impl<W: Write + Send> TableWriter<W> {
    /// Begins a table with at most `group_len` rows per row group; `version` is the version of the program that made the rows.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn new(to: W, columns: Vec<Column>, version: &str, group_len: usize) -> Result<Self> {
        let properties = properties(version).set_compression(zstd());
        Self::begin(to, columns, properties, group_len)
    }

    /// Begins a table that only this program reads, all of it and together with many others: without the extremes of columns
    /// that let other programs skip rows, and without compression if there are few rows, where it costs more than all else.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn for_pieces(
        to: W,
        columns: Vec<Column>,
        version: &str,
        group_len: usize,
        has_few_rows: bool,
    ) -> Result<Self> {
        let mut properties = properties(version)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_offset_index_disabled(true);
        if !has_few_rows {
            properties = properties.set_compression(zstd());
        }
        Self::begin(to, columns, properties, group_len)
    }

    fn begin(
        to: W,
        columns: Vec<Column>,
        properties: WriterPropertiesBuilder,
        group_len: usize,
    ) -> Result<Self> {
        Ok(Self {
            writer: SerializedFileWriter::new(to, schema(&columns)?, Arc::new(properties.build()))?,
            columns,
            rows: Vec::new(),
            group_len,
        })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn add(&mut self, row: Vec<Cell>) -> Result<()> {
        self.rows.push(row);
        if self.rows.len() == self.group_len {
            let rows = std::mem::take(&mut self.rows);
            self.write_group(&rows)?;
        }
        Ok(())
    }

    /// Writes the remaining rows and the metadata.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn finish(mut self, metadata: &[(&str, String)]) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        if !rows.is_empty() {
            self.write_group(&rows)?;
        }
        for (key, value) in metadata {
            let entry = KeyValue::new((*key).to_owned(), value.clone());
            self.writer.append_key_value_metadata(entry);
        }
        self.writer.close()?;
        Ok(())
    }

    fn write_group(&mut self, rows: &[Vec<Cell>]) -> Result<()> {
        let mut group = self.writer.next_row_group()?;
        for (idx, column) in self.columns.iter().enumerate() {
            let cells = rows.iter().map(|row| &row[idx]);
            match column.kind {
                Kind::Text => write::<ByteArrayType, W>(&mut group, column, cells.map(text))?,
                Kind::Integer => write::<Int64Type, W>(&mut group, column, cells.map(integer))?,
                Kind::Number => write::<DoubleType, W>(&mut group, column, cells.map(number))?,
            }
        }
        group.close()?;
        Ok(())
    }
}

fn text(cell: &Cell) -> Option<ByteArray> {
    match cell {
        Cell::Text(text) => Some(ByteArray::from(text.as_str())),
        _ => None,
    }
}

fn integer(cell: &Cell) -> Option<i64> {
    match cell {
        Cell::Integer(value) => Some(i64::try_from(*value).unwrap_or(i64::MAX)),
        _ => None,
    }
}

fn number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Number(value) => Some(*value),
        Cell::Single(value) => Some(f64::from(*value)),
        _ => None,
    }
}

fn schema(columns: &[Column]) -> Result<TypePtr> {
    let mut fields = Vec::new();
    for column in columns {
        let (physical, logical) = match column.kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Integer => (Physical::INT64, None),
            Kind::Number => (Physical::DOUBLE, None),
        };
        let repetition = if column.is_required {
            Repetition::REQUIRED
        } else {
            Repetition::OPTIONAL
        };
        let field = Type::primitive_type_builder(column.id, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    let schema = Type::group_type_builder("attnscope").with_fields(fields);
    Ok(Arc::new(schema.build()?))
}

/// Writes one column of a row group.
fn write<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &Column,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<()> {
    let (mut present, mut levels) = (Vec::new(), Vec::new());
    for value in values {
        levels.push(i16::from(value.is_some()));
        present.extend(value);
    }
    // The schema has as many columns as are written.
    let Some(mut writer) = group.next_column()? else {
        return Ok(());
    };
    let levels = (!column.is_required).then_some(levels);
    writer
        .typed::<T>()
        .write_batch(&present, levels.as_deref(), None)?;
    writer.close()
}
