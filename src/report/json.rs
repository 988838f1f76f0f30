//! The report as JSON.

use std::io::Write;

use serde::Serialize;

use super::document::Report;

/// Writes the report, indented, with a newline at the end.
///
/// # Errors
/// When the target cannot be written.
pub fn write_json(report: &Report, to: &mut impl Write) -> std::io::Result<()> {
    write_pretty(report, to)
}

/// Any document, indented, with a newline at the end.
///
/// # Errors
/// When the target cannot be written.
pub(super) fn write_pretty(document: &impl Serialize, to: &mut impl Write) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut *to, document)?;
    to.write_all(b"\n")
}
