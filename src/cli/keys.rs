//! `attnscope keys`: every key in force and what it does, or what is wrong with the keys that settings give.

use anyhow::{Result, bail};
use attnscope_report::{Output, printable, text_table};
use attnscope_screen::{Keymap, key_rows};

use super::settings::config;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Check the keys of the settings: exits with 2 if two actions share a key in a panel, or an action or a key is unknown
    #[arg(long)]
    check: bool,
}

/// Prints the table of keys, or checks the keys of the settings.
///
/// # Errors
/// Everything that is wrong with the keys of the settings, or with the file that they are in.
pub fn run(args: &Args) -> Result<()> {
    let config = config();
    let keymap = match Keymap::of(config) {
        Ok(keymap) if config.problems.is_empty() => keymap,
        _ => bail!("{}", config.problems.join("\n")),
    };
    let rows = key_rows(&keymap);
    let text = if args.check {
        let n = config.keys.len();
        let of = match (n, &config.path) {
            (0, _) => "no key is changed".to_owned(),
            (n, Some(path)) => format!("{n} of them changed in {}", path.display()),
            (n, None) => format!("{n} of them changed"),
        };
        format!("{} keys in force, {of}: no clash\n", rows.len())
    } else {
        let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
        text_table(&["keys", "action", "where", "what they do"], &rows)
    };
    Ok(Output::Stdout.write(&printable(text.as_bytes()))?)
}
