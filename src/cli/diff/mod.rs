//! `attnscope diff`: compares two checkpoints, traces or tables; sets an exit code.

mod checkpoints;
pub(super) mod logprobs;
mod recordings;
mod tables;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attnscope_compare::{CompareOptions, Comparison, LayerMap, Side, is_recording};
use attnscope_report::{Difference, Output, is_logprobs, printable};
use clap::ValueEnum;

use super::live_args::LiveArgs;
use super::live_target::Recordings;
use super::prompts::InputsArgs;
use super::{Ended, PromptArgs, RunArgs, WhatIfArgs, share};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Checkpoint, trace or table of a report: the reference
    a: PathBuf,
    /// Checkpoint, trace or table of a report: what is compared with it
    b: PathBuf,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
    /// Checkpoint to judge two tables of log-probabilities by: which one departs from it, and why
    #[arg(long, value_name = "CHECKPOINT")]
    reference: Option<PathBuf>,
    /// Relative difference up to which a hook counts as the same, or for log-probabilities a mean difference in nats [default: from the precision of the weights]
    #[arg(long, value_name = "REL", value_parser = share)]
    tolerance: Option<f64>,
    /// Layers of A, and the layers of B that correspond to them: 0-5:0-10/2
    #[arg(long, value_name = "A:B", value_parser = map)]
    map: Option<LayerMap>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Output file; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// One line that says where the two part, and tables
    Text,
    Json,
    Markdown,
    Html,
}

fn map(text: &str) -> Result<LayerMap, String> {
    text.parse()
}

impl Args {
    fn comparing(&self) -> CompareOptions {
        CompareOptions {
            tolerance: self.tolerance,
            map: self.map.clone().unwrap_or_default(),
            keeps_maps: matches!(self.format, Format::Html),
            ..CompareOptions::default()
        }
    }
}

/// Result of a comparison before it is written.
struct Compared {
    comparison: Comparison,
    names: [String; 2],
    notes: Vec<String>,
    /// Why the two could not be run side by side, if so.
    refused: Option<String>,
}

/// Kind of target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Checkpoint,
    Recording,
    Table,
    LogProbs,
}

impl Kind {
    fn of(path: &Path) -> Self {
        if is_logprobs(path) {
            Self::LogProbs
        } else if is_recording(path) {
            // A tree of a debugger's dump ends as tables do.
            Self::Recording
        } else if tables::is_table(path) {
            Self::Table
        } else {
            Self::Checkpoint
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Checkpoint => "a checkpoint",
            Self::Recording => "a trace",
            Self::Table => "a table",
            Self::LogProbs => "log-probabilities",
        }
    }
}

pub fn run(args: &Args) -> Result<Ended> {
    let recordings = Recordings::of(&args.live, [&args.a, &args.b], &args.prompt)?;
    if !recordings.is_live() {
        return compared(args, None);
    }
    let [a, b] = recordings.paths.clone();
    let named = [&args.a, &args.b].map(|path| path.display().to_string());
    // A recording is compared on its own tokens.
    let of_files = Args {
        a,
        b,
        prompt: args.prompt.without_prompt(),
        ..args.clone()
    };
    compared(&of_files, Some(named))
}

/// Compares two targets that are files; `named` has their names if they are not those of the files.
fn compared(args: &Args, named: Option<[String; 2]>) -> Result<Ended> {
    let kinds = (Kind::of(&args.a), Kind::of(&args.b));
    if kinds != (Kind::Checkpoint, Kind::Checkpoint) && args.map.is_some() {
        bail!(
            "--map: expected two checkpoints, found {} and {}",
            kinds.0.name(),
            kinds.1.name()
        );
    }
    if kinds.0 == Kind::LogProbs || kinds.1 == Kind::LogProbs {
        return logprobs::compare(args, kinds);
    }
    if args.reference.is_some() {
        bail!(
            "--reference: expected two tables of log-probabilities, found {} and {}",
            kinds.0.name(),
            kinds.1.name()
        );
    }
    let mut compared = match kinds {
        (Kind::Checkpoint, Kind::Checkpoint) => checkpoints::compare(args)?,
        (Kind::Checkpoint, Kind::Recording) => recordings::model_and_recording(args, Side::A)?,
        (Kind::Recording, Kind::Checkpoint) => recordings::model_and_recording(args, Side::B)?,
        (Kind::Recording, Kind::Recording) => recordings::both(args)?,
        (Kind::Table, Kind::Table) => tables::both(args)?,
        (a, b) => bail!(
            "{} and {}: expected two tables, found {} and {}: write a table of the other with attnscope report --format csv",
            args.a.display(),
            args.b.display(),
            a.name(),
            b.name()
        ),
    };
    if let Some(named) = named {
        compared.names = named;
    }
    finish(args, &compared)
}

/// Writes the result, and returns how the command ended.
fn finish(args: &Args, compared: &Compared) -> Result<Ended> {
    let output = Output::open_or_replace(&args.output, args.run.force)?;
    let [a, b] = &compared.names;
    let difference = Difference {
        a,
        b,
        comparison: &compared.comparison,
        notes: compared.notes.clone(),
        refused: compared.refused.clone(),
    };
    let mut content = Vec::new();
    match args.format {
        Format::Json => difference.write_json(&mut content)?,
        Format::Text => content = printable(difference.text().as_bytes()),
        Format::Markdown => content = difference.markdown().into_bytes(),
        Format::Html => content = difference.html()?.into_bytes(),
    }
    output.write(&content)?;
    if let Some(refused) = &compared.refused {
        bail!("{a} and {b} cannot be run side by side: {refused}");
    }
    if let Some(found) = compared.comparison.nonfinite() {
        let side = match found.nonfinite {
            Some(Side::A) => a,
            _ => b,
        };
        bail!(
            "{side} alone holds a NaN or an infinity: {}",
            difference.headline()
        );
    }
    if let Some((side, randomness)) = compared.comparison.random_side() {
        let name = if side == Side::A { a } else { b };
        bail!(
            "{name}: expected a recording without dropout, found one that was {}: what differs says nothing of the model; {}",
            randomness.words().unwrap_or_default(),
            randomness.advice().unwrap_or_default()
        );
    }
    Ok(if compared.comparison.is_same() {
        Ended::Clean
    } else {
        Ended::WithFindings
    })
}

/// Names the two targets: by their own names if these differ, otherwise by path.
fn names(own: [String; 2], paths: [&Path; 2]) -> [String; 2] {
    if own[0] == own[1] {
        paths.map(|path| path.display().to_string())
    } else {
        own
    }
}
