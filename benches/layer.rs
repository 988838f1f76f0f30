//! One layer's attention with all statistics: its time, its memory, its rate, and how these grow with the prompt.
//!
//! `against_torch.py` calls it with `--json`; `--table` prints lengths × threads against the ceiling of the cores.
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

mod attention_case;
mod ceiling;
mod repeated;
mod times;

use std::process::Command;

use attention_case::Case;
use attnscope_compute::attention::AttentionSpec;
use clap::Parser;
use repeated::{all_threads, repeat};
use serde::{Deserialize, Serialize};
use serde_json::json;
use testing::counting::{Counting, peak_of};

#[global_allocator]
static COUNTING: Counting = Counting;

/// One layer's attention with all statistics.
#[derive(Parser)]
struct Args {
    /// Heads
    #[arg(long, default_value_t = 12)]
    heads: usize,
    /// Heads of keys and values; as many as heads unless given
    #[arg(long)]
    kv_heads: Option<usize>,
    /// Width of a head
    #[arg(long, default_value_t = 64)]
    d_head: usize,
    /// Tokens
    #[arg(long, default_value_t = 1024)]
    length: usize,
    /// Queries see later keys too
    #[arg(long)]
    bidirectional: bool,
    /// Threads; all cores unless given
    #[arg(long)]
    threads: Option<usize>,
    /// Timed calls
    #[arg(long, default_value_t = 15)]
    reps: usize,
    /// Print one JSON object
    #[arg(long, conflicts_with = "table")]
    json: bool,
    /// Print a table of lengths and threads
    #[arg(long)]
    table: bool,
    /// Lengths of the table
    #[arg(long, value_delimiter = ',', default_values_t = [512, 1024, 2048, 4096, 8192, 16_384])]
    lengths: Vec<usize>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// What one length on so many threads gave.
#[derive(Serialize, Deserialize)]
struct Measured {
    median_ms: f64,
    min_ms: f64,
    /// Held beyond queries, keys and values; output and summaries count.
    peak_bytes: usize,
    gflops: f64,
    threads: usize,
}

impl Args {
    fn kv_heads(&self) -> usize {
        self.kv_heads.unwrap_or(self.heads)
    }

    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(all_threads)
    }

    fn measure(&self) -> Measured {
        let is_causal = !self.bidirectional;
        let spec = AttentionSpec::plain(self.heads, self.kv_heads(), self.d_head, is_causal);
        let mut case = Case::new(spec, self.length);
        let mut peak_bytes = 0;
        // The first call allocates most: its output, and what is kept for the next.
        let times = repeat(self.threads(), self.reps, || {
            let ((), peak) = peak_of(|| drop(case.attend()));
            peak_bytes = peak.max(peak_bytes);
        });
        Measured {
            median_ms: times.quantile(0.5),
            min_ms: times.quantile(0.0),
            peak_bytes,
            gflops: case.flops() / times.quantile(0.5) / 1e6,
            threads: self.threads(),
        }
    }

    /// The same in a process of its own: what one length leaves behind for the next would not count as its memory.
    fn measure_apart(&self, length: usize, n_threads: usize) -> Measured {
        // Long prompts take seconds: a few calls tell enough.
        let reps = (self.reps * 1024 / length).clamp(3, self.reps.max(3));
        let flags = [
            ("heads", self.heads),
            ("kv-heads", self.kv_heads()),
            ("d-head", self.d_head),
            ("length", length),
            ("threads", n_threads),
            ("reps", reps),
        ];
        let mut program = Command::new(std::env::current_exe().expect("this program"));
        program.arg("--json");
        program.args(self.bidirectional.then_some("--bidirectional"));
        program.args(flags.map(|(name, value)| format!("--{name}={value}")));
        let output = program.output().expect("this program runs");
        serde_json::from_slice(&output.stdout).expect("one JSON object")
    }

    fn table(&self) {
        println!(
            "{} heads ({} kv), d_head {}\n",
            self.heads,
            self.kv_heads(),
            self.d_head
        );
        println!(
            "| tokens | threads | median ms | ns per visible pair and head | extra memory, MB | GF/s | share of the ceiling |"
        );
        println!("|---|---|---|---|---|---|---|");
        let mut thread_counts = vec![1, self.threads()];
        thread_counts.dedup();
        for n_threads in thread_counts {
            let ceiling = ceiling::gflops(n_threads);
            for length in &self.lengths {
                let measured = self.measure_apart(*length, n_threads);
                let share = ceiling.map_or("unknown".to_owned(), |ceiling| {
                    format!("{:.0} %", measured.gflops / ceiling * 100.0)
                });
                let n_keys_seen = if self.bidirectional {
                    *length as f64
                } else {
                    (length + 1) as f64 / 2.0
                };
                let pairs = (self.heads * length) as f64 * n_keys_seen;
                println!(
                    "| {length} | {n_threads} | {:.1} | {:.2} | {:.1} | {:.1} | {share} |",
                    measured.median_ms,
                    measured.median_ms * 1e6 / pairs,
                    measured.peak_bytes as f64 / 1e6,
                    measured.gflops,
                );
            }
            if let Some(ceiling) = ceiling {
                println!("| ceiling | {n_threads} | | | | {ceiling:.1} | 100 % |");
            }
        }
    }
}

fn main() {
    let args = Args::parse();
    if args.table {
        args.table();
        return;
    }
    let measured = args.measure();
    if args.json {
        println!("{}", json!(measured));
    } else {
        println!(
            "{} heads, {} tokens, {} threads: median {:.1} ms, least {:.1} ms, {:.1} GF/s, {:.1} MB beyond queries, keys and values",
            args.heads,
            args.length,
            measured.threads,
            measured.median_ms,
            measured.min_ms,
            measured.gflops,
            measured.peak_bytes as f64 / 1e6,
        );
    }
}
