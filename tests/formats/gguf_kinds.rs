//! Architectures of GGUF that a table reads: each file holds a model of the oracle, and gives what its reference has.

use attnscope_engine::checkpoint::Checkpoint;
use attnscope_engine::family;
use attnscope_engine::ops::Cpu;
use testing::oracle_case::compare;

/// A file, and the case whose model it holds.
const FILES: [(&str, &str); 24] = [
    ("arcee", "arcee"),
    ("bert", "bert_plain"),
    ("cohere2", "cohere2"),
    ("command-r", "cohere_qk"),
    ("ernie4_5", "ernie4_5"),
    ("exaone4", "exaone4"),
    ("gemma-embedding", "gemma3_both_sides"),
    ("glm4", "glm4"),
    ("gpt-oss", "gpt_oss_b"),
    ("granite", "granite"),
    ("granitemoe", "granitemoe"),
    ("hunyuan-dense", "hunyuan_v1_dense"),
    ("mistral3", "mistral_full"),
    ("nemotron", "nemotron"),
    ("olmo", "olmo"),
    ("olmo2", "olmo2_b"),
    ("olmoe", "olmoe"),
    ("phi2", "phi_plain"),
    ("qwen2moe", "qwen2_moe_plain"),
    ("qwen2vl", "qwen2_vl"),
    ("qwen3moe", "qwen3_moe"),
    ("seed_oss", "seed_oss"),
    ("smollm3", "smollm3"),
    ("stablelm", "stablelm_plain"),
];

#[test]
fn every_kind_gives_what_its_model_gives() {
    let fixtures = testing::root().join("fixtures");
    let mut furthest = [0.0; 2];
    let told: Vec<String> = FILES
        .iter()
        .filter_map(|(file, case)| {
            let path = fixtures.join(format!("formats/gguf_kinds/{file}.gguf"));
            let case = fixtures.join("oracle").join(case);
            let told = match Checkpoint::open(&path).and_then(family::read) {
                Ok(model) => compare(&Cpu, &model, &case, &mut furthest).err()?,
                Err(refused) => refused.to_string(),
            };
            Some(format!("{file}: {told}"))
        })
        .collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
}
