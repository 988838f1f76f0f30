//! `attnscope report`: statistics of every layer and head, for programs and for people to read.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use super::progress::{Meter, note};
use super::prompts::{InputsArgs, Named, check_target, longest_inputs, prepare, write_targets};
use super::{PositionalPrompt, PromptArgs, RunArgs, WhatIfArgs};
use crate::report::{
    ModelRecord, Output, PromptRecord, Readable, Recorder, Report, Shown, printable, write_csv,
    write_html, write_json, write_markdown,
};
use attnscope_engine::analysis::{self, Job, MemoryNeed, Options, Outcome, Progress, input_of};
use attnscope_engine::family;
use attnscope_engine::model::{Input, Model};
use attnscope_engine::on_device;
use attnscope_engine::ops::Compute;
use attnscope_engine::prompt::Tokenizer;

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
    /// Leave texts in CSV as they are, also those that a spreadsheet would take for a formula
    #[arg(long)]
    raw_csv: bool,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Json,
    /// One row for each prompt, layer and head
    Csv,
    /// Short enough for the comment of a pull request
    Markdown,
    /// One file with maps, charts and findings, for a browser
    Html,
}

impl Format {
    /// Whether it shows maps and findings: then whole layers are kept until they are judged.
    fn is_readable(self) -> bool {
        matches!(self, Self::Markdown | Self::Html)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let compute = args.run.prepare()?;
    let prompt = args.positional.with(&args.prompt);
    let model = family::read(args.run.opening(Some(args.checkpoint.clone())).open()?)?;
    let model = args.what_if.suppose(model)?;
    let reading = Tokenizer::open(&model.checkpoint.tokenizer)?;
    let mut named = prepare(&prompt, &args.inputs, &model, &reading)?;
    let options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let longest = longest_inputs(&named);
    let mut need = MemoryNeed::of(&model, &longest, options, rayon::current_num_threads());
    let n_at_once = match args.format.is_readable() {
        true => {
            let bytes = longest
                .iter()
                .map(|input| Shown::bytes_until_judged(&model, input));
            let largest = bytes.max().unwrap_or(0);
            let n_at_once = Shown::n_at_once(largest);
            need.kept += largest * n_at_once.min(longest.len());
            n_at_once
        }
        // All prompts pass a layer together.
        false => named.len().max(1),
    };
    check_target(&args.output, &model, &prompt, &args.inputs)?;
    let output = Output::open(&args.output)?;
    args.run.check_memory(need)?;
    note(&format!("tokenizer: {}", reading.describe()));
    write_targets(&mut named, &model, &reading, &compute)?;
    let mut records = Vec::new();
    let mut shown = Vec::new();
    for chunk in named.chunks(n_at_once) {
        let ran = run_chunk(&compute, &model, chunk, options, args.format.is_readable())?;
        for (record, seen) in ran {
            records.push(record);
            shown.extend(seen);
        }
    }
    if let Some(found) = records
        .iter()
        .find_map(|record| record.first_nonfinite.as_ref())
    {
        note(found);
    }
    let report = Report {
        version: crate::report::VERSION,
        model: ModelRecord::of(&model),
        what_if: args.what_if.words(),
        prompts: records,
    };
    let mut content = Vec::new();
    match args.format {
        Format::Json => write_json(&report, &mut content)?,
        Format::Csv => write_csv(&report, args.raw_csv, &mut content)?,
        Format::Markdown => write_markdown(&Readable { report, shown }, &mut content)?,
        Format::Html => write_html(&Readable { report, shown }, &mut content)?,
    }
    if !matches!(args.format, Format::Json) && !args.raw_csv {
        content = printable(&content);
    }
    Ok(output.write(&content)?)
}

/// Runs some prompts together: what the report says of each, and what is shown beside it where that is wanted.
fn run_chunk(
    compute: &Compute,
    model: &Model,
    chunk: &[Named],
    options: Options,
    is_readable: bool,
) -> Result<Vec<(PromptRecord, Option<Shown>)>> {
    let inputs: Vec<Input> = chunk.iter().map(|named| input_of(&named.prompt)).collect();
    let meter = Meter::of(model, &inputs, options);
    // The prompts pass a layer together: the first speaks for them.
    let says = |idx: usize| {
        let meter = &meter;
        move |progress: Progress| {
            if idx == 0 {
                meter.show(progress);
            }
        }
    };
    let mut recorders: Vec<_> = (0..chunk.len())
        .map(|idx| Recorder::keeping(is_readable, says(idx)))
        .collect();
    let jobs = inputs
        .iter()
        .zip(&mut recorders)
        .map(|(input, recorder)| Job {
            input,
            observer: recorder,
            tap: None,
        });
    let jobs: Vec<Job<'_>> = jobs.collect();
    let outcomes = on_device!(compute, ops => {
        analysis::run_all(ops, model, jobs, options, &meter)
    })?;
    meter.finish();
    let ran = chunk.iter().zip(recorders).zip(&outcomes);
    let finish = |((named, mut recorder), outcome): ((&Named, Recorder<_>), &Outcome)| {
        let layers = recorder.take_whole();
        let shown = is_readable.then(|| Shown::of(model, &named.prompt, outcome, &layers));
        let record = recorder.finish(named.id.clone(), &named.prompt, outcome);
        (record, shown)
    };
    Ok(ran.map(finish).collect())
}
