//! Tokens before and after a text: those of the tokenizer, and those that a decoder begins with.

use attnscope_compute::error::Result;

use super::limits::Limits;
use super::prompt::Prompt;
use super::request::{Request, Source, Target};
use super::tokenizer::PromptForm;

/// Number of tokens that the tokenizer adds after a text; a truncated text keeps them.
pub(super) fn n_special_at_end(
    source: &Source,
    request: &Request,
    prompt_form: &PromptForm,
    tokens: &[u32],
) -> Result<usize> {
    let (Source::Text(text), PromptForm::Tokenizer(tokenizer)) = (source, prompt_form) else {
        return Ok(0);
    };
    if !request.special_tokens {
        return Ok(0);
    }
    let plain = tokenizer.encode(text, false)?;
    let n_special = tokens.len().saturating_sub(plain.len());
    // The text is surrounded by special tokens: those after it are the end.
    let n_before = (0..=n_special).find(|n| tokens[*n..].starts_with(&plain));
    Ok(n_before.map_or(0, |n_before| n_special - n_before))
}

/// Removes the tokens that the tokenizer added before a text.
fn drop_special_at_start(
    source: &Source,
    request: &Request,
    prompt_form: &PromptForm,
    side: &mut Prompt,
) -> Result<()> {
    let (Source::Text(text), PromptForm::Tokenizer(tokenizer)) = (source, prompt_form) else {
        return Ok(());
    };
    let plain = tokenizer.encode(text, false)?;
    let n_at_end = n_special_at_end(source, request, prompt_form, &side.tokens)?;
    let n_before = side.tokens.len().saturating_sub(plain.len() + n_at_end);
    side.tokens.drain(..n_before);
    side.labels.drain(..n_before);
    Ok(())
}

/// Puts the decoder's first tokens before its target.
///
/// # Errors
/// When the tokenizer cannot encode the text.
pub(super) fn begin(
    target: &mut Prompt,
    (source, request): (&Source, &Request),
    prompt_form: &PromptForm,
    limits: Limits,
    start_token: u32,
) -> Result<()> {
    let is_text = matches!(request.target, Target::Text(_));
    if is_text && limits.sound.is_some() {
        // The tokenizer's tokens before a text repeat the prefix.
        drop_special_at_start(source, request, prompt_form, target)?;
    }
    let ids = limits.starts.after(start_token, is_text);
    let labels: Vec<String> = ids.iter().map(|id| prompt_form.label(*id)).collect();
    target.tokens.splice(0..0, ids);
    target.labels.splice(0..0, labels);
    target.positions = limits.positions.positions(&target.tokens, None);
    Ok(())
}
