//! Parts left out.
//!
//! - **no attention**, **no feed-forward layer**: the branch adds nothing to the residual.
//!
//! No model was trained so. A trained model that is better without a part has that part wrong; and a reading of the part that gains
//! no more than silence does explains nothing.

use attnscope_checks::SILENCE;
use attnscope_spec::FeedForward;

use super::{Family, IsLocal, Known, Reading};

pub(super) const FAMILY: Family = Family {
    id: SILENCE,
    source: include_str!("silence.rs"),
    readings,
};

fn readings(known: &Known<'_>) -> Vec<Reading> {
    let has_mlp = known
        .blocks()
        .any(|block| !matches!(block.feed_forward, FeedForward::None));
    let mut parts = vec![("no attention", 0)];
    parts.extend(has_mlp.then_some(("no feed-forward layer", 1)));
    let with = |(name, branch): (&str, usize)| {
        let spec = known.with_blocks(|block| block.branch_scales[branch] = 0.0)?;
        let reading = Reading::new(FAMILY.id, name, "").with_attention(spec);
        Some(reading.local(IsLocal::InLayers))
    };
    parts.into_iter().filter_map(with).collect()
}
