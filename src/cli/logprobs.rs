//! `attnscope logprobs`: what a model says of every token of a text, one row a token.

use anyhow::{Result, bail};
use attnscope_compute::error::Error;
use attnscope_compute::on_device;
use attnscope_forward::Input;
use attnscope_report::{FullWriter, LogProbRow, LogProbTable, Output};
use attnscope_run::{Options, Progress, TokenLogProb, input_of, needs_next_tokens, token_logprobs};
use clap::ValueEnum;

use super::live_target;
use super::progress::Meter;
use super::prompts::{InputsArgs, Named};
use super::session::{Opened, Session};
use super::written_args::WrittenArgs;
use super::{PositionalPrompt, PromptArgs, RunArgs, WhatIfArgs};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory or weight file
    checkpoint: std::path::PathBuf,
    #[command(flatten)]
    positional: PositionalPrompt,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
    /// Likeliest tokens to write per prediction
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=1024))]
    top: u16,
    /// Write whole distributions, as safetensors: ids [position] and logprobs [position, d_vocab], of the token after each position
    #[arg(long, conflicts_with = "format")]
    full: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    #[command(flatten)]
    written: WrittenArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One JSON object a token
    Jsonl,
    Csv,
    Parquet,
}

const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: false,
};

pub fn run(args: &Args) -> Result<()> {
    live_target::refuse(&args.checkpoint)?;
    let prompt = args.positional.with(&args.prompt)?;
    let session = Session::begin(&args.run, &args.what_if, prompt, &args.inputs)?;
    let mut opened = session.open(&args.checkpoint)?;
    needs_next_tokens(&opened.model)?;
    let output = Output::open_or_replace(&args.written.output, args.run.force)?;
    if args.full && output.file().is_none() {
        bail!(
            "--full: expected --output FILE, since whole distributions are written as safetensors"
        );
    }
    session.ready(&mut opened, OPTIONS, 0)?;
    if args.full {
        return write_full(args, &session, &opened, output);
    }
    let mut table = LogProbTable::default();
    for named in &opened.named {
        let input = input_of(&named.prompt);
        let tokens = said(&session, &opened, &input, usize::from(args.top))?;
        let rows = tokens.iter().enumerate().map(|(position, token)| {
            let piece = opened
                .prompt_form
                .tokenizer()
                .and_then(|tokenizer| tokenizer.piece(token.id));
            let piece = piece.unwrap_or_else(|| token.id.to_string());
            LogProbRow::new(&named.id, position, piece, token)
        });
        table.rows.extend(rows);
    }
    let mut content = Vec::new();
    match args.format {
        Format::Jsonl => table.write_jsonl(&mut content)?,
        Format::Csv => table.write_csv(args.written.raw_csv, &mut content)?,
        Format::Parquet => table.write_parquet(&mut content)?,
    }
    Ok(output.write(&content)?)
}

/// Asks the model about one prompt.
fn said(
    session: &Session<'_>,
    opened: &Opened,
    input: &Input,
    n_top: usize,
) -> Result<Vec<TokenLogProb>> {
    let meter = Meter::of(&opened.model, std::slice::from_ref(input), OPTIONS);
    let mut told = |progress: Progress| meter.show(progress);
    Ok(on_device!(&session.compute, ops => {
        token_logprobs(ops, &opened.model, input, (n_top, None), &mut told, &meter)
    })?)
}

/// Writes whole distributions as they are computed.
fn write_full(args: &Args, session: &Session<'_>, opened: &Opened, output: Output) -> Result<()> {
    let Some(file) = output.file() else {
        return Ok(());
    };
    let target = &args.written.output;
    let failed = |e: std::io::Error| Error::file(target, format!("cannot be written ({e})"));
    let ids = |named: &Named| (named.id.clone(), input_of(&named.prompt).sequence.tokens);
    let prompts: Vec<_> = opened.named.iter().map(ids).collect();
    let head = opened.model.spec.head.as_ref();
    let d_vocab = head.map_or(0, |head| head.unembed.n_out());
    let mut writer = FullWriter::new(file, &prompts, d_vocab).map_err(failed)?;
    for named in &opened.named {
        let input = input_of(&named.prompt);
        let meter = Meter::of(&opened.model, std::slice::from_ref(&input), OPTIONS);
        let mut told = |progress: Progress| meter.show(progress);
        let mut row = |_: usize, logprobs: &[f32]| writer.row(logprobs).map_err(failed);
        on_device!(&session.compute, ops => {
            token_logprobs(ops, &opened.model, &input, (0, Some(&mut row)), &mut told, &meter)
        })?;
    }
    writer.finish().map_err(failed)?;
    Ok(output.close()?)
}
