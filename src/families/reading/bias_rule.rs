//! Rules for whether a map has a bias.

use attnscope_checkpoint::Reader;
use attnscope_compute::error::Result;

/// Whether a map has a bias, as its family defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BiasRule {
    Never,
    Always,
    /// A key of the configuration decides, with this default.
    Key(&'static str, bool),
}

impl BiasRule {
    pub(super) fn read(self, reader: &mut Reader<'_>, knob: &'static str) -> Result<bool> {
        match self {
            Self::Never => Ok(false),
            Self::Always => Ok(true),
            Self::Key(key, default) => reader.flag_or(knob, key, default),
        }
    }
}
