//! `attnscope [CHECKPOINT] [PROMPT]`: opens the screen.

use std::io::{IsTerminal, stdin, stdout};
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::{PositionalPrompt, PromptArgs, RunArgs};
use crate::tui::{self, InFront, Start};
use crate::worker::{FirstPrompt, PromptOrigin};
use attnscope_engine::model::Model;
use attnscope_engine::prompt::Request;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory or weight file; the built-in demo unless given
    checkpoint: Option<PathBuf>,
    #[command(flatten)]
    positional: PositionalPrompt,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// What runs first: what was asked for, or the built-in prompt.
pub(super) fn first_prompt(
    prompt: PromptArgs,
    asked: Option<Request>,
    is_demo: bool,
) -> FirstPrompt {
    Box::new(move |model: &Model, has_tokenizer: bool| {
        prompt.check_fits(&model.spec)?;
        Ok(match asked {
            Some(request) => (request, PromptOrigin::Asked),
            None => (
                prompt.built_in(is_demo, has_tokenizer, model.spec.limits().d_vocab),
                PromptOrigin::BuiltIn,
            ),
        })
    })
}

pub fn run(args: &Args) -> Result<()> {
    let chosen = args.run.set_up()?;
    if !stdout().is_terminal() || !stdin().is_terminal() {
        bail!(
            "the screen needs a terminal; without one, attnscope report CHECKPOINT writes the same statistics"
        );
    }
    let (prompt, is_demo) = (
        args.positional.with(&args.prompt),
        args.checkpoint.is_none(),
    );
    let asked = prompt.request()?;
    let first = first_prompt(prompt, asked, is_demo);
    Ok(tui::run(Start {
        opening: args.run.opening(args.checkpoint.clone()),
        first,
        is_forced: args.run.force,
        device: chosen.device,
        in_front: InFront {
            notice: chosen.fell_back,
            ..InFront::default()
        },
        story: None,
    })?)
}
