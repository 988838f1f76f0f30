//! Ids of tokens that a program gave as text alone, or not at all.

use std::path::Path;

use attnscope_compute::error::{Error, Result};
use attnscope_prompt::{PromptForm, Tokenizer};

use super::ids::paired;
use super::scored::{LogProbs, ScoredPrompt, ScoredToken};

impl LogProbs {
    /// Finds the ids of tokens that are given as text alone: the whole text is cut by a model's tokenizer, and has to fall into the same
    /// pieces. `path` names the table in errors.
    ///
    /// # Errors
    /// When there is no tokenizer, or it cuts the text otherwise.
    pub fn identify(&mut self, path: &Path, prompt_form: &PromptForm) -> Result<()> {
        let needs = |prompt: &&mut ScoredPrompt| {
            let tokens = &prompt.tokens;
            tokens.iter().any(|token| token.id.is_none())
                && tokens.iter().all(|token| token.piece.is_some())
        };
        for prompt in self.prompts.iter_mut().filter(needs) {
            let missing = |why: &str| {
                let name = &prompt.name;
                let ways = "vLLM: return_token_ids or return_tokens_as_token_ids";
                let problem = format!(
                    "prompt {name}: expected token ids, found pieces of text {why}: ask the engine for ids ({ways})"
                );
                Error::file(path, problem)
            };
            let Some(tokenizer) = prompt_form.tokenizer() else {
                return Err(missing("and a reference without a tokenizer"));
            };
            let found = ids_of(&prompt.tokens, tokenizer);
            let ids =
                found.ok_or_else(|| missing("that the reference's tokenizer cuts otherwise"))?;
            for (token, id) in prompt.tokens.iter_mut().zip(ids) {
                token.id = Some(id);
            }
        }
        Ok(())
    }
}

/// The ids of pieces of a text; `None` if the tokenizer cuts it otherwise, with special tokens around it and without.
fn ids_of(tokens: &[ScoredToken], tokenizer: &Tokenizer) -> Option<Vec<u32>> {
    let pieces = tokens.iter().filter_map(|token| token.piece.as_deref());
    let pieces: Vec<&str> = pieces.collect();
    let text = pieces.concat();
    [true, false].into_iter().find_map(|special| {
        let cut = tokenizer.cut(&text, special).ok()?;
        let mut pairs = cut.iter().zip(&pieces);
        let fits = pairs.all(|(token, piece)| {
            let own = text.get(token.bytes.clone());
            token.is_special || own.is_some_and(|own| own.trim() == piece.trim())
        });
        let ids = cut.iter().map(|token| token.id);
        (fits && cut.len() == pieces.len()).then(|| ids.collect())
    })
}

/// Gives a side without ids those of the other side, where the two have as many tokens, or one value less.
pub fn lend_ids(a: &mut LogProbs, b: &mut LogProbs) {
    let has_none = |tokens: &[ScoredToken]| tokens.iter().all(|token| token.id.is_none());
    for (of_a, of_b) in paired(a, b) {
        let (one, other) = (&mut a.prompts[of_a].tokens, &mut b.prompts[of_b].tokens);
        let (lacks, has) = match (has_none(one), has_none(other)) {
            (true, false) => (one, &*other),
            (false, true) => (other, &*one),
            _ => continue,
        };
        if lacks.len() + 1 == has.len() {
            lacks.insert(0, ScoredToken::default());
        }
        if lacks.len() != has.len() {
            continue;
        }
        for (lacks, has) in lacks.iter_mut().zip(has) {
            lacks.id = has.id;
        }
        if let Some(first) = lacks.first_mut() {
            first.logprob = None;
        }
    }
}
