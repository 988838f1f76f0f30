//! Prints what a checkpoint loses on ids under every reading of its weights, the best first.
//!
//! `cargo run -p attnscope-engine --example readings -- CHECKPOINT INPUTS.jsonl`

use std::error::Error;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use attnscope_engine::analysis::{input_of, losses_of_all_readings};
use attnscope_engine::checkpoint::Opening;
use attnscope_engine::family;
use attnscope_engine::ops::Cpu;
use attnscope_engine::prompt::{Request, Tokenizer, prepare, read_inputs};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("expected CHECKPOINT INPUTS.jsonl")?;
    let inputs = arguments
        .next()
        .ok_or("expected a file of inputs after CHECKPOINT")?;
    let model = family::read(Opening::from(Some(PathBuf::from(path))).open()?)?;
    let reading = Tokenizer::open(&model.checkpoint.tokenizer)?;
    let mut prompts = Vec::new();
    for (_, request) in read_inputs(Path::new(&inputs), &Request::text(""))? {
        prompts.push(input_of(&prepare(&request, &reading, model.spec.limits())?));
    }

    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    let mut all = losses_of_all_readings(&Cpu, &model, &prompts, &|| false)?;
    all.sort_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)));
    let mut out = stdout().lock();
    for (reading, losses) in all {
        let place = match (reading.claim.layer_idx, reading.claim.head_idx) {
            (Some(layer_idx), Some(head_idx)) => format!(" L{layer_idx}H{head_idx}"),
            (Some(layer_idx), None) => format!(" L{layer_idx}"),
            _ => String::new(),
        };
        writeln!(
            out,
            "{:8.4} {:9} {}{place}",
            mean(&losses),
            reading.claim.family,
            reading.claim.name
        )?;
    }
    Ok(())
}
