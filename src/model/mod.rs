//! Norms, feed-forward layers and blocks; runs a model layer by layer. A quirk is a field of a spec or it does not exist.

mod context;
mod embed;
mod experts;
mod forward;
mod hook;
mod needed;
mod route;
mod source;
mod spec;
mod unembed;
mod weights;

pub use context::{BlockContext, Memory, Scratch};
pub use embed::{Input, Sequence, embed};
pub use forward::{AttentionRun, BlockRun, attend_heads, run_block};
pub use hook::{Hook, Hooks, NoHooks, Stack};
pub use needed::NeededTensor;
pub use source::{LinearSource, NormSource, Part, Slab, TableSource};
pub use spec::{
    BlockSpec, CrossSpec, DecoderStart, EmbedSpec, ExpertsSpec, FeedForward, GateRule, HeadSpec,
    LatentSpec, MlpSpec, ModelSpec, PositionTable, ProjectionSpec, RouterRule, RouterScores, Sines,
    StackSpec, TransformSpec,
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
