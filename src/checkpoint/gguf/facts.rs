//! The inputs from which a file's configuration is built.

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value};

use super::metadata::Metadata;
use super::value::Value as Stored;
use crate::tensors::Tensors;

/// Larger sizes mean damage; `config` has the same limit for its keys.
pub(super) const LARGEST: u64 = 1 << 26;

/// Ending of the key of the number of key/value heads.
pub(super) const KV_HEADS: &str = "attention.head_count_kv";

/// Ending of the key of a sliding window's width.
pub(super) const WINDOW: &str = "attention.sliding_window";

/// The sizes that determine the layout of tensors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub n_layers: u64,
    pub d_model: u64,
    pub n_heads: u64,
    pub n_kv_heads: u64,
    pub d_head: u64,
    /// How many of a head's dimensions rotate, in architectures where files state it.
    pub d_rotary: u64,
}

/// The inputs from which a file's configuration is built.
pub(super) struct Facts<'a> {
    pub metadata: &'a Metadata<'a>,
    /// Prefix of the architecture's keys: the name that the file states.
    pub prefix: &'a str,
    pub sizes: Sizes,
    /// Tensors under Hugging Face's names.
    pub tensors: &'a Tensors,
}

impl Facts<'_> {
    pub(super) fn key(&self, tail: &str) -> String {
        format!("{}.{tail}", self.prefix)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains(name)
    }

    /// Whether the name of any tensor ends in `ending`.
    pub(super) fn has_any(&self, ending: &str) -> bool {
        self.tensors.iter().any(|(name, _)| name.ends_with(ending))
    }

    pub(super) fn number(&self, tail: &str) -> Result<Option<f64>> {
        self.metadata.number(&self.key(tail))
    }

    pub(super) fn whole(&self, tail: &str) -> Result<Option<u64>> {
        self.metadata.whole(&self.key(tail))
    }

    /// Returns whole numbers by layer; `None` if the key is missing or its value is no list.
    pub(super) fn wholes(&self, tail: &str) -> Result<Option<Vec<u64>>> {
        match self.metadata.get(&self.key(tail)) {
            Some(Stored::List(_)) => self.metadata.wholes(&self.key(tail)).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns a size that must be present.
    pub(super) fn size(&self, tail: &str) -> Result<u64> {
        self.metadata.size(&self.key(tail), LARGEST)
    }

    pub(super) fn flag(&self, tail: &str) -> Result<Option<bool>> {
        self.metadata.flag(&self.key(tail))
    }

    /// Returns the width of the sliding window; a stated 0 means no window.
    pub(super) fn window(&self) -> Result<Option<u64>> {
        Ok(self.whole(WINDOW)?.filter(|window| *window > 0))
    }

    /// Returns the length of a tensor's first axis.
    pub(super) fn rows(&self, name: &str) -> Option<u64> {
        let info = self.tensors.info(name)?;
        info.shape.first().map(|n| *n as u64)
    }

    pub(super) fn refuse<T>(&self, tail: &str, problem: String) -> Result<T> {
        Err(Error::config(self.metadata.path, self.key(tail), problem))
    }
}

/// Sets a key of the configuration.
pub(super) fn set(config: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    config.insert(name.to_owned(), value.into());
}
