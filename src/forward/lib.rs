//! Norms, feed-forward layers and blocks; runs a model layer by layer. A quirk is a field of a spec or it does not exist.

mod as_read;
mod block_weights;
mod context;
mod copies;
mod curve;
mod deviation;
mod difference;
mod embed;
mod emit;
mod experts;
mod forward;
mod global_tokens;
mod grouped;
mod head_order;
mod heads;
mod hook;
mod known;
mod layer;
pub mod mixer;
mod mixing;
mod narrow;
mod on_host;
mod past;
mod patches;
mod probed;
pub mod recurrent;
mod route;
mod rows;
mod shared_keys;
mod shown_heads;
mod sparsity;
mod stem;
mod streams;
mod token_branch;
mod unembed;
mod value_norms;
mod weights;

pub use as_read::{Segment, run_layer_as_read};
pub use block_weights::BlockWeights;
pub use context::{BlockContext, Memory, Scratch};
pub use deviation::{Cut, Deviation, Dropped, Turned};
pub use difference::{Difference, read_difference};
pub use embed::{EmbedPart, Input, Sequence, embed, embedding_parts};
pub use forward::AttentionRun;
pub use hook::{Hook, Hooks, NoHooks};
pub use known::KnownRows;
pub use layer::{LayerRun, LayerWeights, run_layer};
pub use on_host::{linear_on_host, linear_rows_on_host, norm_on_host, relative_on_host};
pub use past::{BlockPast, HeldBytes, Recomputed};
pub use shown_heads::{AttendedHeads, attend_heads};
pub use unembed::{
    Unembedding, final_hidden, logits_in_chunks, pool_hidden, unembedding_for_few_rows,
};
