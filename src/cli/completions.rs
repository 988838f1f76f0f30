//! `attnscope completions`: a completion script for a shell.

use anyhow::Result;
use attnscope_report::Output;
use clap_complete::Shell;

use super::help;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which shell
    shell: Shell,
}

pub fn run(args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut help::described(), "attnscope", &mut script);
    Ok(Output::Stdout.write(&script)?)
}
