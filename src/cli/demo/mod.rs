//! `attnscope demo [NAME]`: systems that show something, each with one command.

mod alignment;
mod collapse;
mod degenerate;
mod effect;
mod history;
mod induction;
mod ran;
mod rescale;
mod save;
mod stories;
mod story;
mod told;
mod translators;
mod twins;
mod variance;
mod watched;

use std::io::{IsTerminal, stdin, stdout};
use std::path::PathBuf;

use anyhow::{Result, bail};
use attnscope_checkpoint::Opening;
use attnscope_compute::attention::SoftmaxAxis;
use attnscope_compute::error::Error;
use attnscope_compute::ops::{Compute, Device};
use attnscope_report::{Output, Page, printable};
use attnscope_run::WhatIf;
use attnscope_run::align::Alignment;
use attnscope_screen::{InitialState, Panel, Shown, Start, StoryLoader};
use attnscope_worker::FirstPrompt;
use clap::builder::PossibleValuesParser;

use self::stories::STORIES;
use self::story::{Figures, Story, Telling};
use self::told::told;
use super::settings::{self, ScreenArgs};
use super::{RunArgs, align};
use crate::bundles::demo_alignment;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of a demo; without it, demos are listed
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(names().map(|(name, _)| name)))]
    name: Option<String>,
    /// Print its figures, without a terminal
    #[arg(long, requires = "name")]
    report: bool,
    /// Write its files to a directory: checkpoints, tokenizers, logs
    #[arg(long, value_name = "DIR", requires = "name", conflicts_with = "report")]
    save: Option<PathBuf>,
    #[command(flatten)]
    screen: ScreenArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// The one whose data are tables and no checkpoint.
const ALIGNMENT: (&str, &str) = (
    "alignment",
    "words of two sentences aligned by two embedding tables and scaled dot-product attention",
);

const ALIGNMENT_HINT: &str =
    "→ turns the page · 2 shows the map · e edits both sentences · w another axis";

/// Every name, in order.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_stories = STORIES.iter().map(|story| (story.name, story.title));
    of_stories.chain([ALIGNMENT])
}

pub fn run(args: &Args) -> Result<()> {
    let name = args.name.as_deref();
    if let (Some(name), Some(directory)) = (name, &args.save) {
        return print(&save::save(name, directory)?);
    }
    if name == Some(ALIGNMENT.0) {
        if !args.run.set.is_empty() {
            bail!("--set: this demo has embedding tables and no checkpoint");
        }
        args.run.set_up()?;
        let alignment = demo_alignment(SoftmaxAxis::Keys)?;
        let can_show = stdout().is_terminal() && stdin().is_terminal();
        if !args.report && !can_show {
            return no_terminal(ALIGNMENT.0);
        }
        if args.report {
            return print(&told(&alignment::pages()?));
        }
        let told = || alignment::pages().map_err(|e| Error::Prompt(format!("{e:#}")));
        return align::open(
            alignment,
            ALIGNMENT_HINT,
            &args.screen,
            Some(Box::new(told)),
        );
    }
    match STORIES.iter().find(|story| Some(story.name) == name) {
        None => list(),
        Some(story) if args.report => figures(story, &args.run),
        Some(story) => open(story, &args.run, &args.screen),
    }
}

fn print(text: &str) -> Result<()> {
    Ok(Output::Stdout.write(&printable(text.as_bytes()))?)
}

/// Names, and what each shows.
fn list() -> Result<()> {
    let width = names().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = names()
        .map(|(name, title)| format!("  {name:<width$}  {title}\n"))
        .collect();
    print(&format!(
        "attnscope demo NAME opens one; --report prints its figures, --save DIR writes its files\n\n{}",
        lines.concat()
    ))
}

fn figures(story: &Story, run: &RunArgs) -> Result<()> {
    let compute = run.prepare()?.compute;
    let telling = Telling {
        story,
        compute: &compute,
        set: &run.set,
    };
    match story.figures {
        Figures::Pages(pages) => print(&told(&pages(&telling)?)),
        Figures::Text(figures) => print(&figures(&telling)?),
    }
}

fn no_terminal(name: &str) -> Result<()> {
    bail!(
        "the screen needs a terminal; without one, attnscope demo {name} --report prints the figures"
    )
}

fn open(story: &'static Story, run: &RunArgs, screen: &ScreenArgs) -> Result<()> {
    let chosen = run.set_up()?;
    if !stdout().is_terminal() || !stdin().is_terminal() {
        return no_terminal(story.name);
    }
    Ok(attnscope_screen::run(Start {
        opening: story.opening(&run.set),
        first: story.first_prompt(),
        live: None,
        terms: settings::terms(chosen.device, run.force),
        in_front: InitialState {
            notice: Some(chosen.fell_back.unwrap_or_else(|| story.hint.to_owned())),
            shown: Some(story.shown()),
            what_ifs: story.what_ifs()?,
            training: if story.name == history::NAME {
                Some(history::training()?)
            } else {
                None
            },
            setup: screen.setup()?,
            target: Some(vec!["--demo".to_owned(), story.name.to_owned()]),
            ..InitialState::default()
        },
        story: storyteller(story, chosen.device, run.set.clone()),
    })?)
}

/// A demo as a picture needs it.
pub struct Prepared {
    pub begin: Begin,
    pub shown: Shown,
    pub what_ifs: Vec<WhatIf>,
}

/// Starts what a demo shows.
pub enum Begin {
    Checkpoint(Opening, FirstPrompt),
    Alignment(Box<Alignment>),
}

/// The demo of a name.
///
/// # Errors
/// None for demos that are tested.
pub fn prepared(name: &str, set: &[(String, String)]) -> Result<Prepared> {
    let story = STORIES.iter().find(|story| story.name == name);
    Ok(match story {
        Some(story) => Prepared {
            begin: Begin::Checkpoint(story.opening(set), story.first_prompt()),
            shown: story.shown(),
            what_ifs: story.what_ifs()?,
        },
        None => Prepared {
            begin: Begin::Alignment(Box::new(demo_alignment(SoftmaxAxis::Keys)?)),
            shown: Shown::of(Panel::Story),
            what_ifs: Vec::new(),
        },
    })
}

/// The story of a demo, where it tells one.
pub fn pages_of(name: &str, compute: &Compute) -> Option<Result<Vec<Page>>> {
    if name == ALIGNMENT.0 {
        return Some(alignment::pages());
    }
    let story = STORIES.iter().find(|story| story.name == name)?;
    match story.figures {
        Figures::Pages(pages) => Some(pages(&Telling {
            story,
            compute,
            set: &[],
        })),
        Figures::Text(_) => None,
    }
}

/// Tells the story on the screen, where there is one.
fn storyteller(
    story: &'static Story,
    device: Device,
    set: Vec<(String, String)>,
) -> Option<StoryLoader> {
    let Figures::Pages(pages) = story.figures else {
        return None;
    };
    Some(Box::new(move || {
        let told = device
            .open()
            .map_err(anyhow::Error::from)
            .and_then(|compute| {
                pages(&Telling {
                    story,
                    compute: &compute,
                    set: &set,
                })
            });
        told.map_err(|e| Error::Prompt(format!("{e:#}")))
    }))
}
