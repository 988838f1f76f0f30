//! Mutated files through every reader: each is read or refused in one line, without a panic, a hang, or more memory than its size
//! allows.
//!
//! ```text
//! cargo test --test fuzz         # every target, a few seconds each
//! cargo test --test fuzz -- gguf # targets whose name holds a word
//! ```
//! `ATTNSCOPE_FUZZ_RUNS=N` sets the executions of each target, `ATTNSCOPE_FUZZ_TARGET=NAME` chooses one, `ATTNSCOPE_FUZZ_SEED=N` gives
//! other mutants, and `ATTNSCOPE_FUZZ_FROM=N` begins with another execution, so that a failure can be run alone. The parent process
//! runs each target in a process of its own: a target that dies fails alone, and what it allocates is counted alone.

mod execution;
mod mutate;
mod regressions;
mod schedule;
mod seeds;
mod targets;

use std::process::ExitCode;

use testing::counting::Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Which target this process runs; the parent sets it.
const CHILD: &str = "ATTNSCOPE_FUZZ_CHILD";

fn main() -> ExitCode {
    let is_well = match std::env::var(CHILD) {
        Ok(name) => execution::run_target(targets::by_name(&name), &execution::Plan::asked()),
        Err(_) => schedule::run_all(),
    };
    if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
