//! `attnscope verify`: runs one prompt on two engines and compares every hook; sets an exit code.

use std::path::PathBuf;

use anyhow::{Result, bail};
use attnscope_compare::verify::{Floor, VerifyOptions};
use attnscope_compute::ops::{Candle, Compute, Cpu, Device};
use attnscope_report::{Engines, ModelRecord, Output, Verification, printable};
use attnscope_run::{Options, input_of, is_captured};
use clap::ValueEnum;

use super::progress::Meter;
use super::prompts::InputsArgs;
use super::session::Session;
use super::{Ended, PositionalPrompt, PromptArgs, RunArgs, WhatIfArgs, share};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory or weight file
    checkpoint: PathBuf,
    #[command(flatten)]
    positional: PositionalPrompt,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Largest difference of scores, residuals, logits and other values that counts as rounding, as a share of the largest value
    #[arg(long, value_name = "SHARE", value_parser = share, default_value_t = Floor::default().relative)]
    floor: f64,
    /// Largest difference of a probability of the pattern that counts as rounding
    #[arg(long, value_name = "P", value_parser = share, default_value_t = Floor::default().pattern)]
    floor_pattern: f64,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Output file; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// A table, and what there is to conclude from it
    Text,
    Json,
}

pub fn run(args: &Args) -> Result<Ended> {
    if is_captured(&args.checkpoint) {
        bail!(
            "{}: expected a checkpoint, found a trace or arrays: verify runs a model, and these hold no weights",
            args.checkpoint.display()
        );
    }
    let prompt = args.positional.with(&args.prompt)?;
    let no_set = InputsArgs::default();
    let session = Session::begin(&args.run, &args.what_if, prompt, &no_set)?;
    // The CPU engine is the reference: if it is requested by name, it is compared with candle on the CPU.
    let (candle, device) = match &session.compute {
        Compute::Cpu(_) => (Candle::cpu(), Device::Candle),
        Compute::Candle(candle) => (candle.clone(), session.device),
    };
    let mut opened = session.open(&args.checkpoint)?;
    let output = Output::open_or_replace(&args.output, args.run.force)?;
    let verifying = VerifyOptions {
        floor: Floor {
            pattern: args.floor_pattern,
            relative: args.floor,
        },
        ..VerifyOptions::default()
    };
    let options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let n_threads = rayon::current_num_threads();
    let longest = opened.longest().into_iter();
    let engine_bytes = longest.map(|longest| {
        attnscope_compare::verify::verify_bytes(
            &opened.model,
            &longest,
            verifying.row_bytes,
            n_threads,
        )
    });
    let engine_bytes = engine_bytes.sum();
    session.ready(&mut opened, options, engine_bytes)?;
    let Some(named) = opened.named.first() else {
        bail!("expected a prompt, found none");
    };
    let input = input_of(&named.prompt);
    // The meter counts the arithmetic of both engines.
    let meter = Meter::of(&opened.model, &[input.clone(), input.clone()], options);
    let found = attnscope_compare::verify::verify(
        (&Cpu, &candle),
        &opened.model,
        &input,
        verifying,
        &|progress| meter.show(progress),
        &meter,
    )?;
    drop(meter);
    let engines = Engines {
        reference: Device::Cpu.to_string(),
        other: device.to_string(),
    };
    let verification = Verification::new(
        ModelRecord::of(&opened.model),
        session.what_ifs(),
        engines,
        &named.prompt,
        verifying.floor,
        &found,
    );
    let mut content = Vec::new();
    match args.format {
        Format::Json => verification.write_json(&mut content)?,
        Format::Text => content = printable(verification.text().as_bytes()),
    }
    output.write(&content)?;
    Ok(if verification.is_within() {
        Ended::Clean
    } else {
        Ended::WithFindings
    })
}
