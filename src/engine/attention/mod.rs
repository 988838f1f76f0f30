//! The mathematics of one attention: what is scored, what is visible, how it is normalised, and what one pass over a row block tells.

mod audit;
mod bias;
mod block;
mod fast_row;
mod log_sums;
mod mask;
mod part;
mod pooled;
mod repeats;
mod rope;
mod row;
mod row_bias;
mod samples;
mod scale;
mod spec;
mod stream;
mod strip;
mod summary;
mod tally;

pub use audit::{Audit, Forbidden, Mismatch};
pub use bias::{Alibi, Buckets};
pub use block::{BlockSink, HeadInput, HeadRun, Run, run_head};
pub use log_sums::LogSumsOverQueries;
pub use mask::Visibility;
pub use part::{HeadPart, HeadRows};
pub use pooled::{POOLED_CELLS, Pooled};
pub use repeats::Repeats;
pub use rope::{RopeScaling, RopeSpec, RopeTable};
pub use row::{HeadMath, finish_row, row_scale, summarise_pattern};
pub use samples::{Sampled, sampled_queries};
pub use scale::{KeyDivisor, OfKeys, Scale};
pub use spec::{AttentionSpec, Bias, Mask, NoVisible, SoftmaxAxis, Window};
pub use stream::stream_heads;
pub use summary::{HeadSummary, RowSummary};
pub use tally::Tally;
