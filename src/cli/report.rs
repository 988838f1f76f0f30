//! `attnscope report`: statistics of every layer and head, for programs and for people.

use std::io::{IsTerminal, stdout};
use std::path::Path;

use anyhow::{Result, bail};
use attnscope_checkpoint::will_read;
use attnscope_checks::stats::LayerReport;
use attnscope_history::{History, rows};
use attnscope_report::record::{Source, Table, step_of};
use attnscope_report::{
    CheckpointRecord, ModelRecord, Output, Readable, Recorder, Report, Shown, printable,
    write_html, write_json, write_markdown, write_several,
};
use attnscope_run::{Observer, Options, Progress, Recorded, Trace, judge_trace};
use clap::ValueEnum;

use super::live_args::LiveArgs;
use super::live_target;
use super::log_target::{log_of, read_log};
use super::progress::{failed, note};
use super::prompts::{InputsArgs, ONLY};
use super::session::{Opened, Session};
use super::targets::TargetArgs;
use super::written_args::WrittenArgs;
use super::{Ended, PromptArgs, RunArgs, WhatIfArgs, settings};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
    #[command(flatten)]
    written: WrittenArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    /// One row for each checkpoint, prompt, layer and head
    Csv,
    /// The rows of csv, for data frames and databases
    Parquet,
    /// Short enough for the comment of a pull request
    Markdown,
    /// One file with maps, charts and findings, for a browser
    Html,
}

impl Format {
    /// Whether the format shows maps and findings: then whole layers are kept until they are judged.
    fn is_readable(self) -> bool {
        matches!(self, Self::Markdown | Self::Html)
    }

    /// Returns the file extension of the format.
    fn ending(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Markdown => "md",
            Self::Html => "html",
        }
    }
}

const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: true,
};

/// Results of all targets.
#[derive(Default)]
struct All {
    ran: Vec<Ran>,
    /// Monitor logs, which are tables already.
    logs: Vec<History>,
}

/// Result of one checkpoint.
struct Ran {
    report: Report,
    step: Option<u64>,
    shown: Vec<Shown>,
}

pub fn run(args: &Args) -> Result<Ended> {
    let found = args.targets.resolve()?;
    if args.format.is_readable() && found.targets.len() > 1 {
        bail!(
            "--format {}: expected one checkpoint, found {} (json, csv and parquet hold several)",
            args.format.ending(),
            found.targets.len()
        );
    }
    if args.format == Format::Parquet
        && args.written.output == Path::new("-")
        && stdout().is_terminal()
    {
        bail!("--format parquet: expected --output FILE, found a terminal, which cannot show it");
    }
    let mut prompt = args.prompt.clone();
    prompt.positional(found.prompt.clone())?;
    let asked = prompt.clone();
    let session = Session::begin(&args.run, &args.what_if, prompt, &args.inputs)?;
    found.tell();
    settings::note_thresholds();
    let mut output = None;
    let mut all = All::default();
    let n_targets = found.targets.len();
    found.targets.iter().for_each(|target| will_read(target));
    let unless_alone = |e: anyhow::Error| match n_targets {
        1 => Err(e),
        _ => {
            failed(&format!("{e:#}"));
            Ok(())
        }
    };
    for target in found.told() {
        if let Some(log) = log_of(target) {
            match history_of(&log, args) {
                Ok(history) => all.logs.push(history),
                Err(e) => unless_alone(e)?,
            }
            continue;
        }
        let recorded = live_target::recorded_of(&args.live, target, (&asked, &args.what_if))?;
        if let Some((recorded, trace)) = recorded {
            if args.inputs.is_set() {
                bail!(
                    "{}: --inputs is for checkpoints: a live model or a trace gives the report of one run",
                    target.display()
                );
            }
            output = Some(match output {
                Some(output) => output,
                None => open_output(args)?,
            });
            all.ran.push(ran_recorded(&recorded, &trace, args)?);
            continue;
        }
        let opened = match session.open(target) {
            Ok(opened) => opened,
            Err(e) => {
                unless_alone(e)?;
                continue;
            }
        };
        // Only after the first target is open: the output must not be one of the files that it reads.
        if output.is_none() {
            output = Some(open_output(args)?);
        }
        match ran(&session, opened, target, args.format) {
            Ok(ran) => all.ran.push(ran),
            Err(e) => unless_alone(e)?,
        }
    }
    let n_done = all.ran.len() + all.logs.len();
    if n_done == 0 {
        bail!("none of {n_targets} targets could be run");
    }
    let output = match output {
        Some(output) => output,
        None => open_output(args)?,
    };
    let is_whole = n_done == n_targets;
    let what_if = args.what_if.words();
    output.write(&content(args, all, n_targets > 1, what_if)?)?;
    Ok(if is_whole {
        Ended::Clean
    } else {
        Ended::Partly
    })
}

fn open_output(args: &Args) -> Result<Output> {
    let ends_as_directory = args
        .written
        .output
        .as_os_str()
        .to_string_lossy()
        .ends_with('/');
    let target = if args.written.output.is_dir() || ends_as_directory {
        args.written
            .output
            .join("report")
            .with_extension(args.format.ending())
    } else {
        args.written.output.clone()
    };
    Ok(Output::open_or_replace(&target, args.run.force)?)
}

/// Reads a log, for a format that supports logs.
fn history_of(log: &Path, args: &Args) -> Result<History> {
    if !matches!(args.format, Format::Csv | Format::Parquet) {
        bail!(
            "{}: a monitor log is a table: expected --format csv or parquet (attnscope history LOG --format json writes its steps and findings)",
            log.display()
        );
    }
    read_log(log)
}

fn content(args: &Args, all: All, is_several: bool, what_if: Vec<String>) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    match args.format {
        Format::Json if is_several => {
            let records = all
                .ran
                .into_iter()
                .map(|ran| CheckpointRecord::of(ran.report, ran.step));
            write_several(records.collect(), &mut content)?;
        }
        Format::Csv | Format::Parquet => {
            let sources = all.ran.iter().map(|ran| Source {
                model: &ran.report.model,
                step: ran.step,
                prompts: &ran.report.prompts,
            });
            let mut table = Table::of(&sources.collect::<Vec<_>>(), what_if);
            table.add(all.logs.iter().flat_map(rows));
            if args.format == Format::Parquet {
                table.write_parquet(&mut content)?;
                return Ok(content);
            }
            table.write_csv(args.written.raw_csv, &mut content)?;
        }
        Format::Json | Format::Markdown | Format::Html => {
            for Ran { report, shown, .. } in all.ran {
                match args.format {
                    Format::Markdown => write_markdown(&Readable { report, shown }, &mut content)?,
                    Format::Html => write_html(&Readable { report, shown }, &mut content)?,
                    _ => write_json(&report, &mut content)?,
                }
            }
        }
    }
    if args.format != Format::Json && !args.written.raw_csv {
        content = printable(&content);
    }
    Ok(content)
}

/// Makes the report of a recorded run.
fn ran_recorded(recorded: &Recorded, trace: &Trace, args: &Args) -> Result<Ran> {
    let mut recorder = Recorder::new(|_: Progress| {});
    for layer in &recorded.layers {
        if recorder.layer(LayerReport::clone(layer)).is_break() {
            break;
        }
    }
    let (prompt, outcome) = (&recorded.prompt, &recorded.outcome);
    let record = recorder.finish(ONLY.to_owned(), None, prompt, outcome);
    let mut shown = Vec::new();
    if args.format.is_readable() {
        let thresholds = settings::thresholds(None)?;
        let verdicts = judge_trace(trace, &recorded.layers, &thresholds);
        shown.push(Shown::judged(verdicts, prompt, outcome, &recorded.layers));
    }
    Ok(Ran {
        report: Report {
            version: attnscope_report::VERSION,
            model: ModelRecord::of_recorded(recorded),
            what_if: args.what_if.words(),
            notes: vec![recorded.about.clone()],
            unread: Vec::new(),
            prompts: vec![record],
        },
        step: None,
        shown,
    })
}

/// Runs all prompts through one target.
fn ran(session: &Session<'_>, mut opened: Opened, target: &Path, format: Format) -> Result<Ran> {
    let n_prompts = opened.named.len().max(1);
    let (n_at_once, kept) = if format.is_readable() {
        let longest = opened.longest();
        let bytes = longest
            .iter()
            .map(|input| Shown::bytes_until_judged(&opened.model, input));
        let largest = bytes.max().unwrap_or(0);
        let n_at_once = Shown::n_at_once(largest);
        (n_at_once, largest * n_at_once.min(n_prompts))
    } else {
        // All prompts go through a layer together.
        (n_prompts, 0)
    };
    session.ready(&mut opened, OPTIONS, kept)?;
    let thresholds = settings::thresholds(None)?;
    let model = &opened.model;
    let (mut records, mut shown) = (Vec::new(), Vec::new());
    for chunk in opened.named.chunks(n_at_once) {
        let ran = session.run(model, chunk, OPTIONS, format.is_readable())?;
        for (ran, named) in ran.into_iter().zip(chunk) {
            if format.is_readable() {
                shown.push(Shown::of(
                    model,
                    &named.prompt,
                    &ran.outcome,
                    &ran.layers,
                    &thresholds,
                ));
            }
            records.push(ran.record);
        }
    }
    let found = records
        .iter()
        .find_map(|record| record.first_nonfinite.as_ref());
    if let Some(found) = found {
        note(found);
    }
    let report = Report {
        version: attnscope_report::VERSION,
        model: ModelRecord::of(model),
        what_if: session.what_ifs(),
        notes: model.checkpoint.remarks(),
        unread: model.checkpoint.unread.clone(),
        prompts: records,
    };
    Ok(Ran {
        step: step_of(target, &report.model.name),
        report,
        shown,
    })
}
