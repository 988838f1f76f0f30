//! `attnscope trace`: values inside the model as safetensors, streamed layer by layer.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use attnscope_checks::stats::LayerReport;
use attnscope_compute::on_device;
use attnscope_forward::{Hook, Input};
use attnscope_live::LiveTarget;
use attnscope_report::{Output, Selection, TracePlan, TraceWriter};
use attnscope_run::{Job, Observer, Options, Progress, input_of};
use attnscope_spec::{Places, Stack};
use indicatif::HumanBytes;

use super::live_args::LiveArgs;
use super::live_target;
use super::progress::{Meter, note};
use super::prompts::{InputsArgs, Named};
use super::session::{Opened, Session};
use super::{PositionalPrompt, PromptArgs, RunArgs, WhatIfArgs};

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
    /// What to write, or all: resid_pre, q, k, v, rot_q, rot_k, scores, pattern, value_norms, contribution, z, attn_out, mlp_out, resid_post, logits
    #[arg(
        long,
        value_name = "HOOK,HOOK,…",
        value_delimiter = ',',
        default_value = "pattern,resid_post,logits"
    )]
    hooks: Vec<Hooks>,
    /// Layers to write: 0,3-5, or encoder.0-2,decoder.1 [default: all]
    #[arg(long, value_name = "LAYERS", value_parser = layer_list)]
    layers: Option<Layers>,
    /// Heads to write, in every chosen layer: 0,2-3 [default: all]
    #[arg(long, value_name = "HEADS", value_parser = index_list)]
    heads: Option<Indices>,
    /// Places to write, layers and heads together: L0-2,L3H7, or encoder.L0H2,cross.L1
    #[arg(long, value_name = "PLACES", conflicts_with_all = ["layers", "heads"])]
    at: Option<Places>,
    /// File to write; with --inputs a directory, one file per id
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// A hook by name, or all hooks.
#[derive(Debug, Clone)]
struct Hooks(Vec<Hook>);

impl FromStr for Hooks {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name == "all" {
            return Ok(Self(Hook::ALL.to_vec()));
        }
        Ok(Self(vec![name.parse()?]))
    }
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

/// Longest range accepted; longer ones are typos, not layers or heads.
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
    let prompt = args.positional.with(&args.prompt)?;
    if let Some(live) = LiveTarget::parse(&args.checkpoint) {
        if args.inputs.is_set()
            || args.layers.is_some()
            || args.heads.is_some()
            || args.at.is_some()
        {
            anyhow::bail!(
                "{live}: a live model is recorded whole, on one prompt: --inputs, --layers, --heads and --at are for checkpoints"
            );
        }
        let output = Output::open_or_replace(&args.output, args.run.force)?;
        return live_target::write_trace(&args.live, &live, (&prompt, &args.what_if), output);
    }
    let session = Session::begin(&args.run, &args.what_if, prompt, &args.inputs)?;
    let mut opened = session.open(&args.checkpoint)?;
    let selection = Selection {
        hooks: args
            .hooks
            .iter()
            .flat_map(|hooks| hooks.0.clone())
            .collect(),
        layers: args.layers.as_ref().map(|l| l.0.clone()),
        heads: args.heads.as_ref().map(|h| h.0.clone()),
        at: args.at.as_ref().map(|at| at.0.clone()),
        what_if: args.what_if.words(),
    };
    let targets = targets(args, &opened.named)?;
    // Check the selection before a decoder generates anything.
    for named in &opened.named {
        TracePlan::new(&opened.model, &named.prompt.longest(), &selection)?;
    }
    let outputs = targets
        .iter()
        .map(|target| Output::open_or_replace(target, args.run.force))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(target) = targets
        .iter()
        .zip(&outputs)
        .find_map(|(target, output)| output.file().is_none().then_some(target))
    {
        anyhow::bail!(
            "--output {}: expected a file, since a trace is written in several places at once",
            target.display()
        );
    }
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    session.ready(&mut opened, options, 0)?;
    let Opened { model, named, .. } = opened;
    let plans = named
        .iter()
        .map(|named| TracePlan::new(&model, &named.prompt, &selection))
        .collect::<Result<Vec<_>, _>>()?;
    let inputs: Vec<Input> = named.iter().map(|named| input_of(&named.prompt)).collect();
    let n_tensors: usize = plans.iter().map(|plan| plan.tensors.len()).sum();
    let n_bytes: u64 = plans.iter().map(TracePlan::file_len).sum();
    log::info!("{n_tensors} tensors, {}", HumanBytes(n_bytes));
    let mut writers = Vec::new();
    for (((plan, named), output), target) in plans.iter().zip(&named).zip(&outputs).zip(&targets) {
        let Some(file) = output.file() else {
            continue;
        };
        writers.push(TraceWriter::new(
            plan,
            &named.prompt,
            &model.spec,
            file,
            target,
        )?);
    }
    let meter = Meter::of(&model, &inputs, options);
    let mut first = Speaker(Some(&meter));
    let mut others = vec![Speaker(None); named.len().saturating_sub(1)];
    let observers = std::iter::once(&mut first).chain(&mut others);
    let jobs = inputs.iter().zip(observers).zip(&mut writers);
    let jobs = jobs.map(|((input, observer), writer)| Job {
        input,
        observer,
        tap: Some(writer),
    });
    let jobs: Vec<Job<'_>> = jobs.collect();
    let outcomes = on_device!(&session.compute, ops => {
        attnscope_run::run_all(ops, &model, jobs, options, &meter)
    })?;
    drop(meter);
    if let Some(found) = outcomes
        .iter()
        .find_map(|outcome| outcome.nonfinite.as_ref())
    {
        note(&found.to_string());
    }
    for output in outputs {
        output.close()?;
    }
    Ok(())
}

/// Returns the files to write: the named one, or one per prompt of a set in the named directory.
fn targets(args: &Args, named: &[Named]) -> Result<Vec<PathBuf>> {
    if !args.inputs.is_set() {
        return Ok(vec![args.output.clone()]);
    }
    let target = |named: &Named| {
        let name = format!("{}.safetensors", named.id);
        let parts = std::path::Path::new(&name).components().count();
        if parts != 1 || name.contains(['/', '\\']) {
            anyhow::bail!("prompt {}: expected an id that can name a file", named.id);
        }
        Ok(args.output.join(name))
    };
    let targets = named.iter().map(target).collect::<Result<Vec<_>>>()?;
    std::fs::create_dir_all(&args.output).map_err(|e| {
        anyhow::anyhow!(
            "{}: cannot be made a directory ({e})",
            args.output.display()
        )
    })?;
    Ok(targets)
}

/// Reports the progress of a run, for one prompt of a set.
#[derive(Clone)]
struct Speaker<'a>(Option<&'a Meter>);

impl Observer for Speaker<'_> {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        if let Some(meter) = self.0 {
            meter.show(progress);
        }
        ControlFlow::Continue(())
    }

    fn layer(&mut self, _: LayerReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_lists_accept_numbers_and_ranges() {
        assert_eq!(index_list("0,3-5").expect("a list").0, [0, 3, 4, 5]);
        for bad in ["", "a", "5-3", "1-", "0-9999999999"] {
            assert!(index_list(bad).is_err(), "{bad}");
        }
    }
}
