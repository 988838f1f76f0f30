//! `attnscope [CHECKPOINT] [PROMPT]`: opens the screen.

use std::path::PathBuf;

use anyhow::Result;

use super::{PromptArgs, RunArgs};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory; the built-in demo unless given
    checkpoint: Option<PathBuf>,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args) -> Result<()> {
    args.run.prepare()?;
    let _ = (&args.checkpoint, &args.prompt);
    Ok(())
}
