//! `tokenizer.json` through the `tokenizers` crate, with the truncation and padding it stores switched off.

use std::path::Path;

use crate::checkpoint::TokenizerFile;
use crate::error::{Error, Result};

/// Turns text into ids and ids into labels.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
}

impl Tokenizer {
    /// Opens the tokenizer of a checkpoint; `None` when it has none.
    ///
    /// # Errors
    /// When there is a file and it is no tokenizer.
    pub fn open(file: &TokenizerFile) -> Result<Option<Self>> {
        let (path, bytes) = match file {
            TokenizerFile::Missing => return Ok(None),
            TokenizerFile::CompiledIn(text) => {
                (Path::new("tokenizer.json"), text.as_bytes().to_vec())
            }
            TokenizerFile::Path(path) => {
                let bytes = std::fs::read(path)
                    .map_err(|e| Error::file(path, format!("cannot be read ({e})")))?;
                (path.as_path(), bytes)
            }
        };
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes)
            .map_err(|e| Error::file(path, format!("is not a tokenizer that can be read ({e})")))?;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| {
            Error::file(path, format!("its truncation cannot be switched off ({e})"))
        })?;
        Ok(Some(Self { inner }))
    }

    /// # Errors
    /// When the tokenizer cannot encode the text.
    pub fn encode(&self, text: &str, special_tokens: bool) -> Result<Vec<u32>> {
        let encoding = self
            .inner
            .encode_fast(text, special_tokens)
            .map_err(|e| Error::Prompt(format!("the tokenizer cannot encode the text ({e})")))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// What one id reads as, a leading space included; the vocabulary's own spelling where it is no text.
    pub fn label(&self, id: u32) -> String {
        let Some(stored) = self.inner.id_to_token(id) else {
            return id.to_string();
        };
        // SentencePiece writes a leading space as ▁; its decoder would drop it from a lone piece.
        if stored.contains('▁') {
            return stored.replace('▁', " ");
        }
        match self.inner.decode(&[id], false) {
            Ok(text) if !text.is_empty() && !text.contains('\u{fffd}') => text,
            _ => stored,
        }
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").finish_non_exhaustive()
    }
}
