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

/// Writes a table row by row. The same rows give the same bytes, however they are batched.
pub struct ParquetWriter<W: Write + Send>(TableWriter<W>);

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

    fn begin(to: W, version: &str, group_len: usize) -> Result<Self> {
        TableWriter::new(to, columns().to_vec(), version, group_len).map(Self)
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
        self.write_in_groups(to, GROUP)
    }

    /// Writes the table so that it can be read a few rows at a time, together with many others.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_part(&self, to: &mut (impl Write + Send)) -> Result<()> {
        self.write_in_groups(to, SMALL_GROUP)
    }

    fn write_in_groups(&self, to: &mut (impl Write + Send), group_len: usize) -> Result<()> {
        let mut writer = ParquetWriter::begin(to, &self.about.version, group_len)?;
        for row in &self.rows {
            writer.add(row)?;
        }
        writer.finish(&self.about)
    }
}
