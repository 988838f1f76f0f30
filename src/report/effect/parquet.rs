//! A table of effects as Parquet; the file's metadata says what was run.

use std::io::Write;

use parquet::errors::Result;

use super::sheet::EffectReport;

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
        self.sheet.table.write_parquet(&about, to)
    }
}
