//! `attnscope plot`: a panel as an image and a table, without a terminal.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attnscope_checkpoint::nearest::did_you_mean;
use attnscope_checkpoint::will_read;
use attnscope_checks::statistic_named;
use attnscope_checks::stats::Stat;
use attnscope_compute::ops::Device;
use attnscope_prompt::{Request, Source};
use attnscope_report::drawing::Format;
use attnscope_report::{Output, Pair};
use attnscope_run::{HeadMap, is_captured};
use attnscope_screen::{
    Depth, Ground, HeadView, Panel, Paper, Plot, SMALLEST, Shown, StoryView, Theme,
};
use attnscope_spec::{Place, Places, Stack};
use attnscope_worker::{Against, Sink, Worker};
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::check::known_check;
use super::demo::Begin;
use super::live_target;
use super::open::{against_of, first_compared_prompt, first_prompt};
use super::progress::{Task, note};
use super::{PositionalPrompt, PromptArgs, RunArgs, WhatIfArgs, demo, settings};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Checkpoint directory, weight file or trace, or demo followed by its name [default: the built-in demo]
    checkpoint: Option<PathBuf>,
    /// Show a demo, with its text, instead of a checkpoint
    #[arg(long, value_name = "NAME", conflicts_with = "checkpoint", value_parser = PossibleValuesParser::new(demo::names().map(|(name, _)| name)))]
    demo: Option<String>,
    #[command(flatten)]
    positional: PositionalPrompt,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Show a second run beside the first: a checkpoint or trace, or another text to run
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["demo", "what_if"])]
    against: Option<OsString>,
    #[arg(long, value_name = "PANEL", value_parser = panel, help = format!("What to show: {} [default: overview, or what the demo begins with]", panel_names()))]
    panel: Option<Panel>,
    /// Keep texts in the CSV as they are, even those that a spreadsheet would read as formulas
    #[arg(long)]
    raw_csv: bool,
    /// Page of a demo's story, counted from 1
    #[arg(long, value_name = "N")]
    page: Option<usize>,
    /// Place to select: L3, L3H7, encoder.L3H7, or "L3H7 query 5 key 2"
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["layer", "head", "stack", "query", "key"])]
    at: Option<Place>,
    /// Heads to mark: L0H1,L2H0-3; --panel compare shows them side by side
    #[arg(long, value_name = "PLACES")]
    mark: Option<Places>,
    /// Layer to select, counted from 0
    #[arg(long, value_name = "N")]
    layer: Option<usize>,
    /// Head to select, counted from 0
    #[arg(long, value_name = "N")]
    head: Option<usize>,
    /// Stack to select, for models with an encoder: encoder, decoder or cross
    #[arg(long, value_name = "STACK", value_parser = stack)]
    stack: Option<Stack>,
    /// Query to select [default: the last]
    #[arg(long, value_name = "N")]
    query: Option<usize>,
    /// Key to select [default: the first]
    #[arg(long, value_name = "N")]
    key: Option<usize>,
    /// Statistic that overview and scores show, by its id or its name on the screen
    #[arg(long, value_name = "ID", value_parser = statistic)]
    statistic: Option<usize>,
    /// Head: scores instead of the pattern
    #[arg(long)]
    scores: bool,
    /// Head: contribution α·‖v W_O‖ instead of the pattern
    #[arg(long, conflicts_with_all = ["scores", "without_first_key"])]
    contribution: bool,
    /// Head: logarithmic colours
    #[arg(long)]
    log_scale: bool,
    /// Head and tokens: leave the first key out and renormalise
    #[arg(long, conflicts_with = "scores")]
    without_first_key: bool,
    /// Tokens: shade by what the key receives
    #[arg(long)]
    receives: bool,
    /// Overview: numbers of the statistic instead of maps
    #[arg(long)]
    numbers: bool,
    /// Checks: also run the model on changed prompts
    #[arg(long)]
    probe: bool,
    /// Checks: select this check
    #[arg(long, value_name = "ID", value_parser = known_check)]
    check: Option<&'static str>,
    /// Columns and rows of the picture
    #[arg(long, value_name = "COLSxROWS", default_value = "120x40", value_parser = size)]
    size: (u16, u16),
    /// Colours of the page
    #[arg(long, value_enum, default_value_t = Colours::Dark)]
    colors: Colours,
    /// Draw only the data, for print: no tabs, frames or selection; colours on white
    #[arg(long, conflicts_with_all = ["size", "colors"])]
    figure: bool,
    /// Width of the figure: 84mm, 8.4cm or 3.3in
    #[arg(long, value_name = "LENGTH", default_value = "84mm", requires = "figure", value_parser = millimetres)]
    width: f64,
    /// Title of the figure, in place of its own; "" for none
    #[arg(long, value_name = "TEXT", requires = "figure")]
    title: Option<String>,
    /// Keep the letters of the figure as text that can be selected and edited, in place of outlines that look the same everywhere
    #[arg(long, requires = "figure")]
    live_text: bool,
    /// How the figure is stored [default: by the ending of --output, else svg]
    #[arg(long, requires = "figure", value_parser = formats())]
    format: Option<Format>,
    /// File to write (.svg; with --figure also .png or .pdf), with the data as CSV beside it; - writes the picture alone to standard output
    #[arg(long, value_name = "FILE")]
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

/// Largest picture, larger than any screen; greater sizes are typos.
const LARGEST: (u16, u16) = (1000, 500);

fn panel(text: &str) -> Result<Panel, String> {
    let name = text.trim().to_lowercase().replace([' ', '_'], "-");
    // Old name of the panel.
    let name = if name == "what-if" {
        "compare"
    } else {
        name.as_str()
    };
    let mut all = panels();
    let found = all.find(|panel| panel_name(*panel) == name);
    found.ok_or_else(|| format!("expected one of {}", panel_names()))
}

/// Returns the panels that can be drawn: `history` has its own formats, and `heads --over-prompts` writes what Prompts shows.
fn panels() -> impl Iterator<Item = Panel> {
    let all = Panel::ALL.into_iter();
    all.filter(|panel| !matches!(panel, Panel::History | Panel::Prompts))
}

/// Returns a panel's name on the command line.
fn panel_name(panel: Panel) -> String {
    panel.title().to_lowercase().replace(' ', "-")
}

/// Lists the names of all panels, in their order.
fn panel_names() -> String {
    panels().map(panel_name).collect::<Vec<_>>().join(", ")
}

fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::NAMES)
        .map(|name| Format::named(&name).expect("a possible value is a format's name"))
}

fn stack(text: &str) -> Result<Stack, String> {
    let stacks = [Stack::Encoder, Stack::Decoder, Stack::Cross].into_iter();
    let found = stacks.into_iter().find(|stack| stack.label() == Some(text));
    found.ok_or_else(|| "expected encoder, decoder or cross".to_owned())
}

fn statistic(text: &str) -> Result<usize, String> {
    statistic_named(text).map(Stat::idx)
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

/// Parses a length in millimetres, which is also the default unit.
fn millimetres(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let units = [("mm", 1.0), ("cm", 10.0), ("in", 25.4)];
    let unit = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1.0));
    let length = number.trim().parse::<f64>().map(|length| length * factor);
    let length = length.ok().filter(|length| (30.0..=600.0).contains(length));
    length.ok_or_else(|| "expected a length from 30mm to 600mm, as 84mm, 8.4cm or 3.3in".to_owned())
}

/// Targets of the picture and its data.
enum Target {
    Both(Pair),
    /// Standard output, or a file that is not a regular one.
    Picture(Output),
}

impl Target {
    fn open(svg: &Path, stored: Option<Format>, replaces: bool) -> Result<Self> {
        let is_file =
            svg != Path::new("-") && svg.metadata().map_or(true, |m| m.is_file() || m.is_dir());
        if !is_file {
            return Ok(Self::Picture(Output::open_or_replace(svg, replaces)?));
        }
        match (stored, Format::of(svg)) {
            (None, Some(Format::Svg)) => {}
            (None, Some(_)) => bail!(
                "--output {}: expected a name that ends in .svg; --figure draws PNG and PDF",
                svg.display()
            ),
            (None, None) => bail!(
                "--output {}: expected a name that ends in .svg",
                svg.display()
            ),
            (Some(stored), ending) if ending == Some(stored) => {}
            (Some(stored), _) => bail!(
                "--output {}: expected a name that ends in .{}",
                svg.display(),
                format!("{stored:?}").to_lowercase()
            ),
        }
        let csv = svg.with_extension("csv");
        let pair = Pair::open([svg, &csv], replaces);
        pair.map(Self::Both).map_err(|e| {
            if !replaces && [svg, &csv].iter().any(|path| path.is_file()) {
                anyhow::anyhow!("{e}; pass --force to replace it")
            } else {
                e.into()
            }
        })
    }
}

impl Args {
    /// Refuses options that the panel does not show: the picture would look as if they applied.
    fn check_shown(&self, panel: Panel) -> Result<()> {
        use Panel::{Checks, Head, Overview, Scores, Story, Tokens};
        let flags: [(&str, bool, &[Panel]); 10] = [
            ("--statistic", self.statistic.is_some(), &[Overview, Scores]),
            ("--scores", self.scores, &[Head]),
            ("--contribution", self.contribution, &[Head]),
            ("--log-scale", self.log_scale, &[Head]),
            (
                "--without-first-key",
                self.without_first_key,
                &[Head, Tokens],
            ),
            ("--receives", self.receives, &[Tokens]),
            ("--numbers", self.numbers, &[Overview]),
            ("--probe", self.probe, &[Checks]),
            ("--check", self.check.is_some(), &[Checks]),
            ("--page", self.page.is_some(), &[Story]),
        ];
        for (flag, is_given, panels) in flags {
            if is_given && !panels.contains(&panel) {
                let names: Vec<String> = panels.iter().map(|p| p.title().to_lowercase()).collect();
                let found = panel.title().to_lowercase();
                bail!(
                    "{flag}: expected --panel {}, found {found}",
                    names.join(" or ")
                );
            }
        }
        Ok(())
    }

    /// Reads `plot demo NAME`, the words that open a demo, as `plot --demo NAME`, unless a file is called demo.
    fn of_demo(&self) -> Result<Option<Self>> {
        let word = Path::new("demo");
        if self.checkpoint.as_deref() != Some(word) || word.exists() {
            return Ok(None);
        }
        let mut args = Self {
            checkpoint: None,
            positional: PositionalPrompt::default(),
            ..self.clone()
        };
        if let Some(name) = self.positional.word() {
            if !demo::names().any(|(known, _)| known == name) {
                let meant = did_you_mean(name, demo::names().map(|(known, _)| known));
                bail!("there is no demo {name:?}{meant}; attnscope demo lists them");
            }
            args.demo = Some(name.to_owned());
        }
        Ok(Some(args))
    }

    /// Returns the name of the target until it is opened.
    fn name(&self) -> String {
        let path = self.checkpoint.as_ref();
        let path = path.map(|path| path.display().to_string());
        path.or_else(|| self.demo.clone())
            .unwrap_or_else(|| "the built-in demo".to_owned())
    }

    /// Starts a demo with its own text or another, or a checkpoint.
    fn begin(
        &self,
        demo: Option<demo::Prepared>,
        prompt: PromptArgs,
        asked: Option<Request>,
        (against, device): (Option<&Against>, Device),
    ) -> Result<Box<dyn FnOnce(Sink) -> Worker>> {
        let terms = settings::terms(device, self.run.force);
        let (opening, first) = match demo.map(|demo| demo.begin) {
            Some(Begin::Alignment(_)) if asked.is_some() => {
                bail!("--demo alignment: its sentences are fixed; attnscope align takes others")
            }
            Some(Begin::Alignment(alignment)) => {
                return Ok(Box::new(move |sink| {
                    Worker::start_alignment(*alignment, terms, sink)
                }));
            }
            Some(Begin::Checkpoint(opening, first)) if asked.is_none() => (opening, first),
            Some(Begin::Checkpoint(opening, _)) => (opening, first_prompt(prompt, asked, false)),
            None => {
                let is_demo = self.checkpoint.is_none();
                let mut opening = self.run.opening(self.checkpoint.clone());
                opening.sees = asked
                    .as_ref()
                    .is_some_and(|asked| matches!(asked.source, Source::Picture(_)));
                (
                    opening,
                    first_compared_prompt(against, prompt, asked, is_demo),
                )
            }
        };
        Ok(Box::new(move |sink| {
            Worker::start(opening, first, terms, sink)
        }))
    }

    /// Returns the page of the demo's story, if that is shown.
    fn story(&self, panel: Panel, device: Device) -> Result<Option<StoryView>> {
        if panel != Panel::Story {
            return Ok(None);
        }
        let told = match &self.demo {
            Some(name) => demo::pages_of(name, &device.open()?),
            None => None,
        };
        let Some(pages) = told.transpose()? else {
            bail!("--panel story: expected --demo with one that tells a story (attnscope demo)");
        };
        let page = self.page.unwrap_or(1);
        if !(1..=pages.len()).contains(&page) {
            bail!("--page {page}: expected 1 to {}", pages.len());
        }
        Ok(Some(StoryView {
            pages,
            page_idx: page - 1,
            ..StoryView::default()
        }))
    }

    /// Combines the requested view with a demo's initial one, or the default.
    fn shown(&self, usual: Option<&Shown>) -> Shown {
        let place =
            |idx: Option<usize>, of: fn(&Shown) -> Option<usize>| idx.or_else(|| of(usual?));
        let at = self.at.unwrap_or(Place {
            stack: self.stack,
            layer_idx: self.layer,
            head_idx: self.head,
            query_idx: self.query,
            key_idx: self.key,
        });
        let usual_panel = match usual {
            Some(usual) => usual.panel,
            None if self.against.is_some() => Panel::Compare,
            None => Panel::Overview,
        };
        let usual_statistic = usual.map_or(0, |usual| usual.statistic_idx);
        Shown {
            panel: self.panel.unwrap_or(usual_panel),
            stack: at.stack,
            layer_idx: place(at.layer_idx, |usual| usual.layer_idx),
            head_idx: place(at.head_idx, |usual| usual.head_idx),
            query_idx: at.query_idx,
            key_idx: at.key_idx,
            statistic_idx: self.statistic.unwrap_or(usual_statistic),
            head_view: HeadView {
                map: match (self.scores, self.contribution) {
                    (true, _) => HeadMap::Scores,
                    (false, true) => HeadMap::Contribution,
                    (false, false) => HeadMap::Pattern,
                },
                is_log: self.log_scale,
                hides_first_key: self.without_first_key,
                ..HeadView::default()
            },
            shows_received: self.receives,
            shows_numbers: self.numbers,
            is_probed: self.probe,
            check: self.check,
            marked: self
                .mark
                .as_ref()
                .map_or_else(Vec::new, |mark| mark.0.clone()),
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let of_demo = args.of_demo()?;
    let args = of_demo.as_ref().unwrap_or(args);
    if args.page.is_some() && args.demo.is_none() {
        bail!("--page: expected --demo with one that tells a story (attnscope demo)");
    }
    if let Some(path) = &args.checkpoint {
        live_target::refuse(path)?;
    }
    let demo = args.demo.as_deref();
    let demo = demo.map(|name| demo::prepared(name, &args.run.set));
    let demo = demo.transpose()?;
    let shown = args.shown(demo.as_ref().map(|demo| &demo.shown));
    args.check_shown(shown.panel)?;
    let chosen = args.run.set_up()?;
    let story = args.story(shown.panel, chosen.device)?;
    if let Some(line) = &chosen.fell_back {
        note(line);
    }
    let prompt = args.positional.with(&args.prompt)?;
    let asked = prompt.request()?;
    let against = against_of(args.against.as_deref(), &args.run, &prompt)?;
    let to_read = args.checkpoint.as_deref().into_iter().chain(prompt.file());
    to_read.for_each(will_read);
    let stored = args.figure.then(|| {
        let stored = args.format.or_else(|| Format::of(&args.output));
        stored.unwrap_or(Format::Svg)
    });
    let target = Target::open(&args.output, stored, args.run.force)?;
    let is_trace = args.checkpoint.as_deref().is_some_and(is_captured);
    if asked.is_none() && !is_trace && demo.is_none() {
        note("no prompt given: running a built-in one");
    }
    let what_ifs = match &demo {
        // A comparison panel needs something to compare.
        Some(demo) if args.what_if.all().is_empty() && shown.panel.compares() => {
            demo.what_ifs.clone()
        }
        _ => args.what_if.all().to_vec(),
    };
    let against_and_device = (against.as_ref(), chosen.device);
    let begin = args.begin(demo, prompt.clone(), asked, against_and_device)?;
    let task = Task::begin("", 0);
    let export = attnscope_screen::plot(
        Plot {
            name: args.name(),
            begin,
            theme: args.colors.theme(),
            size: args.size,
            shown,
            what_ifs,
            against,
            is_raw_csv: args.raw_csv,
            story,
            figure: stored.map(|stored| {
                let title = args.title.clone();
                (
                    Paper {
                        width: args.width,
                        title,
                        has_live_text: args.live_text,
                    },
                    stored,
                )
            }),
        },
        &mut |share| task.at((share * 1000.0) as usize, 1000),
    )?;
    drop(task);
    if export.lacks_letters {
        note("some letters are not in the font of figures; a sign stands in their place");
    }
    match target {
        Target::Picture(output) => output.write(&export.picture)?,
        Target::Both(pair) => {
            pair.write([&export.picture, &export.csv])?;
        }
    }
    Ok(())
}
