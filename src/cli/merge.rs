//! `attnscope merge`: merges the units of a batch into one table, with one verdict.

use std::env::var;
use std::io::{self, BufWriter, IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, anyhow, bail};
use attnscope_checkpoint::counted::counted;
use attnscope_compute::error::Error;
use attnscope_history::batch::{Listing, Origin, Shard, Share, joined, merged};
use attnscope_report::record::{
    About, ParquetWriter, Row, write_csv_header, write_csv_rows, write_json_row,
};
use attnscope_report::{Merged, Output, printable, write_batch_page};
use clap::ValueEnum;

use super::Ended;
use super::fail_on::FailOn;
use super::merge_summary::Summary;
use super::names;
use super::progress::{self, Task, note};

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
    /// Lowest severity that sets exit code 1
    #[arg(long, value_enum, default_value_t = FailOn::Error)]
    fail_on: FailOn,
    /// Merge one of N shares of the checkpoints, I from 0 to N − 1, into DIR/merged; auto takes it from a Slurm job array or an indexed Kubernetes Job
    #[arg(long, value_name = "I/N", conflicts_with_all = ["join", "output", "format", "partial"])]
    shard: Option<ShardName>,
    /// Join the tables of N shares, all merged before with --shard, instead of reading units
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    join: Option<usize>,
    /// Do not exit with 2 for missing or failed units
    #[arg(long)]
    partial: bool,
    /// Keep texts in CSV as they are, even those that a spreadsheet would read as formulas
    #[arg(long)]
    raw_csv: bool,
    /// Replace a file that exists
    #[arg(long)]
    force: bool,
    /// Print only errors on standard error
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

/// A share, or the word for the one that a scheduler tells.
#[derive(Debug, Clone, Copy)]
enum ShardName {
    Given(Shard),
    Auto,
}

impl FromStr for ShardName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            text => text.parse().map(Self::Given),
        }
    }
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
    let shard = match args.shard {
        None => None,
        Some(ShardName::Given(shard)) => Some(shard),
        Some(ShardName::Auto) => {
            let told = Shard::of_environment(|name| var(name).ok()).map_err(|e| anyhow!(e))?;
            Some(told.unwrap_or(Shard::WHOLE))
        }
    };
    if let Some(shard) = shard {
        return share(args, shard);
    }
    let (mut listing, rows) = match args.join {
        Some(n) => {
            let (all, tables, early) = Share::joined(&args.batch, n)?;
            for idx in early {
                note(&format!(
                    "units were added after --shard {idx}/{n} was merged: merge it again to have them"
                ));
            }
            (all.listing, Rows::Tables(tables, all.origins))
        }
        None => (listed(args, Shard::WHOLE)?, Rows::Blocks),
    };
    if listing.groups.is_empty() && listing.missing.is_empty() && listing.damaged.is_empty() {
        bail!(
            "{}: expected a batch with at least one unit, found none",
            args.batch.display()
        );
    }
    let mut output = Output::open_or_replace(&args.output, args.force)?;
    let is_whole = listing.is_whole();
    let mut summary = Summary::of(&mut listing);
    {
        let mut to = BufWriter::with_capacity(1 << 20, Put(&mut output));
        write(args, format, (&listing, rows), &mut summary, &mut to)?;
        to.flush().map_err(anyhow::Error::from)?;
    }
    output.close()?;
    tell(args, &listing, &summary.merged, is_stdout)?;
    if !is_whole && !args.partial {
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

fn at_least_one(text: &str) -> Result<usize, String> {
    let n = text.parse::<usize>().ok().filter(|n| *n > 0);
    n.ok_or_else(|| "expected a number of at least 1".to_owned())
}

fn listed(args: &Args, shard: Shard) -> Result<Listing> {
    let task = Task::begin("looking at units", 0);
    Ok(Listing::of(&args.batch, shard, &|n_done, n| {
        task.at(n_done, n)
    })?)
}

/// Merges a share of the checkpoints. What it found is said once the shares are joined.
fn share(args: &Args, shard: Shard) -> Result<Ended> {
    let listing = listed(args, shard)?;
    let table = Share::begin(&args.batch, shard)?;
    let mut output = Output::replace(&table)?;
    let origins = {
        let mut to = BufWriter::with_capacity(1 << 20, Put(&mut output));
        let of_crate = |e| Error::file(&table, format!("cannot be written ({e})"));
        let mut writer = ParquetWriter::for_pieces(&mut to).map_err(of_crate)?;
        let origins = Rows::Blocks.pass(&listing, |row| writer.add(&row).map_err(of_crate))?;
        writer.finish(&about(origins.clone())).map_err(of_crate)?;
        to.flush().map_err(anyhow::Error::from)?;
        origins
    };
    output.close()?;
    let units = counted(listing.n_units(), "unit");
    let checkpoints = counted(listing.groups.len(), "checkpoint");
    let Shard { idx, n } = shard;
    Share { listing, origins }.write(&args.batch, shard)?;
    let said = format!(
        "shard {idx}/{n}: {checkpoints}, {units}; once all are merged, attnscope merge {} --join {n} makes one table\n",
        args.batch.display()
    );
    Output::Stdout.write(&printable(said.as_bytes()))?;
    Ok(Ended::Clean)
}

/// Where the rows of a merge come from.
enum Rows {
    /// The blocks of units.
    Blocks,
    /// The tables of shares, and what they say of the rows' origin.
    Tables(Vec<PathBuf>, Vec<Origin>),
}

impl Rows {
    /// Passes all rows on in the order of the table.
    fn pass(
        self,
        listing: &Listing,
        each: impl FnMut(Row) -> attnscope_compute::error::Result<()>,
    ) -> Result<Vec<Origin>> {
        let task = Task::begin("merging rows", listing.n_units() as u64);
        Ok(match self {
            Self::Blocks => merged(&listing.groups, &|n| task.add(n as u64), each)?,
            Self::Tables(tables, origins) => {
                joined(&tables, each)?;
                origins
            }
        })
    }
}

/// Writes the whole batch.
fn write(
    args: &Args,
    format: Format,
    (listing, rows): (&Listing, Rows),
    summary: &mut Summary,
    to: &mut (impl Write + Send),
) -> Result<()> {
    let cannot = |e: io::Error| Error::file(&args.output, format!("cannot be written ({e})"));
    match format {
        Format::Parquet => {
            let of_crate = |e| Error::file(&args.output, format!("cannot be written ({e})"));
            let mut writer = ParquetWriter::new(&mut *to).map_err(of_crate)?;
            let origins = rows.pass(listing, |row| writer.add(&row).map_err(of_crate))?;
            writer.finish(&about(origins)).map_err(of_crate)?;
        }
        Format::Csv => {
            let mut lines = Vec::new();
            write_csv_header(to).map_err(cannot)?;
            rows.pass(listing, |row: Row| {
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
            rows.pass(listing, |row: Row| {
                to.write_all(if is_first { b"\n" } else { b",\n" })
                    .map_err(cannot)?;
                is_first = false;
                write_json_row(&row, to).map_err(cannot)
            })?;
            writeln!(to, "\n{after}").map_err(cannot)?;
        }
        Format::Html => {
            rows.pass(listing, |row| {
                summary.add(&row);
                Ok(())
            })?;
            let strips = summary.strips();
            write_batch_page(&summary.merged, &strips, &listing.slowest, to).map_err(cannot)?;
        }
    }
    Ok(())
}

/// Merges the metadata of all rows, checkpoint by checkpoint in the order of the plan.
fn about(mut origins: Vec<Origin>) -> About {
    origins.sort_by_key(|origin| origin.target);
    let models = origins.iter().map(|origin| {
        let list = origin.about.models.strip_prefix('[');
        let list = list.and_then(|list| list.strip_suffix(']'));
        list.unwrap_or_default()
    });
    let models: Vec<&str> = models.filter(|models| !models.is_empty()).collect();
    About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        models: format!("[{}]", models.join(",")),
        what_if: origins
            .first()
            .map_or_else(Vec::new, |origin| origin.about.what_if.clone()),
    }
}

/// Prints the verdict, to standard output if the table goes elsewhere.
fn tell(args: &Args, listing: &Listing, merged: &Merged, is_stdout: bool) -> Result<()> {
    let mut text = Vec::new();
    for name in &listing.damaged {
        writeln!(
            text,
            "{name}: expected the record of a unit, found a damaged file: remove it and run the batch again"
        )?;
    }
    for note in &listing.notes {
        writeln!(text, "{note}")?;
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
