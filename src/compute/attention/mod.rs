//! The mathematics of one attention: scores, visibility, normalisation, and the statistics of one pass over its row blocks.

mod attention_override;
mod audit;
mod bias;
mod block;
mod carried;
mod comparison;
mod fast_row;
mod global_keys;
mod globals;
mod head;
mod head_bias;
mod kv_format;
mod kv_head;
mod log_sums;
mod mask;
mod normaliser;
mod part;
mod picked_keys;
mod plan;
mod pooled;
mod relative_tables;
mod repeats;
mod rope;
mod row;
mod row_bias;
mod run;
mod samples;
mod scale;
mod score_scale;
mod scored_row;
mod shape;
mod spec;
mod stream;
mod strip;
mod summary;
mod support;
mod tally;
mod top_keys;
mod window;

pub use attention_override::{
    AttentionOverride, MaskOverride, SoftmaxOverride, attend_with_override, only_change,
};
pub use audit::{Audit, AuditReference, Forbidden, LayerAudit, RecordedCall};
pub use bias::{Alibi, Buckets, GridDistances, Relative};
pub use block::{HeadRun, run_head};
pub use comparison::Mismatch;
pub use global_keys::GlobalKeys;
pub use globals::Globals;
pub use head::HeadInput;
pub use head_bias::HeadBias;
pub use kv_format::KvFormat;
pub use kv_head::KeptKeys;
pub use log_sums::LogSumsOverQueries;
pub use mask::Visibility;
pub use normaliser::{Explained, Fault, Normaliser, Vectors};
pub use part::{HeadPart, HeadRows};
pub use picked_keys::{IndexInput, PickedKeys};
pub use pooled::{POOLED_CELLS, Pooled};
pub use relative_tables::RelativeTables;
pub use repeats::Repeats;
pub use rope::{
    GridFrequencies, GridPlaces, GridTurn, RopeDirection, RopeScaling, RopeSpec, RopeTable,
};
pub use row::{HeadMath, finish_row, row_scale, summarise_pattern};
pub use run::{BlockSink, Run};
pub use samples::{N_SAMPLED, Sampled, sampled_queries};
pub use scale::{KeyDivisor, OfKeys, Scale};
pub use score_scale::{Norms, ScaledHead, ScoreScale};
pub use shape::{Direction, Shape};
pub use spec::{AttentionSpec, Bias, Growth, Mask, NoVisible, SoftmaxAxis};
pub use stream::stream_heads;
pub use summary::{HeadSummary, RowSummary};
pub use support::Support;
pub use tally::Tally;
pub use top_keys::{GridWindow, KeyBlocks, KeyRank, TopKeys};
pub use window::{Streaming, Window};
