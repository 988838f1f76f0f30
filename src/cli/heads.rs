//! `attnscope heads`: what kind of place each head looks at, on a prompt and on random tokens said twice.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::progress::note;
use super::prompts::{InputsArgs, longest_inputs, prepare, write_targets};
use super::{PositionalPrompt, PromptArgs, RunArgs};
use crate::report::{Output, printable};
use attnscope_engine::analysis::{self, Layers, MemoryNeed, Options, input_of, stripes};
use attnscope_engine::family;
use attnscope_engine::model::Stack;
use attnscope_engine::on_device;
use attnscope_engine::prompt::Tokenizer;
use attnscope_engine::stats::HeadType;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory or weight file
    checkpoint: PathBuf,
    #[command(flatten)]
    positional: PositionalPrompt,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let compute = args.run.prepare()?;
    let prompt = args.positional.with(&args.prompt);
    let model = family::read(args.run.opening(Some(args.checkpoint.clone())).open()?)?;
    let reading = Tokenizer::open(&model.checkpoint.tokenizer)?;
    let mut named = prepare(&prompt, &InputsArgs::none(), &model, &reading)?;
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    let longest = longest_inputs(&named);
    args.run.check_memory(MemoryNeed::of(
        &model,
        &longest,
        options,
        rayon::current_num_threads(),
    ))?;
    write_targets(&mut named, &model, &reading, &compute)?;
    let mut keep = Layers::default();
    for named in &named {
        let input = input_of(&named.prompt);
        on_device!(&compute, ops => {
            analysis::run(ops, &model, &input, options, &mut keep, None, &|| false)
        })?;
    }
    let stripes = on_device!(&compute, ops => stripes(ops, &model, &|| false))?;
    if stripes.is_none() {
        note(
            "random tokens said twice are for causal models of one stack with room for a copy: those columns are left out",
        );
    }
    let mut table = String::new();
    let _ = write!(table, "{:<9}{:>4} {:>5}  {:<16}", "stack", "L", "H", "type");
    let prompted = [
        "previous_mass",
        "induction_mass",
        "duplicate_mass",
        "first_key_mass",
        "diagonal_mass",
    ];
    for title in ["previous", "induction", "duplicate", "first", "current"] {
        let _ = write!(table, "{title:>10}");
    }
    if stripes.is_some() {
        for title in ["r‖r prev", "r‖r ind", "r‖r dup"] {
            let _ = write!(table, "{title:>10}");
        }
    }
    table.push('\n');
    for layer in &keep.0 {
        for (head_idx, head) in layer.heads.iter().enumerate() {
            let stack = layer.stack.label().unwrap_or("-");
            let kind = head.kind.map_or("-", HeadType::title);
            let _ = write!(
                table,
                "{stack:<9}{:>4} {head_idx:>5}  {kind:<16}",
                layer.layer_idx
            );
            for id in prompted {
                let _ = write!(table, "{:>10}", share(head.stats.of(id)));
            }
            let random = stripes.as_ref().filter(|_| layer.stack == Stack::Only);
            if let Some(of_head) = random.and_then(|all| all.get(layer.layer_idx)?.get(head_idx)) {
                for value in [of_head.previous, of_head.induction, of_head.duplicate] {
                    let _ = write!(table, "{:>10}", share(value));
                }
            }
            table.push('\n');
        }
    }
    Ok(Output::open(Path::new("-"))?.write(&printable(table.as_bytes()))?)
}

/// A share, or that it has no meaning here.
fn share(value: f64) -> String {
    match value.is_nan() {
        true => "n/a".to_owned(),
        false => format!("{value:.3}"),
    }
}
