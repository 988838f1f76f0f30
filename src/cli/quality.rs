//! `attnscope quality`: translation quality by sentence length.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attnscope_compute::on_device;
use attnscope_prompt::{Prompt, PromptForm, Request, Source, Target};
use attnscope_report::{
    AlignedBy, ModelRecord, Output, QualityDocument, Scored, Translated, printable,
};
use attnscope_run::{Options, input_of};
use attnscope_spec::{Model, Place};
use attnscope_studies::quality::{AlignmentErrors, BleuCounts, GoldAlignment, WordMap, links};
use clap::ValueEnum;

use super::progress::Task;
use super::prompts::{InputsArgs, PromptSet};
use super::quality_pairs::{Pair, read_pairs};
use super::session::{Opened, Session};
use super::written_args::WrittenArgs;
use super::{PromptArgs, RunArgs, WhatIfArgs};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Encoder–decoder checkpoints, one or more
    #[arg(required = true)]
    checkpoints: Vec<PathBuf>,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Pairs, one JSON object per line: text or tokens, reference (a text or several), and perhaps id and alignment (0-0 1-2)
    #[arg(long, value_name = "FILE")]
    inputs: PathBuf,
    /// Source words per row of the table of lengths
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    length_step: u16,
    /// Attention whose links are compared with the alignments: cross.L3 or cross.L3H5 [default: the best on these pairs]
    #[arg(long, value_name = "PLACE")]
    at: Option<Place>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    written: WrittenArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Csv,
    Json,
    /// A table for the comment of a pull request
    Markdown,
}

const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: false,
};

/// Number of pairs translated before memory is checked again.
const AT_ONCE: usize = 64;

pub fn run(args: &Args) -> Result<()> {
    if args.prompt.request()?.is_some() {
        bail!("--inputs gives the sentences: expected no other prompt");
    }
    let pairs = read_pairs(&args.inputs, &args.prompt.usual())?;
    let session = Session::begin(
        &args.run,
        &args.what_if,
        args.prompt.clone(),
        &InputsArgs::default(),
    )?;
    let output = Output::open_or_replace(&args.written.output, args.run.force)?;
    let mut document = QualityDocument::new(args.length_step.into(), session.what_ifs());
    for target in &args.checkpoints {
        document.add(of_one(args, &session, target, &pairs)?);
    }
    let mut content = Vec::new();
    match args.format {
        Format::Json => document.write_json(&mut content)?,
        Format::Csv => document
            .rows()
            .write_csv(args.written.raw_csv, &mut content)?,
        Format::Markdown => content = printable(document.rows().markdown().as_bytes()),
        Format::Text => content = printable(document.text().as_bytes()),
    }
    Ok(output.write(&content)?)
}

/// Translates every pair, and aligns those with a gold alignment.
fn of_one(args: &Args, session: &Session<'_>, target: &Path, pairs: &[Pair]) -> Result<Scored> {
    let mut opened = session.open_alone(target)?;
    if !opened.model.spec.is_encoder_decoder() {
        bail!(
            "{}: {} has no encoder and decoder: there is nothing that it translates",
            target.display(),
            opened.model.spec.family
        );
    }
    if let Some(at) = &args.at
        && let Err(reason) = at.within(&opened.model.spec.shape())
    {
        bail!("--at: {reason}");
    }
    let mut translated = Vec::with_capacity(pairs.len());
    let task = Task::begin(
        &format!("translating with {}", target.display()),
        pairs.len() as u64,
    );
    let mut errors: BTreeMap<String, Vec<Option<AlignmentErrors>>> = BTreeMap::new();
    for chunk in pairs.chunks(AT_ONCE) {
        let requests = chunk
            .iter()
            .map(|pair| (pair.id.clone(), pair.request.clone()));
        let set = PromptSet::of_file(&args.inputs, requests.collect());
        session.give(&mut opened, &set)?;
        session.ready(&mut opened, OPTIONS, 0)?;
        for (pair, named) in chunk.iter().zip(&opened.named) {
            translated.push(written(pair, &opened, &named.prompt));
            if let Some(gold) = &pair.gold {
                for (place, found) in aligned(session, &opened, pair, gold)? {
                    let of_place = errors.entry(place.to_string()).or_default();
                    of_place.resize(translated.len() - 1, None);
                    of_place.push(Some(found));
                }
            }
        }
        task.at(translated.len(), pairs.len());
    }
    for of_place in errors.values_mut() {
        of_place.resize(translated.len(), None);
    }
    let asked = args.at.map(|at| at.to_string());
    Ok(Scored::new(
        target_name(target, &opened.model),
        ModelRecord::of(&opened.model),
        translated,
        AlignedBy { errors, asked },
    ))
}

fn target_name(target: &Path, model: &Model) -> String {
    let name = target
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| model.checkpoint.name.clone())
}

/// Scores the model's translation of a pair.
fn written(pair: &Pair, opened: &Opened, prompt: &Prompt) -> Translated {
    let spec = &opened.model.spec;
    let prompt_form = opened.prompt_form.of_target(spec.limits());
    let ends = spec
        .decoder_start
        .as_ref()
        .map(|start| start.end_tokens.as_slice());
    let is_end = |id: &u32| ends.is_some_and(|ends| ends.contains(id));
    let own: Vec<u32> = prompt
        .tokens
        .iter()
        .skip(1)
        .copied()
        .take_while(|id| !is_end(id))
        .collect();
    let hypothesis = match prompt_form.tokenizer() {
        Some(tokenizer) => tokenizer.text(&own),
        None => own.iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
    };
    let n_words = match &pair.request.source {
        Source::Text(text) => text.split_whitespace().count(),
        Source::Ids(ids) => ids.len(),
        Source::Picture(_) | Source::Values(_) => 0,
    };
    Translated {
        id: pair.id.clone(),
        n_words,
        counts: BleuCounts::of(&hypothesis, &pair.references),
        is_exact: pair.references.contains(&hypothesis),
        hypothesis,
        reference: pair.references[0].clone(),
    }
}

/// Compares the links of every attention to the source with the gold alignment, with the reference as forced target.
fn aligned(
    session: &Session<'_>,
    opened: &Opened,
    pair: &Pair,
    gold: &GoldAlignment,
) -> Result<Vec<(Place, AlignmentErrors)>> {
    let (model, prompt_form) = (&opened.model, &opened.prompt_form);
    let limits = model.spec.limits();
    let request = Request {
        target: Target::Text(pair.references[0].clone()),
        ..pair.request.clone()
    };
    let forced = attnscope_prompt::prepare(&request, prompt_form, limits)?;
    let source = match &pair.request.source {
        Source::Text(text) => words_of(prompt_form, text, pair.request.special_tokens, 0)?,
        Source::Ids(ids) => WordMap((0..ids.len()).map(Some).collect()),
        Source::Picture(_) | Source::Values(_) => WordMap(Vec::new()),
    };
    let own = prompt_form.of_target(limits);
    // The start token comes before the text.
    let target = words_of(own, &pair.references[0], pair.request.special_tokens, 1)?;
    let input = input_of(&forced);
    let found = on_device!(&session.compute, ops => {
        links(ops, model, &input, (&source, &target), &|| false)
    })?;
    let errors = found.into_iter();
    Ok(errors
        .map(|(place, links)| (place, AlignmentErrors::of(&links, gold)))
        .collect())
}

/// Maps the tokens of a text to words, after some leading tokens without a word.
fn words_of(
    prompt_form: &PromptForm,
    text: &str,
    special_tokens: bool,
    n_before: usize,
) -> Result<WordMap> {
    let Some(tokenizer) = prompt_form.tokenizer() else {
        bail!(
            "alignments are of words: expected a tokenizer, found {}",
            prompt_form.describe()
        );
    };
    let tokens = tokenizer.cut(text, special_tokens)?;
    let bytes: Vec<_> = tokens
        .into_iter()
        .map(|token| if token.is_special { 0..0 } else { token.bytes })
        .collect();
    let mut map = WordMap::of(text, &bytes);
    map.0.splice(0..0, std::iter::repeat_n(None, n_before));
    Ok(map)
}
