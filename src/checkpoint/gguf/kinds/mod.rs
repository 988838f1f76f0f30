//! Kinds of models whose metadata are converted to Hugging Face's keys by tables of keys and defaults.

mod hybrids;
mod kind;
mod list;
mod plain;
mod renames;

pub(super) use self::kind::Kind;
