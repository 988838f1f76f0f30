//! Text, ids and masks → token sequences with labels a person can read.

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

/// What a person asked to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A text; the path of a sound, where the model hears.
    Text(String),
    /// Used verbatim.
    Ids(Vec<u32>),
    /// For models that see.
    Picture(PictureSource),
}

impl Source {
    /// The picture of a file.
    pub fn picture(path: impl Into<PathBuf>) -> Self {
        Self::Picture(PictureSource::File(path.into()))
    }
}

/// How positions are counted when some tokens are padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Positions {
    /// As the family does when none are given.
    #[default]
    Family,
    /// Over real tokens only.
    Mask,
}

/// What the decoder of a model with an encoder is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A text; the start token is put before it.
    Text(String),
    /// Used verbatim, the start token included.
    Ids(Vec<u32>),
    /// Nothing: the model writes up to so many tokens itself.
    Generate(usize),
}

/// Tokens that a model writes itself unless a number is given.
pub const N_GENERATED: usize = 32;

/// Everything a prompt depends on beside the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub source: Source,
    /// Only models with an encoder have one.
    pub target: Target,
    /// 1 for a real token, 0 for padding; one per token.
    pub attention_mask: Option<Vec<bool>>,
    pub positions: Positions,
    /// Whether the tokenizer may add its special tokens.
    pub special_tokens: bool,
    /// Keep the first positions of a text that is too long, instead of refusing it.
    pub truncate: bool,
    /// How many tokens a model of one stack writes behind its prompt.
    pub n_to_write: usize,
    pub sampling: Sampling,
}

impl Request {
    /// A plain text, as a person types it.
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

    /// Plain ids.
    pub fn ids(ids: Vec<u32>) -> Self {
        Self {
            source: Source::Ids(ids),
            ..Self::text("")
        }
    }
}

/// What a model allows a prompt to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub d_vocab: usize,
    /// The decoder's vocabulary, where its ids mean other words.
    pub d_vocab_target: Option<usize>,
    pub n_ctx: Option<usize>,
    /// The decoder's positions, where they are counted apart.
    pub n_ctx_target: Option<usize>,
    /// Whether positions are rows of a table, so that none lie beyond `n_ctx`. Rotary and relative ones go on for ever.
    pub is_n_ctx_hard: bool,
    pub positions: PositionRule,
    /// The token that a decoder's input begins with, for models with an encoder.
    pub start_token: Option<u32>,
    /// How a picture becomes tokens, for models that see.
    pub look: Option<Look>,
    /// What follows it.
    pub starts: Starts,
    /// How a sound is heard, for models that hear: a text is the path of one.
    pub sound: Option<SoundRule>,
}

impl Limits {
    /// The most positions that there are; `None` where there is no last one.
    pub fn hard_n_ctx(self) -> Option<usize> {
        self.n_ctx.filter(|_| self.is_n_ctx_hard)
    }

    /// What to say of a prompt that goes beyond the context of a model whose positions go on; `None` where it does not.
    pub fn beyond(self, prompt: &Prompt) -> Option<String> {
        let n_ctx = self.n_ctx?;
        // A sound is as long as the model hears, whatever the decoder's context.
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
    /// What each token reads as; its id where there is no tokenizer.
    pub labels: Vec<String>,
    pub positions: Vec<usize>,
    /// `None` when every token is real.
    pub real: Option<Vec<bool>>,
    /// Tokens dropped because the text was too long and cutting was asked for.
    pub n_cut: usize,
    /// The encoder's side; then the rest is the decoder's.
    pub source: Option<Box<Prompt>>,
    /// How many tokens the model is to write after these.
    pub n_to_generate: usize,
    /// How many of the last tokens the model wrote.
    pub n_written: usize,
    /// What they read as together, once all are there.
    pub written: String,
    pub sampling: Sampling,
    /// How much of a text came through the tokenizer.
    pub lost: Lost,
    /// What its tokens are patches of.
    pub picture: Option<Arc<Picture>>,
    /// What is heard in place of tokens, which then are only numbers of places.
    pub sound: Option<Arc<Sound>>,
}

impl Prompt {
    /// Adds a token that the model wrote.
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

    /// The prompt at its longest, with something in the place of every token that the model may still write.
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

    /// What there is to say of characters that did not come through the tokenizer, or of a file that did not come through whole;
    /// of a model of two stacks, of both sides.
    pub fn lost_words(&self) -> Option<String> {
        let sides = self.source.as_deref().into_iter().chain([self]);
        let said: Vec<String> = sides
            .filter_map(|side| side.lost.words().or_else(|| sound::said_of(side)))
            .collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// How much did not come through the tokenizer; of a model of two stacks, of both sides.
    pub fn all_lost(&self) -> Lost {
        let source = self.source.as_deref().map(Self::all_lost);
        self.lost.and(source.unwrap_or_default())
    }

    /// The prompt whose tokens a person gave: the encoder's where there is one.
    pub fn given(&self) -> &Prompt {
        self.source.as_deref().unwrap_or(self)
    }
}

/// Turns a request into a prompt, and refuses what the model cannot run.
///
/// # Errors
/// When the prompt is empty, a text comes where only ids can be read, an id lies outside the vocabulary, the mask has another
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
    // What a sound is told by is the first tokens alone, where nothing is to be written.
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
    // Tokens that are written whatever the model predicts do not count.
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

/// The tokens of one side: of the only stack, the encoder, or the decoder.
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
            // Special tokens alone are not prompt.
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
