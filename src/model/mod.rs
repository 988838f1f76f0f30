//! Norms, feed-forward layers and blocks; runs a model layer by layer. A quirk is a field of a spec or it does not exist.

mod embed;
mod forward;
mod hook;
mod spec;
mod unembed;
mod weights;

pub use embed::{Sequence, embed};
pub use forward::{BlockRun, Scratch, attend_heads, run_block};
pub use hook::{Hook, Hooks, NoHooks, Stack};
pub use spec::{
    BlockSpec, EmbedSpec, HeadSpec, LinearSource, MlpSpec, ModelSpec, NormSource, Part, StackSpec,
    TableSource,
};
pub use unembed::{final_hidden, logits_in_chunks};
pub use weights::BlockWeights;

use crate::checkpoint::Checkpoint;

/// An open checkpoint and how it is to be read.
#[derive(Debug)]
pub struct Model {
    pub checkpoint: Checkpoint,
    pub spec: ModelSpec,
}
