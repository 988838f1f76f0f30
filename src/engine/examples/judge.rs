//! Opens a checkpoint, runs a text, and prints what the checks find.
//!
//! `cargo run -p attnscope-engine --example judge -- CHECKPOINT TEXT`

use std::error::Error;

use attnscope_engine::Session;

#[expect(clippy::print_stdout, reason = "an example prints")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let checkpoint = arguments.next().ok_or("expected CHECKPOINT TEXT")?;
    let text = arguments.next().ok_or("expected TEXT after CHECKPOINT")?;
    let model = Session::new().open(checkpoint)?;
    let run = model.run(&text)?;
    let head = run.head(0, 0)?;
    println!(
        "L0H0 attends to its first key with {:.3} at the last query",
        head.pattern[head.pattern.len() - head.n_keys]
    );
    for finding in run.judge()?.findings() {
        println!(
            "{:?} {} at {}: {}",
            finding.severity, finding.check, finding.place, finding.evidence
        );
    }
    Ok(())
}
