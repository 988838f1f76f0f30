//! A whole model on one prompt, with all statistics and the loss: its time and its memory, start-up and opening left out.
//!
//! `against_torch.py` calls it with `--json`.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

mod checkpoint_file;
mod repeated;
mod times;

use std::path::PathBuf;
use std::time::Duration;

use attnscope_checkpoint::Opening;
use attnscope_compute::ops::Cpu;
use attnscope_forward::{Input, Sequence};
use attnscope_run::{Layers, Options, Outcome};
use attnscope_spec::Model;
use checkpoint_file::{THIRD_OF_GPT2, checkpoint, ids};
use clap::Parser;
use repeated::{all_threads, repeat};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use testing::counting::{Counting, peak_of};

#[global_allocator]
static COUNTING: Counting = Counting;

/// A whole model on one prompt.
#[derive(Parser)]
struct Args {
    /// Checkpoint directory; a third of GPT-2 small with random weights unless given
    checkpoint: Option<PathBuf>,
    /// Tokens
    #[arg(long, default_value_t = 1024)]
    length: usize,
    /// Threads; all cores unless given
    #[arg(long)]
    threads: Option<usize>,
    /// Timed runs
    #[arg(long, default_value_t = 5)]
    reps: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// One run; what every layer told is kept, as reports do.
fn run(model: &Model, input: &Input) -> Outcome {
    let options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let mut keeps = Layers::default();
    let ran = attnscope_run::run(&Cpu, model, input, options, &mut keeps, None, &|| false);
    let outcome = ran.expect("the model runs");
    assert!(!keeps.0.is_empty(), "a model has layers");
    outcome
}

/// CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn main() {
    let args = Args::parse();
    let path = args.checkpoint.clone();
    let path = path.unwrap_or_else(|| checkpoint(THIRD_OF_GPT2));
    let checkpoint = Opening::from(Some(path)).open().expect("it opens");
    let model = attnscope_families::read(checkpoint).expect("a model that is known");
    let sequence = Sequence {
        tokens: ids(args.length, model.spec.limits().d_vocab),
        positions: (0..args.length).collect(),
        real: None,
        picture: None,
        ..Sequence::default()
    };
    let input = Input {
        source: None,
        sequence,
    };
    let n_threads = args.threads.unwrap_or_else(all_threads);
    let (mut peak_bytes, mut loss) = (0, None);
    let mut cpu_ms = Vec::new();
    let times = repeat(n_threads, args.reps, || {
        let started = cpu_time();
        let ((), peak) = peak_of(|| {
            let outcome = run(&model, &input);
            loss = outcome.predictions.and_then(|predictions| predictions.loss);
        });
        peak_bytes = peak.max(peak_bytes);
        cpu_ms.push((cpu_time() - started).as_secs_f64() * 1e3);
    });
    // As for times, the first run warms up.
    let mut cpu_ms = cpu_ms.split_off(1);
    cpu_ms.sort_by(f64::total_cmp);
    if args.json {
        let shown = json!({
            "median_ms": times.quantile(0.5), "min_ms": times.quantile(0.0), "peak_bytes": peak_bytes,
            "cpu_ms": cpu_ms.get(cpu_ms.len() / 2), "loss": loss, "threads": n_threads,
        });
        println!("{shown}");
    } else {
        println!(
            "{} tokens, {n_threads} threads: median {:.0} ms, least {:.0} ms, {:.1} MB beside the mapped file, loss {}",
            args.length,
            times.quantile(0.5),
            times.quantile(0.0),
            peak_bytes as f64 / 1e6,
            loss.map_or("unknown".to_owned(), |loss| format!("{loss:.4}")),
        );
    }
}
