//! The inputs from which a file's configuration is built.

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value};

use super::metadata::Metadata;
use crate::tensors::Tensors;

/// The sizes that determine the layout of tensors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub n_layers: u64,
    pub d_model: u64,
    pub n_heads: u64,
    pub n_kv_heads: u64,
    pub d_head: u64,
}

/// The inputs from which a file's configuration is built.
pub(super) struct Facts<'a> {
    pub metadata: &'a Metadata<'a>,
    /// Prefix of the architecture's keys.
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

    pub(super) fn number(&self, tail: &str) -> Result<Option<f64>> {
        self.metadata.number(&self.key(tail))
    }

    pub(super) fn whole(&self, tail: &str) -> Result<Option<u64>> {
        self.metadata.whole(&self.key(tail))
    }

    pub(super) fn flag(&self, tail: &str) -> Result<Option<bool>> {
        self.metadata.flag(&self.key(tail))
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
pub(super) fn set(config: &mut Map<String, Value>, name: &str, value: Value) {
    config.insert(name.to_owned(), value);
}
