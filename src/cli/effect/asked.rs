//! Tokens and positions given by the user.

use anyhow::Result;
use attnscope_compute::error::Error;
use attnscope_forward::Input;
use attnscope_studies::effect::Asked;

/// Parses a token, given as a text that is one token, or as an id. `encoded` gives the ids of a text, each with its own text.
///
/// # Errors
/// When it is neither, or is outside the vocabulary.
pub fn token_id(
    given: &str,
    d_vocab: usize,
    encoded: impl FnOnce(&str) -> Result<Vec<(u32, String)>>,
) -> Result<u32> {
    if let Ok(id) = given.parse::<u32>() {
        if (id as usize) < d_vocab {
            return Ok(id);
        }
        let problem = format!("--token {given}: expected an id of 0..{d_vocab}");
        return Err(Error::Prompt(problem).into());
    }
    let tokens = encoded(given)?;
    match tokens.as_slice() {
        [(id, _)] if (*id as usize) < d_vocab => Ok(*id),
        tokens => {
            let pieces: Vec<String> = tokens
                .iter()
                .map(|(id, label)| format!("{label} ({id})"))
                .collect();
            let problem = format!(
                "--token {given:?}: expected one token, found {}: {}; pass an id, or begin with a blank where the tokenizer joins it to the word",
                tokens.len(),
                pieces.join(", ")
            );
            Err(Error::Prompt(problem).into())
        }
    }
}

/// Refuses a text as a token where there is no tokenizer.
pub fn no_tokenizer(given: &str, why: &str) -> anyhow::Error {
    let problem = format!("--token {given:?}: expected an id, since there is no tokenizer ({why})");
    Error::Prompt(problem).into()
}

/// Describes the measured quantity.
pub fn words(asked: Asked, label: &dyn Fn(u32) -> String) -> String {
    let of = format!("the logit of {:?} ({})", label(asked.token), asked.token);
    let against = asked
        .against
        .map(|id| format!(" less that of {:?} ({id})", label(id)));
    let against = against.unwrap_or_default();
    format!("{of}{against} at position {}", asked.position_idx)
}

/// Returns the requested position, by default the last real one.
///
/// # Errors
/// When the position does not exist.
pub fn position(given: Option<usize>, input: &Input) -> Result<usize> {
    let sequence = &input.sequence;
    let n = sequence.len();
    match given {
        Some(idx) if idx < n => Ok(idx),
        Some(idx) => {
            let problem = format!("--position {idx}: expected one of 0..{n}");
            Err(Error::Prompt(problem).into())
        }
        None => {
            let last = (0..n).rev().find(|idx| sequence.is_real(*idx));
            let missing = || Error::Prompt("the prompt has no real token".to_owned());
            Ok(last.ok_or_else(missing)?)
        }
    }
}
