//! `attnscope align`: aligns the words of two sentences by attention between two embedding tables.

use std::io::{IsTerminal, stdin, stdout};
use std::path::PathBuf;

use anyhow::Result;
use attnscope_checkpoint::embeddings::Table;
use attnscope_compute::attention::SoftmaxAxis;
use attnscope_compute::ops::Device;
use attnscope_report::{AlignShown, Output, printable, write_arrays};
use attnscope_run::align::Alignment;
use attnscope_screen::{InitialState, StoryLoader};
use clap::ValueEnum;

use super::WhatIfArgs;
use super::figures::Format;
use super::settings::{self, ScreenArgs};

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Embeddings of the query words: .npz, .npy, .safetensors, or the text of word2vec
    #[arg(long, value_name = "FILE")]
    queries: PathBuf,
    /// Embeddings of the key words; they are the values too
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// Dictionary word → row of the queries: JSON or pickle; text has its words with it
    #[arg(long, value_name = "FILE")]
    queries_vocab: Option<PathBuf>,
    /// Dictionary word → row of the keys
    #[arg(long, value_name = "FILE")]
    keys_vocab: Option<PathBuf>,
    /// Sentence of the query words; it is lower-cased and split at spaces
    #[arg(long, value_name = "TEXT")]
    query_text: String,
    /// Sentence of the key words
    #[arg(long, value_name = "TEXT")]
    key_text: String,
    /// What the softmax normalises: keys, so that rows sum to 1; or queries, the classic mistake
    #[arg(long, value_enum, default_value_t = Axis::Keys)]
    softmax_axis: Axis,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    screen: ScreenArgs,
    /// Print the figures even if there is a terminal to open the screen in
    #[arg(long)]
    report: bool,
    /// How to print them; implies --report [default: text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Keep words in CSV as they are, even those that a spreadsheet would read as formulas
    #[arg(long)]
    raw_csv: bool,
    /// Write pattern, scores and output to this file: .safetensors or .npz; implies --report
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace a file that exists
    #[arg(long, requires = "output")]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Axis {
    Keys,
    Queries,
}

const HELP: &str = "\
weights = softmax(Q Kᵀ/√d) over the keys; output = weights × V, and V is K. A word that a dictionary does not have is a row of zeros, \
marked ⟨word⟩?. Pickles are read as data: one that names a class or a function is refused, and nothing of it runs. \
On the screen, e edits both sentences (QUERY WORDS | KEY WORDS) and w supposes another attention, the other axis among them.";

/// Key hints shown first on the screen.
const HINT: &str = "e other sentences · w another attention · 6 findings";

pub fn run(args: &Args) -> Result<()> {
    let tables = [
        Table::open(&args.queries, args.queries_vocab.as_deref(), "queries")?,
        Table::open(&args.keys, args.keys_vocab.as_deref(), "keys")?,
    ];
    let axis = match args.softmax_axis {
        Axis::Keys => SoftmaxAxis::Keys,
        Axis::Queries => SoftmaxAxis::Queries,
    };
    let texts = [args.query_text.as_str(), args.key_text.as_str()];
    let alignment = Alignment::new(tables, texts, axis, args.what_if.all())?;
    let words = args.what_if.words();
    let is_report = args.report || args.format.is_some() || args.output.is_some();
    let format = (args.format, args.raw_csv);
    let Some(target) = &args.output else {
        return show(alignment, HINT, words, is_report, format, &args.screen);
    };
    let output = Output::open_or_replace(target, args.force)?;
    output.write(&write_arrays(&alignment, &alignment.align(), target)?)?;
    show(alignment, HINT, words, is_report, format, &args.screen)
}

/// Opens the screen, on the story of the alignment if it has one.
///
/// # Errors
/// When the terminal fails.
pub fn open(
    alignment: Alignment,
    hint: &str,
    screen: &ScreenArgs,
    story: Option<StoryLoader>,
) -> Result<()> {
    let terms = settings::terms(Device::default(), false);
    let in_front = InitialState {
        notice: Some(hint.to_owned()).filter(|hint| !hint.is_empty()),
        setup: screen.setup()?,
        ..InitialState::default()
    };
    Ok(attnscope_screen::run_alignment(
        alignment, terms, in_front, story,
    )?)
}

/// Opens the screen, or prints the results if there is no terminal or they were requested.
///
/// # Errors
/// When the terminal fails, or standard output cannot be written.
pub fn show(
    alignment: Alignment,
    hint: &str,
    what_if: Vec<String>,
    is_report: bool,
    (format, is_raw_csv): (Option<Format>, bool),
    screen: &ScreenArgs,
) -> Result<()> {
    let notice = if what_if.is_empty() {
        Some(hint.to_owned()).filter(|hint| !hint.is_empty())
    } else {
        Some(format!("what if {}", what_if.join(", ")))
    };
    if !is_report && stdout().is_terminal() && stdin().is_terminal() {
        return open(alignment, &notice.unwrap_or_default(), screen, None);
    }
    let shown = AlignShown::new(&alignment, what_if, &settings::thresholds(None)?);
    let mut numbers = Vec::new();
    match format.unwrap_or(Format::Text) {
        Format::Json => shown.write_json(&mut numbers)?,
        Format::Csv => shown.pairs().write_csv(is_raw_csv, &mut numbers)?,
        Format::Markdown => numbers = printable(shown.pairs().markdown().as_bytes()),
        Format::Text => {
            shown.write_text(&mut numbers)?;
            numbers = printable(&numbers);
        }
    }
    Ok(Output::Stdout.write(&numbers)?)
}
