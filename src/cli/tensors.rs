//! `attnscope tensors`: the tensors stored in a checkpoint, with statistics on request.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use attnscope_checkpoint::{Checkpoint, TensorInfo};
use attnscope_report::{Output, TensorList, TensorRecord, one_line, printable};
use attnscope_run::{TensorStats, tensor_stats};
use clap::ValueEnum;

use super::{WeightArgs, live_target, names};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory or weight file
    checkpoint: PathBuf,
    #[command(flatten)]
    weights: WeightArgs,
    /// Add smallest, largest and mean value, and how many are NaN or infinite
    #[arg(long)]
    stats: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
}

pub fn run(args: &Args) -> Result<()> {
    live_target::refuse(&args.checkpoint)?;
    let mut opening = args.weights.opening(Some(args.checkpoint.clone()));
    if !args.stats {
        opening.hub = names::hub_of_headers(args.weights.offline);
    }
    let checkpoint = opening.open()?;
    let content = match args.format {
        Format::Table => printable(table(&checkpoint, args.stats)?.as_bytes()),
        Format::Json => json_list(&checkpoint, args.stats)?,
    };
    Ok(Output::Stdout.write(&content)?)
}

/// Widest cell that a column fits, in characters; a longer one is shown in full, and its row is misaligned.
const WIDEST: usize = 80;

/// Returns the width of a column.
fn width_of<'a>(title: &str, cells: impl Iterator<Item = &'a str>) -> usize {
    let widest = cells.map(|cell| cell.chars().count()).max();
    widest.unwrap_or(0).max(title.len()).min(WIDEST)
}

fn table(checkpoint: &Checkpoint, with_stats: bool) -> Result<String> {
    let row = |(name, info): (&'_ str, &TensorInfo)| {
        let shape = format!("{:?}", info.shape);
        [one_line(name).into_owned(), info.dtype.to_string(), shape]
    };
    let rows: Vec<[String; 3]> = checkpoint.tensors.iter().map(row).collect();
    let titles = ["tensor", "dtype", "shape"];
    let widths: [usize; 3] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].as_str());
        width_of(titles[column], cells)
    });
    let mut text = String::new();
    let put = |text: &mut String, cells: [&str; 3]| {
        for (cell, width) in cells.iter().zip(widths) {
            write!(text, "{cell:width$}  ")?;
        }
        std::fmt::Result::Ok(())
    };
    put(&mut text, titles)?;
    write!(text, "{:>12}", "bytes")?;
    if with_stats {
        write!(
            text,
            "  {:>12}  {:>12}  {:>12}  {:>8}  {:>8}",
            "min", "max", "mean", "NaN", "infinite"
        )?;
    }
    text.push('\n');
    for (cells, (name, info)) in rows.iter().zip(checkpoint.tensors.iter()) {
        put(&mut text, cells.each_ref().map(String::as_str))?;
        write!(text, "{:>12}", info.n_bytes())?;
        if with_stats {
            match tensor_stats(&checkpoint.tensors, name)? {
                Some(TensorStats {
                    min,
                    max,
                    mean,
                    n_nan,
                    n_infinite,
                }) => write!(
                    text,
                    "  {min:>12.5}  {max:>12.5}  {mean:>12.5}  {n_nan:>8}  {n_infinite:>8}"
                )?,
                None => text.push_str("  not floating point"),
            }
        }
        text.push('\n');
    }
    Ok(text)
}

fn json_list(checkpoint: &Checkpoint, with_stats: bool) -> Result<Vec<u8>> {
    let record = |(name, info): (&str, &TensorInfo)| -> Result<TensorRecord> {
        let stats = with_stats.then(|| tensor_stats(&checkpoint.tensors, name));
        Ok(TensorRecord::of(name, info, stats.transpose()?))
    };
    let tensors = checkpoint.tensors.iter().map(record);
    let tensors = TensorList(tensors.collect::<Result<_>>()?);
    let mut content = Vec::new();
    tensors.write_json(&mut content)?;
    Ok(content)
}
