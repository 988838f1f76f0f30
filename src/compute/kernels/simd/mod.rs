//! Vectorised arithmetic: one source, compiled for each level of a processor's instructions and chosen at run time.

mod activations;
mod apart;
mod columns;
mod lanes;
mod level;
mod math;
mod norms;
mod packed;
mod pairs;
mod panels;
mod plain_softmax;
mod scores;
mod softmax;
mod weighed;

pub use activations::activate_values;
pub use apart::{divergence, weighted_gap};
pub use columns::{ColumnLogSums, add_columns};
pub(super) use lanes::Lanes;
pub(super) use level::Kernel;
pub use level::Level;
pub use norms::row_norms;
pub use packed::{Keys, Queries, VALUE_BLOCK, Values};
pub use pairs::{PairSums, add_pair_columns, pair_sums};
pub(super) use panels::add_products;
pub use panels::{scores_of, weigh};
pub use plain_softmax::softmax_assign;
pub use scores::{RowKnobs, ScoreSums, score_row};
pub use softmax::{ExpSum, PatternSums, exp_row, exp_sum, row_by_log_sums};
pub use weighed::{KeyNorms, LEAST_SHARED, WeighedSums, contribution_sums, unit_of};
