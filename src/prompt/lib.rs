//! Turns text, token ids and masks into token sequences with readable labels.

mod chat;
mod inputs;
mod languages;
mod lost;
mod picture;
mod positions;
mod put_around;
mod sound;
mod starts;
#[cfg(test)]
mod tests;
mod tokenizer;
mod writing;

pub use chat::{ChatTemplate, Messages};
pub use inputs::{parse_inputs, read_inputs};
pub use languages::code_of as language_code;
pub use lost::Lost;
pub use picture::{Cubic, Filter, Firsts, Look, Picture, PictureSource, Size, is_picture, taps};
pub use positions::PositionRule;
pub use sound::{BUILT_IN_SOUND, HEARS, Sound, SoundRule, is_sound, samples_of};
pub use starts::{Prefix, Starts};
pub use tokenizer::{Reading, Token, Tokenizer, Vocabulary};
pub use writing::Sampling;

use std::path::PathBuf;
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};

use self::put_around::{begin, n_special_at_end};

/// The input that the user asks to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A text; for speech models, the path of a sound file.
    Text(String),
    /// Token ids, used verbatim.
    Ids(Vec<u32>),
    /// A picture, for vision models.
    Picture(PictureSource),
}

impl Source {
    /// A picture from a file.
    pub fn picture(path: impl Into<PathBuf>) -> Self {
        Self::Picture(PictureSource::File(path.into()))
    }
}

/// How positions are counted if some tokens are padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Positions {
    /// The family's default.
    #[default]
    Family,
    /// Over real tokens only.
    Mask,
}

/// The decoder's input in an encoder-decoder model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A text; the start token is added before it.
    Text(String),
    /// Token ids, used verbatim; they include the start token.
    Ids(Vec<u32>),
    /// No input: the model generates up to this many tokens.
    Generate(usize),
}

/// Default number of tokens to generate.
pub const N_GENERATED: usize = 32;

/// Everything that determines a prompt, except the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub source: Source,
    /// Only used by models with an encoder.
    pub target: Target,
    /// True for a real token, false for padding; one entry per token.
    pub attention_mask: Option<Vec<bool>>,
    pub positions: Positions,
    /// Whether the tokenizer may add its special tokens.
    pub special_tokens: bool,
    /// Keep the first positions of a text that is too long, instead of refusing it.
    pub truncate: bool,
    /// Number of tokens that a model of one stack generates after its prompt.
    pub n_to_write: usize,
    pub sampling: Sampling,
}

impl Request {
    /// A plain text with default settings.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            source: Source::Text(text.into()),
            target: Target::Generate(N_GENERATED),
            attention_mask: None,
            positions: Positions::Family,
            special_tokens: true,
            truncate: false,
            n_to_write: 0,
            sampling: Sampling::default(),
        }
    }

    /// Plain token ids with default settings.
    pub fn ids(ids: Vec<u32>) -> Self {
        Self {
            source: Source::Ids(ids),
            ..Self::text("")
        }
    }
}

/// A model's limits and rules for prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub d_vocab: usize,
    /// Size of the decoder's vocabulary, if it has its own.
    pub d_vocab_target: Option<usize>,
    pub n_ctx: Option<usize>,
    /// Number of the decoder's positions, if counted separately.
    pub n_ctx_target: Option<usize>,
    /// Whether positions are rows of a table, so that none exist beyond `n_ctx`. Rotary and relative positions have no end.
    pub is_n_ctx_hard: bool,
    pub positions: PositionRule,
    /// The first token of the decoder's input, for models with an encoder.
    pub start_token: Option<u32>,
    /// How a picture becomes tokens, for vision models.
    pub look: Option<Look>,
    /// Tokens after the start token.
    pub starts: Starts,
    /// How sound is preprocessed, for speech models; a text is then the path of a sound.
    pub sound: Option<SoundRule>,
}

impl Limits {
    /// The maximum number of positions; `None` without a hard limit.
    pub fn hard_n_ctx(self) -> Option<usize> {
        self.n_ctx.filter(|_| self.is_n_ctx_hard)
    }

    /// The remark on a prompt beyond the model's context, if positions have no hard limit; `None` if it fits.
    pub fn beyond(self, prompt: &Prompt) -> Option<String> {
        let n_ctx = self.n_ctx?;
        // The model fixes the length of a sound, whatever the decoder's context.
        let given = Some(prompt.given()).filter(|given| given.sound.is_none());
        let n = given.map_or(0, |given| given.tokens.len());
        let n = n.max(prompt.tokens.len());
        (n > n_ctx).then(|| {
            format!(
                "the prompt has {n} tokens, more than the {n_ctx} positions of the model's context: it runs all the same"
            )
        })
    }
}

/// A prompt that the model can run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prompt {
    pub tokens: Vec<u32>,
    /// The text of each token; its id without a tokenizer.
    pub labels: Vec<String>,
    pub positions: Vec<usize>,
    /// `None` when every token is real.
    pub real: Option<Vec<bool>>,
    /// Number of tokens dropped because the text was too long and `truncate` was set.
    pub n_cut: usize,
    /// The encoder's prompt; the other fields are then the decoder's.
    pub source: Option<Box<Prompt>>,
    /// Number of tokens that the model is to generate after these.
    pub n_to_generate: usize,
    /// Number of trailing tokens that the model generated.
    pub n_written: usize,
    /// The text of the generated tokens, once all are there.
    pub written: String,
    pub sampling: Sampling,
    /// Characters of the text that the tokenizer lost.
    pub lost: Lost,
    /// The picture whose patches are the tokens.
    pub picture: Option<Arc<Picture>>,
    /// The sound that replaces the tokens, which are then only position numbers.
    pub sound: Option<Arc<Sound>>,
}

impl Prompt {
    /// Appends a token that the model generated.
    pub fn push(&mut self, id: u32, label: String, rule: PositionRule) {
        self.tokens.push(id);
        self.labels.push(label);
        match &mut self.real {
            // Positions may be counted over real tokens, whatever the rule.
            Some(real) => {
                real.push(true);
                let last = self.positions.last().copied();
                self.positions.push(last.map_or(0, |last| last + 1));
            }
            None => self.positions = rule.positions(&self.tokens, None),
        }
        self.n_to_generate = self.n_to_generate.saturating_sub(1);
        self.n_written += 1;
    }

    /// The prompt at its maximum length, with placeholders for tokens still to be generated.
    pub fn longest(&self) -> Self {
        let mut longest = self.clone();
        let n_longest = self.tokens.len() + self.n_to_generate;
        let last = |values: &[usize]| values.last().copied().unwrap_or(0);
        longest.tokens.resize(n_longest, 0);
        longest.positions.resize(n_longest, last(&self.positions));
        if let Some(real) = &mut longest.real {
            real.resize(n_longest, true);
        }
        longest
    }

    /// The remark on characters that the tokenizer lost, or on a file that was not used completely; for a model of two stacks, on
    /// both sides.
    pub fn lost_words(&self) -> Option<String> {
        let sides = self.source.as_deref().into_iter().chain([self]);
        let said: Vec<String> = sides
            .filter_map(|side| side.lost.words().or_else(|| sound::said_of(side)))
            .collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// Characters that the tokenizer lost; for a model of two stacks, on both sides.
    pub fn all_lost(&self) -> Lost {
        let source = self.source.as_deref().map(Self::all_lost);
        self.lost.and(source.unwrap_or_default())
    }

    /// The prompt that the user gave: the encoder's if there is one.
    pub fn given(&self) -> &Prompt {
        self.source.as_deref().unwrap_or(self)
    }
}

/// Turns a request into a prompt, and refuses what the model cannot run.
///
/// # Errors
/// When the prompt is empty, a text is given but only ids can be read, an id is outside the vocabulary, the mask has another
/// length, or there are more tokens than positions.
pub fn prepare(request: &Request, reading: &Reading, limits: Limits) -> Result<Prompt> {
    if let Source::Picture(source) = &request.source {
        return of_picture(source, request, limits);
    }
    if limits.look.is_some() {
        let problem = "this model reads pictures: give one with --image FILE";
        return Err(Error::Prompt(problem.to_owned()));
    }
    let mut given = match limits.sound {
        Some(rule) => sound::given(request, rule)?,
        None => {
            sound::check_is_text(&request.source)?;
            side(&request.source, request, reading, limits, true)?
        }
    };
    given.sampling = request.sampling;
    let Some(start_token) = limits.start_token else {
        if !matches!(request.target, Target::Generate(_)) {
            let problem =
                "a target is for models with an encoder and a decoder; this one has one stack";
            return Err(Error::Prompt(problem.to_owned()));
        }
        let room = limits
            .hard_n_ctx()
            .map_or(usize::MAX, |n_ctx| n_ctx.saturating_sub(given.tokens.len()));
        given.n_to_generate = request.n_to_write.min(room);
        return Ok(given);
    };
    let (source, n_to_generate, starts) = match &request.target {
        Target::Text(text) => (Source::Text(text.clone()), 0, true),
        Target::Ids(ids) => (Source::Ids(ids.clone()), 0, false),
        Target::Generate(n) => (Source::Ids(Vec::new()), *n, true),
    };
    let unmasked = Request {
        attention_mask: None,
        ..request.clone()
    };
    let reading = reading.of_target(limits);
    let limits = Limits {
        d_vocab: limits.d_vocab_target.unwrap_or(limits.d_vocab),
        n_ctx: limits.n_ctx_target.or(limits.n_ctx),
        ..limits
    };
    // Without generation, the decoder of a speech model only reads the first tokens.
    let is_written = matches!(request.target, Target::Generate(_))
        && (n_to_generate > 0 || limits.sound.is_some());
    let mut target = if is_written {
        Prompt::default()
    } else {
        side(&source, &unmasked, reading, limits, false)?
    };
    if starts {
        begin(
            &mut target,
            (&source, &unmasked),
            reading,
            limits,
            start_token,
        )?;
    }
    if let Some(n_ctx) = limits
        .hard_n_ctx()
        .filter(|n_ctx| target.tokens.len() > *n_ctx)
    {
        return Err(too_long(target.tokens.len(), n_ctx));
    }
    let room = limits.n_ctx.map_or(usize::MAX, |n_ctx| {
        n_ctx.saturating_sub(target.tokens.len())
    });
    // Forced tokens come on top of the number to generate.
    let n_forced = limits.starts.n_forced * usize::from(n_to_generate > 0);
    target.n_to_generate = (n_to_generate + n_forced).min(room);
    target.sampling = request.sampling;
    target.source = Some(Box::new(given));
    Ok(target)
}

/// The tokens of a picture.
fn of_picture(source: &PictureSource, request: &Request, limits: Limits) -> Result<Prompt> {
    let Some(look) = limits.look else {
        let problem = format!("{source}: this model reads text, and a picture was given");
        return Err(Error::Prompt(problem));
    };
    if request.attention_mask.is_some() {
        let problem = "a picture is never padded: expected no attention mask, found one";
        return Err(Error::Prompt(problem.to_owned()));
    }
    let picture = Picture::read(source, &look)?;
    let n = picture.n_tokens();
    Ok(Prompt {
        tokens: (0..n as u32).collect(),
        labels: picture.labels(),
        positions: (0..n).collect(),
        picture: Some(Arc::new(picture)),
        ..Prompt::default()
    })
}

fn too_long(found: usize, n_ctx: usize) -> Error {
    Error::Prompt(format!(
        "the prompt has {found} tokens, the model {n_ctx} positions: shorten it or pass --truncate"
    ))
}

/// The tokens of one side: the only stack, the encoder, or the decoder.
fn side(
    source: &Source,
    request: &Request,
    reading: &Reading,
    limits: Limits,
    is_given: bool,
) -> Result<Prompt> {
    let mut lost = Lost::default();
    let (mut tokens, mut labels): (Vec<u32>, Vec<String>) = match source {
        Source::Text(text) => {
            let tokenizer = match reading {
                Reading::Tokenizer(tokenizer) => tokenizer,
                Reading::Ids(reason) => {
                    let problem =
                        format!("a text needs a tokenizer: {reason}; give ids with --tokens");
                    return Err(Error::Prompt(problem));
                }
            };
            // Special tokens alone do not make a prompt.
            let tokens: Vec<u32> = if text.is_empty() && is_given {
                Vec::new()
            } else {
                let cut = tokenizer.cut(text, request.special_tokens)?;
                lost = Lost::of(text, &cut);
                cut.into_iter().map(|token| token.id).collect()
            };
            if lost.is_all() {
                let said = lost.words().unwrap_or_default();
                let problem = format!(
                    "the tokenizer ({}) does not fit the text: {said}; give ids with --tokens, or another tokenizer with --tokenizer",
                    tokenizer.source_name()
                );
                return Err(Error::Prompt(problem));
            }
            let labels = tokens.iter().map(|id| tokenizer.label(*id)).collect();
            (tokens, labels)
        }
        Source::Ids(ids) => {
            let labels = ids.iter().map(|id| reading.label(*id)).collect();
            (ids.clone(), labels)
        }
        Source::Picture(source) => {
            let problem = format!("{source}: a target is text, and a picture was given");
            return Err(Error::Prompt(problem));
        }
    };
    if tokens.is_empty() {
        let what = if is_given { "prompt" } else { "target" };
        return Err(Error::Prompt(format!(
            "the {what} is empty: expected at least one token, found none"
        )));
    }
    if let Some((position_idx, id)) = tokens
        .iter()
        .enumerate()
        .find(|(_, id)| **id as usize >= limits.d_vocab)
    {
        let last = limits.d_vocab - 1;
        let problem = format!(
            "token id {id} at position {position_idx} lies outside the vocabulary 0..{last}"
        );
        return Err(Error::Prompt(problem));
    }
    let mut real = request.attention_mask.clone();
    if let Some(mask) = &real
        && mask.len() != tokens.len()
    {
        let (expected, found) = (tokens.len(), mask.len());
        let problem =
            format!("attention mask: expected {expected} values, one per token, found {found}");
        return Err(Error::Prompt(problem));
    }
    let mut n_cut = 0;
    if let Some(n_ctx) = limits.n_ctx.filter(|n_ctx| tokens.len() > *n_ctx) {
        if !request.truncate && limits.is_n_ctx_hard {
            return Err(too_long(tokens.len(), n_ctx));
        }
        if request.truncate {
            n_cut = tokens.len() - n_ctx;
            let n_end = n_special_at_end(source, request, reading, &tokens)?.min(n_ctx);
            let dropped = n_ctx - n_end..tokens.len() - n_end;
            tokens.drain(dropped.clone());
            labels.drain(dropped.clone());
            if let Some(real) = &mut real {
                real.drain(dropped);
            }
        }
    }
    if real.as_ref().is_some_and(|real| !real.contains(&true)) {
        let problem = "attention mask: expected at least one real token, found only padding";
        return Err(Error::Prompt(problem.to_owned()));
    }
    let positions = match (request.positions, limits.positions, &real) {
        (Positions::Mask, PositionRule::Index, Some(real)) => {
            PositionRule::Index.over_real(&tokens, real)
        }
        (_, rule, real) => rule.positions(&tokens, real.as_deref()),
    };
    Ok(Prompt {
        tokens,
        labels,
        positions,
        real,
        n_cut,
        source: None,
        n_to_generate: 0,
        n_written: 0,
        written: String::new(),
        sampling: Sampling::default(),
        lost,
        picture: None,
        sound: None,
    })
}
