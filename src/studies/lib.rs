//! Studies of a model: what its parts do, what unknown weights are, how well it translates, and simulations without a model.
//!
//! The studies do not know each other. Each of them runs models through `attnscope-run`.

pub mod effect;
pub mod guess;
pub mod lab;
pub mod quality;
