//! `attnscope report`: statistics of every layer and head, for programs to read.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use super::progress::{Meter, note};
use super::prompts::{InputsArgs, check_target, longest_inputs, prepare, write_targets};
use super::{PositionalPrompt, PromptArgs, RunArgs};
use crate::analysis::{self, Job, MemoryNeed, Options, Progress, input_of};
use crate::family;
use crate::model::Input;
use crate::ops::Cpu;
use crate::prompt::Tokenizer;
use crate::report::{ModelRecord, Output, PromptRecord, Recorder, Report, write_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory or weight file
    checkpoint: PathBuf,
    #[command(flatten)]
    positional: PositionalPrompt,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
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
    let prompt = args.positional.with(&args.prompt);
    let model = family::read(args.run.opening(Some(args.checkpoint.clone())).open()?)?;
    let reading = Tokenizer::open(&model.checkpoint.tokenizer)?;
    let mut named = prepare(&prompt, &args.inputs, &model, &reading)?;
    let options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let longest = longest_inputs(&named);
    let need = MemoryNeed::of(&model, &longest, options, rayon::current_num_threads());
    check_target(&args.output, &model, &prompt, &args.inputs)?;
    let output = Output::open(&args.output)?;
    args.run.check_memory(need)?;
    note(&format!("tokenizer: {}", reading.describe()));
    write_targets(&mut named, &model, &reading)?;
    let inputs: Vec<Input> = named.iter().map(|named| input_of(&named.prompt)).collect();
    let meter = Meter::of(&model.spec);
    // All prompts pass a layer together: the first speaks for them.
    let says = |idx: usize| {
        let meter = &meter;
        move |progress: Progress| {
            if idx == 0 {
                meter.show(progress);
            }
        }
    };
    let mut recorders: Vec<_> = (0..named.len())
        .map(|idx| Recorder::new(says(idx)))
        .collect();
    let jobs = inputs
        .iter()
        .zip(&mut recorders)
        .map(|(input, recorder)| Job {
            input,
            observer: recorder,
            tap: None,
        });
    let outcomes = analysis::run_all(&Cpu, &model, jobs.collect(), options, &|| false)?;
    meter.finish();
    let records = named.into_iter().zip(recorders).zip(&outcomes);
    let records: Vec<PromptRecord> = records
        .map(|((named, recorder), outcome)| recorder.finish(named.id, &named.prompt, outcome))
        .collect();
    if let Some(found) = records
        .iter()
        .find_map(|record| record.first_nonfinite.as_ref())
    {
        note(found);
    }
    let report = Report {
        version: crate::report::VERSION,
        model: ModelRecord::of(&model),
        what_if: Vec::new(),
        prompts: records,
    };
    let mut content = Vec::new();
    match args.format {
        Format::Json => write_json(&report, &mut content)?,
    }
    Ok(output.write(&content)?)
}
