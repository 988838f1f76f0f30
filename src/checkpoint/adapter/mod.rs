//! LoRA adapters as PEFT saves them, applied to the tensors of their base model.

mod apply;
mod config;
mod files;
mod places;

pub use apply::apply;
pub use config::{AdapterConfig, CONFIG};
pub use files::{directory_at, is_weights};
