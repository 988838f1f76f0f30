//! `attnscope trace`: values inside the model as safetensors, streamed layer by layer.

use std::path::PathBuf;

use anyhow::Result;
use indicatif::HumanBytes;

use super::progress::{Meter, note};
use super::report::prepare;
use super::{PromptArgs, RunArgs};
use crate::analysis::{self, Options, Progress, Tap, input_of};
use crate::family;
use crate::model::{Hook, Stack};
use crate::ops::Cpu;
use crate::prompt::Tokenizer;
use crate::report::{Output, Recorder, Selection, TracePlan, TraceWriter};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory or weight file
    checkpoint: PathBuf,
    #[command(flatten)]
    prompt: PromptArgs,
    /// What to write: resid_pre, q, k, v, rot_q, rot_k, scores, pattern, z, attn_out, mlp_out, resid_post, logits
    #[arg(
        long,
        value_name = "HOOK,HOOK,…",
        value_delimiter = ',',
        default_value = "pattern,resid_post,logits"
    )]
    hooks: Vec<Hook>,
    /// Layers to write: 0,3-5, or encoder.0-2,decoder.1; all unless given
    #[arg(long, value_name = "LAYERS", value_parser = layer_list)]
    layers: Option<Layers>,
    /// Heads to write, of every chosen layer: 0,2-3; all unless given
    #[arg(long, value_name = "HEADS", value_parser = index_list)]
    heads: Option<Indices>,
    /// File to write
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    run: RunArgs,
}

/// A list of indices given as `0,3-5`.
#[derive(Debug, Clone)]
struct Indices(Vec<usize>);

/// Layers given as `0,3-5` or `encoder.0-2`.
#[derive(Debug, Clone)]
struct Layers(Vec<(Option<Stack>, usize)>);

fn layer_list(text: &str) -> Result<Layers, String> {
    let mut layers = Vec::new();
    for part in text.split(',') {
        let (stack, indices) = match part.trim().split_once('.') {
            None => (None, part),
            Some(("encoder", indices)) => (Some(Stack::Encoder), indices),
            Some(("decoder", indices)) => (Some(Stack::Decoder), indices),
            Some((other, _)) => {
                return Err(format!("expected encoder. or decoder., found {other:?}"));
            }
        };
        layers.extend(index_list(indices)?.0.into_iter().map(|idx| (stack, idx)));
    }
    Ok(Layers(layers))
}

/// Ranges longer than this are slips of the finger, not layers or heads.
const LONGEST_RANGE: usize = 100_000;

fn index_list(text: &str) -> Result<Indices, String> {
    let number = |part: &str| {
        part.trim()
            .parse::<usize>()
            .map_err(|_| format!("expected 0,3-5, found {text:?}"))
    };
    let mut indices = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last || last - first > LONGEST_RANGE {
                    return Err(format!("expected a rising range, found {part:?}"));
                }
                indices.extend(first..=last);
            }
            None => indices.push(number(part)?),
        }
    }
    Ok(Indices(indices))
}

pub fn run(args: &Args) -> Result<()> {
    args.run.prepare()?;
    let model = family::read(args.run.opening(Some(args.checkpoint.clone())).open()?)?;
    let reading = Tokenizer::open(&model.checkpoint.tokenizer)?;
    let prompt = prepare(&args.prompt, &model, &reading)?;
    let selection = Selection {
        hooks: args.hooks.clone(),
        layers: args.layers.as_ref().map(|l| l.0.clone()),
        heads: args.heads.as_ref().map(|h| h.0.clone()),
    };
    let plan = TracePlan::new(&model, &prompt, &selection)?;
    let output = Output::open(&args.output)?;
    let Some(file) = output.file() else {
        anyhow::bail!(
            "--output -: expected a file, since a trace is written in several places at once"
        );
    };
    note(&format!(
        "{} tensors, {}",
        plan.tensors.len(),
        HumanBytes(plan.file_len())
    ));
    let mut writer = TraceWriter::new(&plan, &prompt, &model.spec, file, &args.output)?;
    let meter = Meter::of(&model.spec);
    let mut recorder = Recorder::new(|progress: Progress| meter.show(progress));
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    let tap: Option<&mut dyn Tap> = Some(&mut writer);
    let outcome = analysis::run(
        &Cpu,
        &model,
        &input_of(&prompt),
        options,
        &mut recorder,
        tap,
        &|| false,
    )?;
    meter.finish();
    if let Some(found) = &outcome.nonfinite {
        note(&found.to_string());
    }
    Ok(output.close()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_lists_take_numbers_and_ranges() {
        assert_eq!(index_list("0,3-5").expect("a list").0, [0, 3, 4, 5]);
        for bad in ["", "a", "5-3", "1-", "0-9999999999"] {
            assert!(index_list(bad).is_err(), "{bad}");
        }
    }
}
