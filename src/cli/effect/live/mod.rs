//! `attnscope effect` on a live model: what its runs show without its weights.

mod ablation;
mod rollout;

use anyhow::{Result, bail};
use attnscope_forward::Input;
use attnscope_live::LiveTarget;
use attnscope_run::{Declared, Recorded, input_of, real_tokens};

use super::{Args, By};

/// What to do for all that a live model does not have.
const MAKES: &str = "attnscope.describe makes a checkpoint of it, which has every measure";

/// Measures a live model.
///
/// # Errors
/// When the measure needs weights, or the person's code fails.
pub fn run(args: &Args, target: &LiveTarget) -> Result<()> {
    let needs = match args.by {
        By::Ablation => return ablation::run(args, target),
        By::Rollout => return rollout::run(args, target),
        By::Attribution | By::Contribution | By::Circuits => "multiplies weights",
        By::Lens => "unembeds the residual of every layer",
        By::Patching => "replaces values inside the model",
        By::Retrieval => "runs a checkpoint on random tokens",
        By::Sensitivity => "runs single layers by another spec",
    };
    bail!(
        "{target}: --by {} {needs}; a live model has --by ablation and rollout, and {MAKES}",
        args.by.label()
    );
}

/// The prompt of a recorded run, with what is padding: as it is declared, or as the model was told.
fn with_padding(recorded: &Recorded, declared: Declared) -> Result<Input> {
    let mut input = input_of(&recorded.prompt);
    let real = match declared.attention_mask {
        Some(real) => Some(real),
        None => real_tokens(&recorded.captured)?,
    };
    input.sequence.real = real.filter(|real| real.len() == input.sequence.len());
    Ok(input)
}
