//! `attnscope check`: leaks, collapse and other findings, with an exit code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::progress::{StepMeter, note};
use super::prompts::{InputsArgs, check_target, longest_inputs, prepare, write_targets};
use super::{Ended, PromptArgs, RunArgs, WhatIfArgs};
use crate::report::{
    Output, TargetVerdict, printable, read_baseline, write_github, write_junit, write_sarif,
    write_text, write_verdicts,
};
use attnscope_engine::analysis::{
    self, Declared, DeclaredMask, Judging, MemoryNeed, Options, input_of,
};
use attnscope_engine::attention::SoftmaxAxis;
use attnscope_engine::checks::{self, Baseline, Check, Severity, Thresholds};
use attnscope_engine::family;
use attnscope_engine::model::Input;
use attnscope_engine::on_device;
use attnscope_engine::ops::Compute;
use attnscope_engine::prompt::Tokenizer;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directories, weight files, traces (.safetensors, .npz) or probes
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<PathBuf>,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
    /// Checks to run; all unless given
    #[arg(long, value_name = "ID,ID,…", value_delimiter = ',', value_parser = known_check)]
    select: Option<Vec<&'static str>>,
    /// Checks to leave out
    #[arg(long, value_name = "ID,ID,…", value_delimiter = ',', value_parser = known_check)]
    ignore: Vec<&'static str>,
    /// Table of thresholds that changes some of the defaults (see attnscope thresholds)
    #[arg(long, value_name = "FILE")]
    thresholds: Option<PathBuf>,
    /// Report (attnscope report --format json) to compare statistics with, by the prompts' ids
    #[arg(long, value_name = "REPORT.json")]
    baseline: Option<PathBuf>,
    /// The least severity of a finding that makes the exit code 1
    #[arg(long, value_enum, default_value_t = FailOn::Error)]
    fail_on: FailOn,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Where to write it; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// What a trace is declared to be, where its metadata does not say it.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Traces")]
struct TraceArgs {
    /// Which keys a query may see
    #[arg(long, value_enum)]
    mask: Option<MaskArg>,
    /// How many keys back a query sees, itself included
    #[arg(long, value_name = "W", value_parser = clap::value_parser!(u32).range(1..))]
    window: Option<u32>,
    /// The axis that the softmax is meant to run over
    #[arg(long, value_enum)]
    softmax_axis: Option<AxisArg>,
    /// Positions at which packed documents begin
    #[arg(long, value_name = "0,17,…", value_delimiter = ',')]
    documents: Option<Vec<usize>>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum MaskArg {
    Causal,
    Bidirectional,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AxisArg {
    Keys,
    Queries,
}

impl TraceArgs {
    fn declared(&self, prompt: &PromptArgs) -> Declared {
        Declared {
            mask: self.mask.map(|mask| match mask {
                MaskArg::Causal => DeclaredMask::Causal,
                MaskArg::Bidirectional => DeclaredMask::Bidirectional,
            }),
            window: self.window.map(|width| width as usize),
            axis: self.softmax_axis.map(|axis| match axis {
                AxisArg::Keys => SoftmaxAxis::Keys,
                AxisArg::Queries => SoftmaxAxis::Queries,
            }),
            attention_mask: prompt.real_tokens(),
            documents: self.documents.clone(),
        }
    }

    /// Flags that only a trace understands.
    fn is_set(&self) -> bool {
        self.mask.is_some()
            || self.window.is_some()
            || self.softmax_axis.is_some()
            || self.documents.is_some()
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FailOn {
    Error,
    Warning,
    Info,
    Never,
}

impl FailOn {
    fn is_met_by(self, severity: Severity) -> bool {
        match self {
            Self::Error => severity >= Severity::Error,
            Self::Warning => severity >= Severity::Warning,
            Self::Info => true,
            Self::Never => false,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
    /// XML that test runners and build servers read
    Junit,
    /// What code scanning reads, version 2.1.0
    Sarif,
    /// Commands that GitHub shows as annotations
    Github,
}

fn known_check(id: &str) -> Result<&'static str, String> {
    checks::find(id).map(|check| check.id).ok_or_else(|| {
        let known: Vec<&str> = checks::CHECKS.iter().map(|check| check.id).collect();
        format!("unknown check; known: {}", known.join(", "))
    })
}

pub fn run(args: &Args) -> Result<Ended> {
    let compute = args.run.prepare()?;
    let thresholds = match &args.thresholds {
        Some(path) => Thresholds::open(path)?,
        None => Thresholds::default(),
    };
    let baselines = match &args.baseline {
        Some(path) => read_baseline(path)?,
        None => BTreeMap::new(),
    };
    let ignored: BTreeSet<&str> = args.ignore.iter().copied().collect();
    let wants = |check: &Check| {
        let is_selected = args
            .select
            .as_ref()
            .is_none_or(|ids| ids.contains(&check.id));
        is_selected && !ignored.contains(check.id)
    };
    let output = Output::open(&args.output)?;
    let mut verdicts = Vec::new();
    for target in &args.targets {
        verdicts.push(judged(
            args,
            &compute,
            target,
            (&thresholds, &baselines),
            &wants,
        )?);
    }
    let mut content = Vec::new();
    match args.format {
        Format::Json => write_verdicts(&verdicts, &mut content)?,
        Format::Junit => write_junit(&verdicts, &mut content)?,
        Format::Sarif => write_sarif(&verdicts, &mut content)?,
        Format::Github => write_github(&verdicts, &mut content)?,
        Format::Text => {
            for verdict in &verdicts {
                write_text(verdict, &mut content)?;
            }
        }
    }
    if !matches!(args.format, Format::Json | Format::Sarif) {
        content = printable(&content);
    }
    output.write(&content)?;
    let mut worst = verdicts.iter().filter_map(TargetVerdict::worst);
    Ok(
        match worst.any(|severity| args.fail_on.is_met_by(severity)) {
            true => Ended::WithFindings,
            false => Ended::Clean,
        },
    )
}

/// Judges one target.
fn judged(
    args: &Args,
    compute: &Compute,
    target: &Path,
    (thresholds, baselines): (&Thresholds, &BTreeMap<String, Baseline>),
    wants: &dyn Fn(&Check) -> bool,
) -> Result<TargetVerdict> {
    if analysis::is_captured(target) {
        Output::check_not_read(&args.output, &[target])?;
        if args.what_if.is_set() {
            bail!(
                "{}: --what-if is for checkpoints; a trace holds no weights to run again",
                target.display()
            );
        }
        let declared = args.trace.declared(&args.prompt);
        let (verdicts, about) = analysis::judge_captured(target, &declared, thresholds, wants)?;
        note(&format!("{}: {about}", target.display()));
        return Ok(TargetVerdict {
            target: target.display().to_string(),
            what_if: Vec::new(),
            verdicts,
        });
    }
    if args.trace.is_set() {
        bail!(
            "{}: --mask, --window, --softmax-axis and --documents are for traces; a checkpoint takes --set",
            target.display()
        );
    }
    let model = family::read(args.run.opening(Some(target.to_path_buf())).open()?)?;
    let model = args.what_if.suppose(model)?;
    let reading = Tokenizer::open(&model.checkpoint.tokenizer)?;
    check_target(&args.output, &model, &args.prompt, &args.inputs)?;
    let mut named = prepare(&args.prompt, &args.inputs, &model, &reading)?;
    let options = Options {
        keep_bytes: Some(0),
        predicts: true,
    };
    let longest = longest_inputs(&named);
    args.run.check_memory(MemoryNeed::of(
        &model,
        &longest,
        options,
        rayon::current_num_threads(),
    ))?;
    note(&format!("tokenizer: {}", reading.describe()));
    write_targets(&mut named, &model, &reading, compute)?;
    let prompts: Vec<(String, Input)> = named
        .into_iter()
        .map(|named| (named.id, input_of(&named.prompt)))
        .collect();
    let meter = StepMeter::new();
    let mut told = |step| meter.show(&step);
    let mut judging = Judging {
        thresholds,
        baselines,
        wants,
        told: &mut told,
        pace: &|| false,
    };
    let judgement = on_device!(compute, ops => {
        analysis::judge(ops, &model, &prompts, &mut judging)
    })?;
    meter.finish();
    Ok(TargetVerdict {
        target: target.display().to_string(),
        what_if: args.what_if.words(),
        verdicts: judgement.verdicts,
    })
}
