//! The table as Parquet: the file's metadata says what was run.

use std::io::Write;

use parquet::errors::Result;

use super::columns::{SCHEMA, columns};
use super::table::{About, Row, Table};
use crate::table::TableWriter;

/// Rows per row group: some megabytes.
const GROUP: usize = 1 << 16;
/// Rows per group in a file that is later read in pieces, together with many others.
const SMALL_GROUP: usize = 1 << 9;
/// Rows below which compression costs more than it saves: some values in each of dozens of columns.
const FEW: usize = 64;

/// Writes a table row by row. The same rows give the same bytes, however they are batched.
pub struct ParquetWriter<W: Write + Send>(TableWriter<W>);

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a table.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn new(to: W) -> Result<Self> {
        Self::whole(to, env!("CARGO_PKG_VERSION"))
    }

    /// Begins a table that can be read a few rows at a time, together with many others.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn for_pieces(to: W) -> Result<Self> {
        Self::piece(to, env!("CARGO_PKG_VERSION"), false)
    }

    fn whole(to: W, version: &str) -> Result<Self> {
        TableWriter::new(to, columns().to_vec(), version, GROUP).map(Self)
    }

    fn piece(to: W, version: &str, has_few_rows: bool) -> Result<Self> {
        let columns = columns().to_vec();
        TableWriter::for_pieces(to, columns, version, SMALL_GROUP, has_few_rows).map(Self)
    }

    /// Adds a row; rows have to come in the order of the table.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn add(&mut self, row: &Row) -> Result<()> {
        self.0.add(row.cells())
    }

    /// Writes the remaining rows, and the metadata about their origin.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn finish(self, about: &About) -> Result<()> {
        self.0.finish(&[
            ("attnscope.version", about.version.clone()),
            ("attnscope.schema", SCHEMA.to_string()),
            ("attnscope.models", about.models.clone()),
            ("attnscope.what_if", about.what_if.join("; ")),
        ])
    }
}

impl Table {
    /// Writes the table. The same rows give the same bytes.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_parquet(&self, to: &mut (impl Write + Send)) -> Result<()> {
        self.write_to(ParquetWriter::whole(to, &self.about.version)?)
    }

    /// Writes the table so that it can be read a few rows at a time, together with many others.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_part(&self, to: &mut (impl Write + Send)) -> Result<()> {
        let has_few_rows = self.rows.len() < FEW;
        self.write_to(ParquetWriter::piece(to, &self.about.version, has_few_rows)?)
    }

    fn write_to<W: Write + Send>(&self, mut writer: ParquetWriter<W>) -> Result<()> {
        for row in &self.rows {
            writer.add(row)?;
        }
        writer.finish(&self.about)
    }
}
