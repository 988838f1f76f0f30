//! Opens `tokenizer.json`, read from a file or assembled from others; checks what the library does not check itself.

use std::path::Path;

use attnscope_compute::error::{Error, Result};
use serde_json::Value;

use super::library::{Library, Unknown};
use super::sentence_piece::Charsmap;

/// Opens the text of a `tokenizer.json`, with its truncation and padding switched off.
///
/// # Errors
/// When it is not a tokenizer, or contains something that would make the library panic.
pub fn open(path: &Path, bytes: &[u8]) -> Result<Library> {
    let fault = |e: &dyn std::fmt::Display| {
        Error::file(path, format!("is not a tokenizer that can be read ({e})"))
    };
    let mut value: Value = serde_json::from_slice(bytes).map_err(|e| fault(&e))?;
    sound(&value).map_err(|problem| fault(&problem))?;
    // Dropout is for training: it omits merges at random, so every run would have different ids.
    let dropout = value
        .get_mut("model")
        .and_then(|model| model.get_mut("dropout"));
    let bytes = match dropout.filter(|dropout| !dropout.is_null()) {
        Some(dropout) => {
            *dropout = Value::Null;
            value.to_string().into_bytes()
        }
        None => bytes.to_vec(),
    };
    let unknown = match (&value["model"]["unk_token"], &value["model"]["unk_id"]) {
        (Value::String(text), _) => Some(Unknown::Text(text.clone())),
        (_, id) => id
            .as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .map(Unknown::Id),
    };
    let reads_labels = decoder_is_sound(&value["decoder"]);
    Library::read(bytes, reads_labels, unknown).map_err(|problem| fault(&problem))
}

/// Upper limit of a token's growth through all of a decoder's replacements, as a factor.
const MOST_GROWTH: usize = 1 << 12;

/// Whether a decoder can safely decode any token.
fn decoder_is_sound(decoder: &Value) -> bool {
    let mut growth = 1usize;
    let all = parts(decoder, "decoders");
    all.iter().all(|part| {
        let n_bytes = |field: &Value| field.as_str().map_or(1, str::len);
        match part["type"].as_str() {
            // It slices without checking whether the token is long enough.
            Some("Strip") => part["stop"] == 0 && part["start"].as_u64().is_some_and(|n| n < 64),
            Some("Replace") => {
                growth = growth.saturating_mul(1 + n_bytes(&part["content"]));
                growth <= MOST_GROWTH
            }
            _ => true,
        }
    })
}

/// A step, or the nested steps inside it, in order.
fn parts<'v>(step: &'v Value, inside: &str) -> Vec<&'v Value> {
    let mut waiting = vec![step];
    let mut parts = Vec::new();
    while let Some(step) = waiting.pop() {
        match step[inside].as_array() {
            Some(steps) => waiting.extend(steps.iter().rev()),
            None => parts.push(step),
        }
    }
    parts
}

/// Assembles a tokenizer from other files' contents; `path` is the file named in errors.
///
/// # Errors
/// When the parts do not make a tokenizer.
pub fn build(path: &Path, value: &Value) -> Result<Library> {
    open(path, value.to_string().as_bytes())
}

/// Refuses a file that would make the library index out of bounds.
fn sound(value: &Value) -> std::result::Result<(), String> {
    for normalizer in parts(&value["normalizer"], "normalizers") {
        let Some(encoded) = normalizer["precompiled_charsmap"].as_str() else {
            continue;
        };
        let table = base64(encoded).and_then(|bytes| Charsmap::parse(&bytes).ok());
        if !table.is_some_and(|table| table.is_closed()) {
            return Err("its precompiled_charsmap is not a table of replacements".to_owned());
        }
    }
    for cut in parts(&value["pre_tokenizer"], "pretokenizers") {
        if cut["type"] == "FixedLength" && cut["length"] == 0 {
            return Err("its FixedLength: expected a length from 1, found 0".to_owned());
        }
    }
    for processor in parts(&value["post_processor"], "processors") {
        template_is_sound(processor)?;
    }
    merges_are_sound(&value["model"])
}

/// Checks that the ids of a template's special tokens are listed beside it.
fn template_is_sound(processor: &Value) -> std::result::Result<(), String> {
    for template in ["single", "pair"] {
        let pieces = processor[template].as_array().into_iter().flatten();
        for token in pieces.filter_map(|piece| piece["SpecialToken"]["id"].as_str()) {
            if processor["special_tokens"][token]["ids"].is_null() {
                return Err(format!(
                    "its template names the special token {token:?}, whose ids it does not say"
                ));
            }
        }
    }
    Ok(())
}

/// Decodes base64 with the standard alphabet.
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

/// Checks merges: one longer than every token would make the library write out of bounds.
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
                "merge {idx} joins {a:?} and {b:?}, but {missing:?} is not a token"
            ));
        }
    }
    Ok(())
}
