//! `attnscope cache list|clear`: the statistics of checkpoints stored by `history`.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Result, bail};
use attnscope_checkpoint::counted::counted;
use attnscope_history::cache::{clear, directory, list};
use attnscope_report::{Output, printable, text_table};
use clap::Subcommand;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Command {
    /// Print what is kept, the last used first
    List,
    /// Remove all of it
    Clear,
}

pub fn run(args: &Args) -> Result<()> {
    let Some(directory) = directory() else {
        bail!("expected XDG_CACHE_HOME or HOME to name a directory, found neither");
    };
    let text = match args.command {
        Command::List => listed(&directory),
        Command::Clear => {
            let (n, n_bytes) = clear(&directory)?;
            format!(
                "removed {}, {} from {}\n",
                counted(n, "entry"),
                size(n_bytes),
                directory.display()
            )
        }
    };
    Ok(Output::Stdout.write(&printable(text.as_bytes()))?)
}

fn listed(directory: &Path) -> String {
    let entries = list(directory);
    let total = entries.iter().map(|entry| entry.n_bytes).sum();
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            let name = match entry.name.as_str() {
                "" => "(damaged)",
                name => name,
            };
            let age = entry.used.map_or(String::new(), age);
            vec![name.to_owned(), size(entry.n_bytes), age]
        })
        .collect();
    let heading = format!(
        "{}: {}, {}\n",
        directory.display(),
        counted(entries.len(), "entry"),
        size(total)
    );
    if rows.is_empty() {
        heading
    } else {
        format!(
            "{heading}\n{}",
            text_table(&["checkpoint", "size", "used"], &rows)
        )
    }
}

fn size(n_bytes: u64) -> String {
    match n_bytes {
        n if n < 1 << 20 => format!("{:.1} KiB", n as f64 / 1024.0),
        n => format!("{:.1} MiB", n as f64 / f64::from(1 << 20)),
    }
}

/// Formats the age of a time in one unit.
fn age(then: SystemTime) -> String {
    let seconds = SystemTime::now()
        .duration_since(then)
        .unwrap_or_default()
        .as_secs();
    match seconds {
        s if s < 60 => format!("{s} s ago"),
        s if s < 3600 => format!("{} min ago", s / 60),
        s if s < 86_400 => format!("{} h ago", s / 3600),
        s => format!("{} d ago", s / 86_400),
    }
}
