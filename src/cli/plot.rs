//! `attnscope plot`: a panel as a picture and a table, without a terminal.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::open::first_prompt;
use super::progress::{RunMeter, note};
use super::{PositionalPrompt, PromptArgs, RunArgs, WhatIfArgs};
use crate::analysis::is_captured;
use crate::checks;
use crate::model::Stack;
use crate::report::{Output, Pair};
use crate::stats::{STATISTICS, index_of};
use crate::tui::{self, Depth, Ground, HeadView, Panel, Plot, SMALLEST, Shown, Theme};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory, weight file or trace; the built-in demo unless given
    checkpoint: Option<PathBuf>,
    #[command(flatten)]
    positional: PositionalPrompt,
    #[command(flatten)]
    prompt: PromptArgs,
    /// What to show: overview, head, scores, tokens, model, checks, what-if, rows, sweep
    #[arg(long, value_name = "PANEL", default_value = "overview", value_parser = panel)]
    panel: Panel,
    /// Layer to select, counted from 0
    #[arg(long, value_name = "N")]
    layer: Option<usize>,
    /// Head to select, counted from 0
    #[arg(long, value_name = "N")]
    head: Option<usize>,
    /// Stack to select, for models with an encoder: encoder, decoder or cross
    #[arg(long, value_name = "STACK", value_parser = stack)]
    stack: Option<Stack>,
    /// Query to select; the last one unless given
    #[arg(long, value_name = "N")]
    query: Option<usize>,
    /// Key to select; the first one unless given
    #[arg(long, value_name = "N")]
    key: Option<usize>,
    /// Statistic that overview and scores show, by its id
    #[arg(long, value_name = "ID", value_parser = statistic)]
    statistic: Option<usize>,
    /// Head: scores instead of the pattern
    #[arg(long)]
    scores: bool,
    /// Head: logarithmic colours
    #[arg(long)]
    log_scale: bool,
    /// Head and tokens: leave the first key out and renormalise
    #[arg(long, conflicts_with = "scores")]
    without_first_key: bool,
    /// Tokens: shade by what the key receives
    #[arg(long)]
    receives: bool,
    /// Checks: ask the model on changed prompts too
    #[arg(long)]
    probe: bool,
    /// Checks: select this check
    #[arg(long, value_name = "ID", value_parser = check)]
    check: Option<&'static str>,
    /// Columns and rows of the picture
    #[arg(long, value_name = "COLSxROWS", default_value = "120x40", value_parser = size)]
    size: (u16, u16),
    /// Colours of the page
    #[arg(long, value_enum, default_value_t = Colours::Dark)]
    colors: Colours,
    /// SVG file to write, with the data as CSV beside it; - writes the SVG alone to standard output
    #[arg(long, value_name = "FILE.svg")]
    output: PathBuf,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Colours {
    Dark,
    Light,
    /// Glyphs instead of colours, on a light page
    None,
}

impl Colours {
    fn theme(self) -> Theme {
        match self {
            Self::Dark => Theme::on(Ground::Dark, Depth::Truecolor),
            Self::Light => Theme::on(Ground::Light, Depth::Truecolor),
            Self::None => Theme::on(Ground::Light, Depth::None),
        }
    }
}

/// Larger pictures than any screen are slips.
const LARGEST: (u16, u16) = (1000, 500);

fn panel(text: &str) -> Result<Panel, String> {
    let name = |panel: &Panel| panel.title().to_lowercase().replace(' ', "-");
    // A story is told in demos only.
    let panels = || {
        Panel::ALL
            .into_iter()
            .filter(|panel| *panel != Panel::Story)
    };
    panels().find(|panel| name(panel) == text).ok_or_else(|| {
        let names: Vec<String> = panels().map(|panel| name(&panel)).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn stack(text: &str) -> Result<Stack, String> {
    let stacks = [Stack::Encoder, Stack::Decoder, Stack::Cross].into_iter();
    let found = stacks.into_iter().find(|stack| stack.label() == Some(text));
    found.ok_or_else(|| "expected encoder, decoder or cross".to_owned())
}

fn statistic(text: &str) -> Result<usize, String> {
    index_of(text).ok_or_else(|| {
        let ids: Vec<&str> = STATISTICS.iter().map(|statistic| statistic.id).collect();
        format!("expected one of {}", ids.join(", "))
    })
}

fn check(text: &str) -> Result<&'static str, String> {
    let found = checks::find(text).map(|check| check.id);
    found.ok_or_else(|| "expected the id of a check: attnscope explain lists them".to_owned())
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let sides = text.split_once(['x', '×']);
    let sides = sides.and_then(|(width, height)| {
        let side = |text: &str| text.trim().parse::<u16>().ok();
        Some((side(width)?, side(height)?))
    });
    let fits = |(width, height): &(u16, u16)| {
        (SMALLEST.0..=LARGEST.0).contains(width) && (SMALLEST.1..=LARGEST.1).contains(height)
    };
    sides.filter(fits).ok_or_else(|| {
        format!(
            "expected columns x rows from {}x{} to {}x{}, as 120x40",
            SMALLEST.0, SMALLEST.1, LARGEST.0, LARGEST.1
        )
    })
}

/// Where the picture goes, and the data beside it.
enum Target {
    Both(Pair),
    /// Standard output, or something that is no regular file.
    Picture(Output),
}

impl Target {
    fn open(svg: &Path, read: &[&Path], replaces: bool) -> Result<Self> {
        let is_file =
            svg != Path::new("-") && svg.metadata().map_or(true, |m| m.is_file() || m.is_dir());
        if !is_file {
            return Ok(Self::Picture(Output::open(svg)?));
        }
        if svg.extension().is_none_or(|ending| ending != "svg") {
            bail!(
                "--output {}: expected a name that ends in .svg",
                svg.display()
            );
        }
        let csv = svg.with_extension("csv");
        for target in [svg, &csv] {
            Output::check_not_read(target, read)?;
        }
        let pair = Pair::open([svg, &csv], replaces);
        pair.map(Self::Both).map_err(|e| match replaces {
            false if [svg, &csv].iter().any(|path| path.is_file()) => {
                anyhow::anyhow!("{e}; --force writes over it")
            }
            _ => e.into(),
        })
    }
}

impl Args {
    /// Refuses what the panel does not show: a picture without it would only look as if it did.
    fn check_shown(&self) -> Result<()> {
        use Panel::{Checks, Head, Overview, Scores, Tokens};
        let flags: [(&str, bool, &[Panel]); 7] = [
            ("--statistic", self.statistic.is_some(), &[Overview, Scores]),
            ("--scores", self.scores, &[Head]),
            ("--log-scale", self.log_scale, &[Head]),
            (
                "--without-first-key",
                self.without_first_key,
                &[Head, Tokens],
            ),
            ("--receives", self.receives, &[Tokens]),
            ("--probe", self.probe, &[Checks]),
            ("--check", self.check.is_some(), &[Checks]),
        ];
        for (flag, is_given, panels) in flags {
            if is_given && !panels.contains(&self.panel) {
                let names: Vec<String> = panels.iter().map(|p| p.title().to_lowercase()).collect();
                let found = self.panel.title().to_lowercase();
                bail!(
                    "{flag}: expected --panel {}, found {found}",
                    names.join(" or ")
                );
            }
        }
        Ok(())
    }

    fn shown(&self) -> Shown {
        Shown {
            panel: self.panel,
            stack: self.stack,
            layer_idx: self.layer,
            head_idx: self.head,
            query_idx: self.query,
            key_idx: self.key,
            statistic_idx: self.statistic.unwrap_or(0),
            head_view: HeadView {
                shows_scores: self.scores,
                is_log: self.log_scale,
                hides_first_key: self.without_first_key,
                ..HeadView::default()
            },
            shows_received: self.receives,
            is_probed: self.probe,
            check: self.check,
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    args.check_shown()?;
    let chosen = args.run.set_up()?;
    if let Some(line) = &chosen.fell_back {
        note(line);
    }
    let prompt = args.positional.with(&args.prompt);
    let asked = prompt.request()?;
    let read: Vec<&Path> = args
        .checkpoint
        .as_deref()
        .into_iter()
        .chain(prompt.file())
        .collect();
    let target = Target::open(&args.output, &read, args.run.force)?;
    let is_trace = args.checkpoint.as_deref().is_some_and(is_captured);
    if asked.is_none() && !is_trace {
        note("no prompt given: running a built-in one");
    }
    let first = first_prompt(prompt.clone(), asked, args.checkpoint.is_none());
    let meter = RunMeter::new();
    let export = tui::plot(
        Plot {
            opening: args.run.opening(args.checkpoint.clone()),
            first,
            is_forced: args.run.force,
            device: chosen.device,
            theme: args.colors.theme(),
            size: args.size,
            shown: args.shown(),
            what_ifs: args.what_if.all().to_vec(),
        },
        &mut |share| meter.show(share),
    )?;
    meter.finish();
    match target {
        Target::Picture(output) => output.write(&export.svg)?,
        Target::Both(pair) => {
            pair.write([&export.svg, &export.csv])?;
            let csv = args.output.with_extension("csv");
            note(&format!(
                "wrote {} and {}",
                args.output.display(),
                csv.display()
            ));
        }
    }
    Ok(())
}
