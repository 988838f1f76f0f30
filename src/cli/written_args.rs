//! Output options of commands that write tables.

use std::path::PathBuf;

/// What every command that writes CSV takes.
#[derive(Debug, Clone, clap::Args)]
pub struct WrittenArgs {
    /// Output file; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// Keep texts in CSV as they are, even those that a spreadsheet would read as formulas
    #[arg(long)]
    pub raw_csv: bool,
}
