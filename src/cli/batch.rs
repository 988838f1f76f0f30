//! `attnscope batch`: many checkpoints on many prompts, unit by unit, by any number of workers.

use std::env::var;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use attnscope_checkpoint::counted::counted;
use attnscope_compute::error::Error;
use attnscope_history::batch::{
    Chunk, Cost, Layout, Parts, Plan, PlannedTarget, Shard, State, UnitWriter, Weights,
};
use attnscope_report::{Output, UnitRecord, named, printable};

use super::batch_unit::{self, RanUnit};
use super::progress::{Task, failed, note};
use super::prompts::{InputsArgs, PromptSet};
use super::session::{Opened, Session};
use super::targets::TargetArgs;
use super::{Ended, PromptArgs, RunArgs, WhatIfArgs, names};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
    /// Directory of the batch: every worker writes its units there
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Run share I of N, from 0 to N − 1 [default: from a Slurm job array or an indexed Kubernetes Job, else everything]
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Prompts per unit
    #[arg(long, value_name = "PROMPTS", default_value_t = 64, value_parser = at_least_one)]
    chunk: usize,
    /// Do only these chunks of prompts, counted from 0
    #[arg(long, value_name = "N,N,…", value_delimiter = ',')]
    only_chunks: Vec<usize>,
    /// Stop a unit that takes longer, and record it as failed
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    unit_timeout: Option<Duration>,
    /// Run failed units again
    #[arg(long)]
    retry_failed: bool,
    /// How units are written [default: files, from 10 000 units on directories]
    #[arg(long, value_enum)]
    layout: Option<LayoutName>,
    /// With --layout packed: write finished units at least this often
    #[arg(long, value_name = "SECONDS", value_parser = slice, default_value = "5")]
    slice: Duration,
    /// Only write the plan, and print it as JSON with the missing units
    #[arg(long)]
    plan: bool,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// Layouts by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum LayoutName {
    /// Two files a unit, in one directory
    Files,
    /// Two files a unit, in directories by the first letters of their names
    Directories,
    /// One file for each checkpoint and worker, for batches of many units
    Packed,
}

impl Args {
    /// Returns the layout that was asked for, or the one that fits a plan.
    fn layout(&self, cost: &Cost) -> LayoutName {
        self.layout.unwrap_or(if cost.is_large() {
            LayoutName::Directories
        } else {
            LayoutName::Files
        })
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let n = text.parse::<usize>().ok().filter(|n| *n > 0);
    n.ok_or_else(|| "expected a number of at least 1".to_owned())
}

fn slice(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds, 0 or more".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds above 0".to_owned())
}

/// Number of units by outcome.
#[derive(Debug, Default)]
struct Counts {
    n_done: usize,
    n_there: usize,
    n_failed: usize,
    n_failed_before: usize,
}

/// Data shared by all units.
struct Batch<'a> {
    args: &'a Args,
    session: Session<'a>,
    set: PromptSet,
    plan: Plan,
    parts: Parts,
    counts: Counts,
}

/// A unit that ended, successfully or not.
struct UnitEnd {
    id: String,
    checkpoint: String,
    prompts: Vec<String>,
    seconds: f64,
}

pub fn run(args: &Args) -> Result<Ended> {
    let shard = shard_of(args)?;
    let mut found = args.targets.resolve()?;
    if args.run.weights.weights.is_none() {
        found = found.with_steps()?;
    }
    let mut prompt = args.prompt.clone();
    prompt.positional(found.prompt.clone())?;
    let mut session = Session::begin(&args.run, &args.what_if, prompt, &args.inputs)?;
    found.tell();
    let Some(set) = session.set()? else {
        bail!("expected --inputs FILE.jsonl or a prompt, found neither");
    };
    names::check_is_no_bucket(&args.output)?;
    let plan = plan_of(args, &session, &found.targets, &set);
    if let Some(chunk) = args
        .only_chunks
        .iter()
        .find(|chunk| **chunk >= plan.chunks.len())
    {
        bail!(
            "--only-chunks {chunk}: expected less than {}",
            plan.chunks.len()
        );
    }
    let cost = Cost::of(&plan);
    let name = args.layout(&cost);
    let layout = match name {
        LayoutName::Files => Layout::Files,
        LayoutName::Directories => Layout::Directories,
        LayoutName::Packed => Layout::Packed(args.slice),
    };
    let parts = Parts::open(&args.output, layout)?;
    if args.only_chunks.is_empty() {
        plan.write(&args.output)?;
        if cost.is_large() {
            let cost = cost.with(parts.measured());
            cost.lines(layout, shard.n)
                .iter()
                .for_each(|line| note(line));
        }
    }
    if args.plan {
        let missing = missing(args, &plan, &parts, &found.targets);
        return print(&Printed {
            plan: &plan,
            layout: name,
            missing,
        });
    }
    attnscope_system::signals::end_with_a_code();
    let mut batch = Batch {
        args,
        session,
        set,
        plan,
        parts,
        counts: Counts::default(),
    };
    let own: Vec<usize> = (0..found.targets.len())
        .filter(|idx| shard.takes(*idx))
        .collect();
    let task = Task::begin("", own.len() as u64);
    for (nth, target_idx) in own.iter().enumerate() {
        let checkpoint = &batch.plan.targets[*target_idx].checkpoint;
        task.say(&format!("{checkpoint} ({} of {})", nth + 1, own.len()));
        task.at(nth, own.len());
        batch.checkpoint(*target_idx, &found.targets[*target_idx])?;
    }
    drop(task);
    batch.end(shard)
}

/// Returns the share given by a flag, or by a scheduler.
fn shard_of(args: &Args) -> Result<Shard> {
    if let Some(shard) = args.shard {
        return Ok(shard);
    }
    let told = Shard::of_environment(|name| var(name).ok()).map_err(|problem| anyhow!(problem))?;
    Ok(told.unwrap_or(Shard::WHOLE))
}

fn plan_of(args: &Args, session: &Session<'_>, targets: &[PathBuf], set: &PromptSet) -> Plan {
    let chunks = set.requests().chunks(args.chunk).map(|requests| Chunk {
        digest: attnscope_history::batch::digest::of_bytes(format!("{requests:?}").as_bytes()),
        prompts: requests.iter().map(|(id, _)| id.clone()).collect(),
    });
    let run = &args.run;
    let weights = &run.weights;
    let options = format!(
        "{:?}\n{:?}\n{}\n{:?}\n{:?} {:?} {:?} {} {}",
        session.usual(),
        session.what_ifs(),
        run.device,
        run.set,
        weights.weights,
        weights.tokenizer,
        weights.base,
        weights.no_settings,
        weights.no_adapter,
    );
    Plan::new(
        targets
            .iter()
            .map(|target| PlannedTarget::of(target))
            .collect(),
        chunks.collect(),
        options.as_bytes(),
    )
}

/// A plan as printed.
#[derive(serde::Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    /// How a worker writes units of this plan.
    layout: LayoutName,
    /// Missing units, as indices of target and chunk in the plan.
    missing: Vec<(usize, usize)>,
}

/// Returns the missing units, as far as they are known without reading weights: all units of a checkpoint that no worker has
/// started are missing.
fn missing(args: &Args, plan: &Plan, parts: &Parts, targets: &[PathBuf]) -> Vec<(usize, usize)> {
    let mut missing = Vec::new();
    for (target_idx, (planned, target)) in plan.targets.iter().zip(targets).enumerate() {
        let kept = Weights::kept(&args.output, &planned.target);
        let kept = kept.filter(|weights| {
            let places = args.run.opening(Some(target.clone())).places();
            weights.are_unchanged(&places)
        });
        let known = parts.of_checkpoint(&planned.checkpoint);
        for (chunk_idx, chunk) in plan.chunks.iter().enumerate() {
            let state = kept.as_ref().map_or(State::Missing, |weights| {
                known.state(&plan.id(&weights.digest, planned, chunk))
            });
            let is_over = match state {
                State::Done(_) => true,
                State::Failed(_) => !args.retry_failed,
                State::Missing => false,
            };
            if !is_over {
                missing.push((target_idx, chunk_idx));
            }
        }
    }
    missing
}

fn print(plan: &Printed<'_>) -> Result<Ended> {
    let mut text = serde_json::to_vec_pretty(plan)?;
    text.push(b'\n');
    match stdout().lock().write_all(&text) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            bail!("standard output: cannot be written ({e})")
        }
        Err(_) | Ok(()) => Ok(Ended::Clean),
    }
}

impl Batch<'_> {
    /// Runs the missing units of one checkpoint.
    ///
    /// # Errors
    /// When nothing can be written. A unit that fails is recorded instead.
    fn checkpoint(&mut self, target_idx: usize, target: &Path) -> Result<()> {
        let planned = self.plan.targets[target_idx].clone();
        let hub = self.args.run.weights.opening(None).hub;
        let found = match hub.find(target) {
            Ok(_) => self.args.run.opening(Some(target.to_path_buf())).places(),
            Err(_) => Vec::new(),
        };
        let weights = Weights::of(&self.args.output, &planned.target, &found)?;
        let wanted = &self.args.only_chunks;
        let chunks =
            (0..self.plan.chunks.len()).filter(|idx| wanted.is_empty() || wanted.contains(idx));
        let parts = self.parts.clone();
        let known = parts.of_checkpoint(&planned.checkpoint);
        let mut missing = Vec::new();
        for chunk_idx in chunks {
            let id = self
                .plan
                .id(&weights.digest, &planned, &self.plan.chunks[chunk_idx]);
            match known.state(&id) {
                State::Done(_) => self.counts.n_there += 1,
                State::Failed(_) if !self.args.retry_failed => self.counts.n_failed_before += 1,
                State::Failed(_) | State::Missing => missing.push((chunk_idx, id)),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let task = Task::begin("", missing.len() as u64);
        let n_missing = missing.len();
        drop(known);
        let mut writer = parts.writer(&planned.checkpoint);
        let mut opened = self.session.open_alone(target);
        for (nth, (chunk_idx, id)) in missing.into_iter().enumerate() {
            let left = n_missing - nth;
            task.say(&format!("{} to do", counted(left, "unit")));
            task.at(nth, n_missing);
            let begun = Instant::now();
            let ran = match &mut opened {
                Ok(opened) => self.unit(opened, target, chunk_idx, begun),
                Err(e) => Err(anyhow!("{e:#}")),
            };
            let ran = ran.and_then(|ran| {
                if weights.are_unchanged(&found) {
                    Ok(ran)
                } else {
                    bail!("{}: changed while it was read", target.display())
                }
            });
            let name = match &opened {
                Ok(opened) => opened.model.checkpoint.name.clone(),
                Err(_) => planned.checkpoint.clone(),
            };
            let about = UnitEnd {
                id,
                checkpoint: name,
                prompts: self.plan.chunks[chunk_idx].prompts.clone(),
                seconds: begun.elapsed().as_secs_f64(),
            };
            self.put(about, ran, &mut writer)?;
        }
        Ok(writer.flush()?)
    }

    /// Runs one unit within its time limit.
    fn unit(
        &mut self,
        opened: &mut Opened,
        target: &Path,
        chunk_idx: usize,
        begun: Instant,
    ) -> Result<RanUnit> {
        let limit = self.args.unit_timeout;
        self.session.until = limit.map(|limit| begun + limit);
        let first = chunk_idx * self.args.chunk;
        let prompts = self
            .set
            .part(first..first + self.plan.chunks[chunk_idx].prompts.len());
        let ran = batch_unit::run(&self.session, opened, target, &prompts);
        ran.map_err(|e| match (e.downcast_ref(), limit) {
            (Some(Error::Cancelled), Some(limit)) => {
                anyhow!("took longer than --unit-timeout {}", limit.as_secs_f64())
            }
            _ => e,
        })
    }

    /// Records the outcome of a unit.
    fn put(
        &mut self,
        about: UnitEnd,
        ran: Result<RanUnit>,
        writer: &mut UnitWriter<'_>,
    ) -> Result<()> {
        let (mut rows, mut findings) = (None, Vec::new());
        let error = match ran {
            Ok(ran) => {
                // A NaN leaves rows and findings, so that the problem can be seen in the table.
                (rows, findings) = (Some(ran.rows), ran.findings);
                ran.nonfinite
            }
            Err(e) => Some(format!("{e:#}")),
        };
        let mut record = UnitRecord::ended(about.id, about.checkpoint, about.prompts, error);
        (record.findings, record.seconds) = (findings, about.seconds);
        let unit = named(&record.checkpoint, &record.prompts);
        match &record.error {
            Some(error) => {
                self.counts.n_failed += 1;
                failed(&format!("{unit}: {error}"));
            }
            None => {
                self.counts.n_done += 1;
                log::info!("{unit}: {:.2} s", record.seconds);
            }
        }
        Ok(writer.add(record, rows)?)
    }

    fn end(&self, shard: Shard) -> Result<Ended> {
        let Counts {
            n_done,
            n_there,
            n_failed,
            n_failed_before,
        } = self.counts;
        let done = counted(n_done, "unit");
        let mut said = format!("{done} done, {n_there} already there, {n_failed} failed");
        if shard != Shard::WHOLE {
            said = format!("shard {}/{}: {said}", shard.idx, shard.n);
        }
        if n_failed_before > 0 {
            said += &format!(", {n_failed_before} failed before (--retry-failed runs them again)");
        }
        said.push('\n');
        Output::Stdout.write(&printable(said.as_bytes()))?;
        Ok(match n_failed + n_failed_before {
            0 => Ended::Clean,
            _ => Ended::Partly,
        })
    }
}
