//! `attnscope explain` and `attnscope thresholds`: descriptions of checks and statistics, and the thresholds of checks.

use anyhow::{Result, bail};
use attnscope_checkpoint::nearest::did_you_mean;
use attnscope_checks::stats::{STATISTICS, statistic_page};
use attnscope_checks::{CHECKS, check_named, statistic_named};
use attnscope_report::{Output, printable};

/// Words that explain lists by.
const SET: &str = "set";
const ALL_STATISTICS: &str = "statistics";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A check or a statistic by its id; "statistics" for a list of them, "set" for the keys of --set. Without it, all checks are listed
    id: Option<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let text = match args.id.as_deref() {
        None => list(),
        Some(SET) => {
            let keys =
                attnscope_families::settable().map(|(key, takes)| format!("{key}: {takes}\n"));
            keys.collect()
        }
        Some(ALL_STATISTICS) => statistics(),
        Some(id) => match (check_named(id), statistic_named(id)) {
            (Ok(check), _) => attnscope_checks::page(check),
            (_, Ok(stat)) => statistic_page(stat.statistic()),
            _ => {
                let ids = CHECKS.iter().map(|check| check.id);
                let ids = ids.chain(STATISTICS.iter().map(|statistic| statistic.id));
                let meant = did_you_mean(id, ids.chain([SET, ALL_STATISTICS]));
                bail!(
                    "{id:?} is neither a check nor a statistic{meant}: `attnscope explain` lists the checks, and `attnscope explain statistics` the statistics"
                );
            }
        },
    };
    print(&text)
}

pub fn thresholds() -> Result<()> {
    print(attnscope_checks::DEFAULT_THRESHOLDS)
}

fn list() -> String {
    let ids = CHECKS.iter().map(|check| check.id.len());
    let width = ids.max().unwrap_or(0);
    let line = |check: &&attnscope_checks::Check| {
        format!(
            "{:<width$}  {:<7}  {}\n",
            check.id,
            check.severity.label(),
            check.title()
        )
    };
    CHECKS.iter().map(line).collect()
}

fn statistics() -> String {
    let ids = STATISTICS.iter().map(|statistic| statistic.id.len());
    let width = ids.max().unwrap_or(0);
    let titles = STATISTICS.iter();
    let titles = titles.map(|statistic| statistic.title.chars().count());
    let of_titles = titles.max().unwrap_or(0);
    let lines = STATISTICS.iter().map(|statistic| {
        format!(
            "{:<width$}  {:<of_titles$}  {}\n",
            statistic.id, statistic.title, statistic.definition
        )
    });
    lines.collect()
}

fn print(text: &str) -> Result<()> {
    Ok(Output::Stdout.write(&printable(text.as_bytes()))?)
}
