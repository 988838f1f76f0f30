//! Finds the separator tokens of a prompt: punctuation, line breaks, special tokens.

use std::cell::OnceCell;

use attnscope_prompt::{PromptForm, Tokenizer};
use attnscope_spec::{Model, Stack};

use super::job::Outcome;

/// Tokens of a run. Their vocabulary is read at the first query.
pub(super) struct Separators<'a> {
    model: &'a Model,
    outcome: &'a Outcome,
    prompt_form: OnceCell<Option<PromptForm>>,
}

impl<'a> Separators<'a> {
    pub fn new(model: &'a Model, outcome: &'a Outcome) -> Self {
        Self {
            model,
            outcome,
            prompt_form: OnceCell::new(),
        }
    }

    /// Whether a key of a stack is a separator; false without a vocabulary.
    pub fn holds(&self, stack: Stack, key_idx: usize) -> bool {
        let tokens = match stack {
            Stack::Encoder | Stack::Cross => &self.outcome.source_tokens,
            Stack::Only | Stack::Decoder => &self.outcome.tokens,
        };
        let prompt_form = self
            .prompt_form
            .get_or_init(|| Tokenizer::open(&self.model.checkpoint.tokenizer).ok());
        let (Some(id), Some(prompt_form)) = (tokens.get(key_idx), prompt_form) else {
            return false;
        };
        prompt_form.tokenizer().is_some() && separates(&prompt_form.label(*id))
    }
}

/// Whether a token's text is punctuation or blank, or looks like a special token: `[SEP]`, `</s>`, `<|endoftext|>`.
pub fn separates(label: &str) -> bool {
    let text = label.trim();
    let enclosed = |open, close| text.len() > 2 && text.starts_with(open) && text.ends_with(close);
    !text.chars().any(char::is_alphanumeric) || enclosed('<', '>') || enclosed('[', ']')
}

#[cfg(test)]
mod tests {
    use super::separates;

    #[test]
    fn punctuation_and_special_tokens_are_separators_but_words_and_numbers_are_not() {
        for label in [".", " ,", "\n", " ", "[SEP]", "</s>", "<|endoftext|>", "–"] {
            assert!(separates(label), "{label:?}");
        }
        for label in ["a", " king", "7", "don't", "été", "<b", "x]"] {
            assert!(!separates(label), "{label:?}");
        }
    }
}
