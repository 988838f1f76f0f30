//! The terminal: its input (keys, clicks, pastes, answers), acquiring and restoring it, and its colours.
//!
//! This crate is independent of what is shown.

pub mod ground;
pub mod guard;
pub mod input;
pub mod theme;
