//! The report as JSON.

use std::io::Write;

use super::document::Report;

/// Writes the report, indented, with a newline at the end.
///
/// # Errors
/// When the target cannot be written.
pub fn write_json(report: &Report, to: &mut impl Write) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut *to, report)?;
    to.write_all(b"\n")
}
