//! `attnscope serve-check`: asks a running server for the log-probabilities of prompts, and judges them by the checkpoint that it serves.

mod server;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attnscope_compare::logprobs::{
    IdsApart, LogProbs, ScoredPrompt, ScoredToken, Telling, apart, can_judge,
};
use attnscope_prompt::PromptForm;
use attnscope_report::{LogProbDifference, Output, printable, read_logprobs_text};
use attnscope_run::{Options, input_of};
use clap::ValueEnum;

use self::server::Server;
use super::diff::logprobs::judged;
use super::progress::{Task, note};
use super::prompts::InputsArgs;
use super::session::Session;
use super::{Ended, PositionalPrompt, PromptArgs, RunArgs, WhatIfArgs};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Address of the server: http://HOST:PORT, with or without /v1
    url: String,
    /// Checkpoint that the server is meant to serve
    #[arg(long, value_name = "CHECKPOINT")]
    checkpoint: PathBuf,
    #[command(flatten)]
    positional: PositionalPrompt,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
    /// Name of the model in requests [default: the checkpoint as it was given]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Which interface to ask [default: OpenAI's, then SGLang's, then llama.cpp's]
    #[arg(long, value_enum)]
    api: Option<Api>,
    /// Likeliest tokens to ask for
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=20))]
    top: u8,
    /// Seconds to wait for each answer
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Mean difference in nats that still counts as agreement [default: the effect of bf16 on this model]
    #[arg(long, value_name = "NATS")]
    tolerance: Option<f64>,
    /// Also write the answers to this file, one per line: a table that diff reads
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Output file; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Api {
    /// /v1/completions, as vLLM, SGLang, llama-cpp-python and others have it
    Openai,
    /// SGLang's /generate
    Sglang,
    /// llama.cpp's /completion, with a request for each token
    LlamaCpp,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
    Markdown,
}

const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: false,
};

pub fn run(args: &Args) -> Result<Ended> {
    let base = base(&args.url)?;
    let prompt = args.positional.with(&args.prompt)?;
    let session = Session::begin(&args.run, &args.what_if, prompt, &args.inputs)?;
    let mut opened = session.open(&args.checkpoint)?;
    can_judge(&opened.model)?;
    let output = Output::open_or_replace(&args.output, args.run.force)?;
    let answers_to = args.answers.as_deref();
    let answers_to = answers_to
        .map(|path| Output::open_or_replace(path, args.run.force))
        .transpose()?;
    session.ready(&mut opened, OPTIONS, 0)?;
    let mut server = Server::new(args, base);
    let mut told = LogProbs::default();
    let mut ids_apart = Vec::new();
    let mut lines = String::new();
    let task = Task::begin("asking the server", opened.named.len() as u64);
    for (idx, named) in opened.named.iter().enumerate() {
        task.at(idx, opened.named.len());
        let ids = input_of(&named.prompt).sequence.tokens;
        let text = server.logprobs(&ids)?;
        lines += &text.replace(['\n', '\r'], " ");
        lines.push('\n');
        let found = read_logprobs_text(Path::new(&args.url), &text, None)?;
        told.form = found.form;
        let Some(mut prompt) = found.prompts.into_iter().next() else {
            continue;
        };
        prompt.name.clone_from(&named.id);
        ids_apart.extend(with_ids(&mut prompt, &ids, &opened.prompt_form, args)?);
        told.prompts.push(prompt);
    }
    drop(task);
    if let Some(to) = answers_to {
        to.write(lines.as_bytes())?;
    }
    told.find_quantum();
    if let Some(tokenizer) = opened.prompt_form.tokenizer() {
        told.spell(tokenizer);
    }
    let mut telling = |_: Telling<'_>| {};
    let mut comparison = judged(
        &session,
        &opened.model,
        (&told, None),
        args.tolerance,
        &mut telling,
    )?;
    comparison.ids = ids_apart;
    let reference = args.checkpoint.display().to_string();
    let mut notes =
        vec!["in lines about ids, A is what the server ran and B what was sent".to_owned()];
    notes.retain(|_| !comparison.ids.is_empty());
    let difference = LogProbDifference {
        a: &format!("{} ({})", args.url, told.form),
        b: None,
        reference: Some(&reference),
        comparison: &comparison,
        tables: [Some(&told), None],
        notes,
    };
    let mut content = Vec::new();
    match args.format {
        Format::Json => difference.write_json(&mut content)?,
        Format::Markdown => content = difference.markdown().into_bytes(),
        Format::Text => content = printable(difference.text().as_bytes()),
    }
    output.write(&content)?;
    Ok(if comparison.is_same() {
        Ended::Clean
    } else {
        Ended::WithFindings
    })
}

/// The address without the path of an interface.
fn base(url: &str) -> Result<String> {
    let is_http = url.starts_with("http://") || url.starts_with("https://");
    if !is_http {
        bail!("{url}: expected the address of a server, http://HOST:PORT");
    }
    let url = url.trim_end_matches('/');
    let url = ["/v1/completions", "/completions", "/generate", "/v1"]
        .iter()
        .find_map(|end| url.strip_suffix(end))
        .unwrap_or(url);
    Ok(url.to_owned())
}

/// Gives the tokens of an answer their ids, and says whether they are those that were sent.
fn with_ids(
    prompt: &mut ScoredPrompt,
    sent: &[u32],
    prompt_form: &PromptForm,
    args: &Args,
) -> Result<Option<IdsApart>> {
    let has_all = |prompt: &ScoredPrompt| prompt.tokens.iter().all(|token| token.id.is_some());
    // What was written behind the prompt is judged too where its ids are known.
    if !has_all(prompt) && (sent.len()..=sent.len() + 1).contains(&prompt.tokens.len()) {
        prompt.tokens.truncate(sent.len());
        prompt
            .tokens
            .iter_mut()
            .zip(sent)
            .for_each(|(token, id)| token.id = Some(*id));
        note(&format!(
            "prompt {}: the answer has no ids: its tokens are taken for those that were sent",
            prompt.name
        ));
    }
    if !has_all(prompt) {
        let mut table = LogProbs {
            prompts: vec![prompt.clone()],
            ..LogProbs::default()
        };
        table.identify(Path::new(&args.url), prompt_form)?;
        *prompt = table.prompts.remove(0);
    }
    let token = |id: &u32| ScoredToken {
        id: Some(*id),
        ..ScoredToken::default()
    };
    let sent = ScoredPrompt {
        name: prompt.name.clone(),
        tokens: sent.iter().map(token).collect(),
        lacks_context: false,
    };
    let n = sent.tokens.len().min(prompt.tokens.len());
    let is_beginning = prompt.tokens[..n]
        .iter()
        .map(|token| token.id)
        .eq(sent.tokens[..n].iter().map(|token| token.id));
    Ok(
        if is_beginning && prompt.tokens.len() >= sent.tokens.len() {
            None
        } else {
            apart(prompt, &sent)
        },
    )
}
