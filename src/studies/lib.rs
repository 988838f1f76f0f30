//! Studies of a model: effects of its parts, heads over many prompts, identification of unknown weights,
//! translation quality, and seeded simulations.
//!
//! The studies do not depend on each other. All of them run models through `attnscope-run`.

pub mod effect;
pub mod guess;
pub mod lab;
pub mod over_prompts;
pub mod quality;
