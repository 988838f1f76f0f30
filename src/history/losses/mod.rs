//! Losses that a training logged itself, read from the files that its loggers left beside the checkpoints.

mod checksum;
mod curve;
mod events;
mod framed;
mod names;
mod places;
mod protobuf;
mod reader;
mod trainer_state;
mod wandb;

pub use curve::{Curve, Losses};
pub use reader::{LossNews, LossReader};
