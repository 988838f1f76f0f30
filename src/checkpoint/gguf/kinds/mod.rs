//! Kinds of models whose metadata become Hugging Face's keys by a table: which key is which, and what holds without one.

mod hybrids;
mod kind;
mod list;
mod plain;
mod renames;

pub(super) use self::kind::Kind;
