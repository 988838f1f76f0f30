//! `tokenizer.json`, read from a file or put together from others; checked for what its reader takes on trust.

use std::path::Path;

use serde_json::Value;

use super::sentence_piece::Charsmap;
use crate::error::{Error, Result};

/// Opens the text of a `tokenizer.json`, with the truncation and padding it stores switched off.
///
/// # Errors
/// When it is no tokenizer, or holds what its reader would stumble over.
pub fn open(path: &Path, bytes: &[u8]) -> Result<tokenizers::Tokenizer> {
    let fault = |e: &dyn std::fmt::Display| {
        Error::file(path, format!("is not a tokenizer that can be read ({e})"))
    };
    let value: Value = serde_json::from_slice(bytes).map_err(|e| fault(&e))?;
    sound(&value).map_err(|problem| fault(&problem))?;
    let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| fault(&e))?;
    inner.with_padding(None);
    inner
        .with_truncation(None)
        .map_err(|e| Error::file(path, format!("its truncation cannot be switched off ({e})")))?;
    Ok(inner)
}

/// Puts a tokenizer together from what other files say; `path` is the file to blame.
///
/// # Errors
/// When the parts do not make a tokenizer.
pub fn build(path: &Path, value: &Value) -> Result<tokenizers::Tokenizer> {
    open(path, value.to_string().as_bytes())
}

/// What would make the reader, or the tokenizer later, look where there is nothing.
fn sound(value: &Value) -> std::result::Result<(), String> {
    let mut normalizers = vec![&value["normalizer"]];
    while let Some(normalizer) = normalizers.pop() {
        normalizers.extend(normalizer["normalizers"].as_array().into_iter().flatten());
        let Some(encoded) = normalizer["precompiled_charsmap"].as_str() else {
            continue;
        };
        let table = base64(encoded).and_then(|bytes| Charsmap::parse(&bytes).ok());
        if !table.is_some_and(|table| table.is_closed()) {
            return Err("its precompiled_charsmap is no table of replacements".to_owned());
        }
    }
    merges_are_sound(&value["model"])
}

/// The bytes that a text of the usual 64 letters stands for.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut held, mut n_bits) = (0u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let six = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = held << 6 | u32::from(six);
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            bytes.push((held >> n_bits) as u8);
        }
    }
    Some(bytes)
}

/// A merge longer than every token would make the reader write past its room.
fn merges_are_sound(model: &Value) -> std::result::Result<(), String> {
    let (Some(vocab), Some(merges)) = (model["vocab"].as_object(), model["merges"].as_array())
    else {
        return Ok(());
    };
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or("");
    for (idx, merge) in merges.iter().enumerate() {
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            Value::Array(pair) => match &pair[..] {
                [Value::String(a), Value::String(b)] => Some((a.as_str(), b.as_str())),
                _ => None,
            },
            _ => None,
        };
        let Some((a, b)) = pair else {
            return Err(format!("merge {idx}: expected two tokens, found {merge}"));
        };
        let Some(tail) = b.strip_prefix(prefix) else {
            return Err(format!(
                "merge {idx}: expected {b:?} to begin with {prefix:?}"
            ));
        };
        let whole = format!("{a}{tail}");
        if let Some(missing) = [a, b, &whole]
            .into_iter()
            .find(|token| !vocab.contains_key(*token))
        {
            return Err(format!(
                "merge {idx} joins {a:?} and {b:?}, but {missing:?} is no token"
            ));
        }
    }
    Ok(())
}
