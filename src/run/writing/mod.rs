//! Text generation: writes token after token until an end token or the requested number.

mod choice;
mod rules;
mod writer;

pub use choice::{Choice, Chooser, Written};
pub use rules::Rules;
pub use writer::{Past, Writer, WriterMemory};

use attnscope_checkpoint::GENERATION;
use attnscope_checkpoint::machine::available_memory;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Input, Sequence};
use attnscope_prompt::Prompt;
use attnscope_spec::{DecoderInput, Forced, Model, ModelSpec};
use serde_json::Value;

use super::encoded::n_encoded;
use super::tap::Tap;

/// Writes as many tokens after a prompt as the prompt requests. `label` gives a token's text; `wrote` is called with the prompt
/// after each token.
///
/// # Errors
/// When the model cannot generate, the pace stops it, a tensor contradicts the spec, or the device fails.
pub fn generate<O: Ops>(
    ops: &O,
    model: &Model,
    prompt: &mut Prompt,
    label: &dyn Fn(u32) -> String,
    wrote: &mut dyn FnMut(&Prompt),
    pace: &dyn Pace,
) -> Result<()> {
    if prompt.n_to_generate == 0 || reads_again(model, prompt, label) {
        return Ok(());
    }
    let mut text = Text::begin(ops, model, prompt, pace)?;
    while text.next(prompt, label, &mut NoTaps)?.is_some() {
        wrote(prompt);
    }
    Ok(())
}

/// A text that a model is generating.
pub struct Text<'a, O: Ops> {
    writer: Writer<'a, O>,
    model: &'a Model,
    pace: &'a dyn Pace,
    chooser: Chooser,
    ends: Vec<u32>,
    rules: Rules,
    /// Number of tokens in the prompt.
    n_given: usize,
}

/// Supplies a tap for the rows of each generated token.
pub trait Taps {
    /// Tap for the rows of the next token.
    fn tap(&mut self) -> Option<&mut dyn Tap>;
}

/// Supplies no taps.
struct NoTaps;

impl Taps for NoTaps {
    fn tap(&mut self) -> Option<&mut dyn Tap> {
        None
    }
}

impl<'a, O: Ops> Text<'a, O> {
    /// Starts a text from a prompt.
    ///
    /// # Errors
    /// When the model cannot generate.
    pub fn begin(
        ops: &'a O,
        model: &'a Model,
        prompt: &Prompt,
        pace: &'a dyn Pace,
    ) -> Result<Self> {
        can_write(&model.spec)?;
        let n_longest = prompt.tokens.len() + prompt.n_to_generate;
        let n_source = n_encoded(&model.spec, prompt);
        let needs = WriterMemory::of(model, n_longest, n_source).keys_and_values;
        // Half of the free memory: the rest is for a run that may follow, and for other programs.
        let left = available_memory().map_or(usize::MAX, |left| left as usize / 2);
        Ok(Self {
            writer: Writer::new(ops, model, left.saturating_sub(needs), pace),
            model,
            pace,
            chooser: Chooser::new(prompt.sampling),
            ends: end_tokens(model),
            rules: Rules::of(model),
            n_given: prompt.tokens.len() - prompt.n_written,
        })
    }

    /// Continues from the KV cache of earlier reading by the same model.
    #[must_use]
    pub fn with_past(self, past: Past<O>) -> Self {
        let writer = self.writer.with_past(past);
        Self { writer, ..self }
    }

    pub fn spec(&self) -> &ModelSpec {
        &self.model.spec
    }

    pub fn writer(&self) -> &Writer<'a, O> {
        &self.writer
    }

    /// Returns the KV cache of what the model has read.
    pub fn into_past(self) -> Past<O> {
        self.writer.into_past()
    }

    /// Writes one token after the prompt; `None` if there are enough, or the last one ended the text.
    ///
    /// # Errors
    /// When the pace stops it, a tensor contradicts the spec, the device fails, or a tap cannot store a value.
    pub fn next(
        &mut self,
        prompt: &mut Prompt,
        label: &dyn Fn(u32) -> String,
        taps: &mut dyn Taps,
    ) -> Result<Option<Written>> {
        if prompt.n_to_generate == 0 {
            return Ok(None);
        }
        if self.pace.stops() {
            return Err(Error::Cancelled);
        }
        self.writer.read(&input_of(prompt), taps.tap())?;
        let logits = self.writer.logits()?;
        let start = self.model.spec.decoder_start.as_ref();
        let n_tokens = prompt.tokens.len();
        let mut never = start.map_or_else(Vec::new, |start| start.never_written.clone());
        if let Some(start) = start.filter(|start| start.is_first_choice(n_tokens)) {
            never.extend(&start.never_first);
        }
        let forced = start.and_then(|start| start.forced_after(n_tokens));
        let forced = forced.and_then(|forced| match forced {
            Forced::Token(id) => Some(*id),
            Forced::OneOf(ids) => likeliest_of(ids, &logits),
        });
        never.extend(self.rules.never(&prompt.tokens, self.n_given));
        let written = self.chooser.choose(
            &logits,
            &Choice {
                scores: self.rules.scores(&logits, prompt),
                never,
                forced: forced.or_else(|| self.rules.forced(&prompt.tokens)),
            },
        );
        prompt.push(written.id, label(written.id), self.model.spec.positions);
        if self.ends.contains(&written.id) {
            prompt.n_to_generate = 0;
        }
        Ok(Some(written))
    }
}

/// Id with the largest logit; the first one in a tie.
fn likeliest_of(ids: &[u32], logits: &[f32]) -> Option<u32> {
    let known = ids
        .iter()
        .filter_map(|id| Some((*id, *logits.get(*id as usize)?)));
    let best = known.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(id, _)| id)
}

/// Checks that a model can generate text.
///
/// # Errors
/// Why it cannot.
pub fn can_write(spec: &ModelSpec) -> Result<()> {
    let Some(head) = &spec.head else {
        return Err(no_head(spec));
    };
    if spec.decoder_start.is_some() {
        return Ok(());
    }
    let why = if head.labels.is_some() {
        "its head gives labels, not words"
    } else if !spec.is_causal_lm {
        "it is no causal language model: it does not predict a next token"
    } else {
        return Ok(());
    };
    Err(Error::Prompt(format!("the model cannot write: {why}")))
}

/// Error for a model without an LM head.
fn no_head(spec: &ModelSpec) -> Error {
    let problem = match &spec.decoder_start {
        Some(start) => format!(
            "the decoder has no head to write a target with: give one with --target TEXT, or with --target-tokens {first},ID,… \
             where {first} is the start token",
            first = start.start_token
        ),
        None => "the model cannot write: it has no head that predicts a next token".to_owned(),
    };
    Error::Prompt(problem)
}

/// Gives a decoder its encoder's text again if it cannot generate: its head is a classifier, or it has none.
fn reads_again(model: &Model, prompt: &mut Prompt, label: &dyn Fn(u32) -> String) -> bool {
    let spec = &model.spec;
    let (Some(start), Some(given)) = (&spec.decoder_start, prompt.source.as_deref()) else {
        return false;
    };
    if spec.head.is_none() && given.sound.is_some() {
        // Sound has no text tokens, so the decoder reads only its start tokens.
        (prompt.n_to_generate, prompt.n_written) = (0, 0);
        return true;
    }
    let is_so = match (&spec.head, start.reads_again) {
        (_, DecoderInput::Never) => false,
        (Some(head), _) => head.labels.is_some(),
        (None, DecoderInput::ShiftedForLabels) => false,
        (None, DecoderInput::Shifted | DecoderInput::LastTokenFirst) => true,
    };
    if !is_so {
        return false;
    }
    let last = given.tokens.last().copied();
    let n = given.tokens.len().saturating_sub(1);
    let again: Vec<u32> = given.tokens[..n].to_vec();
    let rotates = start.reads_again == DecoderInput::LastTokenFirst;
    if let (Some(first), Some(last), true) = (prompt.tokens.first_mut(), last, rotates) {
        *first = last;
        prompt.labels[0] = label(last);
    }
    for id in again {
        prompt.push(id, label(id), spec.positions);
    }
    (prompt.n_to_generate, prompt.n_written) = (0, 0);
    true
}

/// Tokens that end generation, from the configuration.
pub fn end_tokens(model: &Model) -> Vec<u32> {
    if let Some(start) = &model.spec.decoder_start {
        return start.end_tokens.clone();
    }
    let config = &model.checkpoint.config;
    let stated = config.get("eos_token_id").cloned();
    let stated = stated.or_else(|| config.text_part()?.get("eos_token_id").cloned());
    // Chat models end a turn with other tokens than a text; these are in `generation_config.json`.
    let of_generation = model.checkpoint.sibling_config(GENERATION);
    let also = of_generation.and_then(|mut values| values.remove("eos_token_id"));
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let ids = |value: Value| match value {
        Value::Array(all) => all.iter().filter_map(id).collect(),
        one => Vec::from_iter(id(&one)),
    };
    let mut ends: Vec<u32> = stated.into_iter().chain(also).flat_map(ids).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// Converts a prompt to the model's input.
pub fn input_of(prompt: &Prompt) -> Input {
    Input {
        source: prompt.source.as_deref().map(sequence_of),
        sequence: sequence_of(prompt),
    }
}

fn sequence_of(prompt: &Prompt) -> Sequence {
    Sequence {
        tokens: prompt.tokens.clone(),
        positions: prompt.positions.clone(),
        real: prompt.real.clone(),
        picture: prompt.picture.clone(),
        sound: prompt.sound.clone(),
    }
}
