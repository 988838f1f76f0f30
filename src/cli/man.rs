//! `attnscope man`: manual pages, generated from the flags and texts of --help.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process;

use anyhow::{Result, bail};
use attnscope_checkpoint::nearest::nearest;
use attnscope_compute::error::Error;
use attnscope_report::Output;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::help;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the page of this command, as in check or lab rescale [default: the page of attnscope]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Write the pages of all commands into this directory, which is created if missing
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    output: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long, requires = "output")]
    force: bool,
}

/// Defines the quotation mark that sections use; needed once at the start of each page.
const QUOTE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// A page, and the name of its file.
#[derive(Debug)]
pub struct Page {
    /// As in `attnscope-check.1`.
    pub name: String,
    pub text: String,
}

pub fn run(args: &Args) -> Result<()> {
    let pages = man_pages()?;
    let Some(directory) = &args.output else {
        let page = page_of(&pages, &args.command)?;
        if io::stdout().is_terminal() && is_shown(&page.text) {
            return Ok(());
        }
        return Ok(Output::Stdout.write(page.text.as_bytes())?);
    };
    std::fs::create_dir_all(directory)
        .map_err(|e| Error::file(directory, format!("cannot be made a directory ({e})")))?;
    let mut opened = Vec::new();
    for page in &pages {
        // Report a file that may not be replaced before the first one is written.
        opened.push(Output::open_or_replace(
            &directory.join(&page.name),
            args.force,
        )?);
    }
    for (output, page) in opened.into_iter().zip(&pages) {
        output.write(page.text.as_bytes())?;
    }
    Ok(())
}

/// Shows a page by the system's `man`, as a person at a terminal wants it; `false` where there is none that reads a page.
fn is_shown(page: &str) -> bool {
    let mut viewer = process::Command::new("man");
    viewer.args(["-l", "-"]).stdin(process::Stdio::piped());
    let Ok(mut viewer) = viewer.spawn() else {
        return false;
    };
    if let Some(mut to) = viewer.stdin.take() {
        // Whoever quits early does not read all of it.
        let _ = to.write_all(page.as_bytes());
    }
    viewer.wait().is_ok_and(|ended| ended.success())
}

/// Returns the page of a command given by its words.
fn page_of<'a>(pages: &'a [Page], words: &[String]) -> Result<&'a Page> {
    let named = |page: &'a Page| page.name.trim_end_matches(".1");
    let asked: Vec<&str> = std::iter::once("attnscope")
        .chain(words.iter().map(String::as_str))
        .collect();
    let asked = asked.join("-");
    if let Some(page) = pages.iter().find(|page| named(page) == asked) {
        return Ok(page);
    }
    let commands = pages.iter().skip(1);
    let commands = commands.filter_map(|page| named(page).strip_prefix("attnscope-"));
    let near = nearest(&words.join("-"), commands);
    let near = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
    bail!(
        "expected a command of attnscope, found {:?}{near}",
        words.join(" ")
    )
}

/// Makes the pages of the program and of each of its commands, in the order of --help.
///
/// # Errors
/// When a page cannot be generated, which cannot happen for any command.
pub fn man_pages() -> io::Result<Vec<Page>> {
    let mut program = help::described().disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    add_pages(&program, None, &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &Command, parent: Option<&str>, to: &mut Vec<Page>) -> io::Result<()> {
    let man = Man::new(command.clone());
    to.push(Page {
        name: man.get_filename(),
        text: page(command, parent, &man)?,
    });
    let mut visible = command.get_subcommands().filter(|own| !own.is_hide_set());
    let name = command.get_display_name().unwrap_or(command.get_name());
    visible.try_for_each(|own| add_pages(own, Some(name), to))
}

/// Makes one page. The text at the end of --help becomes the section on exit codes.
fn page(command: &Command, parent: Option<&str>, man: &Man) -> io::Result<String> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let version = env!("CARGO_PKG_VERSION");
    let mut text =
        format!("{QUOTE}.TH {name} 1 \"\" \"attnscope {version}\" \"attnscope manual\"\n");
    let mut section = |render: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
        let mut own = Vec::new();
        render(&mut own)?;
        let own = String::from_utf8_lossy(&own);
        text += own.strip_prefix(QUOTE).unwrap_or(&own);
        io::Result::Ok(())
    };
    section(&|to| man.render_name_section(to))?;
    section(&|to| man.render_synopsis_section(to))?;
    section(&|to| man.render_description_section(to))?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        section(&|to| man.render_options_section(to))?;
    }
    if command.has_subcommands() {
        section(&|to| man.render_subcommands_section(to))?;
    }
    let mut rest = Roff::default();
    if let Some(after) = command.get_after_help() {
        rest.control("SH", ["EXIT STATUS"]);
        let lines = after.to_string();
        let codes = lines.lines().filter_map(|line| line.strip_prefix("  "));
        for line in codes {
            let (code, meaning) = line.split_once(' ').unwrap_or((line, ""));
            rest.control("TP", []);
            rest.text([roman(code)]);
            rest.text([roman(meaning.trim())]);
        }
    }
    if let Some(before) = command.get_before_help() {
        rest.control("SH", ["EXAMPLE"]);
        let lines = before.to_string();
        let line = lines.lines().nth(1).unwrap_or_default();
        rest.text([roman(line.trim())]);
    }
    rest.control("SH", ["SEE ALSO"]);
    let others = match parent {
        Some(parent) => format!("{parent}(1)"),
        None => "attnscope COMMAND --help, attnscope man COMMAND".to_owned(),
    };
    rest.text([roman(others)]);
    section(&|to| rest.to_writer(to))?;
    Ok(text)
}
