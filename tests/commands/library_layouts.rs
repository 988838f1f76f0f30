//! Checkpoints of training libraries without a Hugging Face configuration: opened by their tensor names, they lose what their library loses.

use serde_json::Value;
use testing::checkpoint_copy::attnscope;

/// A file, and what names and shapes leave open in it.
pub const CASES: [(&str, &str, &[&str]); 26] = [
    ("litgpt_llama", "lit_model.pth", &[]),
    ("litgpt_neox", "lit_model.pth", &[]),
    ("litgpt_phi", "lit_model.pth", &[]),
    ("litgpt_olmo", "lit_model.pth", &[]),
    (
        "torchtune",
        "meta_model_0.pt",
        &["n_heads=2", "rope_theta=10000", "norm_eps=1e-5"],
    ),
    ("lens_learned", "model.pt", &["activation=gelu_new"]),
    ("lens_folded", "model.pt", &["activation=gelu"]),
    (
        "x_transformers_decoder",
        "model.pt",
        &[
            "n_heads=2",
            "norm_adds_one=true",
            "mask=causal",
            "activation=gelu",
        ],
    ),
    (
        "x_transformers_rotary",
        "model.pt",
        &[
            "n_heads=2",
            "norm_adds_one=true",
            "mask=causal",
            "activation=silu",
            "rope_interleaved=true",
        ],
    ),
    (
        "x_transformers_sandwich",
        "model.pt",
        &[
            "n_heads=2",
            "norm_adds_one=false",
            "mask=causal",
            "activation=gelu",
        ],
    ),
    ("olmo_core_reordered", "model.pt", &[]),
    ("olmo_core_llama", "", &[]),
    ("megatron_grouped", "", &[]),
    ("megatron_learned", "", &[]),
    (
        "megatron_normed",
        "iter_0000010/mp_rank_00/model_optim_rng.pt",
        &[],
    ),
    ("llama2c_legacy", "model.bin", &[]),
    ("llama2c_floats", "", &[]),
    ("llama2c_quantised", "model.bin", &[]),
    ("llama2c_checkpoint", "ckpt.pt", &[]),
    ("flax_gpt2", "", &[]),
    ("flax_gpt2", "flax_model.msgpack", &[]),
    ("flax_t5", "", &[]),
    ("fairseq_lm", "", &[]),
    ("fairseq_lm_gpt", "checkpoint_best.pt", &[]),
    ("fairseq_translator", "", &[]),
    ("fairseq_translator_before", "", &[]),
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
    let of_words = ids.iter().map(|id| id.parse().expect("an id"));
    let of_words: Vec<String> = of_words.map(|id: u32| (id % 44 + 4).to_string()).collect();
    for (name, file, set) in CASES {
        // fairseq's first four ids are its own.
        let ids = if name.starts_with("fairseq") {
            of_words.join(",")
        } else {
            ids.join(",")
        };
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
        // A decoder reads the start token, then the ids but for the last.
        let start = match name {
            "flax_t5" => Some(0),
            _ if name.starts_with("fairseq_translator") => Some(2),
            _ => None,
        };
        let target = format!(
            "{},{}",
            start.unwrap_or(0),
            ids.rsplit_once(',').expect("ids").0
        );
        if start.is_some() {
            args.extend(["--target-tokens", &target]);
        }
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
