//! The mathematics of one attention: what is scored, what is visible, how it is normalised, and what one pass over a row block tells.

mod audit;
mod bias;
mod block;
mod fast_row;
mod mask;
mod part;
mod pooled;
mod repeats;
mod rope;
mod row;
mod row_bias;
mod samples;
mod spec;
mod stream;
mod strip;
mod summary;

pub use audit::{Audit, Forbidden, Mismatch};
pub use bias::{Alibi, Buckets};
pub use block::{BlockSink, HeadInput, HeadRun, Run, run_head};
pub use mask::Visibility;
pub use part::{HeadPart, HeadRows};
pub use pooled::{POOLED_CELLS, Pooled};
pub use repeats::Repeats;
pub use rope::{RopeScaling, RopeSpec, RopeTable};
pub use row::{HeadMath, finish_row, summarise_pattern};
pub use samples::{Sampled, sampled_queries};
pub use spec::{AttentionSpec, Bias, Mask, NoVisible, Scale, SoftmaxAxis, Window};
pub use stream::stream_heads;
pub use summary::{HeadSummary, RowSummary};
