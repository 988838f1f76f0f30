//! Turns a request into a prompt that the model can run, or an error with the reason.

use std::sync::Arc;

use attnscope_checkpoint::values::Values;
use attnscope_compute::error::{Error, Result};

use super::given_ids::GivenIds;
use super::limits::Limits;
use super::lost::TokenizerLoss;
use super::picture::{Picture, PictureSource};
use super::positions::PositionRule;
use super::prompt::Prompt;
use super::put_around::{begin, n_special_at_end};
use super::request::{Positions, Request, Source, Target};
use super::sound;
use super::tokenizer::PromptForm;
use super::writing::Sampling;

/// Turns a request into a prompt, and refuses what the model cannot run.
///
/// # Errors
/// - The model does not read this kind of input (text, sound, pictures, rows of numbers), or a target is given to a model of one stack.
/// - A text is given without a tokenizer, or the tokenizer covers none of its characters.
/// - The prompt or the target is empty, or an id lies outside the vocabulary.
/// - The attention mask has another length, marks no real token, or is given with a picture.
/// - There are more tokens than positions, or a file or a text cannot be read.
pub fn prepare(request: &Request, prompt_form: &PromptForm, limits: Limits) -> Result<Prompt> {
    let reads_rows = limits.sound.is_some_and(|rule| rule.is_rows);
    if let (Source::Values(values), false) = (&request.source, reads_rows) {
        return Err(takes_no_values(values));
    }
    let mut given = match (&request.source, limits.sound) {
        (Source::Picture(source), _) => of_picture(source, request, limits)?,
        _ if limits.preprocessing.is_some() => {
            let problem = "this model reads pictures: give one with --image FILE";
            return Err(Error::Prompt(problem.to_owned()));
        }
        (_, Some(rule)) if rule.is_rows => sound::given_rows(request, rule, limits)?,
        (_, Some(rule)) => sound::given(request, rule)?,
        (_, None) => {
            sound::check_is_text(&request.source)?;
            side(&request.source, request, prompt_form, limits, true)?
        }
    };
    if given.picture.is_some() && limits.start_token.is_none() {
        return Ok(given);
    }
    given.sampling = request.sampling;
    let Some(start_token) = limits.start_token else {
        if !matches!(request.target, Target::Generate(_)) {
            let problem = "a target is for models with an encoder and a decoder; of this one, one stack is read";
            return Err(Error::Prompt(problem.to_owned()));
        }
        let room = limits
            .hard_n_ctx()
            .map_or(usize::MAX, |n_ctx| n_ctx.saturating_sub(given.tokens.len()));
        given.n_to_generate = request.n_to_write.min(room);
        return Ok(given);
    };
    if let Some(rule) = limits.rows_of_target {
        return Ok(Prompt {
            source: Some(Box::new(given)),
            ..sound::target_rows(request, rule)?
        });
    }
    let (source, n_to_generate, starts) = match &request.target {
        Target::Text(text) => (Source::Text(text.clone()), 0, true),
        Target::Ids(ids) => (Source::Ids(ids.clone()), 0, false),
        Target::Generate(n) => (Source::Ids(Vec::new()), *n, true),
    };
    let unmasked = Request {
        attention_mask: None,
        ..request.clone()
    };
    let prompt_form = prompt_form.of_target(limits);
    let limits = Limits {
        d_vocab: limits.d_vocab_target.unwrap_or(limits.d_vocab),
        n_ctx: limits.n_ctx_target.or(limits.n_ctx),
        ..limits
    };
    // A model that hears or sees may run with only its first tokens as the target, even if it generates nothing.
    let reads_no_text = limits.sound.is_some() || limits.preprocessing.is_some();
    let is_written =
        matches!(request.target, Target::Generate(_)) && (n_to_generate > 0 || reads_no_text);
    let mut target = if is_written {
        Prompt::default()
    } else {
        // The start token needs a position of its own.
        let n_start = usize::from(starts && request.truncate);
        let room = Limits {
            n_ctx: limits.n_ctx.map(|n_ctx| n_ctx.saturating_sub(n_start)),
            ..limits
        };
        side(&source, &unmasked, prompt_form, room, false)?
    };
    if starts {
        begin(
            &mut target,
            (&source, &unmasked),
            prompt_form,
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
    // Forced tokens do not count towards the number of tokens to generate.
    let n_forced = limits.starts.n_forced * usize::from(n_to_generate > 0);
    target.n_to_generate = (n_to_generate + n_forced).min(room);
    target.sampling = request.sampling;
    target.source = Some(Box::new(given));
    Ok(target)
}

/// The tokens of a picture.
fn of_picture(source: &PictureSource, request: &Request, limits: Limits) -> Result<Prompt> {
    let Some(preprocessing) = limits.preprocessing else {
        let problem = format!("{source}: this model reads text, and a picture was given");
        return Err(Error::Prompt(problem));
    };
    if request.attention_mask.is_some() {
        let problem = "a picture is never padded: expected no attention mask, found one";
        return Err(Error::Prompt(problem.to_owned()));
    }
    let picture = Picture::read(source, &preprocessing)?;
    let n = picture.n_tokens();
    Ok(Prompt {
        tokens: (0..n as u32).collect(),
        labels: picture.labels(),
        positions: (0..n).collect(),
        picture: Some(Arc::new(picture)),
        ..Prompt::default()
    })
}

fn takes_no_values(values: &Values) -> Error {
    let problem = "--values is for live models (FILE.py:NAME or live:SOCKET) and for described models whose [tensors] have values; \
                   this checkpoint runs token ids";
    Error::file(values.path(), problem)
}

fn too_long(found: usize, n_ctx: usize) -> Error {
    Error::Prompt(format!(
        "the prompt has {found} tokens, the model {n_ctx} positions: shorten it or pass --truncate"
    ))
}

/// The prompt of one stack: the only one, the encoder, or the decoder.
fn side(
    source: &Source,
    request: &Request,
    prompt_form: &PromptForm,
    limits: Limits,
    is_given: bool,
) -> Result<Prompt> {
    let mut lost = TokenizerLoss::default();
    let (mut tokens, mut labels): (Vec<u32>, Vec<String>) = match source {
        Source::Text(text) => {
            let tokenizer = match prompt_form {
                PromptForm::Tokenizer(tokenizer) => tokenizer,
                PromptForm::Ids(reason) => {
                    let problem =
                        format!("a text needs a tokenizer: {reason}; give ids with --tokens");
                    return Err(Error::Prompt(problem));
                }
            };
            // An empty text is an empty prompt, even if the tokenizer would add special tokens.
            let tokens: Vec<u32> = if text.is_empty() && is_given {
                Vec::new()
            } else {
                let cut = tokenizer.cut(text, request.special_tokens)?;
                lost = TokenizerLoss::of(text, &cut);
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
            if let Some(tokenizer) = prompt_form.tokenizer() {
                lost.ids = GivenIds::of(ids, tokenizer);
            }
            let labels = ids.iter().map(|id| prompt_form.label(*id)).collect();
            (ids.clone(), labels)
        }
        Source::Picture(source) => {
            let problem = format!("{source}: a target is text, and a picture was given");
            return Err(Error::Prompt(problem));
        }
        Source::Values(values) => return Err(takes_no_values(values)),
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
            let n_end = n_special_at_end(source, request, prompt_form, &tokens)?.min(n_ctx);
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
        lacks_ids: false,
        written: String::new(),
        sampling: Sampling::default(),
        lost,
        picture: None,
        sound: None,
    })
}
