//! A live subject: another process holds a model, and answers over a channel what its attention does.
//!
//! `docs/live.md` is the reference of the channel. This side knows no framework and no model: what comes back is a trace or a
//! probe as a file, which is read as any other.

mod about;
mod channel;
mod code;
mod frame;
mod process;
mod session;
mod target;

pub use about::{About, Lacks};
pub use code::Code;
pub use session::{Done, LiveSession, Request};
pub use target::LiveTarget;

#[cfg(test)]
mod tests;
