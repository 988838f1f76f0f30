//! Prints the relative entropy of every head of a checkpoint on a text, and what the checks find.
//!
//! `cargo run -p attnscope-engine --example head_entropy -- CHECKPOINT "some text"`

use attnscope_engine::stats::Stat;
use std::error::Error;
use std::io::{Write, stdout};
use std::path::PathBuf;

use attnscope_engine::analysis::{self, Layers, Options, input_of};
use attnscope_engine::checkpoint::Opening;
use attnscope_engine::checks::{Probes, Thresholds};
use attnscope_engine::family;
use attnscope_engine::ops::Cpu;
use attnscope_engine::prompt::{Request, Tokenizer, prepare};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("expected CHECKPOINT TEXT")?;
    let text = arguments.next().ok_or("expected a text after CHECKPOINT")?;

    // What the files say of the model; weights are read when they are needed.
    let opening = Opening::from(Some(PathBuf::from(path)));
    let model = family::read(opening.open()?)?;
    let reading = Tokenizer::open(&model.checkpoint.tokenizer)?;
    let prompt = prepare(&Request::text(text), &reading, model.spec.limits())?;

    // Layer by layer: nothing of a layer is held but its report.
    let (input, mut layers) = (input_of(&prompt), Layers::default());
    let options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let goes_on = || false;
    let outcome = analysis::run(&Cpu, &model, &input, options, &mut layers, None, &goes_on)?;

    let mut out = stdout().lock();
    for layer in &layers.0 {
        for (head_idx, head) in layer.heads.iter().enumerate() {
            let entropy = head.stats.of(Stat::EntropyRelative);
            writeln!(out, "L{}H{head_idx} {entropy:.3}", layer.layer_idx)?;
        }
    }
    let probes = Probes::none("not asked");
    let layers: Vec<_> = layers.0.into_iter().map(Into::into).collect();
    let thresholds = Thresholds::default();
    let verdicts = analysis::judge_layers(&model, &layers, &outcome, &probes, &thresholds, None);
    for finding in verdicts.iter().flat_map(|(_, verdict)| &verdict.findings) {
        let (severity, place) = (finding.severity.label(), finding.place);
        writeln!(
            out,
            "{severity} {} {place}: {}",
            finding.check, finding.evidence
        )?;
    }
    Ok(())
}
