//! LoRA adapters: what PEFT saves beside a model, put on the tensors of its base.

mod apply;
mod config;
mod files;
mod places;

pub use apply::apply;
pub use config::{AdapterConfig, CONFIG};
pub use files::{directory_at, is_weights};
