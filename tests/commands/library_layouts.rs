//! Checkpoints of training libraries without a Hugging Face configuration: opened by their tensor names, they lose what their library loses.

use serde_json::Value;
use testing::checkpoint_copy::attnscope;

/// A file, and what names and shapes leave open in it.
const CASES: [(&str, &str, &[&str]); 6] = [
    ("litgpt_llama", "lit_model.pth", &[]),
    ("litgpt_neox", "lit_model.pth", &[]),
    ("litgpt_phi", "lit_model.pth", &[]),
    (
        "torchtune",
        "meta_model_0.pt",
        &["n_heads=2", "rope_theta=10000", "norm_eps=1e-5"],
    ),
    ("lens_learned", "model.pt", &["activation=gelu_new"]),
    ("lens_folded", "model.pt", &["activation=gelu"]),
];

#[test]
fn checkpoints_of_libraries_lose_what_their_libraries_lose() {
    let root = testing::root().join("fixtures/formats/layouts");
    let expected = std::fs::read_to_string(root.join("expected.json")).expect("losses");
    let expected: Value = serde_json::from_str(&expected).expect("losses");
    let ids: Vec<String> = expected["ids"]
        .as_array()
        .expect("ids")
        .iter()
        .map(Value::to_string)
        .collect();
    let ids = ids.join(",");
    for (name, file, set) in CASES {
        let path = root.join(name).join(file).display().to_string();
        let mut args = vec!["report", &path, "--tokens", &ids, "--format", "json"];
        // What is missing is asked for by name.
        if let Some(missing) = set.last() {
            let refused = attnscope(&args);
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            let key = set
                .first()
                .and_then(|set| set.split('=').next())
                .unwrap_or(missing);
            assert!(
                refused.status.code() == Some(2) && said.contains(key),
                "{name}: {said}"
            );
        }
        set.iter().for_each(|set| args.extend(["--set", set]));
        let made = attnscope(&args);
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(made.status.success(), "{name}: {said}");
        assert!(!said.contains("never read"), "{name}: {said}");
        let report: Value = serde_json::from_slice(&made.stdout).expect("JSON");
        let loss = report["prompts"][0]["loss"].as_f64().expect("a loss");
        let expected = expected["losses"][name].as_f64().expect("a loss");
        assert!(
            (loss - expected).abs() < 1e-3,
            "{name}: {loss}, expected {expected}"
        );
    }
}
