//! Norms, feed-forward layers and blocks; runs a model layer by layer. A quirk is a field of a spec or it does not exist.

mod as_read;
mod block_weights;
mod context;
mod copies;
mod curve;
mod decoder_start;
mod deviation;
mod difference;
mod embed;
mod embed_spec;
mod emit;
mod exception;
mod experts;
mod feed_forward;
mod forward;
mod global_tokens;
mod grouped;
mod head_order;
mod heads;
mod hook;
mod known;
mod labels;
mod layer;
pub mod mixer;
mod mixing;
mod narrow;
mod needed;
mod on_host;
mod past;
mod patches;
mod probed;
mod projected;
pub mod recurrent;
mod route;
mod rows;
mod shared_keys;
mod shown_heads;
mod source;
mod sparsity;
mod spec;
mod stem;
mod streams;
mod timing;
mod token_branch;
mod unembed;
mod value_norms;
mod weights;

pub use crate::place::Stack;
pub use as_read::{Segment, run_layer_as_read};
pub use block_weights::BlockWeights;
pub use context::{BlockContext, Memory, Scratch};
pub use deviation::{Cut, Deviation, Dropped, Turned};
pub use difference::{Difference, DifferenceSource};
pub use embed::{EmbedPart, Input, Sequence, embed, embedding_parts};
pub use embed_spec::{DroppedToken, EmbedSpec, PositionTable, Sines};
pub use exception::{Ablation, Exceptions, Variant};
pub use feed_forward::{
    ApartNorms, ChoiceBias, ExpertGroups, ExpertsSpec, FeedForward, GateRule, LearnedActivation,
    MlpSpec, RouterRule, RouterScores,
};
pub use forward::AttentionRun;
pub use global_tokens::GlobalMaps;
pub use hook::{Hook, Hooks, NoHooks};
pub use known::KnownRows;
pub use labels::{LabelKind, Labels, Pooled};
pub use layer::{LayerRun, LayerWeights, run_layer};
pub use mixer::TokenMixer;
pub use narrow::NarrowBranch;
pub use needed::NeededTensor;
pub use on_host::{linear_on_host, linear_rows_on_host, norm_on_host, relative_on_host};
pub use past::{BlockPast, HeldBytes, Recomputed};
pub use patches::{GridPositions, LearnedTokens, PatchSpec, Resampling};
pub use probed::ProbeSpec;
pub use rows::{BlockRow, KeySharing, RowSpec};
pub use shown_heads::{AttendedHeads, attend_heads};
pub use source::{LinearSource, MapScale, NormSource, Part, Slab, TableSource};
pub use spec::{
    BlockSpec, CrossSpec, DecoderStart, Forced, HeadSpec, LatentSpec, Layers, Mixer, ModelSpec,
    ProjectionSpec, ReadsAgain, RelativeSource, SelfSpec, StackSpec, TransformSpec,
};
pub use stem::{SoundStem, StemConvolution};
pub use streams::{StreamMaps, StreamsSpec};
pub use timing::Timing;
pub use token_branch::TokenBranch;
pub use unembed::{
    Unembedding, final_hidden, logits_in_chunks, pool_hidden, unembedding_for_few_rows,
};

use std::sync::Arc;

use crate::checkpoint::Checkpoint;

/// An open checkpoint and how it is to be read.
#[derive(Debug, Clone)]
pub struct Model {
    pub checkpoint: Arc<Checkpoint>,
    pub spec: ModelSpec,
}

impl Model {
    /// The weights under another spec.
    pub fn with_spec(&self, spec: ModelSpec) -> Self {
        Self {
            checkpoint: self.checkpoint.clone(),
            spec,
        }
    }
}
