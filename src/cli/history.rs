//! `attnscope history`: follows a training by its checkpoints or its monitor log, without a screen.

use std::io::{IsTerminal, stdout};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use attnscope_checkpoint::counted::counted;
use attnscope_history::{
    Following, History, Judge, News, RereadQueue, Sources, State, Update, document, table, told,
};
use attnscope_report::{Output, printable, write_history, write_history_page};
use clap::ValueEnum;

use super::history_reading::{Asked, check_not_empty, history_of, read, sources_of};
use super::progress::{Task, failed, happened, note};
use super::prompts::InputsArgs;
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
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    written: WrittenArgs,
    /// Keep reading: new checkpoints and new lines of a log appear by themselves
    #[arg(long)]
    watch: bool,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Findings and the steps at which they begin
    Text,
    /// Steps, statistics of every head, and findings
    Json,
    /// One row for each step, prompt, layer and head
    Csv,
    /// The rows of csv, for data frames and databases
    Parquet,
    /// A page for people: findings, and every head over the steps
    Html,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Html => "html",
        }
    }
}

/// Shortest time between two writes of an output file that is kept up to date.
const WRITTEN_EVERY: Duration = Duration::from_secs(1);

/// Data read so far, and how to write it.
struct Kept<'a> {
    args: &'a Args,
    history: History,
    judge: Judge,
    models: Vec<String>,
    news: News,
    written: Option<(Instant, u64)>,
    n_rows_written: usize,
    /// Progress display; `None` while no steps are being read.
    task: Option<Task>,
}

pub fn run(args: &Args) -> Result<Ended> {
    let (targets, text) = args.targets.split();
    let sources = sources_of(&targets, args.watch)?;
    let to_stdout = args.written.output == Path::new("-");
    if args.format == Format::Parquet && to_stdout && stdout().is_terminal() {
        bail!("--format parquet: expected --output FILE, found a terminal, which cannot show it");
    }
    if args.watch && to_stdout && !matches!(args.format, Format::Text) {
        bail!(
            "--watch --format {}: expected --output FILE, which is kept up to date",
            args.format.name()
        );
    }
    let thresholds = settings::thresholds(args.thresholds.as_deref())?;
    let mut prompt = args.prompt.clone();
    prompt.positional(text)?;
    if !args.watch {
        check_not_empty(&sources)?;
    }
    if !to_stdout {
        // Fail now if the path cannot be written.
        drop(Output::open_or_replace(
            &args.written.output,
            args.run.force,
        )?);
    }
    let asked = Asked {
        prompt,
        inputs: args.inputs.clone(),
        what_if: args.what_if.clone(),
        run: args.run.clone(),
    };
    let following = Following {
        watches: args.watch,
        rereads: true,
        cache: if args.no_cache { None } else { asked.cache() },
        again: RereadQueue::default(),
        opening: asked.run.opening(None),
        sources,
    };
    let session = match following.sources {
        Sources::Checkpoints(_) => Some(asked.session()?),
        Sources::Log(_) => None,
    };
    settings::note_thresholds();
    let mut kept = Kept {
        args,
        history: history_of(&following.sources),
        judge: Judge::new(thresholds),
        models: Vec::new(),
        news: News::default(),
        written: None,
        n_rows_written: 0,
        task: None,
    };
    let mut outcome = Ok(());
    following.run(
        &mut |found| {
            let Some(session) = &session else {
                return Err(attnscope_compute::error::Error::Cancelled);
            };
            read(session, found)
        },
        &mut |updates| match kept.take(updates) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                outcome = Err(e);
                ControlFlow::Break(())
            }
        },
    )?;
    outcome?;
    kept.end()
}

impl Kept<'_> {
    fn take(&mut self, updates: Vec<Update>) -> Result<()> {
        let mut is_caught_up = false;
        for update in updates {
            if matches!(update, Update::CaughtUp) {
                is_caught_up = true;
                self.task = None;
            }
            if let Update::Read(_, reading) = &update
                && !self.models.contains(&reading.model)
            {
                self.models.push(reading.model.clone());
            }
            self.tell(&update);
            self.history.apply(update);
        }
        if !self.args.watch {
            return Ok(());
        }
        if self.args.written.output != Path::new("-") {
            let revision = self.history.revision();
            let is_due = match self.written {
                None => true,
                Some((when, known)) => known != revision && when.elapsed() >= WRITTEN_EVERY,
            };
            if is_due && self.history.progress().0 > 0 {
                self.judge.look(&self.history);
                let content = self.content()?;
                Output::replace(&self.args.written.output)?.write(&content)?;
                self.written = Some((Instant::now(), revision));
            }
            return Ok(());
        }
        if is_caught_up {
            self.judge.look(&self.history);
            let mut text = String::new();
            let n = self.history.progress().0;
            if self.n_rows_written == 0 && n > 0 {
                text = format!("{}\n", attnscope_history::heading(&self.history));
            }
            self.n_rows_written = n;
            for told in self.news.of(&self.history, &self.judge) {
                text += &told.lines;
            }
            if !text.is_empty() {
                Output::Stdout.write(&printable(text.as_bytes()))?;
            }
        }
        Ok(())
    }

    /// Shows which step is being read, and reports steps whose files changed or were deleted.
    fn tell(&mut self, update: &Update) {
        let Update::State(path, state) = update else {
            return;
        };
        let Some(at) = self.history.position(path) else {
            return;
        };
        let label = self.history.records()[at].label();
        let (n_read, n) = self.history.progress();
        match state {
            State::Reading => {
                let said = format!("{label} ({} of {n})", n_read + 1);
                log::info!("reading {said}");
                let task = self.task.get_or_insert_with(|| Task::begin("", 0));
                task.say(&said);
                task.at(n_read, n);
            }
            State::Gone | State::Changed => happened(&format!("{label}: {}", state.label())),
            _ => {}
        }
    }

    fn content(&self) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        let what_if = self.args.what_if.words();
        match self.args.format {
            Format::Text => {
                let text = told(&self.history, self.judge.findings(), self.judge.trends());
                content = printable(text.as_bytes());
            }
            Format::Json => {
                write_history(&document(&self.history, &self.judge, what_if), &mut content)?
            }
            Format::Csv => {
                table(&self.history, &self.models, what_if)
                    .write_csv(self.args.written.raw_csv, &mut content)?;
                if !self.args.written.raw_csv {
                    content = printable(&content);
                }
            }
            Format::Parquet => {
                table(&self.history, &self.models, what_if).write_parquet(&mut content)?
            }
            Format::Html => {
                write_history_page(&document(&self.history, &self.judge, what_if), &mut content)?
            }
        }
        Ok(content)
    }

    fn end(mut self) -> Result<Ended> {
        self.task = None;
        self.judge.look(&self.history);
        let (n_read, n) = self.history.progress();
        let failures = self
            .history
            .records()
            .iter()
            .filter(|record| matches!(record.state, State::Failed(_) | State::Incomplete(_)));
        let n_failed = failures.clone().count();
        if n_read == 0 {
            let why = failures.clone().find_map(|record| record.state.reason());
            match why {
                Some(why) => bail!("none of {} could be read: {why}", counted(n, "step")),
                None => bail!("{}: there is no record in it", self.history.name),
            }
        }
        if self.args.format != Format::Text {
            for record in failures {
                let reason = record.state.reason().unwrap_or_default();
                failed(&format!(
                    "{}: {}: {reason}",
                    record.label(),
                    record.state.label()
                ));
            }
            self.history.notes.iter().for_each(|said| note(said));
        }
        let content = self.content()?;
        Output::open_or_replace(
            &self.args.written.output,
            self.args.run.force || self.args.watch,
        )?
        .write(&content)?;
        Ok(match n_failed {
            0 => Ended::Clean,
            _ => Ended::Partly,
        })
    }
}
