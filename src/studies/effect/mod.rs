//! Effects of a model's parts, beyond where they attend: ablation, patching, attribution, lens, rollout, contribution,
//! circuits, retrieval, sensitivity.

mod ablation;
mod attribution;
mod attribution_tap;
mod block_ends;
mod capture;
mod circuits;
mod contribution;
mod eigen;
mod estimate;
mod feeds;
mod fold;
mod frozen;
mod hidden;
mod judged;
mod lens;
mod logit_rows;
mod maps;
mod patching;
mod predicted;
mod retrieval;
mod rollout;
mod sensitivity;
mod shares;
mod together;
mod variant;
mod walk;
mod watched;

pub use ablation::{Ablation, PartEffect, Replaced, Step};
pub use attribution::{attribute, check_linear};
pub use capture::{Base, Rows, sequence_of};
pub use circuits::{Circuit, Circuits, Composition, Into, Ranks, circuits};
pub use contribution::{Contribution, contributions};
pub use estimate::Estimate;
pub use feeds::key_feeds;
pub use judged::{Asked, asked_logits, head_of};
pub use lens::{LensRow, lens};
pub use patching::{NO_RESIDUAL, Pair, Patched, Patching, PatchingStep};
pub use predicted::Predicted;
pub use retrieval::{Retrieval, RetrievalHead, retrieval};
pub use rollout::{Rollout, rollout, rollout_recorded};
pub use sensitivity::{PlaceEffect, Sensitivity};
pub use shares::{Attribution, Share, ShareOf};
pub use together::bytes_of_copies;
pub use variant::{Part, n_parts};
