//! How long a run goes on after somebody asked it to stop, at moments all over a run.
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

mod checkpoint_file;
mod times;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use attnscope_checkpoint::Opening;
use attnscope_compute::ops::Cpu;
use attnscope_forward::{Input, Sequence};
use attnscope_run::{Options, Silent};
use checkpoint_file::{Shape, THIRD_OF_GPT2, checkpoint, ids};
use clap::Parser;
use times::Times;

/// From the wish to stop to the end of the run.
#[derive(Parser)]
struct Args {
    /// Checkpoint directory; a third of GPT-2 small, and one layer of a 7B model in bf16, unless given
    checkpoint: Option<PathBuf>,
    /// Tokens
    #[arg(long, default_value_t = 1024)]
    length: usize,
    /// Moments to stop at
    #[arg(long, default_value_t = 40)]
    stops: u32,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Matrices as wide as those of a 7B model.
const WIDE: Shape = Shape {
    n_layers: 1,
    n_heads: 32,
    d_model: 4096,
    n_ctx: 2048,
    d_vocab: 32_000,
    is_bf16: true,
};

fn main() {
    let args = Args::parse();
    let paths = match &args.checkpoint {
        Some(path) => vec![path.clone()],
        None => vec![checkpoint(THIRD_OF_GPT2), checkpoint(WIDE)],
    };
    for path in paths {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let times = measure(path, args.length, args.stops);
        println!(
            "{}, {} tokens: stopped after {:.1} ms (half), {:.1} ms (slowest of {})",
            name.unwrap_or_default(),
            args.length,
            times.quantile(0.5),
            times.quantile(1.0),
            args.stops
        );
    }
}

fn measure(path: PathBuf, length: usize, n_stops: u32) -> Times {
    let checkpoint = Opening::from(Some(path)).open().expect("it opens");
    let model = attnscope_families::read(checkpoint).expect("a model that is known");
    let input = Input {
        source: None,
        sequence: Sequence {
            tokens: ids(length, model.spec.limits().d_vocab),
            positions: (0..length).collect(),
            real: None,
            picture: None,
            ..Sequence::default()
        },
    };
    let options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let whole = {
        let start = Instant::now();
        attnscope_run::run(&Cpu, &model, &input, options, &mut Silent, None, &|| false)
            .expect("it runs");
        start.elapsed()
    };
    let stopped = (0..n_stops).filter_map(|nth| {
        let is_over = AtomicBool::new(false);
        let delay: Duration = whole * (2 * nth + 1) / (2 * n_stops);
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                std::thread::sleep(delay);
                is_over.store(true, Ordering::Relaxed);
                Instant::now()
            });
            let pace = || is_over.load(Ordering::Relaxed);
            let ran = attnscope_run::run(&Cpu, &model, &input, options, &mut Silent, None, &pace);
            let end = Instant::now();
            let asked = asked.join().expect("a clock");
            // A run that was faster than the first one may be over before it is stopped.
            ran.is_err().then(|| end.saturating_duration_since(asked))
        })
    });
    Times::of(stopped.collect())
}
