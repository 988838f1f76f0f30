//! Architectures of GGUF that a table reads: each file holds a model of the oracle, and gives what its reference has.

use attnscope_checkpoint::Checkpoint;
use attnscope_compute::ops::Cpu;
use testing::gguf_kinds::FILES;
use testing::oracle_case::{compare, compare_without_head};

#[test]
fn every_kind_gives_what_its_model_gives() {
    let fixtures = testing::root().join("fixtures");
    let mut furthest = [0.0; 2];
    let told: Vec<String> = FILES
        .iter()
        .filter_map(|known| {
            let path = fixtures.join(format!("formats/gguf_kinds/{}.gguf", known.file));
            let case = fixtures.join("oracle").join(known.case);
            let told = match Checkpoint::open(&path).and_then(attnscope_families::read) {
                Ok(model) if known.lacks_head => {
                    compare_without_head(&Cpu, &model, &case, &mut furthest).err()?
                }
                Ok(model) => compare(&Cpu, &model, &case, &mut furthest).err()?,
                Err(refused) => refused.to_string(),
            };
            Some(format!("{}: {told}", known.file))
        })
        .collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
}

#[test]
fn the_families_of_hybrids_know_every_key_that_their_files_give_them() {
    let fixtures = testing::root().join("fixtures/formats/gguf_kinds");
    for name in [
        "bamba",
        "falcon-h1",
        "gemma4",
        "granitehybrid",
        "jamba",
        "llama4",
        "nemotron_h_moe",
        "qwen3next",
    ] {
        let path = fixtures.join(format!("{name}.gguf"));
        let model = Checkpoint::open(&path)
            .and_then(attnscope_families::read)
            .expect("opens");
        assert_eq!(model.spec.unread_keys, [""; 0], "{name}");
        assert_eq!(
            model.checkpoint.config.get("num_hidden_layers").is_none(),
            name.starts_with("nemotron")
        );
    }
}

#[test]
fn every_file_names_the_architecture_it_stands_for() {
    let fixtures = testing::root().join("fixtures/formats/gguf_kinds");
    assert!(FILES.is_sorted_by_key(|known| known.file));
    for known in FILES {
        let bytes =
            std::fs::read(fixtures.join(format!("{}.gguf", known.file))).expect("a fixture");
        let key = b"general.architecture";
        let at = bytes.windows(key.len()).position(|part| part == key);
        // The key, its type of four bytes, the length of the text in eight.
        let start = at.expect("the key") + key.len() + 12;
        let found = &bytes[start..start + known.architecture.len()];
        assert_eq!(found, known.architecture.as_bytes(), "{}", known.file);
    }
}
