//! Checkpoints of libraries that read both ways: logits of the last position against what each library computes.

use attnscope_checkpoint::Opening;
use attnscope_compute::ops::Cpu;
use attnscope_prompt::Request;
use testing::hooks::hooks_of;

/// Largest difference of a logit.
const LOGIT_TOLERANCE: f32 = 1e-3;

#[test]
fn layouts_that_read_both_ways_compute_what_their_libraries_compute() {
    let root = testing::root().join("fixtures/formats/layouts");
    let expected = std::fs::read(root.join("expected.json")).expect("a reference");
    let expected: serde_json::Value = serde_json::from_slice(&expected).expect("JSON");
    let ids = expected["ids"].as_array().expect("ids");
    let ids: Vec<u32> = ids
        .iter()
        .map(|id| id.as_u64().expect("an id") as u32)
        .collect();
    let alibi = [
        "n_heads=2",
        "mask=bidirectional",
        "activation=relu2",
        "positions=alibi",
        "logit_scale=0.25",
    ];
    for (name, set) in [("x_transformers_alibi", &alibi[..]), ("flax_bert", &[])] {
        let pairs = set.iter().map(|set| set.split_once('=').expect("a pair"));
        let opening = Opening {
            set: pairs
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            ..Opening::from(Some(root.join(name)))
        };
        let model = opening.open().and_then(attnscope_families::read);
        let model = model.unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut hooks = hooks_of(&Cpu, &model, &Request::ids(ids.clone()));
        let logits = hooks.remove("logits").expect("logits");
        let row = expected["logits"][name].as_array().expect("a row");
        let row: Vec<f32> = row
            .iter()
            .map(|v| v.as_f64().expect("a number") as f32)
            .collect();
        let found = &logits[logits.len() - row.len()..];
        let gaps = found.iter().zip(&row).map(|(a, b)| (a - b).abs());
        // A difference that is NaN is not a small one.
        let gap = gaps.fold(0.0, |most, gap| if gap <= most { most } else { gap });
        assert!(gap <= LOGIT_TOLERANCE, "{name}: logits differ by {gap}");
    }
}
