//! Text, ids and masks → token sequences with labels a person can read.

mod tokenizer;

pub use tokenizer::{Reading, Tokenizer, Vocabulary};

use crate::error::{Error, Result};

/// What a person asked to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Text(String),
    /// Used verbatim.
    Ids(Vec<u32>),
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

/// Everything a prompt depends on beside the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub source: Source,
    /// 1 for a real token, 0 for padding; one per token.
    pub attention_mask: Option<Vec<bool>>,
    pub positions: Positions,
    /// Whether the tokenizer may add its special tokens.
    pub special_tokens: bool,
    /// Keep the first positions of a text that is too long, instead of refusing it.
    pub truncate: bool,
}

impl Request {
    /// A plain text, as a person types it.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            source: Source::Text(text.into()),
            attention_mask: None,
            positions: Positions::Family,
            special_tokens: true,
            truncate: false,
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
    pub n_ctx: Option<usize>,
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
}

/// Turns a request into a prompt, and refuses what the model cannot run.
///
/// # Errors
/// When the prompt is empty, a text comes where only ids can be read, an id lies outside the vocabulary, the mask has another
/// length, or there are more tokens than positions.
pub fn prepare(request: &Request, reading: &Reading, limits: Limits) -> Result<Prompt> {
    let (mut tokens, mut labels): (Vec<u32>, Vec<String>) = match &request.source {
        Source::Text(text) => {
            let tokenizer = match reading {
                Reading::Tokenizer(tokenizer) => tokenizer,
                Reading::Ids(reason) => {
                    let problem =
                        format!("a text needs a tokenizer: {reason}; give ids with --tokens");
                    return Err(Error::Prompt(problem));
                }
            };
            let tokens = tokenizer.encode(text, request.special_tokens)?;
            let labels = tokens.iter().map(|id| tokenizer.label(*id)).collect();
            (tokens, labels)
        }
        Source::Ids(ids) => {
            let labels = ids.iter().map(|id| reading.label(*id)).collect();
            (ids.clone(), labels)
        }
    };
    if tokens.is_empty() {
        return Err(Error::Prompt(
            "the prompt is empty: expected at least one token, found none".to_owned(),
        ));
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
        let found = tokens.len();
        if !request.truncate {
            let problem = format!(
                "the prompt has {found} tokens, the model {n_ctx} positions: shorten it or pass --truncate"
            );
            return Err(Error::Prompt(problem));
        }
        n_cut = found - n_ctx;
        tokens.truncate(n_ctx);
        labels.truncate(n_ctx);
        if let Some(real) = &mut real {
            real.truncate(n_ctx);
        }
    }
    if real.as_ref().is_some_and(|real| !real.contains(&true)) {
        let problem = "attention mask: expected at least one real token, found only padding";
        return Err(Error::Prompt(problem.to_owned()));
    }
    let positions = match (request.positions, &real) {
        (Positions::Mask, Some(real)) => positions_over_real(real),
        _ => (0..tokens.len()).collect(),
    };
    Ok(Prompt {
        tokens,
        labels,
        positions,
        real,
        n_cut,
    })
}

/// Counts real tokens; padding before the first shares its position.
fn positions_over_real(real: &[bool]) -> Vec<usize> {
    let mut n_seen = 0usize;
    real.iter()
        .map(|is_real| {
            n_seen += usize::from(*is_real);
            n_seen.saturating_sub(1)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        d_vocab: 10,
        n_ctx: Some(4),
    };

    fn ids_only() -> Reading {
        Reading::Ids("no tokenizer.json".to_owned())
    }

    fn refusal(request: &Request) -> String {
        prepare(request, &ids_only(), LIMITS)
            .expect_err("must be refused")
            .to_string()
    }

    #[test]
    fn an_id_outside_the_vocabulary_is_named_with_its_place() {
        let message = refusal(&Request::ids(vec![3, 10]));
        assert!(
            message.contains("id 10") && message.contains("position 1") && message.contains("0..9"),
            "{message}"
        );
    }

    #[test]
    fn an_empty_prompt_a_text_without_tokenizer_and_a_wrong_mask_are_refused() {
        assert!(refusal(&Request::ids(vec![])).contains("empty"));
        assert!(refusal(&Request::text("hello")).contains("tokenizer.json"));
        let request = Request {
            attention_mask: Some(vec![true; 3]),
            ..Request::ids(vec![1, 2])
        };
        let message = refusal(&request);
        assert!(
            message.contains("expected 2") && message.contains("found 3"),
            "{message}"
        );
        let request = Request {
            attention_mask: Some(vec![false; 2]),
            ..Request::ids(vec![1, 2])
        };
        assert!(refusal(&request).contains("only padding"));
    }

    #[test]
    fn a_long_prompt_is_refused_or_cut_when_asked() {
        let request = Request::ids(vec![1; 6]);
        assert!(refusal(&request).contains("6 tokens"));
        let cut = prepare(
            &Request {
                truncate: true,
                ..request
            },
            &ids_only(),
            LIMITS,
        )
        .expect("cut");
        assert_eq!((cut.tokens.len(), cut.n_cut), (4, 2));
    }

    #[test]
    fn positions_can_be_counted_over_real_tokens() {
        let request = Request {
            attention_mask: Some(vec![false, false, true, true]),
            positions: Positions::Mask,
            ..Request::ids(vec![1; 4])
        };
        assert_eq!(
            prepare(&request, &ids_only(), LIMITS)
                .expect("fits")
                .positions,
            [0, 0, 0, 1]
        );
    }
}
