//! `tokenizer.json`, read from a file or put together from others; checked for what its reader takes on trust.

use std::path::Path;

use serde_json::Value;

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

/// A merge longer than every token would make the reader write past its room.
fn sound(value: &Value) -> std::result::Result<(), String> {
    let model = &value["model"];
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
