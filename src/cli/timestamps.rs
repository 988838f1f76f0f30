//! `attnscope timestamps`: the times of each token in a transcript, from the heads that follow the sound.

use std::path::PathBuf;

use anyhow::{Result, bail};
use attnscope_compute::on_device;
use attnscope_report::{ModelRecord, Output, Timestamps, Transcript, printable};
use attnscope_run::{Options, input_of, token_times};
use attnscope_spec::{Model, Places, Stack};

use super::figures::Format;
use super::prompts::InputsArgs;
use super::session::Session;
use super::written_args::WrittenArgs;
use super::{PositionalPrompt, PromptArgs, RunArgs, WhatIfArgs};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint of a model that hears: a directory or a weight file
    checkpoint: PathBuf,
    #[command(flatten)]
    positional: PositionalPrompt,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
    /// Heads of cross-attention that tell the time: cross.L1H0,cross.L3H2 [default: those that the checkpoint names]
    #[arg(long, value_name = "PLACES")]
    at: Option<Places>,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    written: WrittenArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    run: RunArgs,
}

const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: false,
};

pub fn run(args: &Args) -> Result<()> {
    let prompt = args.positional.with(&args.prompt)?;
    let session = Session::begin(&args.run, &args.what_if, prompt, &args.inputs)?;
    let mut opened = session.open(&args.checkpoint)?;
    let spec = &opened.model.spec;
    if spec.limits().sound.is_none() || spec.decoder_start.is_none() {
        bail!(
            "{}: times of tokens are for models that write what they hear (whisper), found {}",
            args.checkpoint.display(),
            spec.family
        );
    }
    let heads = args
        .at
        .as_ref()
        .map(|at| heads_of(at, &opened.model))
        .transpose()?;
    let output = Output::open_or_replace(&args.written.output, args.run.force)?;
    session.ready(&mut opened, OPTIONS, 0)?;
    let mut transcripts = Vec::new();
    for named in &opened.named {
        let input = input_of(&named.prompt);
        let times = on_device!(&session.compute, ops => {
            token_times(ops, &opened.model, &input, heads.as_deref(), &|| false)
        })?;
        transcripts.push(Transcript::new(&named.id, &named.prompt, &times));
    }
    let document = Timestamps::new(ModelRecord::of(&opened.model), transcripts);
    let mut content = Vec::new();
    match args.format {
        Format::Json => document.write_json(&mut content)?,
        Format::Csv => document.write_csv(args.written.raw_csv, &mut content)?,
        Format::Text => content = printable(document.text().as_bytes()),
    }
    Ok(output.write(&content)?)
}

/// Returns the cross-attention heads at some places; a layer stands for all of its heads.
fn heads_of(places: &Places, model: &Model) -> Result<Vec<[usize; 2]>> {
    let blocks = model.spec.main_stack().blocks();
    let mut heads = Vec::new();
    for place in &places.0 {
        let layer = place
            .layer_idx
            .filter(|_| place.stack == Some(Stack::Cross));
        let cross = layer.and_then(|layer_idx| blocks.get(layer_idx)?.cross.as_ref());
        let (Some(layer_idx), Some(cross)) = (layer, cross) else {
            bail!("--at {place}: expected heads of cross-attention, as in cross.L0H1");
        };
        let n_heads = cross.attention.n_heads;
        match place.head_idx {
            Some(head_idx) if head_idx >= n_heads => {
                bail!("--at {place}: expected a head below {n_heads}");
            }
            Some(head_idx) => heads.push([layer_idx, head_idx]),
            None => heads.extend((0..n_heads).map(|head_idx| [layer_idx, head_idx])),
        }
    }
    Ok(heads)
}
