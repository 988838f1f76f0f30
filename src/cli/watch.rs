//! `attnscope watch`: follows a training without a terminal, prints findings as they begin, and ends when one is bad enough.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use attnscope_compute::error::Error;
use attnscope_history::{
    Finding, Following, History, Judge, News, RereadQueue, Sources, Update, heading,
};
use attnscope_report::printable;

use super::fail_on::FailOn;
use super::history_reading::{Asked, history_of, read, sources_of};
use super::progress::{failed, happened, note};
use super::prompts::InputsArgs;
use super::{Ended, PromptArgs, RunArgs, WhatIfArgs, settings};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Monitor log, which need not exist yet, or directory of checkpoints
    #[arg(value_name = "LOG|DIR")]
    target: PathBuf,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
    /// Lowest severity that ends the watch with exit code 1
    #[arg(long, value_enum, default_value_t = FailOn::Error)]
    fail_on: FailOn,
    /// Command to run before the watch ends with 1; ATTNSCOPE_FINDING, _SEVERITY, _CHECK, _PLACE and _STEP describe the finding
    #[arg(long, value_name = "CMD")]
    exec: Option<String>,
    /// Exit with 0 after this many seconds without news; 0 exits once everything present is read
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,
    /// Neither use nor store cached statistics of checkpoints
    #[arg(long)]
    no_cache: bool,
    /// File of thresholds that override the defaults (see attnscope thresholds)
    #[arg(long, value_name = "FILE")]
    thresholds: Option<PathBuf>,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// State of the watch.
struct Watching<'a> {
    args: &'a Args,
    history: History,
    judge: Judge,
    news: News,
    has_heading: bool,
    /// Time of the last change.
    moved: Instant,
    is_caught_up: bool,
    /// The finding that ends the watch.
    found: Option<(Finding, String)>,
}

pub fn run(args: &Args) -> Result<Ended> {
    let thresholds = settings::thresholds(args.thresholds.as_deref())?;
    let sources = sources_of(std::slice::from_ref(&args.target), true)?;
    let asked = Asked {
        prompt: args.prompt.clone(),
        inputs: args.inputs.clone(),
        what_if: args.what_if.clone(),
        run: args.run.clone(),
    };
    let following = Following {
        watches: args.idle != Some(0),
        rereads: true,
        cache: if args.no_cache { None } else { asked.cache() },
        again: RereadQueue::default(),
        opening: asked.run.opening(None),
        sources,
    };
    let session = match &following.sources {
        Sources::Checkpoints(_) => Some(asked.session()?),
        Sources::Log(path) => {
            if !path.exists() {
                note(&format!("waiting for {}", path.display()));
            }
            None
        }
    };
    settings::note_thresholds();
    let mut watching = Watching {
        args,
        history: history_of(&following.sources),
        judge: Judge::new(thresholds),
        news: News::default(),
        has_heading: false,
        moved: Instant::now(),
        is_caught_up: false,
        found: None,
    };
    let mut outcome = Ok(());
    let ran = following.run(
        &mut |found| match &session {
            Some(session) => read(session, found),
            None => Err(Error::Cancelled),
        },
        &mut |updates| match watching.take(updates) {
            Ok(flow) => flow,
            Err(e) => {
                outcome = Err(e);
                ControlFlow::Break(())
            }
        },
    );
    ran?;
    outcome?;
    watching.end()
}

impl Watching<'_> {
    fn take(&mut self, updates: Vec<Update>) -> Result<ControlFlow<()>> {
        if updates
            .iter()
            .any(|update| matches!(update, Update::Read(..) | Update::Log(_)))
        {
            self.moved = Instant::now();
        }
        let mut is_caught_up = false;
        for update in updates {
            is_caught_up |= matches!(update, Update::CaughtUp);
            self.history.apply(update);
        }
        for note in std::mem::take(&mut self.history.notes) {
            happened(&note);
        }
        if is_caught_up {
            self.is_caught_up = true;
            self.judge()?;
        }
        if self.found.is_some() {
            return Ok(ControlFlow::Break(()));
        }
        let is_idle = self.args.idle.is_some_and(|seconds| {
            seconds > 0 && self.is_caught_up && self.moved.elapsed() >= Duration::from_secs(seconds)
        });
        Ok(if is_idle {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    }

    fn judge(&mut self) -> Result<()> {
        self.judge.look(&self.history);
        let mut text = String::new();
        if !self.has_heading && self.history.progress().0 > 0 {
            self.has_heading = true;
            text = format!("{}\n", heading(&self.history));
        }
        for told in self.news.of(&self.history, &self.judge) {
            text += &told.lines;
            if let (Some(severity), Some(finding)) = (told.severity, told.finding)
                && self.args.fail_on.is_met_by(severity)
                && self.found.is_none()
            {
                let line = told.lines.lines().next().unwrap_or_default();
                let line = line.trim_start_matches(severity.label()).trim().to_owned();
                self.found = Some((finding, line));
            }
        }
        print(&text)
    }

    fn end(self) -> Result<Ended> {
        let Some((finding, line)) = self.found else {
            if self.history.progress().0 == 0 {
                let mut records = self.history.records().iter();
                match records.find_map(|record| record.state.reason()) {
                    Some(why) => bail!("no step could be read: {why}"),
                    None => bail!(
                        "{}: there is nothing to judge in it",
                        self.args.target.display()
                    ),
                }
            }
            return Ok(Ended::Clean);
        };
        if let Some(command) = &self.args.exec {
            let step = self.history.records()[finding.begin].label();
            let status = Command::new("sh")
                .arg("-c")
                .arg(command)
                .stdin(Stdio::null())
                .env("ATTNSCOPE_FINDING", line)
                .env("ATTNSCOPE_SEVERITY", finding.severity.label())
                .env("ATTNSCOPE_CHECK", finding.check)
                .env("ATTNSCOPE_PLACE", finding.place.to_string())
                .env("ATTNSCOPE_STEP", step.trim_start_matches("step "))
                .status();
            match status {
                Ok(status) if status.success() => {}
                Ok(status) => failed(&format!("--exec {command:?}: ended with {status}")),
                Err(e) => failed(&format!("--exec {command:?}: cannot be run ({e})")),
            }
        }
        Ok(Ended::WithFindings)
    }
}

/// Prints immediately, so that the reader of a pipe sees findings as they begin.
fn print(text: &str) -> Result<()> {
    let mut to = std::io::stdout().lock();
    let written = to
        .write_all(&printable(text.as_bytes()))
        .and_then(|()| to.flush());
    match written {
        // The pipe is closed: the exit code still reports the result.
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::file(
            Path::new("standard output"),
            format!("cannot be written ({e})"),
        )
        .into()),
        _ => Ok(()),
    }
}
