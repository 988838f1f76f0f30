//! `attnscope demo [NAME]`: systems that show something, each with one command.

mod collapse;
mod degenerate;
mod induction;
mod ran;
mod stories;

use std::io::{IsTerminal, stdin, stdout};
use std::path::Path;

use anyhow::{Result, bail};
use clap::Parser;
use clap::builder::PossibleValuesParser;

use self::stories::{Figures, STORIES, Story};
use super::{Cli, RunArgs};
use crate::checkpoint::{Bundle, Opening};
use crate::model::Model;
use crate::report::Output;
use crate::tui::{self, HeadView, InFront, Shown, Start};
use crate::worker::{FirstPrompt, PromptOrigin};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which one; lists them unless given
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(STORIES.iter().map(|story| story.name)))]
    name: Option<String>,
    /// Print its figures, without a terminal
    #[arg(long, requires = "name")]
    report: bool,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let name = args.name.as_deref();
    match STORIES.iter().find(|story| Some(story.name) == name) {
        None => list(),
        Some(story) if args.report => figures(story, &args.run),
        Some(story) => open(story, &args.run),
    }
}

fn print(text: &str) -> Result<()> {
    Ok(Output::open(Path::new("-"))?.write(text.as_bytes())?)
}

/// Names, and what each shows.
fn list() -> Result<()> {
    let width = STORIES.iter().map(|story| story.name.len()).max();
    let width = width.unwrap_or(0);
    let lines: Vec<String> = STORIES
        .iter()
        .map(|story| format!("  {:<width$}  {}\n", story.name, story.title))
        .collect();
    print(&format!(
        "attnscope demo NAME opens one; with --report it prints the figures\n\n{}",
        lines.concat()
    ))
}

fn figures(story: &Story, run: &RunArgs) -> Result<()> {
    match story.figures {
        Figures::Collapse => print(&collapse::figures(&run.prepare()?, story)?),
        Figures::Degenerate => print(&degenerate::figures(&run.prepare()?, story)?),
        Figures::Induction => print(&induction::figures(&run.prepare()?, story)?),
        Figures::Command(words) => {
            let command = std::iter::once("attnscope").chain(words.split(' '));
            Cli::parse_from(command).run().map(|_| ())
        }
    }
}

/// What to open for a story.
fn opening(story: &Story, asked: &[(String, String)]) -> Opening {
    let own = story.set.iter();
    let own = own.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Opening {
        set: own.chain(asked.iter().cloned()).collect(),
        bundle: Bundle::named(story.bundle),
        ..Opening::default()
    }
}

fn open(story: &'static Story, run: &RunArgs) -> Result<()> {
    let chosen = run.set_up()?;
    if !stdout().is_terminal() || !stdin().is_terminal() {
        bail!(
            "the screen needs a terminal; without one, attnscope demo {} --report prints the figures",
            story.name
        );
    }
    let first: FirstPrompt =
        Box::new(move |_: &Model, _: bool| Ok((story.request(), PromptOrigin::BuiltIn)));
    Ok(tui::run(Start {
        opening: opening(story, &run.set),
        first,
        is_forced: run.force,
        device: chosen.device,
        in_front: InFront {
            notice: Some(chosen.fell_back.unwrap_or_else(|| story.hint.to_owned())),
            shown: Some(Shown {
                panel: story.panel,
                stack: None,
                layer_idx: Some(story.at.0),
                head_idx: Some(story.at.1),
                query_idx: None,
                key_idx: None,
                statistic_idx: crate::stats::index_of(story.statistic).unwrap_or(0),
                head_view: HeadView::default(),
                shows_received: false,
                is_probed: false,
                check: None,
            }),
            what_ifs: story.what_ifs()?,
        },
    })?)
}
