//! `attnscope check`: finds leaks, collapse and other problems; sets an exit code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attnscope_checkpoint::counted::counted;
use attnscope_checkpoint::will_read;
use attnscope_checks::{Check, Probed, Probes, Thresholds};
use attnscope_compute::on_device;
use attnscope_forward::Input;
use attnscope_history::Found;
use attnscope_live::LiveTarget;
use attnscope_prompt::{Request, TokenizerLoss};
use attnscope_report::{
    LeftOut, Note, Output, Quiet, TargetVerdict, printable, write_check_markdown, write_github,
    write_junit_by, write_sarif, write_text, write_verdicts,
};
use attnscope_run::{Budget, Covering, Judging, Options, covering, crossings, input_of, probed};
use clap::ValueEnum;

use super::check_onsets::{Asking, trainings};
use super::default_prompts::DefaultPrompts;
use super::fail_on::FailOn;
use super::history_reading::read_opened;
use super::live_args::LiveArgs;
use super::live_target;
use super::log_target::{self, log_of};
use super::progress::{Task, failed, note};
use super::prompts::{InputsArgs, Named};
use super::session::{Opened, Session};
use super::table_baselines::Baselines;
use super::targets::TargetArgs;
use super::{Ended, PromptArgs, RunArgs, WhatIfArgs, settings};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
    /// Checks to run [default: all]
    #[arg(long, value_name = "ID,ID,…", value_delimiter = ',', value_parser = known_check)]
    select: Option<Vec<&'static str>>,
    /// Checks to leave out
    #[arg(long, value_name = "ID,ID,…", value_delimiter = ',', value_parser = known_check)]
    ignore: Vec<&'static str>,
    /// File of thresholds that override the defaults (see attnscope thresholds)
    #[arg(long, value_name = "FILE")]
    thresholds: Option<PathBuf>,
    /// Report in JSON, or table (.parquet, .csv) of a report or a merge, to compare statistics with by the prompts' ids
    #[arg(long, value_name = "REPORT")]
    baseline: Option<PathBuf>,
    /// Lowest severity that sets exit code 1 and fails a case in JUnit
    #[arg(long, value_enum, default_value_t = FailOn::Error)]
    fail_on: FailOn,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// In the text format, also list the checks that found nothing, each with its reason, and every note
    #[arg(long, short)]
    verbose: bool,
    /// Output file; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Also run a prompt long enough to cross the model's boundaries (windows, contexts before rotary scaling), as --budget allows
    #[arg(long)]
    cover: bool,
    /// Seconds for testing other readings of the weights and for --cover; one counts as 20 billion multiplications, so every machine
    /// tests the same
    #[arg(long, value_name = "SECONDS", default_value_t = Budget::USUAL.seconds(), value_parser = budget)]
    budget: f64,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    live: LiveArgs,
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
    /// Findings in groups, short enough for the summary of a job or the comment of a pull request
    Markdown,
}

pub(super) fn known_check(name: &str) -> Result<&'static str, String> {
    attnscope_checks::check_named(name).map(|check| check.id)
}

pub fn run(args: &Args) -> Result<Ended> {
    let thresholds = settings::thresholds(args.thresholds.as_deref())?;
    let baselines = match &args.baseline {
        Some(path) => Baselines::read(path)?,
        None => Baselines::default(),
    };
    let ignored: BTreeSet<&str> = args.ignore.iter().copied().collect();
    let wants = |check: &Check| {
        let is_selected = args
            .select
            .as_ref()
            .is_none_or(|ids| ids.contains(&check.id));
        is_selected && !ignored.contains(check.id)
    };
    let mut found = args.targets.resolve()?;
    let trainings = trainings(&args.targets.split().0, &mut found.targets)?;
    let mut prompt = args.prompt.clone();
    prompt.positional(found.prompt.clone())?;
    let session = Session::begin(&args.run, &args.what_if, prompt.clone(), &args.inputs)?;
    found.tell();
    settings::note_thresholds();
    let to_read = found.targets.iter().map(PathBuf::as_path);
    let to_read = to_read.chain(prompt.file()).chain(args.inputs.file());
    to_read.for_each(will_read);
    let output = Output::open_or_replace(&args.output, args.run.force)?;
    let mut verdicts = Vec::new();
    for target in found.told() {
        let lines = (&thresholds, &baselines);
        match judged(args, &prompt, &session, target, lines, &wants) {
            Ok(mut verdict) => {
                if let Some(steps) = trainings.iter().find(|steps| steps.last == target) {
                    let mut judge = |step: &Path, ids: &[&str]| {
                        let wants = |check: &Check| ids.contains(&check.id);
                        judged(args, &prompt, &session, step, lines, &wants)
                    };
                    let mut read = |found: &Found| {
                        let opened = opened(args, &session, &found.path);
                        read_opened(&session, found, opened.map(|(opened, _)| opened))
                    };
                    let mut asking = Asking {
                        judge: &mut judge,
                        read: &mut read,
                    };
                    steps.judge(&mut verdict, &mut asking, &thresholds);
                }
                verdicts.push(verdict);
            }
            // This is the only target: its error is the whole result.
            Err(e) if found.targets.len() == 1 => return Err(e),
            Err(e) => {
                let reason = format!("{e:#}");
                failed(&reason);
                verdicts.push(TargetVerdict::unread(target.display().to_string(), reason));
            }
        }
    }
    if verdicts.iter().all(|verdict| verdict.error.is_some()) {
        bail!("none of {} targets could be judged", verdicts.len());
    }
    let mut content = Vec::new();
    match args.format {
        Format::Json => write_verdicts(&verdicts, &mut content)?,
        Format::Junit => {
            let fails = |severity| args.fail_on.is_met_by(severity);
            write_junit_by(&verdicts, &fails, &mut content)?;
        }
        Format::Sarif => write_sarif(&verdicts, &mut content)?,
        Format::Github => write_github(&verdicts, &mut content)?,
        Format::Markdown => write_check_markdown(&verdicts, &mut content)?,
        Format::Text => {
            let quiet = if args.verbose {
                Quiet::Listed
            } else {
                Quiet::Counted("--verbose lists them")
            };
            for verdict in &verdicts {
                write_text(verdict, quiet, &mut content)?;
            }
        }
    }
    if !matches!(args.format, Format::Json | Format::Sarif) {
        content = printable(&content);
    }
    output.write(&content)?;
    if verdicts.iter().any(|verdict| verdict.error.is_some()) {
        return Ok(Ended::Partly);
    }
    let mut worst = verdicts.iter().filter_map(TargetVerdict::worst);
    Ok(if worst.any(|severity| args.fail_on.is_met_by(severity)) {
        Ended::WithFindings
    } else {
        Ended::Clean
    })
}

/// Judges one target.
fn judged(
    args: &Args,
    prompt: &PromptArgs,
    session: &Session<'_>,
    target: &Path,
    (thresholds, baselines): (&Thresholds, &Baselines),
    wants: &dyn Fn(&Check) -> bool,
) -> Result<TargetVerdict> {
    if let Some(log) = log_of(target) {
        if args.what_if.is_set() {
            bail!(
                "{}: --what-if is for checkpoints; a monitor log holds no weights to run again",
                target.display()
            );
        }
        return log_target::judged(target, &log, thresholds, wants);
    }
    if let Some(live) = LiveTarget::parse(target) {
        return live_target::judged(
            &args.live,
            &live,
            (prompt, &args.what_if),
            thresholds,
            wants,
        );
    }
    if attnscope_run::is_captured(target) {
        if args.what_if.is_set() {
            bail!(
                "{}: --what-if is for checkpoints; a trace holds no weights to run again",
                target.display()
            );
        }
        let declared = args.live.declared(prompt);
        let (verdicts, about) =
            attnscope_run::judge_captured(target, &declared, thresholds, wants)?;
        note(&format!("{}: {about}", target.display()));
        return Ok(TargetVerdict {
            target: target.display().to_string(),
            what_if: Vec::new(),
            first: Vec::new(),
            notes: Vec::new(),
            unread: Vec::new(),
            cover: Vec::new(),
            left_out: Vec::new(),
            next: None,
            error: None,
            verdicts,
        });
    }
    if args.live.is_set() {
        bail!(
            "{}: --mask, --window, --softmax-axis, --documents and --python are for traces and live models; a checkpoint takes --set",
            target.display()
        );
    }
    let (mut opened, mut first) = opened(args, session, target)?;
    Output::check_not_read(&args.output)?;
    let options = Options {
        keep_bytes: Some(0),
        predicts: true,
    };
    let budget = Budget::of_seconds(args.budget);
    let mut left_out = Vec::new();
    if args.cover {
        let (told, out_of_reach) = add_covering(&mut opened, budget)?;
        first.push(told);
        left_out = out_of_reach;
    }
    session.ready(&mut opened, options, 0)?;
    let Opened { model, named, .. } = opened;
    let baselines = &baselines.of_checkpoint(&model.checkpoint.name)?;
    let lost = named.iter().map(|named| named.prompt.all_lost());
    let lost = lost.fold(TokenizerLoss::default(), TokenizerLoss::and);
    first.extend(lost.much().map(|said| {
        format!(
            "{said}: give text of the kind that the model was trained on, with --text or --inputs"
        )
    }));
    let prompts: Vec<(String, Input)> = named
        .into_iter()
        .map(|named| (named.id, input_of(&named.prompt)))
        .collect();
    let task = Task::begin("", 0);
    let mut told = |step| task.step(&step);
    let mut judging = Judging {
        thresholds,
        baselines,
        wants,
        lost,
        budget,
        told: &mut told,
        pace: &|| false,
    };
    let judgement = on_device!(&session.compute, ops => {
        attnscope_run::judge(ops, &model, &prompts, &mut judging)
    })?;
    drop(task);
    left_out.extend(readings_left_out(&judgement.probes));
    let lengths = prompts.iter().map(|(_, input)| input.sequence.len());
    let longest = lengths.max().unwrap_or(0);
    let mut cover = crossings(&model.spec, longest);
    cover.extend(probed(&judgement.probes));
    Ok(TargetVerdict {
        error: None,
        target: target.display().to_string(),
        what_if: args.what_if.words(),
        first,
        notes: model
            .checkpoint
            .remarks()
            .into_iter()
            .map(Note::from)
            .collect(),
        unread: model.checkpoint.unread.clone(),
        cover,
        left_out,
        next: None,
        verdicts: judgement.verdicts,
    })
}

/// What the search for a cause left out.
fn readings_left_out(probes: &Probes) -> Option<LeftOut> {
    let Probed::Ran(training) = &probes.training else {
        return None;
    };
    (training.n_left_out > 0).then(|| LeftOut {
        what: counted(training.n_left_out, "reading") + " of the weights",
        seconds: training.seconds_left_out,
    })
}

/// Parses a number of seconds, with or without an s.
fn budget(given: &str) -> Result<f64, String> {
    let number = given.strip_suffix('s').unwrap_or(given);
    let seconds: f64 = number
        .parse()
        .map_err(|_| format!("expected seconds, found {given}"))?;
    if seconds.is_finite() && seconds >= 0.0 {
        Ok(seconds)
    } else {
        Err(format!("expected seconds from 0 on, found {given}"))
    }
}

/// Adds a prompt that crosses boundaries which the prompts do not; returns a note for the user, and what is beyond the budget.
fn add_covering(opened: &mut Opened, budget: Budget) -> Result<(String, Vec<LeftOut>)> {
    let inputs: Vec<Input> = opened
        .named
        .iter()
        .map(|named| input_of(&named.prompt))
        .collect();
    let Covering {
        tokens,
        out_of_reach,
    } = covering(&opened.model, &inputs, budget);
    let left_out: Vec<LeftOut> = out_of_reach
        .into_iter()
        .map(|(what, seconds)| LeftOut { what, seconds })
        .collect();
    let beyond = match left_out.len() {
        0 => String::new(),
        1 => "; 1 boundary is beyond the budget".to_owned(),
        n => format!("; {n} boundaries are beyond the budget"),
    };
    let Some(tokens) = tokens else {
        let told = format!("--cover: no boundary is left to cross{beyond}");
        return Ok((told, left_out));
    };
    let n = tokens.len();
    let prompt = attnscope_prompt::prepare(
        &Request::ids(tokens),
        &opened.prompt_form,
        opened.model.spec.limits(),
    )?;
    opened.named.push(Named {
        id: "cover".to_owned(),
        prompt,
    });
    let told = format!("--cover: the prompt “cover” repeats the texts up to {n} tokens{beyond}");
    Ok((told, left_out))
}

/// Opens a target with its prompts: those of a file next to it, unless a prompt or a baseline was given. Returns notes for the
/// user.
fn opened(args: &Args, session: &Session<'_>, target: &Path) -> Result<(Opened, Vec<String>)> {
    let is_asked = session.has_prompt()? || args.baseline.is_some();
    let defaults = (!is_asked).then(|| DefaultPrompts::of(target, &session.usual()));
    let Some(defaults) = defaults.flatten() else {
        return Ok((session.open(target)?, Vec::new()));
    };
    let mut opened = session.open_alone(target)?;
    // A model that cannot run them gets the built-in prompt.
    if let Err(e) = session.give(&mut opened, &defaults.set()) {
        log::warn!("prompts beside the checkpoint are left aside: {e:#}");
        return Ok((session.open(target)?, Vec::new()));
    }
    Ok((opened, vec![defaults.told()]))
}
