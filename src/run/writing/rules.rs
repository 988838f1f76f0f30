//! Generation settings that change which token follows, applied as in transformers' `generate`.
//!
//! They are read from `generation_config.json` or, if there is no such file, from `config.json`.

use std::borrow::Cow;

use attnscope_checkpoint::{Config, GENERATION};
use attnscope_prompt::Prompt;
use attnscope_spec::Model;
use serde_json::{Map, Value};

/// Unsupported settings that would change the text, with the values at which they have no effect.
const NOT_FOLLOWED: [(&str, &[f64]); 20] = [
    ("do_sample", &[0.0]),
    ("num_beams", &[1.0]),
    ("num_beam_groups", &[1.0]),
    ("penalty_alpha", &[0.0]),
    ("guidance_scale", &[1.0]),
    ("sequence_bias", &[]),
    ("encoder_repetition_penalty", &[1.0]),
    ("encoder_no_repeat_ngram_size", &[0.0]),
    ("min_length", &[0.0]),
    ("min_new_tokens", &[0.0]),
    ("forced_eos_token_id", &[]),
    ("exponential_decay_length_penalty", &[]),
    ("force_words_ids", &[]),
    ("constraints", &[]),
    ("stop_strings", &[]),
    ("watermarking_config", &[]),
    ("token_healing", &[0.0]),
    ("dola_layers", &[]),
    ("prompt_lookup_num_tokens", &[]),
    ("max_time", &[]),
];

/// Supported generation settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// Repetition penalty: divides positive scores of tokens that are in the text, and multiplies negative ones.
    penalty: Option<f32>,
    /// Length of token sequences that must not repeat.
    no_repeat: usize,
    /// Token sequences that must not be written.
    bad_words: Vec<Vec<u32>>,
    suppressed: Vec<u32>,
    /// Tokens that must not be the first one after the prompt.
    suppressed_first: Vec<u32>,
    /// Token that follows a text of one token.
    forced_second: Option<u32>,
    not_followed: Vec<String>,
}

impl Rules {
    /// Reads the rules of a model.
    pub fn of(model: &Model) -> Self {
        let config = &model.checkpoint.config;
        let file = model.checkpoint.sibling_config(GENERATION);
        let settings = Settings {
            of: if file.is_some() {
                GENERATION
            } else {
                "config.json"
            },
            file,
            config,
        };
        let ends = super::end_tokens(model);
        let mut rules = settings.rules(&ends);
        // The family already read the start tokens of a speech model, and the tokens that must not follow them.
        if let Some(start) = &model.spec.decoder_start
            && !start.never_first.is_empty()
        {
            rules.suppressed_first.clear();
        }
        rules
    }

    /// Note on settings that change the text elsewhere but are not supported here; `None` if there are none.
    pub fn note(&self) -> Option<String> {
        (!self.not_followed.is_empty()).then(|| {
            let settings = self.not_followed.join(", ");
            format!("writing does not follow {settings}: flags say how tokens are chosen")
        })
    }

    /// Scores from which a token is chosen. // [token]
    pub(super) fn scores<'a>(&self, logits: &'a [f32], prompt: &Prompt) -> Cow<'a, [f32]> {
        let mut scores = Cow::Borrowed(logits);
        let Some(penalty) = self.penalty else {
            return scores;
        };
        let is_real = |idx: usize| prompt.real.as_ref().is_none_or(|real| real[idx]);
        let mut tokens: Vec<u32> = (0..prompt.tokens.len())
            .filter(|idx| is_real(*idx))
            .map(|idx| prompt.tokens[idx])
            .collect();
        tokens.sort_unstable();
        tokens.dedup();
        let owned = scores.to_mut();
        for token in tokens {
            if let Some(score) = owned.get_mut(token as usize) {
                *score = if *score < 0.0 {
                    *score * penalty
                } else {
                    *score / penalty
                };
            }
        }
        scores
    }

    /// Tokens that must not follow `tokens`, of which `n_given` are the prompt.
    pub(super) fn never(&self, tokens: &[u32], n_given: usize) -> Vec<u32> {
        let mut never = self.suppressed.clone();
        // After a single token, the next one is forced and the first choice comes after it.
        let n_before = match self.forced_second {
            Some(_) if n_given <= 1 => n_given + 1,
            _ => n_given,
        };
        if tokens.len() == n_before {
            never.extend(&self.suppressed_first);
        }
        for words in &self.bad_words {
            if let Some((last, before)) = words.split_last() {
                let is_begun =
                    before.is_empty() || (words.len() <= tokens.len() && tokens.ends_with(before));
                never.extend(is_begun.then_some(*last));
            }
        }
        if let Some(n_before) = self.no_repeat.checked_sub(1)
            && tokens.len() >= self.no_repeat
        {
            let end = &tokens[tokens.len() - n_before..];
            let rows = tokens.windows(self.no_repeat);
            never.extend(
                rows.filter(|row| row.starts_with(end))
                    .map(|row| row[n_before]),
            );
        }
        never
    }

    /// Token that must follow these tokens, whatever the model predicts.
    pub(super) fn forced(&self, tokens: &[u32]) -> Option<u32> {
        self.forced_second.filter(|_| tokens.len() == 1)
    }
}

/// Source of generation settings.
struct Settings<'a> {
    of: &'static str,
    file: Option<Map<String, Value>>,
    config: &'a Config,
}

impl Settings<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        let found = match &self.file {
            Some(values) => values.get(key),
            None => self.config.get(key),
        };
        found.filter(|value| !value.is_null())
    }

    fn ids(&self, key: &str) -> Vec<u32> {
        self.get(key).map_or_else(Vec::new, ids)
    }

    fn rules(&self, ends: &[u32]) -> Rules {
        let number = |key: &str| self.get(key).and_then(Value::as_f64);
        let words = self.get("bad_words_ids").and_then(Value::as_array);
        let words = words.into_iter().flatten().map(ids);
        let is_end = |words: &[u32]| matches!(words, [one] if ends.contains(one));
        let penalty = number("repetition_penalty").filter(|p| *p > 0.0 && *p != 1.0);
        Rules {
            penalty: penalty.map(|penalty| penalty as f32),
            no_repeat: number("no_repeat_ngram_size").map_or(0, |n| n.max(0.0) as usize),
            bad_words: words.filter(|words| !is_end(words)).collect(),
            suppressed: self.ids("suppress_tokens"),
            suppressed_first: self.ids("begin_suppress_tokens"),
            forced_second: self.ids("forced_bos_token_id").first().copied(),
            not_followed: self.not_followed(),
        }
    }

    fn not_followed(&self) -> Vec<String> {
        let number = |value: &Value| match value {
            Value::Bool(flag) => Some(f64::from(*flag)),
            other => other.as_f64(),
        };
        let matters = |(key, without): &&(&str, &[f64])| {
            let value = self.get(key);
            value.is_some_and(|value| number(value).is_none_or(|n| !without.contains(&n)))
        };
        let said = NOT_FOLLOWED.iter().filter(matters).map(|(key, _)| {
            let value = self.get(key).map(Value::to_string).unwrap_or_default();
            if value.len() > 20 {
                (*key).to_owned()
            } else {
                format!("{key} {value}")
            }
        });
        let said: Vec<String> = said.collect();
        match said.split_first() {
            Some((first, others)) => {
                let mut all = vec![format!("{} {first}", self.of)];
                all.extend_from_slice(others);
                all
            }
            None => said,
        }
    }
}

/// Reads one id or a list of ids.
fn ids(value: &Value) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(all) => all.iter().filter_map(id).collect(),
        one => id(one).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn rules(json: &str) -> Rules {
        let config = Config::parse(Path::new("config.json"), json).expect("is JSON");
        let settings = Settings {
            of: "config.json",
            file: None,
            config: &config,
        };
        settings.rules(&[2])
    }

    #[test]
    fn repeated_sequences_and_bad_words_are_not_written() {
        let found = rules(r#"{"no_repeat_ngram_size": 2, "bad_words_ids": [[9], [5, 7], [2]]}"#);
        assert_eq!(found.never(&[5, 6, 5], 3), [9, 7, 6]);
        assert_eq!(found.never(&[5], 1), [9]);
        assert_eq!(found.never(&[5, 6], 2), [9]);
    }

    #[test]
    fn suppression_of_the_first_token_applies_after_a_forced_one() {
        let found = rules(r#"{"begin_suppress_tokens": [4], "suppress_tokens": [3]}"#);
        assert_eq!(found.never(&[0], 1), [3, 4]);
        assert_eq!(found.never(&[0, 1], 1), [3]);
        let found = rules(r#"{"begin_suppress_tokens": [4], "forced_bos_token_id": 8}"#);
        assert_eq!((found.forced(&[0]), found.forced(&[0, 8])), (Some(8), None));
        assert!(found.never(&[0], 1).is_empty());
        assert_eq!(found.never(&[0, 8], 1), [4]);
    }

    #[test]
    fn unsupported_settings_are_noted_if_they_have_an_effect() {
        assert_eq!(rules(r#"{"num_beams": 1, "min_length": 0}"#).note(), None);
        let note = rules(r#"{"num_beams": 4, "do_sample": true}"#).note();
        let note = note.expect("a note");
        assert!(
            note.contains("config.json do_sample true, num_beams 4"),
            "{note}"
        );
    }
}
