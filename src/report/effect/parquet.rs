//! A table of effects as Parquet: every column is optional, compression is zstd, and the file's metadata says what was run.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::column::Kind;
use super::sheet::{Cell, EffectReport};

impl EffectReport {
    /// Writes the rows. The same rows give the same bytes.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_parquet(&self, to: &mut (impl Write + Send)) -> Result<()> {
        let about = [
            ("attnscope.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("attnscope.effect", self.by.to_owned()),
            ("attnscope.models", self.model.name.clone()),
            ("attnscope.what_if", self.what_if.join("; ")),
            ("attnscope.notes", self.sheet.notes.join("\n")),
            ("attnscope.complete", self.complete.to_string()),
        ];
        let about = about.map(|(key, value)| KeyValue::new(key.to_owned(), value));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(format!("attnscope {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(about.into()))
            .build();
        let mut fields = Vec::new();
        for column in &self.sheet.columns {
            let (physical, logical) = match column.kind {
                Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
                Kind::Integer => (Physical::INT64, None),
                Kind::Number => (Physical::DOUBLE, None),
            };
            let field = Type::primitive_type_builder(column.id, physical)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(logical)
                .build()?;
            fields.push(Arc::new(field));
        }
        let schema = Type::group_type_builder("attnscope").with_fields(fields);
        let schema = Arc::new(schema.build()?);
        let mut writer = SerializedFileWriter::new(to, schema, Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        for (idx, column) in self.sheet.columns.iter().enumerate() {
            let cells = || self.sheet.rows.iter().map(|row| &row[idx]);
            match column.kind {
                Kind::Text => write::<ByteArrayType, _>(
                    &mut group,
                    cells().map(|cell| match cell {
                        Cell::Text(text) => Some(ByteArray::from(text.as_str())),
                        _ => None,
                    }),
                )?,
                Kind::Integer => write::<Int64Type, _>(
                    &mut group,
                    cells().map(|cell| match cell {
                        Cell::Integer(value) => Some(i64::try_from(*value).unwrap_or(i64::MAX)),
                        _ => None,
                    }),
                )?,
                Kind::Number => write::<DoubleType, _>(
                    &mut group,
                    cells().map(|cell| match cell {
                        Cell::Number(value) => Some(*value),
                        _ => None,
                    }),
                )?,
            }
        }
        group.close()?;
        writer.close()?;
        Ok(())
    }
}

fn write<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<()> {
    let (mut present, mut levels) = (Vec::new(), Vec::new());
    for value in values {
        levels.push(i16::from(value.is_some()));
        present.extend(value);
    }
    // The schema has as many columns as are written.
    let Some(mut column) = group.next_column()? else {
        return Ok(());
    };
    column
        .typed::<T>()
        .write_batch(&present, Some(&levels), None)?;
    column.close()
}
