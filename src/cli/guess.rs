//! `attnscope guess`: finds the architecture of weights without a configuration, as the `attnscope.toml` that opens them.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attnscope_checkpoint::{Opening, TokenizerFile};
use attnscope_compute::on_device;
use attnscope_prompt::{PromptForm, Request, Source, Tokenizer};
use attnscope_report::{GuessReport, Output, printable, undecided};
use attnscope_studies::guess::{Given, Kind, guess};
use clap::ValueEnum;

use super::live_target;
use super::progress::{Task, note};
use super::prompts::InputsArgs;
use super::{Ended, PromptArgs, RunArgs};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Weight file, or a directory that holds one
    weights_file: PathBuf,
    /// Kind of model [default: the one with the lower loss]
    #[arg(long, value_enum)]
    kind: Option<KindArg>,
    /// Mask token of an encoder [default: the one with the lowest loss]
    #[arg(long, value_name = "ID")]
    mask_token: Option<u32>,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
    #[command(flatten)]
    run: RunArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Toml)]
    format: Format,
    /// Output file; - is standard output. As attnscope.toml beside the weights, it opens them
    #[arg(long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// The file attnscope.toml, each line with its evidence
    #[value(alias = "text")]
    Toml,
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KindArg {
    Decoder,
    Encoder,
}

pub fn run(args: &Args) -> Result<Ended> {
    live_target::refuse(&args.weights_file)?;
    if let Some((key, _)) = args.run.set.first() {
        bail!(
            "--set {key}: guess finds the values out; --set corrects them where the model is opened"
        );
    }
    let chosen = args.run.prepare()?;
    let opening = Opening {
        ignores_settings: true,
        ..args.run.opening(Some(args.weights_file.clone()))
    };
    let checkpoint = opening.open()?;
    if checkpoint.config.get("model_type").is_some() {
        note("a configuration with a model_type lies beside the weights: guess leaves it aside");
    }
    let given = Given {
        sequences: sequences(args, &checkpoint.tokenizer)?,
        kind: args.kind.map(|kind| match kind {
            KindArg::Decoder => Kind::Decoder,
            KindArg::Encoder => Kind::Encoder,
        }),
        mask_token: args.mask_token,
    };
    let output = Output::open_or_replace(&args.output, args.run.force)?;
    let name = args
        .weights_file
        .file_name()
        .unwrap_or(args.weights_file.as_os_str());
    let name = name.to_string_lossy().into_owned();
    let task = Task::begin("running candidates", 0);
    let mut told = |_: &str, n_tried: usize| task.at(n_tried, n_tried.next_multiple_of(500).max(1));
    let found = on_device!(&chosen.compute, ops => {
        guess(ops, checkpoint, &given, &mut told, &|| false)
    })?;
    drop(task);
    let report = GuessReport::of(&found, &name, tokenizer_line(args).as_deref());
    let is_file = args.output != Path::new("-");
    let mut reasons = undecided(&found);
    if !found.is_understood() {
        reasons.push(format!(
            "the best candidate loses {:.4} nats per token, hardly less than word frequencies ({:.4}): this is no reading of the weights",
            found.loss, found.unigram_loss
        ));
    }
    reasons
        .iter()
        .for_each(|reason| note(&format!("not decided: {reason}")));
    if is_file && !reasons.is_empty() && !args.run.force {
        note("nothing was written (--force writes it)");
        return Ok(Ended::WithFindings);
    }
    if let Some(said) = &found.otherwise {
        note(&format!(
            "trained otherwise than any description says: {said}"
        ));
    }
    let mut content = Vec::new();
    match args.format {
        Format::Toml => content = printable(report.toml().as_bytes()),
        Format::Json => report.write_json(&mut content)?,
    }
    output.write(&content)?;
    if is_file {
        let said = format!(
            "{}: a guess, loss {:.4}\n",
            args.output.display(),
            found.loss
        );
        Output::Stdout.write(&printable(said.as_bytes()))?;
    }
    Ok(if found.is_decided() {
        Ended::Clean
    } else {
        Ended::WithFindings
    })
}

/// Returns the value of the `tokenizer` key, if the given tokenizer can be named next to the weights.
fn tokenizer_line(args: &Args) -> Option<String> {
    let named = args.run.weights.tokenizer.as_ref()?;
    let directory = if args.weights_file.is_dir() {
        args.weights_file.clone()
    } else {
        args.weights_file
            .parent()
            .map(Path::to_path_buf)
            .unwrap_or_default()
    };
    let is_in_directory = named.parent().is_some_and(|parent| parent == directory);
    let name = named.file_name()?.to_string_lossy().into_owned();
    (is_in_directory || named == Path::new("bytes")).then_some(name)
}

/// Returns the token ids of the given texts.
fn sequences(args: &Args, file: &TokenizerFile) -> Result<Vec<Vec<u32>>> {
    let requests: Vec<Request> = match args.inputs.requests(&args.prompt)? {
        Some(requests) => requests,
        None => args.prompt.request()?.into_iter().collect(),
    };
    if requests.is_empty() {
        bail!(
            "guess ranks its candidates by what they lose on text: expected --text, --text-file, --tokens or --inputs, with text of the \
             kind that the model was trained on (a hundred tokens or more)"
        );
    }
    let prompt_form = Tokenizer::open(file)?;
    let ids = |request: &Request| -> Result<Vec<u32>> {
        match (&request.source, &prompt_form) {
            (Source::Ids(ids), _) => Ok(ids.clone()),
            (Source::Text(text), PromptForm::Tokenizer(tokenizer)) => {
                Ok(tokenizer.encode(text, request.special_tokens)?)
            }
            (Source::Picture(source), _) => bail!(
                "{source}: guess ranks its candidates by what they lose on text, and a picture was given"
            ),
            (Source::Values(values), _) => bail!(
                "{}: guess ranks its candidates by what they lose on text, and --values was given",
                values.path().display()
            ),
            (Source::Text(_), PromptForm::Ids(reason)) => bail!(
                "a text needs the model's tokenizer ({reason}): --tokenizer FILE names it (tokenizer.json, …, or a JSON list of \
                 characters), --tokenizer bytes takes each byte for its own id, --tokens gives ids"
            ),
        }
    };
    requests.iter().map(ids).collect()
}
