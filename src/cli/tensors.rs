//! `attnscope tensors`: what is stored in a checkpoint, with figures on demand.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};

use super::WeightArgs;
use crate::report::{Number, Output};
use attnscope_engine::analysis::{TensorStats, tensor_stats};
use attnscope_engine::checkpoint::{Checkpoint, TensorInfo};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory or weight file
    checkpoint: PathBuf,
    #[command(flatten)]
    weights: WeightArgs,
    /// Add smallest, largest and mean value, and how many are NaN or infinite
    #[arg(long)]
    stats: bool,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
}

pub fn run(args: &Args) -> Result<()> {
    let checkpoint = args.weights.opening(Some(args.checkpoint.clone())).open()?;
    let content = match args.format {
        Format::Table => table(&checkpoint, args.stats)?,
        Format::Json => json_list(&checkpoint, args.stats)?,
    };
    Ok(Output::open(Path::new("-"))?.write(content.as_bytes())?)
}

fn table(checkpoint: &Checkpoint, with_stats: bool) -> Result<String> {
    let shape_of = |info: &TensorInfo| format!("{:?}", info.shape);
    let name_width = checkpoint
        .tensors
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or(4);
    let shape_width = checkpoint
        .tensors
        .iter()
        .map(|(_, info)| shape_of(info).len())
        .max()
        .unwrap_or(5);
    let dtype_width = checkpoint
        .tensors
        .iter()
        .map(|(_, info)| info.dtype.to_string().len())
        .max()
        .unwrap_or(5)
        .max(5);
    let mut text = format!(
        "{:name_width$}  {:dtype_width$}  {:shape_width$}  {:>12}",
        "tensor", "dtype", "shape", "bytes"
    );
    if with_stats {
        write!(
            text,
            "  {:>12}  {:>12}  {:>12}  {:>8}  {:>8}",
            "min", "max", "mean", "NaN", "infinite"
        )?;
    }
    text.push('\n');
    for (name, info) in checkpoint.tensors.iter() {
        let (dtype, shape, n_bytes) = (info.dtype, shape_of(info), info.n_bytes());
        write!(
            text,
            "{name:name_width$}  {dtype:dtype_width$}  {shape:shape_width$}  {n_bytes:>12}"
        )?;
        if with_stats {
            match tensor_stats(&checkpoint.tensors, name)? {
                Some(s) => {
                    let TensorStats {
                        min,
                        max,
                        mean,
                        n_nan,
                        n_infinite,
                    } = s;
                    write!(
                        text,
                        "  {min:>12.5}  {max:>12.5}  {mean:>12.5}  {n_nan:>8}  {n_infinite:>8}"
                    )?;
                }
                None => text.push_str("  not floating point"),
            }
        }
        text.push('\n');
    }
    Ok(text)
}

fn json_list(checkpoint: &Checkpoint, with_stats: bool) -> Result<String> {
    let entry = |(name, info): (&str, &TensorInfo)| -> Result<Value> {
        let mut entry = json!({
            "name": name,
            "dtype": info.dtype.to_string(),
            "shape": info.shape,
            "bytes": info.n_bytes(),
        });
        if with_stats {
            let stats = tensor_stats(&checkpoint.tensors, name)?;
            entry["stats"] = stats.map_or(Value::Null, |s| {
                let [min, max, mean] =
                    [f64::from(s.min), f64::from(s.max), s.mean].map(Number);
                json!({ "min": min, "max": max, "mean": mean, "nan": s.n_nan, "infinite": s.n_infinite })
            });
        }
        Ok(entry)
    };
    let entries: Vec<Value> = checkpoint
        .tensors
        .iter()
        .map(entry)
        .collect::<Result<_>>()?;
    Ok(serde_json::to_string_pretty(&entries)? + "\n")
}
