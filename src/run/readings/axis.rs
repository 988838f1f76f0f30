//! The axis over which scores were normalised.
//!
//! - **queries**: `softmax(dim=-2)`. Columns sum to 1, and each weight depends on scores of later queries.
//! - **keys**: where the configuration declares queries or heads.
//! - **heads**: `softmax(dim=1)` of [batch, head, query, key]. With a finite mask value all heads share what is hidden, so that
//!   each gives 1/n_heads to every later key; with −inf and NaN replaced by 0 they give nothing.

use attnscope_compute::attention::{AttentionOverride, SoftmaxAxis, SoftmaxOverride};
use attnscope_spec::BlockSpec;

use super::{Family, IsLocal, Known, Reading};

pub(super) const FAMILY: Family = Family {
    id: "axis",
    source: include_str!("axis.rs"),
    readings,
};

fn readings(known: &Known<'_>) -> Vec<Reading> {
    let reading = |name: &str, advice: &str, softmax: SoftmaxOverride| {
        let odd = AttentionOverride {
            softmax: Some(softmax),
            ..AttentionOverride::NONE
        };
        Reading::new(FAMILY.id, name, advice)
            .odd(odd)
            .local(IsLocal::InLayers)
    };
    let declared = known.blocks().find_map(BlockSpec::attention);
    let Some(declared) = declared else {
        return Vec::new();
    };
    let mut all = vec![match declared.softmax_axis {
        SoftmaxAxis::Keys => reading(
            "a softmax over queries",
            "--set softmax_axis=queries",
            SoftmaxOverride::OverQueries,
        ),
        SoftmaxAxis::Queries | SoftmaxAxis::Heads => reading(
            "a softmax over keys",
            "--set softmax_axis=keys",
            SoftmaxOverride::OverKeys,
        ),
    }];
    if declared.n_heads > 1 && declared.softmax_axis != SoftmaxAxis::Heads {
        let over = |leaks| SoftmaxOverride::OverHeads { leaks };
        let name = "a softmax over heads";
        all.push(reading(name, "", over(true)));
        all.push(reading(
            &format!("{name} (hidden keys set to zero)"),
            "--set softmax_axis=heads",
            over(false),
        ));
    }
    all
}
