//! Knobs of what inference engines change: the KV cache, the keys of a row, and the format of weights. Only what-ifs set them.

use attnscope_compute::attention::AttentionSpec;
use attnscope_spec::{EmbedSpec, ProjectionSpec};

/// Where these knobs are looked at.
pub(super) trait ServingKnobs {
    /// Knobs that are set, with their values.
    fn serving_knobs(&self) -> Vec<(&'static str, String)>;
}

fn set<const N: usize>(knobs: [(&'static str, Option<String>); N]) -> Vec<(&'static str, String)> {
    let knobs = knobs.into_iter();
    knobs
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

impl ServingKnobs for AttentionSpec {
    fn serving_knobs(&self) -> Vec<(&'static str, String)> {
        set([
            ("kv", self.cache.map(|format| format.to_string())),
            (
                "kv_window",
                self.mask.streaming.map(|kept| kept.to_string()),
            ),
            ("top_k_keys", self.top_keys.map(|k| k.to_string())),
        ])
    }
}

impl ServingKnobs for ProjectionSpec {
    fn serving_knobs(&self) -> Vec<(&'static str, String)> {
        set([("weights", self.q.rounded.map(|format| format.to_string()))])
    }
}

impl ServingKnobs for EmbedSpec {
    fn serving_knobs(&self) -> Vec<(&'static str, String)> {
        set([("weights", self.rounded.map(|format| format.to_string()))])
    }
}
