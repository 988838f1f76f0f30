//! Tokens and positions given by the user.

use anyhow::Result;
use attnscope_compute::error::Error;
use attnscope_forward::Input;
use attnscope_prompt::PromptForm;

/// Parses a token, given as a text that is one token, or as an id.
///
/// # Errors
/// When it is neither, or is outside the vocabulary.
pub fn token_id(given: &str, prompt_form: &PromptForm, d_vocab: usize) -> Result<u32> {
    if let Ok(id) = given.parse::<u32>() {
        if (id as usize) < d_vocab {
            return Ok(id);
        }
        let problem = format!("--token {given}: expected an id of 0..{d_vocab}");
        return Err(Error::Prompt(problem).into());
    }
    let Some(tokenizer) = prompt_form.tokenizer() else {
        let problem = format!(
            "--token {given:?}: expected an id, since there is no tokenizer ({})",
            prompt_form.describe()
        );
        return Err(Error::Prompt(problem).into());
    };
    let ids = tokenizer.encode(given, false)?;
    match ids.as_slice() {
        [id] => Ok(*id),
        ids => {
            let pieces: Vec<String> = ids
                .iter()
                .map(|id| format!("{} ({id})", prompt_form.label(*id)))
                .collect();
            let problem = format!(
                "--token {given:?}: expected one token, found {}: {}; pass an id, or begin with a blank where the tokenizer joins it to the word",
                ids.len(),
                pieces.join(", ")
            );
            Err(Error::Prompt(problem).into())
        }
    }
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
