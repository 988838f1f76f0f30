//! `attnscope completions`: a completion script for a shell.

use anyhow::Result;
use attnscope_report::Output;
use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which shell
    shell: Shell,
}

pub fn run(args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "attnscope", &mut script);
    Ok(Output::Stdout.write(&script)?)
}
