//! The terminal itself: what it sends (keys, clicks, pastes, answers), taking it and giving it back, and its colours.
//!
//! It knows nothing of what is shown.

pub mod ground;
pub mod guard;
pub mod input;
pub mod theme;
