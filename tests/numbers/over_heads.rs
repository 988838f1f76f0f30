//! A softmax over heads: what sums to 1, and that a setting and a what-if mean the same.

use attnscope_compute::attention::{AttentionSpec, SoftmaxAxis};
use attnscope_spec::BlockSpec;
use testing::head_reference::compare::{compare, paths, run};
use testing::head_reference::made::filled;
use testing::judged::fixture;
use testing::opening::opened;

#[test]
fn the_weights_of_a_pair_sum_to_one_over_heads() {
    let spec = AttentionSpec {
        softmax_axis: SoftmaxAxis::Heads,
        ..AttentionSpec::plain(6, 3, 16, true)
    };
    let case = filled(spec, 300, 8, 1.5);
    compare(&case, 4);
    for path in paths() {
        let heads: Vec<_> = (0..6).map(|head_idx| run(&case, head_idx, path)).collect();
        let sums = |query_idx: usize| -> f64 {
            let masses = heads
                .iter()
                .map(|head| head.run.summary.rows[query_idx].mass);
            masses.map(f64::from).sum()
        };
        // A query sees as many keys as lie up to its own place.
        for query_idx in [0, 1, 63, 299] {
            let expected = (query_idx + 1) as f64;
            assert!((sums(query_idx) / expected - 1.0).abs() < 1e-5, "{path:?}");
        }
    }
}

#[test]
fn a_setting_and_a_what_if_mean_the_same() {
    let gpt2 = fixture("oracle/gpt2/model");
    let set = opened(&gpt2, &["softmax_axis=heads"]).spec;
    let what_if = "softmax_axis=heads".parse().expect("well-formed");
    let changed = attnscope_run::with_what_ifs(&opened(&gpt2, &[]).spec, &[what_if]);
    let changed = changed.expect("possible");
    let axes = |spec: &attnscope_spec::ModelSpec| -> Vec<SoftmaxAxis> {
        let blocks = spec.stacks[0].blocks().iter();
        blocks
            .filter_map(BlockSpec::attention)
            .map(|own| own.softmax_axis)
            .collect()
    };
    assert!(axes(&set).len() > 1);
    assert_eq!(axes(&set), vec![SoftmaxAxis::Heads; axes(&set).len()]);
    assert_eq!(axes(&changed), axes(&set));
}
