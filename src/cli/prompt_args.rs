//! Flags that give the prompt.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::values::Values;
use attnscope_checkpoint::{DOCUMENT, read_text};
use attnscope_compute::error::{Error, Result};
use attnscope_prompt::{
    BUILT_IN_SOUND, N_GENERATED, PictureSource, Positions, Request, Sampling, Source, Target,
};
use attnscope_run::can_write;
use attnscope_spec::ModelSpec;
use clap::ValueEnum;

use super::chat_args::ChatArgs;
use super::targets::{is_path, names_picture, source_of};
use crate::bundles::DEMO_PROMPT;

/// A prompt: at most one of the ways to give it.
#[derive(Debug, Clone, clap::Args)]
pub struct PromptArgs {
    /// A text given without a flag, by commands that take one so.
    #[arg(skip)]
    pub prompt: Option<String>,
    /// Text to run
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["text_file", "tokens"])]
    text: Option<String>,
    /// File with the text to run
    #[arg(long, value_name = "FILE", conflicts_with = "tokens")]
    text_file: Option<PathBuf>,
    /// Picture to run, a PNG or JPEG file, for models that read pictures
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "text_file", "tokens"])]
    image: Option<PathBuf>,
    /// Token ids to run, used verbatim
    #[arg(
        long,
        value_name = "ID,ID,…",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    tokens: Option<Vec<u32>>,
    /// CSV or .npy file with one row of numbers per position, in place of tokens; for live models (FILE.py:NAME) and described models that take vectors
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["text", "text_file", "image", "tokens", "generate"]
    )]
    values: Option<PathBuf>,
    /// Target text, for encoder–decoder models; for a decoder that reads rows of numbers, the path of their CSV or .npy file
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["target_tokens", "generate"])]
    target_text: Option<String>,
    /// Target token ids, used verbatim, including the start token
    #[arg(
        long,
        value_name = "ID,ID,…",
        value_delimiter = ',',
        conflicts_with = "generate"
    )]
    target_tokens: Option<Vec<u32>>,
    /// Generate at most N tokens: after the prompt, or as the target of an encoder–decoder model
    #[arg(long, value_name = "N")]
    generate: Option<usize>,
    /// Sampling temperature; 0 takes the likeliest token
    #[arg(
        long,
        value_name = "T",
        default_value_t = 0.0,
        allow_hyphen_values = true
    )]
    temperature: f64,
    /// Sample from the K likeliest tokens
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Sample from the fewest tokens whose probabilities add up to P
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    top_p: Option<f64>,
    /// Seed for sampling; gives the same tokens on every machine [default: 0]
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub chat: ChatArgs,
    /// 1 for every real token, 0 for padding
    #[arg(long, value_name = "1,1,0,…", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..=1))]
    attention_mask: Option<Vec<u8>>,
    /// How to count positions where there is padding
    #[arg(long, value_enum, default_value_t = PositionsArg::Family)]
    positions: PositionsArg,
    /// Do not let the tokenizer add special tokens
    #[arg(long)]
    no_special_tokens: bool,
    /// Keep the first tokens of a text that is too long
    #[arg(long)]
    truncate: bool,
}

/// A prompt given without a flag.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PositionalPrompt {
    /// Text to run, or the path of a WAV file for speech models [default: a built-in one]
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
}

impl PositionalPrompt {
    /// Returns the word itself, for commands that take further targets.
    pub fn word(&self) -> Option<&str> {
        self.prompt.as_deref()
    }

    /// Combines the flags with this prompt.
    ///
    /// # Errors
    /// When the prompt is a path, which was meant as a second checkpoint, or when a flag gives another prompt.
    pub fn with(&self, flags: &PromptArgs) -> Result<PromptArgs> {
        if let Some(path) = self.prompt.as_ref().filter(|prompt| is_path(prompt)) {
            return Err(Error::Prompt(format!(
                "{path}: expected a text, found a path: this command takes one checkpoint (attnscope report and check take \
                 several; --text runs any text)"
            )));
        }
        let mut all = flags.clone();
        all.positional(self.prompt.clone())?;
        Ok(all)
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PositionsArg {
    /// As the family does when none are given
    Family,
    /// Over real tokens only
    Mask,
}

/// Default text. Some words occur twice, so that induction-like heads have something to find.
const BUILT_IN: &str = "The old clock in the hall stopped at noon. Nobody in the house noticed, because nobody in the \
                        house ever looked at the old clock in the hall.";

impl PromptArgs {
    /// Sets a text that was given without a flag.
    ///
    /// # Errors
    /// When a flag gives another prompt.
    pub fn positional(&mut self, prompt: Option<String>) -> Result<()> {
        if let (Some(prompt), true) = (&prompt, self.has_flag()) {
            let problem = format!(
                "{prompt:?}: expected one prompt, found another with --text, --text-file, --tokens, --image or --values"
            );
            return Err(Error::Prompt(problem));
        }
        self.prompt = prompt;
        Ok(())
    }

    /// Returns the same flags without the prompt itself.
    pub fn without_prompt(&self) -> Self {
        Self {
            prompt: None,
            text: None,
            text_file: None,
            image: None,
            tokens: None,
            values: None,
            ..self.clone()
        }
    }

    /// Returns the requested prompt; `None` if there is none and the built-in text is to be used.
    ///
    /// # Errors
    /// When the file of a text or of values cannot be read.
    pub fn request(&self) -> Result<Option<Request>> {
        if let Some(said) = self.chat.said() {
            if self.is_given() {
                let problem = format!("--chat {said:?}: expected one prompt, found another");
                return Err(Error::Prompt(problem));
            }
            return Ok(Some(self.apply(Source::Text(said.to_owned()))));
        }
        if let Some(path) = &self.image {
            return Ok(Some(self.apply(Source::picture(path))));
        }
        if let Some(path) = &self.values {
            return Ok(Some(self.apply(Source::Values(Values::read(path)?))));
        }
        let source = match (&self.prompt, &self.text, &self.text_file, &self.tokens) {
            (Some(word), ..) => source_of(word),
            (_, Some(text), ..) => Source::Text(text.clone()),
            (.., Some(file), _) => {
                let text = read_text(file, DOCUMENT)?;
                Source::Text(text)
            }
            (.., Some(ids)) => Source::Ids(ids.clone()),
            _ => return Ok(None),
        };
        Ok(Some(self.apply(source)))
    }

    fn is_given(&self) -> bool {
        self.has_flag() || self.prompt.is_some()
    }

    fn has_flag(&self) -> bool {
        let has_text = self.text.is_some() || self.text_file.is_some();
        has_text || self.tokens.is_some() || self.image.is_some() || self.values.is_some()
    }

    /// Whether the prompt is a picture.
    pub fn is_picture(&self) -> bool {
        self.image.is_some() || self.prompt.as_deref().is_some_and(names_picture)
    }

    /// Returns which tokens are real, if given.
    pub fn real_tokens(&self) -> Option<Vec<bool>> {
        let mask = self.attention_mask.as_ref()?;
        Some(mask.iter().map(|value| *value == 1).collect())
    }

    /// Returns the built-in prompt: the demo's, a text, token ids without a tokenizer, a picture or a sound.
    pub fn built_in(&self, is_demo: bool, has_tokenizer: bool, spec: &ModelSpec) -> Request {
        if spec.preprocessing().is_some() {
            return self.apply(Source::Picture(PictureSource::BuiltIn));
        }
        let limits = spec.limits();
        let d_vocab = limits.d_vocab;
        let source = match (is_demo, has_tokenizer) {
            _ if limits.sound.is_some() => Source::Text(BUILT_IN_SOUND.to_owned()),
            (true, _) => Source::Text(DEMO_PROMPT.to_owned()),
            (false, true) => Source::Text(BUILT_IN.to_owned()),
            // The same few ids twice, small enough for any vocabulary.
            (false, false) => {
                let n = spec.limits().hard_n_ctx().unwrap_or(24).min(24) as u32;
                Source::Ids((0..n).map(|i| (1 + i % 12) % d_vocab as u32).collect())
            }
        };
        self.apply(source)
    }

    /// Refuses to generate with a model that cannot, and invalid sampling parameters.
    ///
    /// # Errors
    /// When one of these was requested.
    pub fn check_fits(&self, spec: &ModelSpec) -> Result<()> {
        self.sampling().check()?;
        if self.generate.is_some() && spec.decoder_start.is_none() {
            can_write(spec)?;
        }
        Ok(())
    }

    fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            seed: self.seed.unwrap_or(0),
        }
    }

    /// Returns the file that contains the text.
    pub fn file(&self) -> Option<&Path> {
        self.text_file.as_deref()
    }

    /// Returns the settings shared by every prompt of a set.
    pub fn usual(&self) -> Request {
        self.apply(Source::Ids(Vec::new()))
    }

    fn apply(&self, source: Source) -> Request {
        Request {
            source,
            target: match (&self.target_text, &self.target_tokens) {
                (Some(text), _) => Target::Text(text.clone()),
                (_, Some(ids)) => Target::Ids(ids.clone()),
                _ => Target::Generate(self.generate.unwrap_or(N_GENERATED)),
            },
            attention_mask: self
                .attention_mask
                .as_ref()
                .map(|mask| mask.iter().map(|m| *m != 0).collect()),
            positions: match self.positions {
                PositionsArg::Family => Positions::Family,
                PositionsArg::Mask => Positions::Mask,
            },
            special_tokens: !self.no_special_tokens,
            truncate: self.truncate,
            n_to_write: self.generate.unwrap_or(0),
            sampling: self.sampling(),
        }
    }
}
