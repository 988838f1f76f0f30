//! The command line: what can be asked for, and one file per subcommand.

pub mod align;
mod capture_script;
mod check;
mod completions;
pub mod demo;
mod device;
mod explain;
mod figures;
mod heads;
mod lab;
mod open;
mod plot;
mod progress;
mod prompt_args;
mod prompts;
mod report;
mod sweep;
mod sweep_checkpoint;
mod tensors;
mod trace;
mod what_if_args;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

use self::device::Chosen;
use self::prompt_args::{PositionalPrompt, PromptArgs};
use self::what_if_args::WhatIfArgs;
use crate::bundles::BUNDLES;
use attnscope_engine::analysis::MemoryNeed;
use attnscope_engine::checkpoint::Opening;
use attnscope_engine::kernels::simd::Level;
use attnscope_engine::machine;
use attnscope_engine::ops::Compute;

/// Opens a trained checkpoint, runs its attention layer by layer, and shows what every head does.
#[derive(Debug, Parser)]
#[command(name = "attnscope", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    open: open::Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Judge checkpoints: leaks, collapse, other findings; exits with 1 when there are some
    Check(check::Args),
    /// Say what a check does, why it matters, and what its false alarms are
    Explain(explain::Args),
    /// Print the table of thresholds, with sources
    Thresholds,
    /// Write the statistics of every layer and head
    Report(report::Args),
    /// Say what kind of place each head looks at: previous token, induction, sink, …
    Heads(heads::Args),
    /// Write patterns, scores, residuals and other values as safetensors
    Trace(trace::Args),
    /// Open one of the systems that come with the program, or print its figures
    Demo(demo::Args),
    /// Draw a panel as SVG, with its data as CSV beside it, without a terminal
    #[command(mut_arg("force", |force| force.help(FORCE_PLOT)))]
    Plot(plot::Args),
    /// Multiply scores and watch the softmax harden: largest probability, entropy, Jacobian against the scale
    Sweep(sweep::Args),
    /// Simulate attention without a checkpoint: other divisors than √d, variance and gradients
    Lab(lab::Args),
    /// Align the words of two sentences by attention between two tables of embeddings
    Align(align::Args),
    /// Print a Python file that records attention inside any PyTorch model, for check to judge
    CaptureScript,
    /// List the tensors of a checkpoint
    Tensors(tensors::Args),
    /// Print completions for a shell
    Completions(completions::Args),
}

/// What `--force` does in `plot`.
const FORCE_PLOT: &str = "Write over files that are there, and run even when the memory that is left is less than what the run needs";

/// How a command that could run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Clean,
    /// There are findings of the severity that was asked for.
    WithFindings,
}

impl Cli {
    /// Runs what was asked for.
    ///
    /// # Errors
    /// One line for a person: what could not be read or computed.
    pub fn run(self) -> Result<Ended> {
        match self.command {
            None => open::run(&self.open)?,
            Some(Command::Check(args)) => return check::run(&args),
            Some(Command::Explain(args)) => explain::run(&args)?,
            Some(Command::Thresholds) => explain::thresholds()?,
            Some(Command::Report(args)) => report::run(&args)?,
            Some(Command::Heads(args)) => heads::run(&args)?,
            Some(Command::Trace(args)) => trace::run(&args)?,
            Some(Command::Demo(args)) => demo::run(&args)?,
            Some(Command::Plot(args)) => plot::run(&args)?,
            Some(Command::Sweep(args)) => sweep::run(&args)?,
            Some(Command::Lab(args)) => lab::run(&args)?,
            Some(Command::Align(args)) => align::run(&args)?,
            Some(Command::CaptureScript) => capture_script::run()?,
            Some(Command::Tensors(args)) => tensors::run(&args)?,
            Some(Command::Completions(args)) => completions::run(&args)?,
        }
        Ok(Ended::Clean)
    }
}

/// More threads than any machine has cores are a slip, and starting them takes minutes.
const MOST_THREADS: usize = 1024;

/// What every command that runs a model takes.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    weights: WeightArgs,
    /// Correct or complete how the checkpoint is read: n_heads=12, scale=inv_d, mask=causal, …
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value, long_help = set_help())]
    set: Vec<(String, String)>,
    /// Where to compute: cpu, cuda, cuda:N or auto
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    device: String,
    /// Threads to use; all cores unless given
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Run even when the memory that is left is less than what the run needs
    #[arg(long)]
    force: bool,
    /// Write a log of what happens to this file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// What every command that opens a checkpoint takes.
#[derive(Debug, Clone, clap::Args)]
pub struct WeightArgs {
    /// Which file of the directory holds the weights
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
}

impl WeightArgs {
    fn opening(&self, path: Option<PathBuf>) -> Opening {
        Opening {
            weights: self.weights.clone(),
            bundle: Some(&BUNDLES[0]),
            ..Opening::from(path)
        }
    }
}

/// Every key, from the table that reads them.
fn set_help() -> String {
    let keys: Vec<String> = attnscope_engine::family::settable()
        .map(|(key, takes)| format!("  {key}: {takes}"))
        .collect();
    format!(
        "Correct or complete how the checkpoint is read; may be repeated, and stands in [set] of attnscope.toml beside it:\n{}",
        keys.join("\n")
    )
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("expected KEY=VALUE, found {text:?}"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

impl RunArgs {
    /// Says what memory a run needs, and refuses one that needs more than there is.
    ///
    /// # Errors
    /// When it needs more, and is not forced.
    fn check_memory(&self, need: MemoryNeed) -> Result<()> {
        let said = [need.total(), need.weights, need.working].map(|n| machine::mebibytes(n as u64));
        let [total, weights, working] = said;
        progress::note(&format!(
            "memory: about {total} beside the mapped files (weights {weights}, working {working})"
        ));
        match self.force {
            true => Ok(()),
            false => Ok(machine::check_memory(need.total())?),
        }
    }

    /// What to open, with what was said about it; the demo when no path is named.
    fn opening(&self, path: Option<PathBuf>) -> Opening {
        Opening {
            set: self.set.clone(),
            ..self.weights.opening(path)
        }
    }

    /// Sets everything up for a command that writes lines: what there is to say about the device is one.
    ///
    /// # Errors
    /// As for [`RunArgs::set_up`].
    fn prepare(&self) -> Result<Compute> {
        let chosen = self.set_up()?;
        if let Some(line) = &chosen.fell_back {
            progress::note(line);
        }
        Ok(chosen.compute)
    }

    /// Sets threads and log up, and opens the device.
    ///
    /// # Errors
    /// When the device is not to be had, or the log cannot be written.
    fn set_up(&self) -> Result<Chosen> {
        if let Some(threads) = self.threads {
            if !(1..=MOST_THREADS).contains(&threads) {
                anyhow::bail!("--threads {threads}: expected 1 to {MOST_THREADS}");
            }
            // A second pool in one process only happens in tests, which do not set it.
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build_global()?;
        }
        if let Some(log) = &self.log {
            let file = std::fs::File::create(log)
                .map_err(|e| anyhow::anyhow!("{}: cannot be written ({e})", log.display()))?;
            simplelog::WriteLogger::init(
                log::LevelFilter::Debug,
                simplelog::Config::default(),
                file,
            )?;
        }
        Level::asked_for().map_err(anyhow::Error::msg)?;
        let chosen = device::choose(&self.device)?;
        log::info!("computing on {}", chosen.device);
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn no_command_has_two_flags_of_one_name() {
        super::Cli::command().debug_assert();
    }
}
