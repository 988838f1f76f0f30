//! `attnscope report`: statistics of every layer and head, for programs to read.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use super::progress::{Meter, note};
use super::{PromptArgs, RunArgs};
use crate::analysis::{self, Options, Progress, generate, input_of};
use crate::error::Result as RoomResult;
use crate::family;
use crate::model::Model;
use crate::ops::Cpu;
use crate::prompt::{self, Prompt, Reading, Tokenizer};
use crate::report::{ModelRecord, Output, Recorder, Report, write_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory or weight file
    checkpoint: PathBuf,
    #[command(flatten)]
    prompt: PromptArgs,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
    /// Where to write it; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Json,
}

pub fn run(args: &Args) -> Result<()> {
    args.run.prepare()?;
    let model = family::read(args.run.opening(Some(args.checkpoint.clone())).open()?)?;
    let reading = Tokenizer::open(&model.checkpoint.tokenizer)?;
    let prompt = prepare(&args.prompt, &model, &reading)?;
    let output = Output::open(&args.output)?;
    note(&format!("tokenizer: {}", reading.describe()));
    let meter = Meter::of(&model.spec);
    let mut recorder = Recorder::new(|progress: Progress| meter.show(progress));
    let options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let outcome = analysis::run(
        &Cpu,
        &model,
        &input_of(&prompt),
        options,
        &mut recorder,
        None,
        &|| false,
    )?;
    let record = recorder.finish("prompt".to_owned(), &prompt, &outcome);
    meter.finish();
    if let Some(found) = &record.first_nonfinite {
        note(found);
    }
    let report = Report {
        version: crate::report::VERSION,
        model: ModelRecord::of(&model),
        what_if: Vec::new(),
        prompts: vec![record],
    };
    let mut content = Vec::new();
    match args.format {
        Format::Json => write_json(&report, &mut content)?,
    }
    Ok(output.write(&content)?)
}

/// Reads the prompt the flags ask for, or the built-in one; lets a decoder without a target write its own.
///
/// # Errors
/// When the model cannot run it.
pub(super) fn prepare(args: &PromptArgs, model: &Model, reading: &Reading) -> RoomResult<Prompt> {
    let request = match args.request()? {
        Some(request) => request,
        None => {
            note("no prompt given: running a built-in one");
            args.built_in(false, reading.tokenizer().is_some(), model.spec.d_vocab)
        }
    };
    let mut prompt = prompt::prepare(&request, reading, model.spec.limits())?;
    generate(&Cpu, model, &mut prompt, &|id| reading.label(id), &|| false)?;
    Ok(prompt)
}
