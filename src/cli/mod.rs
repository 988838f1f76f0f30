//! The command line: shared flags, and one file per subcommand.

pub mod align;
mod batch;
mod batch_unit;
mod cache;
mod capture_script;
mod chat_args;
mod check;
mod check_onsets;
mod completions;
mod config;
mod default_prompts;
pub mod demo;
mod device;
mod diff;
mod distribution_family;
mod effect;
mod explain;
mod fail_on;
mod figures;
mod guess;
mod head_effects;
mod heads;
mod heads_over_prompts;
mod help;
mod history;
mod history_reading;
#[cfg(feature = "hub")]
mod hub_header;
mod keys;
mod lab;
mod lab_match;
mod live_args;
mod live_target;
mod log_file;
mod log_target;
mod logprobs;
mod man;
mod merge;
mod merge_summary;
mod names;
mod open;
mod open_training;
mod plot;
mod progress;
mod prompt_args;
mod prompts;
mod python_code;
mod quality;
mod quality_pairs;
mod refusal;
mod report;
mod schema;
mod serve_check;
mod session;
mod settings;
mod sweep;
mod sweep_args;
mod sweep_checkpoint;
mod sweep_place;
mod table_baselines;
mod targets;
mod tensors;
mod tokens;
mod trace;
mod verify;
mod watch;
mod what_if_args;
mod written_args;

pub use self::man::man_pages;
pub use self::open::unknown_command;
pub use self::refusal::refusal;

use std::path::{Path, PathBuf};

use anyhow::Result;
use attnscope_checkpoint::Opening;
use attnscope_compute::kernels::simd::Level;
use attnscope_run::MemoryNeed;
use attnscope_spec::Model;
use clap::{Parser, Subcommand};

use self::device::Chosen;
use self::prompt_args::{PositionalPrompt, PromptArgs};
use self::what_if_args::WhatIfArgs;
use crate::bundles::BUNDLES;

/// Find out whether your transformer's attention is broken.
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
    /// Open a checkpoint, your own code, a trace or a training on the screen: what attnscope does without a command
    Open(Box<open::Args>),
    /// Check models for leaks, collapse and other faults; exits 1 at a finding of --fail-on severity
    #[command(mut_arg("positional", |targets| targets.help(CHECK_TARGETS)), after_help = CHECK_EXIT)]
    Check(check::Args),
    /// Explain a check or a statistic: what it measures, why it matters, its false alarms
    Explain(explain::Args),
    /// Print the table of thresholds, with sources
    Thresholds,
    /// Write the statistics of every layer and head
    #[command(
        mut_arg("force", |force| force.help(FORCE_REPLACE)),
        mut_arg("output", |output| output.help(REPORT_OUTPUT))
    )]
    Report(report::Args),
    /// Write the statistics of many checkpoints on many prompts, unit by unit, from any number of workers
    #[command(after_help = BATCH_EXIT)]
    Batch(Box<batch::Args>),
    /// Put the units of a batch into one table, and judge them all
    #[command(mut_arg("force", |force| force.help("Replace a file that exists")), after_help = MERGE_EXIT)]
    Merge(merge::Args),
    /// Name the type of each head: previous token, induction, sink, …
    #[command(mut_arg("force", |force| force.help(FORCE_REPLACE)))]
    Heads(heads::Args),
    /// Measure what heads and layers do: ablation, attribution, patching, lens, rollout, contribution, circuits
    #[command(mut_arg("force", |force| force.help(FORCE_REPLACE)))]
    Effect(Box<effect::Args>),
    /// Translate pairs of sentences and score them: BLEU and alignment error, by length
    #[command(hide = true, mut_arg("force", |force| force.help(FORCE_REPLACE)))]
    Quality(quality::Args),
    /// Follow a training by its checkpoints or its monitor log: statistics per step, and when findings begin
    #[command(mut_arg("force", |force| force.help(FORCE_REPLACE)))]
    History(history::Args),
    /// Follow a run without a screen; exits 1 at the first finding of --fail-on severity
    #[command(after_help = WATCH_EXIT)]
    Watch(watch::Args),
    /// List or remove the statistics of checkpoints that history keeps
    Cache(cache::Args),
    /// Write patterns, scores, residuals and other values as safetensors
    #[command(mut_arg("force", |force| force.help(FORCE_REPLACE)))]
    Trace(trace::Args),
    /// Write the log-probability, rank, entropy and likeliest alternatives of every token
    #[command(mut_arg("force", |force| force.help(FORCE_REPLACE)))]
    Logprobs(logprobs::Args),
    /// Ask a running OpenAI-compatible server for log-probabilities, and compare them with its checkpoint; exits 1 if they differ
    #[command(after_help = SERVE_EXIT)]
    ServeCheck(Box<serve_check::Args>),
    /// Open one of the systems that come with the program, or print its figures
    Demo(demo::Args),
    /// Run a prompt on two engines and compare every hook; exits 1 if a difference is larger than rounding explains
    #[command(mut_arg("force", |force| force.help(FORCE_REPLACE)))]
    Verify(verify::Args),
    /// Compare two checkpoints, traces or tables, or log-probabilities of two programs: the first difference and its cause; exits 1 if they differ
    #[command(mut_arg("force", |force| force.help(FORCE_REPLACE)), after_help = DIFF_EXIT)]
    Diff(Box<diff::Args>),
    /// Draw a panel as SVG, with its data as CSV beside it, without a terminal
    #[command(mut_arg("force", |force| force.help(FORCE_REPLACE)))]
    Plot(plot::Args),
    /// Multiply scores and measure how the softmax hardens: largest probability, entropy, Jacobian
    #[command(hide = true, mut_args(of_checkpoint))]
    Sweep(sweep_args::Args),
    /// Run simulations: softmax under scale, divisors, translations, alignments
    Lab(Box<lab::Args>),
    /// Align the words of two sentences by attention between two tables of embeddings
    #[command(hide = true)]
    Align(align::Args),
    /// Print a Python file that records attention inside any PyTorch model, for check to judge
    CaptureScript,
    /// List the tensors of a checkpoint
    Tensors(tensors::Args),
    /// Tokenize a text with a checkpoint's tokenizer
    Tokens(tokens::Args),
    /// Work out the architecture of weights without a config, and print the attnscope.toml that opens them
    #[command(mut_arg("tokens", |tokens| tokens.visible_alias("ids")), mut_arg("force", |force| force.help(FORCE_REPLACE)))]
    Guess(Box<guess::Args>),
    /// Print every setting that is in force, and where it comes from: flags, environment, file or default
    #[command(after_help = CONFIG_EXIT)]
    Config(config::Args),
    /// List the keys of the screen with the changes of the settings, or check them for clashes and unknown actions
    #[command(after_help = KEYS_EXIT)]
    Keys(keys::Args),
    /// Print the JSON Schema of a document that a command writes
    Schema(schema::Args),
    /// Print completions for a shell
    Completions(completions::Args),
    /// Print the manual page of a command, or write the pages of all commands into a directory
    Man(man::Args),
}

/// Makes a flag about reading or running a checkpoint require that one is given.
fn of_checkpoint(arg: clap::Arg) -> clap::Arg {
    let id = arg.get_id().as_str();
    let is_of_run = ["device", "threads", "log", "force"].contains(&id);
    if is_of_run || help::OF_CHECKPOINT.contains(&id) {
        arg.requires("checkpoint")
    } else {
        arg
    }
}

/// Help for the targets of `check`.
const CHECK_TARGETS: &str = "Checkpoint directories, weight files, directories of checkpoints, traces (.safetensors, .npz), probes or monitor logs (.jsonl); after them a text to run";

/// Help for the exit code of `check`.
const CHECK_EXIT: &str = "\
Exit codes:
  0  no finding is as severe as --fail-on; by default only errors count, and warnings do not
  1  at least one finding is as severe as --fail-on
  2  a target could not be judged, or an argument is wrong";

/// Help for the exit code of `batch`.
const BATCH_EXIT: &str = "\
Exit codes:
  0    every unit of this share is done
  2    some units failed, or an argument is wrong
  143  SIGTERM ended it: units that were finished stay, and running it again goes on";

/// Help for the exit code of `merge`.
const MERGE_EXIT: &str = "\
Exit codes:
  0  no finding is as severe as --fail-on; by default only errors count
  1  at least one finding is as severe as --fail-on
  2  units are missing or failed, and --partial was not given, or an argument is wrong";

/// Help for the exit code of `diff`.
const DIFF_EXIT: &str = "\
Exit codes:
  0  the two are the same within tolerance
  1  they differ
  2  they could not be read or cannot be run side by side, or one side alone holds a NaN";

/// Help for the exit code of `serve-check`.
const SERVE_EXIT: &str = "\
Exit codes:
  0  the server's log-probabilities are those of the checkpoint within rounding
  1  they depart, or the server ran other tokens than were sent
  2  the server or the checkpoint could not be asked, or an argument is wrong

ATTNSCOPE_API_KEY is sent as a bearer token where it is set.";

/// Help for the exit code of `config`.
const CONFIG_EXIT: &str = "\
Exit codes:
  0  every setting was understood
  2  some were not: the rest is printed, and the errors are on standard error";

/// Help for the exit code of `keys`.
const KEYS_EXIT: &str = "\
Exit codes:
  0  the keys of the settings are understood, and none has two actions in a panel
  2  they are not: standard error says which, and where they are set";

/// Help for the exit code of `watch`.
const WATCH_EXIT: &str = "\
Exit codes:
  0  nothing new came for as long as --idle says, and nothing was as severe as --fail-on
  1  some finding is as severe as --fail-on
  2  the training cannot be read, or an argument is wrong";

/// Help for the output of `report`.
const REPORT_OUTPUT: &str =
    "Output file; - is standard output, and in a directory the file is named report";

/// Help for `--force` in commands that write files.
const FORCE_REPLACE: &str =
    "Replace files that exist, and run even if more memory is needed than is free";

/// How a command that ran ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Clean,
    /// There are findings of at least the `--fail-on` severity, or differences beyond the floor.
    WithFindings,
    /// Some targets could not be run; the results of the others were written.
    Partly,
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// One line for the user: what could not be read or computed.
    pub fn run(self) -> Result<Ended> {
        progress::begin();
        // `config` and `keys` have to work even if the settings have errors, since they report them.
        if !matches!(
            self.command,
            Some(Command::Config(_) | Command::Completions(_) | Command::Keys(_))
        ) {
            settings::begin()?;
        }
        match self.command {
            None => open::run(&self.open)?,
            Some(Command::Open(args)) => open::run(&args)?,
            Some(Command::Check(args)) => return check::run(&args),
            Some(Command::Explain(args)) => explain::run(&args)?,
            Some(Command::Thresholds) => explain::thresholds()?,
            Some(Command::Report(args)) => return report::run(&args),
            Some(Command::Batch(args)) => return batch::run(&args),
            Some(Command::Merge(args)) => return merge::run(&args),
            Some(Command::Heads(args)) => heads::run(&args)?,
            Some(Command::Effect(args)) => effect::run(&args)?,
            Some(Command::Quality(args)) => quality::run(&args)?,
            Some(Command::History(args)) => return history::run(&args),
            Some(Command::Watch(args)) => return watch::run(&args),
            Some(Command::Cache(args)) => cache::run(&args)?,
            Some(Command::Trace(args)) => trace::run(&args)?,
            Some(Command::Logprobs(args)) => logprobs::run(&args)?,
            Some(Command::ServeCheck(args)) => return serve_check::run(&args),
            Some(Command::Verify(args)) => return verify::run(&args),
            Some(Command::Diff(args)) => return diff::run(&args),
            Some(Command::Demo(args)) => demo::run(&args)?,
            Some(Command::Plot(args)) => plot::run(&args)?,
            Some(Command::Sweep(args)) => sweep::run(&args)?,
            Some(Command::Lab(args)) => lab::run(&args)?,
            Some(Command::Align(args)) => align::run(&args)?,
            Some(Command::CaptureScript) => capture_script::run()?,
            Some(Command::Tensors(args)) => tensors::run(&args)?,
            Some(Command::Tokens(args)) => tokens::run(&args)?,
            Some(Command::Guess(args)) => return guess::run(&args),
            Some(Command::Config(args)) => return config::run(&args),
            Some(Command::Keys(args)) => keys::run(&args)?,
            Some(Command::Schema(args)) => schema::run(&args)?,
            Some(Command::Completions(args)) => completions::run(&args)?,
            Some(Command::Man(args)) => man::run(&args)?,
        }
        Ok(Ended::Clean)
    }
}

/// Most threads accepted: larger numbers are typos, and starting so many threads takes minutes.
const MOST_THREADS: usize = 1024;

/// What every command that runs a model takes.
#[derive(Debug, Clone, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    weights: WeightArgs,
    /// Override how the checkpoint is read: n_heads=12, scale=inv_d, mask=causal, …
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value, long_help = set_help())]
    set: Vec<(String, String)>,
    /// Where to compute: cpu, candle (the CPU through candle-core), cuda, cuda:N or auto
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    device: String,
    /// Threads to use [default: SLURM_CPUS_PER_TASK, else all cores that the process may use]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Run even if more memory is needed than is free
    #[arg(long)]
    force: bool,
    /// Print only errors on standard error
    #[arg(long, short)]
    quiet: bool,
    /// Append a log to this file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// What every command that opens a checkpoint takes.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct WeightArgs {
    /// Weight file to use, of several in the directory
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Ignore attnscope.toml beside the checkpoint
    #[arg(long)]
    no_settings: bool,
    /// Open the base of an adapter (LoRA, …) without the adapter
    #[arg(long)]
    no_adapter: bool,
    /// Tokenizer to use: tokenizer.json, a SentencePiece model, vocab.txt, or a directory with one; bytes, or characters:FILE for the
    /// characters of a training text
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Base of a LoRA adapter, in place of the one in adapter_config.json
    #[arg(long, value_name = "TARGET")]
    base: Option<PathBuf>,
    /// Download nothing: use cached hub models only
    #[arg(long)]
    offline: bool,
}

impl WeightArgs {
    fn opening(&self, path: Option<PathBuf>) -> Opening {
        Opening {
            weights: self.weights.clone(),
            ignores_settings: self.no_settings,
            ignores_adapter: self.no_adapter,
            tokenizer: self.tokenizer.clone(),
            base: self.base.clone(),
            hub: names::hub(self.offline),
            bundle: Some(&BUNDLES[0]),
            ..Opening::from(path)
        }
    }
}

/// Help for every key, from the table that reads them.
fn set_help() -> String {
    let keys: Vec<String> = attnscope_families::settable()
        .map(|(key, takes)| format!("  {key}: {takes}"))
        .collect();
    format!(
        "Override how the checkpoint is read. May be repeated. The file attnscope.toml beside the checkpoint takes the same keys under [set]:\n{}",
        keys.join("\n")
    )
}

/// Parses a share, such as a tolerance or a floor.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok();
    let share = share.filter(|share| share.is_finite() && *share >= 0.0);
    share.ok_or_else(|| "expected a number of at least 0, as in 1e-4".to_owned())
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("expected KEY=VALUE, found {text:?}"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

impl RunArgs {
    /// Prints the memory that a run needs, and refuses one that needs more than is available.
    ///
    /// # Errors
    /// When it needs more, without `--force`.
    fn check_memory(&self, need: MemoryNeed) -> Result<()> {
        let said = [need.total(), need.weights, need.working]
            .map(|n| attnscope_checkpoint::machine::mebibytes(n as u64));
        let [total, weights, working] = said;
        log::info!("memory: about {total} (weights {weights}, working {working})");
        if self.force {
            Ok(())
        } else {
            Ok(attnscope_checkpoint::machine::check_memory(need.total())?)
        }
    }

    /// Returns what to open and how; the demo if no path is given.
    fn opening(&self, path: Option<PathBuf>) -> Opening {
        Opening {
            set: self.set.clone(),
            ..self.weights.opening(path)
        }
    }

    /// Opens a model, and prints notes about how it is read: changes by a settings file, tensors that no layer reads.
    /// `sees` says that the prompt is a picture.
    ///
    /// # Errors
    /// When it cannot be opened, or its architecture is not supported.
    fn model(&self, path: &Path, sees: bool) -> Result<Model> {
        live_target::refuse(path)?;
        names::refuse_demo(path)?;
        let opening = Opening {
            sees,
            ..self.opening(Some(path.to_path_buf()))
        };
        let model = attnscope_families::read(opening.open()?)?;
        let remarks = model.checkpoint.remarks();
        remarks.iter().for_each(|said| progress::note(said));
        Ok(model)
    }

    /// Sets everything up for a command that prints lines, including a note about the device.
    ///
    /// # Errors
    /// As for [`RunArgs::set_up`].
    fn prepare(&self) -> Result<Chosen> {
        let chosen = self.set_up()?;
        if let Some(line) = &chosen.fell_back {
            progress::note(line);
        }
        Ok(chosen)
    }

    /// Sets up threads and log, and opens the device.
    ///
    /// # Errors
    /// When the device is not available, or the log cannot be written.
    fn set_up(&self) -> Result<Chosen> {
        if self.quiet {
            progress::be_quiet();
        }
        let of_environment = std::env::var("RAYON_NUM_THREADS").ok();
        let of_environment = of_environment.and_then(|text| text.parse::<usize>().ok());
        if let (None, Some(threads)) = (self.threads, of_environment)
            && threads > MOST_THREADS
        {
            anyhow::bail!("RAYON_NUM_THREADS={threads}: expected at most {MOST_THREADS}");
        }
        // A Slurm job may own fewer cores than the process sees.
        let of_job = std::env::var("SLURM_CPUS_PER_TASK").ok();
        let of_job = of_job.and_then(|text| text.trim().parse::<usize>().ok());
        let of_job = of_job.filter(|n| of_environment.is_none() && (1..=MOST_THREADS).contains(n));
        if let Some(threads) = self.threads.or(of_job) {
            if !(1..=MOST_THREADS).contains(&threads) {
                anyhow::bail!("--threads {threads}: expected 1 to {MOST_THREADS}");
            }
            // A second pool in one process is only possible in tests, which do not set it.
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build_global()?;
        }
        if let Some(log) = &self.log {
            log_file::begin(log)?;
        }
        Level::asked_for().map_err(anyhow::Error::msg)?;
        let chosen = device::choose(&self.device)?;
        log::info!("computing on {}", chosen.device);
        Ok(chosen)
    }
}
