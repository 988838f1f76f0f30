//! Tokenizers of the `tokenizers` crate, with limits on what a file may ask of them.
//!
//! Before a text is encoded, it passes once through the same normalizers and pre-tokenizers step by step. A step that would make
//! the text many times longer is refused, and so is a pattern that hits the regex engine's limit: the crate would treat it as not
//! matching, and return other ids.

use std::sync::Arc;

use fancy_regex::Regex;
use serde_json::Value;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{
    NormalizedString, Normalizer as _, OffsetReferential, OffsetType, PreTokenizedString,
    PreTokenizer as _,
};

use super::Token;
use super::limited::within_limits;

/// Upper limit of a text's growth, as a factor; and the length that is always allowed.
const MOST_GROWTH: usize = 64;
const ALWAYS_ALLOWED: usize = 1 << 18;
/// The default splitting pattern of byte-level pre-tokenizers.
const BYTE_LEVEL: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// How a file names the unknown token.
#[derive(Debug, Clone)]
pub enum Unknown {
    Id(u32),
    Text(String),
}

/// A tokenizer, and its steps.
#[derive(Clone)]
pub struct Library(Arc<Steps>);

struct Steps {
    /// The unknown token.
    unknown: Option<u32>,
    library: tokenizers::Tokenizer,
    normalizers: Vec<(NormalizerWrapper, Option<Swap>)>,
    cuts: Vec<(PreTokenizerWrapper, Option<Regex>)>,
}

/// The replacement for a pattern.
struct Swap {
    pattern: Regex,
    n_bytes: usize,
}

impl Library {
    /// Reads the text of a `tokenizer.json`; without a decoder, labels use the vocabulary's spelling.
    ///
    /// # Errors
    /// One clause, when the crate cannot read it.
    pub fn read(
        bytes: Vec<u8>,
        with_decoder: bool,
        unknown: Option<Unknown>,
    ) -> Result<Self, String> {
        let n_bytes = bytes.len();
        let read = move || {
            let mut library =
                tokenizers::Tokenizer::from_bytes(&bytes).map_err(|e| e.to_string())?;
            if !with_decoder {
                let none: Option<tokenizers::DecoderWrapper> = None;
                library.with_decoder(none);
            }
            Self::of(library, unknown)
        };
        within_limits(n_bytes, read)
    }

    fn of(mut library: tokenizers::Tokenizer, unknown: Option<Unknown>) -> Result<Self, String> {
        library.with_padding(None);
        let off = library.with_truncation(None);
        off.map_err(|e| format!("its truncation cannot be switched off ({e})"))?;
        let mut normalizers = Vec::new();
        if let Some(normalizer) = library.get_normalizer() {
            flatten_normalizer(normalizer, &mut normalizers)?;
        }
        let mut cuts = Vec::new();
        if let Some(cut) = library.get_pre_tokenizer() {
            flatten_cut(cut, &mut cuts)?;
        }
        let unknown = unknown.and_then(|unknown| match unknown {
            Unknown::Id(id) => Some(id),
            Unknown::Text(text) => library.token_to_id(&text),
        });
        Ok(Self(Arc::new(Steps {
            unknown,
            library,
            normalizers,
            cuts,
        })))
    }

    /// # Errors
    /// One clause, when a limit is exceeded or the crate cannot encode the text.
    pub fn encode(&self, text: &str, special_tokens: bool) -> Result<Vec<Token>, String> {
        let (steps, text) = (self.0.clone(), text.to_owned());
        within_limits(text.len(), move || {
            steps.try_out(&text)?;
            let encoded = steps.library.encode(text.as_str(), special_tokens);
            let encoded = encoded.map_err(|e| e.to_string())?;
            Ok(steps.tokens(&encoded, &text))
        })
    }

    pub fn token(&self, id: u32) -> Option<String> {
        self.0.library.id_to_token(id)
    }

    /// Whether an id is that of a special token.
    pub fn is_special(&self, id: u32) -> bool {
        let added = self.0.library.get_added_tokens_decoder();
        added.get(&id).is_some_and(|token| token.special)
    }

    /// The text of some ids, without special tokens.
    pub fn text(&self, ids: &[u32]) -> Option<String> {
        self.0.library.decode(ids, true).ok()
    }

    /// The text of one id; `None` if it is not text.
    pub fn decoded(&self, id: u32) -> Option<String> {
        let text = self.0.library.decode(&[id], false).ok()?;
        (!text.is_empty() && !text.contains('\u{fffd}')).then_some(text)
    }
}

impl Steps {
    /// The tokens of an encoded text, each with the bytes that it covers.
    fn tokens(&self, encoded: &tokenizers::Encoding, text: &str) -> Vec<Token> {
        let added = self.library.get_added_tokens_decoder();
        let (ids, offsets) = (encoded.get_ids(), encoded.get_offsets());
        let masks = encoded.get_special_tokens_mask();
        let mut at = 0;
        let each = ids.iter().zip(offsets).zip(masks);
        each.map(|((id, (start, end)), mask)| {
            // A token added around the text covers no bytes, at the place where it was added.
            let bytes = if *mask == 1 { at..at } else { *start..*end };
            at = bytes.end;
            let is_spelled = text.get(bytes.clone()).is_some_and(|text| {
                let own = added.get(id).map(|token| token.content.as_str());
                own == Some(text)
            });
            Token {
                id: *id,
                is_special: *mask == 1 || added.get(id).is_some_and(|token| token.special),
                is_known: *mask == 1 || self.unknown != Some(*id) || is_spelled,
                bytes,
            }
        })
        .collect()
    }

    /// Tries every step before the model.
    fn try_out(&self, text: &str) -> Result<(), String> {
        let most = text.len().saturating_mul(MOST_GROWTH).max(ALWAYS_ALLOWED);
        let too_long = || longer("normalizer");
        let mut normalized = NormalizedString::from(text);
        for (normalizer, swap) in &self.normalizers {
            if let Some(swap) = swap {
                let n = matches(&swap.pattern, normalized.get())?;
                let grown = n
                    .saturating_mul(swap.n_bytes)
                    .saturating_add(normalized.get().len());
                if grown > most {
                    return Err(too_long());
                }
            }
            normalizer
                .normalize(&mut normalized)
                .map_err(|e| e.to_string())?;
            if normalized.get().len() > most {
                return Err(too_long());
            }
        }
        let mut pieces = PreTokenizedString::from(normalized);
        for (cut, pattern) in &self.cuts {
            if let Some(pattern) = pattern {
                let now = pieces.get_splits(OffsetReferential::Normalized, OffsetType::None);
                for (piece, ..) in now {
                    matches(pattern, piece)?;
                }
            }
            cut.pre_tokenize(&mut pieces).map_err(|e| e.to_string())?;
            // A byte-level step doubles some bytes, and a file may repeat it many times.
            let now = pieces.get_splits(OffsetReferential::Normalized, OffsetType::None);
            if now.iter().map(|(piece, ..)| piece.len()).sum::<usize>() > most {
                return Err(longer("pre-tokenizer"));
            }
        }
        Ok(())
    }
}

fn longer(step: &str) -> String {
    format!("its {step} makes the text more than {MOST_GROWTH} times longer")
}

/// Counts the matches of a pattern.
fn matches(pattern: &Regex, text: &str) -> Result<usize, String> {
    let mut n = 0;
    for found in pattern.find_iter(text) {
        found.map_err(|_| {
            let shown: String = pattern.as_str().chars().take(80).collect();
            format!("its pattern {shown:?} gives up on this text: it would go back too often")
        })?;
        n += 1;
    }
    Ok(n)
}

fn flatten_normalizer(
    normalizer: &NormalizerWrapper,
    to: &mut Vec<(NormalizerWrapper, Option<Swap>)>,
) -> Result<(), String> {
    let swap = match normalizer {
        NormalizerWrapper::Sequence(sequence) => {
            let mut all = sequence.as_ref().iter();
            return all.try_for_each(|normalizer| flatten_normalizer(normalizer, to));
        }
        NormalizerWrapper::Replace(replace) => {
            let described = serde_json::to_value(replace).unwrap_or_default();
            Some(Swap {
                pattern: pattern_of(&described)?,
                n_bytes: replace.content.len(),
            })
        }
        _ => None,
    };
    to.push((normalizer.clone(), swap));
    Ok(())
}

fn flatten_cut(
    cut: &PreTokenizerWrapper,
    to: &mut Vec<(PreTokenizerWrapper, Option<Regex>)>,
) -> Result<(), String> {
    let pattern = match cut {
        PreTokenizerWrapper::Sequence(sequence) => {
            let mut all = sequence.as_ref().iter();
            return all.try_for_each(|cut| flatten_cut(cut, to));
        }
        PreTokenizerWrapper::Split(split) => {
            let described = serde_json::to_value(split).unwrap_or_default();
            Some(pattern_of(&described)?)
        }
        PreTokenizerWrapper::ByteLevel(byte_level) if byte_level.use_regex => {
            Some(compiled(BYTE_LEVEL)?)
        }
        _ => None,
    };
    to.push((cut.clone(), pattern));
    Ok(())
}

/// The pattern of a step, compiled as in the crate.
fn pattern_of(described: &Value) -> Result<Regex, String> {
    let pattern = &described["pattern"];
    match (pattern["Regex"].as_str(), pattern["String"].as_str()) {
        (Some(pattern), _) => compiled(pattern),
        (None, Some(text)) => compiled(&fancy_regex::escape(text)),
        (None, None) => Err("a step has no pattern".to_owned()),
    }
}

fn compiled(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|e| format!("a pattern cannot be read ({e})"))
}
