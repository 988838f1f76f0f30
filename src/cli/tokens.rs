//! `attnscope tokens`: tokenizes a text with a checkpoint's tokenizer.

use std::path::PathBuf;

use anyhow::{Result, bail};
use attnscope_checkpoint::{DOCUMENT, TokenizerFile, read_text};
use attnscope_prompt::{PromptForm, Tokenizer, TokenizerLoss};
use attnscope_report::{Output, TokenList, printable};
use clap::ValueEnum;

use super::progress::note;
use super::{WeightArgs, live_target};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory or weight file, or a directory that holds only a tokenizer
    target: PathBuf,
    /// Text to tokenize
    #[arg(value_name = "PROMPT", required_unless_present_any = ["text", "text_file"])]
    positional: Option<String>,
    /// Text to tokenize, whatever it looks like
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["positional", "text_file"])]
    text: Option<String>,
    /// File that holds the text
    #[arg(long, value_name = "FILE", conflicts_with = "positional")]
    text_file: Option<PathBuf>,
    /// Leave out the tokens that are put around a text
    #[arg(long)]
    no_special_tokens: bool,
    #[command(flatten)]
    weights: WeightArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Output file; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Replace a file that exists
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

pub fn run(args: &Args) -> Result<()> {
    live_target::refuse(&args.target)?;
    let text = match (
        &args.text_file,
        args.text.as_ref().or(args.positional.as_ref()),
    ) {
        (Some(path), _) => read_text(path, DOCUMENT)?,
        (None, Some(text)) => text.clone(),
        (None, None) => bail!("expected a text, found none: --text gives one"),
    };
    let prompt_form = Tokenizer::open(&tokenizer_of(args)?)?;
    let PromptForm::Tokenizer(tokenizer) = &prompt_form else {
        bail!("{}: {}", args.target.display(), prompt_form.describe());
    };
    let tokens = tokenizer.cut(&text, !args.no_special_tokens)?;
    if let Some(said) = TokenizerLoss::of(&text, &tokens).words() {
        note(&said);
    }
    let list = TokenList::of(tokenizer, &tokens);
    let mut content = Vec::new();
    match args.format {
        Format::Text => content = printable(list.text().as_bytes()),
        Format::Json => list.write_json(&mut content)?,
    }
    Ok(Output::open_or_replace(&args.output, args.force)?.write(&content)?)
}

/// Finds the tokenizer: the model's own, one next to weights that cannot be read, or one in a directory without weights.
fn tokenizer_of(args: &Args) -> Result<TokenizerFile> {
    let opening = args.weights.opening(Some(args.target.clone()));
    let refused = match opening.open() {
        Ok(checkpoint) => {
            let stored = checkpoint.tokenizer.clone();
            return Ok(match attnscope_families::read(checkpoint) {
                Ok(model) => model.checkpoint.tokenizer.clone(),
                Err(_) => stored,
            });
        }
        Err(refused) => refused,
    };
    if let Some(file) = &opening.tokenizer {
        return Ok(TokenizerFile::named(file, None)?);
    }
    if args.target.is_dir() {
        let found = TokenizerFile::find(
            &args.target,
            TokenizerFile::model_type_in(&args.target).as_deref(),
        );
        if !matches!(found, TokenizerFile::Missing) {
            return Ok(found);
        }
    }
    Err(refused.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tokenizer_is_found_in_a_directory_without_weights() {
        let directory = tempfile::tempdir().expect("a directory");
        let vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n";
        std::fs::write(directory.path().join("vocab.txt"), vocab).expect("written");
        std::fs::write(
            directory.path().join("config.json"),
            r#"{"model_type": "bert"}"#,
        )
        .expect("written");
        let args = Args {
            target: directory.path().to_path_buf(),
            positional: Some("hello".to_owned()),
            text: None,
            text_file: None,
            no_special_tokens: false,
            weights: WeightArgs::default(),
            format: Format::Json,
            output: directory.path().join("tokens.json"),
            force: false,
        };
        run(&args).expect("runs");
        let written = std::fs::read_to_string(&args.output).expect("a file");
        let value: serde_json::Value = serde_json::from_str(&written).expect("JSON");
        let ids: Vec<u64> = value["tokens"]
            .as_array()
            .expect("tokens")
            .iter()
            .filter_map(|token| token["id"].as_u64())
            .collect();
        assert_eq!(ids, [2, 5, 3]);
        assert_eq!(value["tokens"][1]["end"], 5);
    }
}
