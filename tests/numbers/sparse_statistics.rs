//! Statistics of sparse attention, computed again in f64 by their definitions, and why its recall is absent elsewhere.

use attnscope_checks::stats::Stat;

use super::statistics::{compare, compare_with};
use super::whole_run::Whole;

#[test]
fn statistics_of_sparse_attention_are_what_they_say() {
    let left = (0..40).map(|i| i >= 9).collect();
    for whole in [
        compare("deepseek_v32_b", 30, None),
        compare("deepseek_v32_b", 40, Some(left)),
        compare_with("deepseek_v32_b", Some("top_k_keys=2"), 30, None),
        compare_with("llama", Some("top_k_keys=3"), 70, None),
    ] {
        for head in whole.layers.iter().flat_map(|layer| &layer.heads) {
            let recall = head.stats.of(Stat::TopKRecall);
            assert!((0.01..0.999).contains(&recall), "{recall}");
        }
    }
    let full = compare_with("deepseek_v32_b", Some("top_k_keys=all"), 30, None);
    let recall = Stat::TopKRecall.idx();
    for layer in &full.layers {
        assert_eq!(layer.stats.measured(recall), None);
        let why = layer.why_undefined(recall, Some(0));
        assert_eq!(why, Some("attention sees all visible keys"));
    }
    // No query sees more than five keys.
    let short = Whole::run("deepseek_v32_b", None, 5, None);
    let why = short.layers[0].why_undefined(recall, Some(0));
    assert_eq!(why, Some("no query sees more keys than it keeps"));
}
