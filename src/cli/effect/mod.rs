//! `attnscope effect`: effects of heads and layers, by one of nine measures.

mod asked;
mod live;
mod measures;
mod stopping;

use std::path::PathBuf;

use anyhow::Result;
use attnscope_compute::error::Error;
use attnscope_live::LiveTarget;
use attnscope_report::{EffectReport, ModelRecord, Output, PromptOf, printable};
use attnscope_run::Options;
use attnscope_spec::{Grid, Place, Places};
use attnscope_studies::effect::{Part, Replaced, bytes_of_copies, n_parts};
use clap::ValueEnum;

use self::measures::Measuring;
use self::stopping::Stopping;
use super::live_args::LiveArgs;
use super::prompts::InputsArgs;
use super::session::{Opened, Session};
use super::written_args::WrittenArgs;
use super::{PositionalPrompt, PromptArgs, RunArgs, WhatIfArgs};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory, weight file or hub name; or FILE.py:NAME, for ablation and rollout
    checkpoint: PathBuf,
    #[command(flatten)]
    positional: PositionalPrompt,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
    /// The measure
    #[arg(long, value_enum)]
    by: By,
    /// Only these places, layers or heads: L0-2,L3H7, or encoder.L0H2,cross.L1 [default: all]
    #[arg(long, value_name = "PLACES")]
    at: Option<Places>,
    /// Only these parts, for ablation and patching [default: all]
    #[arg(long, value_name = "PART,…", value_delimiter = ',', value_enum)]
    parts: Vec<PartArg>,
    /// Replacement of an ablated part
    #[arg(long, value_enum, default_value_t = ReplaceArg::Zero)]
    replace: ReplaceArg,
    /// Token whose logit is measured: a text that is one token, or an id [default: the likeliest]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Token to compare it with: the difference of the two logits is measured
    #[arg(long, value_name = "TOKEN")]
    against: Option<String>,
    /// Position to measure [default: the last]
    #[arg(long, value_name = "N")]
    position: Option<usize>,
    /// For patching: the corrupted prompt, as many tokens as the clean one
    #[arg(long, value_name = "TEXT", conflicts_with = "corrupted_tokens")]
    corrupted: Option<String>,
    /// For patching: the corrupted prompt as token ids, used verbatim
    #[arg(long, value_name = "ID,ID,…", value_delimiter = ',')]
    corrupted_tokens: Option<Vec<u32>>,
    /// For patching: also patch each position by itself [default: up to 64 tokens]
    #[arg(long)]
    each_position: bool,
    /// For attribution: split heads by source position
    #[arg(long)]
    sources: bool,
    /// For the lens: number of likeliest tokens to list
    #[arg(long, value_name = "N", default_value_t = 3)]
    top: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    written: WrittenArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// A measure of what parts do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// What gets worse when a part is taken away
    Ablation,
    /// What each part adds to one logit; the shares sum to it
    Attribution,
    /// Which values of a clean prompt bring back what a corrupted one lost
    Patching,
    /// What the model would predict if its layers ended earlier
    Lens,
    /// How much of each token reaches a position, if attention were all that moves it
    Rollout,
    /// Attention weighed by the length of what it carries
    Contribution,
    /// Copying, ranks and composition, from weights alone
    Circuits,
    /// Copying of random needles from far away, and attention that stays near
    Retrieval,
    /// What is lost when the what-if holds in one layer or one head alone
    Sensitivity,
}

impl By {
    fn label(self) -> &'static str {
        match self {
            Self::Ablation => "ablation",
            Self::Attribution => "attribution",
            Self::Patching => "patching",
            Self::Lens => "lens",
            Self::Rollout => "rollout",
            Self::Contribution => "contribution",
            Self::Circuits => "circuits",
            Self::Retrieval => "retrieval",
            Self::Sensitivity => "sensitivity",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PartArg {
    Heads,
    /// All heads of a layer at once; only where they are named, or for a live model
    AllHeads,
    Attention,
    FeedForward,
    /// The input of layers, for patching
    Residual,
}

impl PartArg {
    fn part(self) -> Part {
        match self {
            Self::Heads => Part::Head,
            Self::AllHeads => Part::AllHeads,
            Self::Attention => Part::Attention,
            Self::FeedForward => Part::FeedForward,
            Self::Residual => Part::Residual,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReplaceArg {
    Zero,
    /// Its mean over all prompts
    Mean,
    /// What the next prompt of equal length has there
    Other,
}

impl ReplaceArg {
    fn replaced(self) -> Replaced {
        match self {
            Self::Zero => Replaced::Zero,
            Self::Mean => Replaced::Mean,
            Self::Other => Replaced::Other,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Csv,
    Json,
    Parquet,
    /// A table for the comment of a pull request
    Markdown,
    Html,
}

const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: true,
};

impl Args {
    /// Whether a part at a place was requested.
    fn wants(&self, part: Part, place: Place) -> bool {
        let is_part = match self.parts.as_slice() {
            // A checkpoint has the whole attention of a layer in its place.
            [] => part != Part::AllHeads,
            parts => parts.iter().any(|one| one.part() == part),
        };
        is_part && self.is_at(place)
    }

    /// Whether a place was requested.
    fn is_at(&self, place: Place) -> bool {
        let (grid, layer_idx) = (place.grid(), place.layer_idx.unwrap_or(0));
        let holds = |wanted: &Place| match place.head_idx {
            Some(head_idx) => wanted.holds_head(grid, layer_idx, head_idx),
            None => wanted.head_idx.is_none() && wanted.holds(grid, layer_idx),
        };
        self.at.as_ref().is_none_or(|at| at.0.iter().any(holds))
    }

    /// Refuses places that a model does not have.
    fn check_places(&self, grids: &[Grid]) -> Result<()> {
        for place in self.at.iter().flat_map(|at| &at.0) {
            if let Err(reason) = place.within(grids) {
                return Err(Error::Setting(format!("--at: {reason}")).into());
            }
        }
        Ok(())
    }

    /// Returns the memory needed in addition to that of one run.
    fn extra_bytes(&self, opened: &Opened) -> usize {
        let n_variants = match self.by {
            By::Ablation => n_parts(&opened.model, |part, place| self.wants(part, place)),
            // Every part at every position.
            By::Patching => 1 << 20,
            By::Lens => opened.model.spec.main_stack().n_layers() + 1,
            // As many copies as run together.
            By::Sensitivity => 1 << 20,
            _ => return 0,
        };
        bytes_of_copies(&opened.model, &opened.longest(), n_variants)
    }

    /// Refuses flags that the measure does not take.
    fn check(&self) -> Result<()> {
        let by = self.by;
        let of_patching = self.corrupted.is_some() || self.corrupted_tokens.is_some();
        let is_asked = self.token.is_some() || self.against.is_some();
        let misplaced = [
            (of_patching && by != By::Patching, "--corrupted", "patching"),
            (
                self.each_position && by != By::Patching,
                "--each-position",
                "patching",
            ),
            (
                self.sources && by != By::Attribution,
                "--sources",
                "attribution",
            ),
            (
                self.replace != ReplaceArg::Zero && by != By::Ablation,
                "--replace",
                "ablation",
            ),
            (
                !self.parts.is_empty() && !matches!(by, By::Ablation | By::Patching),
                "--parts",
                "ablation and patching",
            ),
            (
                is_asked && !matches!(by, By::Ablation | By::Attribution | By::Patching),
                "--token",
                "ablation, attribution and patching",
            ),
            (
                self.at.is_some() && matches!(by, By::Lens | By::Rollout),
                "--at",
                "ablation, attribution, patching, contribution, circuits, retrieval and sensitivity",
            ),
            (
                self.inputs.is_set()
                    && !matches!(by, By::Ablation | By::Contribution | By::Sensitivity),
                "--inputs",
                "ablation, contribution and sensitivity; the others look at one prompt",
            ),
        ];
        if by == By::Sensitivity && !self.what_if.is_set() {
            let problem =
                "--by sensitivity: expected a change to look at, such as --what-if kv=int4";
            return Err(Error::Setting(problem.to_owned()).into());
        }
        match misplaced.iter().find(|(is_misplaced, ..)| *is_misplaced) {
            Some((_, flag, of)) => {
                let problem = format!("{flag}: belongs to --by {of}");
                Err(Error::Setting(problem).into())
            }
            None => Ok(()),
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    args.check()?;
    if let Some(target) = LiveTarget::parse(&args.checkpoint) {
        return live::run(args, &target);
    }
    let prompt = args.positional.with(&args.prompt)?;
    // Sensitivity makes the change itself, place by place.
    let unchanged = WhatIfArgs::default();
    let what_if = match args.by {
        By::Sensitivity => &unchanged,
        _ => &args.what_if,
    };
    let session = Session::begin(&args.run, what_if, prompt, &args.inputs)?;
    let mut opened = session.open(&args.checkpoint)?;
    args.check_places(&opened.model.spec.shape())?;
    let output = Output::open_or_replace(&args.written.output, args.run.force)?;
    // In addition to one run: the residuals and activations of copies that run together.
    let extra = args.extra_bytes(&opened);
    session.ready(&mut opened, OPTIONS, extra)?;
    let stopping = Stopping::begin();
    let measuring = Measuring {
        args,
        session: &session,
        opened: &opened,
        stopping: &stopping,
    };
    let (sheet, complete) = measuring.measure()?;
    let named = opened.named.iter();
    // Circuits need only weights, and needles are random tokens.
    let has_prompts = !matches!(args.by, By::Circuits | By::Retrieval);
    let prompts = named.filter(|_| has_prompts).map(|named| PromptOf {
        id: named.id.clone(),
        n_tokens: named.prompt.tokens.len(),
    });
    let report = EffectReport {
        by: args.by.label(),
        model: ModelRecord::of(&opened.model),
        what_if: args.what_if.words(),
        prompts: prompts.collect(),
        complete,
        sheet,
    };
    write(args, &report, output)
}

fn write(args: &Args, report: &EffectReport, output: Output) -> Result<()> {
    let mut content = Vec::new();
    match args.format {
        Format::Table => content = printable(report.text().as_bytes()),
        Format::Csv => report
            .sheet
            .table
            .write_csv(args.written.raw_csv, &mut content)?,
        Format::Json => report.write_json(&mut content)?,
        Format::Markdown => content = printable(report.markdown().as_bytes()),
        Format::Html => report.write_html(&mut content)?,
        Format::Parquet => report.write_parquet(&mut content)?,
    }
    Ok(output.write(&content)?)
}
