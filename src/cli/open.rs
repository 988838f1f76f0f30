//! `attnscope [CHECKPOINT] [PROMPT]`: opens the screen.

use std::ffi::OsString;
use std::io::{IsTerminal, stdin, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::CommandFactory;

use super::targets::is_path;
use super::{Cli, PositionalPrompt, PromptArgs, RunArgs};
use crate::tui::{self, InFront, Start};
use crate::worker::{FirstPrompt, PromptOrigin};
use attnscope_engine::model::Model;
use attnscope_engine::nearest::nearest;
use attnscope_engine::prompt::Request;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory or weight file [default: the built-in demo]
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

/// Refuses a name that is not a file, whether or not there is a terminal; a word may have been meant as a command.
fn check_exists(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    match unknown_command(Some(path.as_os_str().to_owned())) {
        Some(reason) => bail!(reason),
        None => bail!("{}: there is no such file or directory", path.display()),
    }
}

/// What to say of a first argument that is neither a flag nor a file nor a command; `None` for one that is, or that is a path.
pub fn unknown_command(first: Option<OsString>) -> Option<String> {
    let first = first?.to_string_lossy().into_owned();
    let is_word = !first.starts_with('-') && !first.contains(char::is_whitespace);
    if !is_word || is_path(&first) {
        return None;
    }
    let cli = Cli::command();
    let commands: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
    if commands.contains(&first.as_str()) || first == "help" {
        return None;
    }
    let meant = match nearest(&first, commands) {
        Some(meant) => format!("did you mean attnscope {meant}?"),
        None => "attnscope --help lists the commands".to_owned(),
    };
    Some(format!(
        "{first}: there is no such file, directory or command; {meant}"
    ))
}

pub fn run(args: &Args) -> Result<()> {
    if let Some(path) = &args.checkpoint {
        check_exists(path)?;
    }
    let prompt = args.positional.with(&args.prompt)?;
    let asked = prompt.request()?;
    let chosen = args.run.set_up()?;
    if !stdout().is_terminal() || !stdin().is_terminal() {
        bail!(
            "the screen needs a terminal; without one, attnscope report CHECKPOINT writes the same statistics"
        );
    }
    let is_demo = args.checkpoint.is_none();
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
