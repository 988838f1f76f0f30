//! `attnscope merge`: merges the units of a batch into one table, with one verdict.

use std::io::{self, BufWriter, IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attnscope_checkpoint::counted::counted;
use attnscope_compute::error::Error;
use attnscope_history::batch::{Listing, Unit, merged};
use attnscope_report::record::{
    About, ParquetWriter, Row, write_csv_header, write_csv_rows, write_json_row,
};
use attnscope_report::{Merged, Output, printable, write_batch_page};
use clap::ValueEnum;

use super::Ended;
use super::fail_on::FailOn;
use super::merge_summary::Summary;
use super::names;
use super::progress::{self, Task};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory that attnscope batch wrote
    #[arg(value_name = "DIR")]
    batch: PathBuf,
    /// Output format [default: by the ending of --output, else parquet]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Output file; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// The least severity of a finding that makes the exit code 1
    #[arg(long, value_enum, default_value_t = FailOn::Error)]
    fail_on: FailOn,
    /// Let units be missing or failed without the exit code 2
    #[arg(long)]
    partial: bool,
    /// Leave texts in CSV as they are, also those that a spreadsheet would take for a formula
    #[arg(long)]
    raw_csv: bool,
    /// Replace a file that exists
    #[arg(long)]
    force: bool,
    /// Print nothing on standard error except errors
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The table, for data frames and databases
    Parquet,
    /// The table as text
    Csv,
    /// Findings, units and the rows of the table
    Json,
    /// A page for a browser: checkpoints, findings, slowest units
    Html,
}

impl Args {
    fn format(&self) -> Format {
        let of_ending = || match self.output.extension()?.to_str()? {
            "csv" => Some(Format::Csv),
            "json" => Some(Format::Json),
            "html" => Some(Format::Html),
            _ => None,
        };
        self.format.or_else(of_ending).unwrap_or(Format::Parquet)
    }
}

pub fn run(args: &Args) -> Result<Ended> {
    let format = args.format();
    let is_stdout = args.output == Path::new("-");
    if format == Format::Parquet && is_stdout && stdout().is_terminal() {
        bail!("--format parquet: expected --output FILE, found a terminal, which cannot show it");
    }
    if args.quiet {
        progress::be_quiet();
    }
    names::check_is_no_bucket(&args.batch)?;
    let task = Task::begin("looking at units", 0);
    let listing = Listing::of(&args.batch, &|n_done, n| task.at(n_done, n))?;
    drop(task);
    if listing.units.is_empty() && listing.missing.is_empty() && listing.damaged.is_empty() {
        bail!(
            "{}: expected a batch with at least one unit, found none",
            args.batch.display()
        );
    }
    let mut output = Output::open_or_replace(&args.output, args.force)?;
    let mut summary = Summary::of(&listing);
    {
        let mut to = BufWriter::with_capacity(1 << 20, Put(&mut output));
        write(args, format, &listing, &mut summary, &mut to)?;
        to.flush().map_err(anyhow::Error::from)?;
    }
    output.close()?;
    tell(args, &listing, &summary.merged, is_stdout)?;
    if !listing.is_whole() && !args.partial {
        return Ok(Ended::Partly);
    }
    let is_bad = summary
        .merged
        .worst()
        .is_some_and(|worst| args.fail_on.is_met_by(worst));
    Ok(if is_bad {
        Ended::WithFindings
    } else {
        Ended::Clean
    })
}

/// Writes the whole batch.
fn write(
    args: &Args,
    format: Format,
    listing: &Listing,
    summary: &mut Summary,
    to: &mut (impl Write + Send),
) -> Result<()> {
    let units = &listing.units;
    let task = Task::begin("merging rows", units.len() as u64);
    let mut opened = || task.add(1);
    let cannot = |e: io::Error| Error::file(&args.output, format!("cannot be written ({e})"));
    match format {
        Format::Parquet => {
            let of_crate = |e| Error::file(&args.output, format!("cannot be written ({e})"));
            let mut writer = ParquetWriter::new(&mut *to).map_err(of_crate)?;
            let abouts = merged(units, &mut opened, |row| writer.add(&row).map_err(of_crate))?;
            writer.finish(&about(abouts)).map_err(of_crate)?;
        }
        Format::Csv => {
            let mut lines = Vec::new();
            write_csv_header(to).map_err(cannot)?;
            merged(units, &mut opened, |row: Row| {
                lines.clear();
                write_csv_rows(&[row], args.raw_csv, &mut lines).map_err(cannot)?;
                if !args.raw_csv {
                    lines = printable(&lines);
                }
                to.write_all(&lines).map_err(cannot)
            })?;
        }
        Format::Json => {
            let (before, after) = summary.merged.around_rows()?;
            write!(to, "{before}").map_err(cannot)?;
            let mut is_first = true;
            merged(units, &mut opened, |row: Row| {
                to.write_all(if is_first { b"\n" } else { b",\n" })
                    .map_err(cannot)?;
                is_first = false;
                write_json_row(&row, to).map_err(cannot)
            })?;
            writeln!(to, "\n{after}").map_err(cannot)?;
        }
        Format::Html => {
            merged(units, &mut opened, |row| {
                summary.add(&row);
                Ok(())
            })?;
            let (strips, slowest) = (summary.strips(), summary.slowest(listing));
            write_batch_page(&summary.merged, &strips, &slowest, to).map_err(cannot)?;
        }
    }
    Ok(())
}

/// Merges the metadata of all rows, checkpoint by checkpoint in the order of the plan.
fn about(mut abouts: Vec<(&Unit, About)>) -> About {
    abouts.sort_by_key(|(unit, _)| unit.nth.0);
    let models = abouts.iter().map(|(_, about)| {
        let list = about.models.strip_prefix('[');
        let list = list.and_then(|list| list.strip_suffix(']'));
        list.unwrap_or_default()
    });
    let models: Vec<&str> = models.filter(|models| !models.is_empty()).collect();
    About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        models: format!("[{}]", models.join(",")),
        what_if: abouts
            .first()
            .map_or_else(Vec::new, |(_, about)| about.what_if.clone()),
    }
}

/// Prints the verdict, to standard output if the table goes elsewhere.
fn tell(args: &Args, listing: &Listing, merged: &Merged, is_stdout: bool) -> Result<()> {
    let mut text = Vec::new();
    for name in &listing.damaged {
        writeln!(
            text,
            "parts/{name}: expected the record of a unit, found a damaged file: remove it and run the batch again"
        )?;
    }
    merged.write_text(&mut text)?;
    if listing.n_superseded > 0 {
        let n = counted(listing.n_superseded, "unit");
        writeln!(text, "left out: {n} of earlier weights, prompts or options")?;
    }
    let text = printable(&text);
    if !is_stdout {
        Output::Stdout.write(&text)?;
    } else if !args.quiet {
        // Ignore errors: nobody may be reading.
        let _ = stderr().write_all(&text);
    }
    Ok(())
}

/// Passes output on to the target immediately.
struct Put<'a>(&'a mut Output);

impl Write for Put<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
