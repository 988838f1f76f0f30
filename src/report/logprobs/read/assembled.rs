//! Puts what a form names together into prompts.

use attnscope_compare::logprobs::{ScoredPrompt, ScoredToken};

use super::tree::Tree;

/// Value that engines write for −∞.
const NOTHING: f64 = -9999.0;

/// A log-probability; engines write very small numbers for −∞.
pub(super) fn logprob(value: &Tree) -> Option<f64> {
    let value = value.number()?;
    Some(if value <= NOTHING {
        f64::NEG_INFINITY
    } else {
        value
    })
}

/// The id in a token that is written as `token_id:5`, as vLLM does where it is asked for ids.
pub(super) fn id_in(piece: &str) -> Option<u32> {
    piece.strip_prefix("token_id:")?.parse().ok()
}

/// A token from its text.
pub(super) fn of_piece(piece: &str) -> ScoredToken {
    ScoredToken {
        id: id_in(piece),
        piece: Some(piece.to_owned()),
        ..ScoredToken::default()
    }
}

/// Tokens from ids and values. The values are of all tokens, of all but the first, or of the last ones.
///
/// # Errors
/// When there are more values than tokens.
pub(super) fn of_lists(ids: &[u32], values: &[Option<f64>]) -> Result<Vec<ScoredToken>, String> {
    let Some(n_before) = ids.len().checked_sub(values.len()) else {
        return Err(format!(
            "expected at most one log-probability per token, found {} for {} tokens",
            values.len(),
            ids.len()
        ));
    };
    let token = |(idx, id): (usize, &u32)| ScoredToken {
        id: Some(*id),
        logprob: idx.checked_sub(n_before).and_then(|idx| values[idx]),
        ..ScoredToken::default()
    };
    let mut tokens: Vec<ScoredToken> = ids.iter().enumerate().map(token).collect();
    forget_first(&mut tokens);
    Ok(tokens)
}

/// Nothing stands before the first token of a text, so that a value of it says nothing: most programs write 0 or NaN there.
pub(super) fn forget_first(tokens: &mut [ScoredToken]) {
    if let Some(first) = tokens.first_mut() {
        (first.logprob, first.top) = (None, Vec::new());
    }
}

/// A prompt as an engine answers it. `n_prompt` is how many tokens it says that it was asked.
pub(super) fn answered(
    name: String,
    mut tokens: Vec<ScoredToken>,
    n_prompt: Option<usize>,
) -> ScoredPrompt {
    // The first token of a text has no value: one that has was written behind others.
    let begins = tokens
        .first()
        .is_none_or(|first| first.logprob.is_none_or(|log| log == 0.0 || log.is_nan()));
    let lacks_context = !begins || n_prompt.is_some_and(|n| n > tokens.len());
    if !lacks_context {
        forget_first(&mut tokens);
    }
    ScoredPrompt {
        name,
        tokens,
        lacks_context,
    }
}

/// A prompt of some tokens.
pub(super) fn prompt(name: String, tokens: Vec<ScoredToken>) -> ScoredPrompt {
    ScoredPrompt {
        name,
        tokens,
        lacks_context: false,
    }
}

/// Sorts the likeliest tokens.
pub(super) fn sorted(mut top: Vec<(u32, f64)>) -> Vec<(u32, f64)> {
    top.sort_by(|a, b| b.1.total_cmp(&a.1));
    top
}
