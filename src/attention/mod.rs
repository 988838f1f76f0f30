//! The mathematics of one attention: what is scored, what is visible, how it is normalised, and what one pass over a row block tells.

mod bias;
mod block;
mod mask;
mod pooled;
mod rope;
mod row;
mod spec;
mod summary;

pub use bias::{Alibi, Buckets};
pub use block::{BlockSink, HeadInput, HeadRun, Run, run_head};
pub use mask::Visibility;
pub use pooled::{POOLED_CELLS, Pooled};
pub use rope::{RopeScaling, RopeSpec, RopeTable};
pub use row::{HeadMath, finish_row};
pub use spec::{AttentionSpec, Bias, Mask, NoVisible, Scale, SoftmaxAxis, Window};
pub use summary::{HeadSummary, RowSummary};
