//! `attnscope explain` and `attnscope thresholds`: descriptions of checks, and their thresholds.

use anyhow::{Result, bail};
use attnscope_report::{Output, printable};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A check's id, or "set" for the keys of --set. Without it, all checks are listed
    id: Option<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let text = match args.id.as_deref() {
        None => list(),
        Some("set") => {
            let keys =
                attnscope_families::settable().map(|(key, takes)| format!("{key}: {takes}\n"));
            keys.collect()
        }
        Some(id) => match attnscope_checks::find(id) {
            Some(check) => attnscope_checks::page(check),
            None => {
                let known: Vec<&str> = attnscope_checks::CHECKS
                    .iter()
                    .map(|check| check.id)
                    .collect();
                bail!("{id:?} is not a check; known: set, {}", known.join(", "));
            }
        },
    };
    print(&text)
}

pub fn thresholds() -> Result<()> {
    print(attnscope_checks::DEFAULT_THRESHOLDS)
}

fn list() -> String {
    let width = attnscope_checks::CHECKS
        .iter()
        .map(|check| check.id.len())
        .max()
        .unwrap_or(0);
    let line = |check: &&attnscope_checks::Check| {
        let page = attnscope_checks::page(check);
        let title = page.lines().nth(2).unwrap_or_default().to_owned();
        format!(
            "{:<width$}  {:<7}  {title}\n",
            check.id,
            check.severity.label()
        )
    };
    attnscope_checks::CHECKS.iter().map(line).collect()
}

fn print(text: &str) -> Result<()> {
    Ok(Output::Stdout.write(&printable(text.as_bytes()))?)
}
