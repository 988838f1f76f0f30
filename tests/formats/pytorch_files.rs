//! Files that PyTorch itself wrote: every tensor, and every value beside the weights, as PyTorch says it is.

use std::path::PathBuf;

use attnscope_checkpoint::pytorch::StateDict;
use attnscope_checkpoint::{Checkpoint, Dtype};
use serde_json::{Value, json};
use testing::checkpoint_copy::Copy;

fn fixture(file: &str) -> PathBuf {
    testing::root().join("fixtures/formats/pytorch").join(file)
}

fn open(file: &str) -> attnscope_compute::error::Result<StateDict> {
    if file.ends_with(".json") {
        attnscope_checkpoint::pytorch::open_sharded(&fixture(file))
    } else {
        attnscope_checkpoint::pytorch::open_file(&fixture(file))
    }
}

#[test]
fn every_tensor_is_what_pytorch_wrote() {
    let text = std::fs::read(fixture("expected.json")).expect("reads");
    let expected: Value = serde_json::from_slice(&text).expect("JSON");
    for (file, content) in expected.as_object().expect("files") {
        let found = open(file).expect("opens");
        let tensors = content["tensors"].as_object().expect("tensors");
        let names: Vec<&str> = found.tensors.iter().map(|(name, _)| name).collect();
        let mut expected_names: Vec<&str> = tensors.keys().map(String::as_str).collect();
        expected_names.sort_unstable();
        assert_eq!(names, expected_names, "{file}");
        for (name, tensor) in tensors {
            let place = format!("{file}: {name}");
            let view = found.tensors.get(name).expect("a tensor");
            assert_eq!(
                json!(view.info.dtype.to_string()),
                tensor["dtype"],
                "{place}"
            );
            assert_eq!(json!(view.info.shape), tensor["shape"], "{place}");
            assert_eq!(
                view.info.n_bytes(),
                view.info.n_elements() * view.info.dtype.size(),
                "{place}"
            );
            let values: Vec<f32> = tensor["values"]
                .as_array()
                .expect("values")
                .iter()
                .map(|v| v.as_f64().expect("a number") as f32)
                .collect();
            assert_eq!(view.widen().expect("reads").as_ref(), values, "{place}");
            if let [n_rows, n_columns] = view.info.shape[..]
                && view.info.dtype != Dtype::Other("i64", 8)
                && n_rows > 1
            {
                let rows = view.widen_rows(1..n_rows).expect("reads");
                assert_eq!(rows.as_ref(), &values[n_columns..], "{place}");
                assert!(view.widen_rows(1..1).expect("reads").is_empty(), "{place}");
            }
        }
    }
}

#[test]
fn what_stands_beside_the_weights_is_kept() {
    let text = std::fs::read(fixture("expected.json")).expect("reads");
    let expected: Value = serde_json::from_slice(&text).expect("JSON");
    for file in ["trainer.pt", "trainer_legacy.pt", "parallel.pth", "zip.pt"] {
        let mut found = open(file).expect("opens").plain_values;
        let optimiser = found.remove("optimizer");
        assert_eq!(Value::Object(found), expected[file]["beside"], "{file}");
        if file.starts_with("trainer") {
            let optimiser = optimiser.expect("an optimiser");
            assert_eq!(optimiser["param_groups"][0]["lr"], json!(0.001), "{file}");
            let state = &optimiser["state"]["0"];
            assert_eq!(state["step"], json!(1.0), "{file}");
            assert_eq!(state["exp_avg"], json!("f32 tensor [2, 3]"), "{file}");
        }
    }
}

#[test]
fn a_whole_module_gives_its_tensors() {
    let state = open("class.pt").expect("opens");
    let names: Vec<&str> = state.tensors.iter().map(|(name, _)| name).collect();
    let expected = [
        "0.bias",
        "0.weight",
        "1.bias",
        "1.num_batches_tracked",
        "1.running_mean",
        "1.running_var",
        "1.weight",
    ];
    assert_eq!(names, expected);
}

#[test]
fn plain_pickles_of_every_protocol_say_the_same() {
    let expected = json!({
        "vocab_size": 3,
        "itos": { "0": "\n", "1": "a", "2": "ä\\" },
        "stoi": { "\n": 0, "a": 1, "ä\\": 2 },
        "merges": [["a", "b"], ["ab", "c"]],
        "numbers": [0.5, -1, 300, 70000, 1u64 << 40, -(1i64 << 40), "inf", true, null],
        "kinds": ["some"],
    });
    for protocol in 0..6 {
        let path = fixture(&format!("meta{protocol}.pkl"));
        let bytes = std::fs::read(&path).expect("reads");
        let found = attnscope_checkpoint::pytorch::plain_pickle(&bytes, &path).expect("plain");
        assert_eq!(found, expected, "protocol {protocol}");
    }
}

#[test]
fn a_directory_with_pytorch_weights_is_a_checkpoint() {
    let copy = Copy::of("gpt2");
    copy.remove("model.safetensors");
    copy.write(
        "pytorch_model.bin",
        std::fs::read(fixture("zip.pt")).expect("reads"),
    );
    let whole = Checkpoint::open(copy.path()).expect("opens");
    assert!(whole.tensors.contains("transposed"));

    copy.remove("pytorch_model.bin");
    let index = "pytorch_model.bin.index.json";
    for file in [
        index,
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model-00002-of-00002.bin",
    ] {
        let shard = fixture("sharded").join(file);
        copy.write(file, std::fs::read(shard).expect("reads"));
    }
    let sharded = Checkpoint::open(copy.path()).expect("opens");
    assert!(sharded.tensors.contains("1.running_mean"));

    copy.remove("pytorch_model-00002-of-00002.bin");
    let said = Checkpoint::open(copy.path())
        .expect_err("refused")
        .to_string();
    assert!(
        said.contains("pytorch_model-00002-of-00002.bin: missing"),
        "{said}"
    );
    copy.remove(index);
    let said = Checkpoint::open(copy.path())
        .expect_err("refused")
        .to_string();
    assert!(
        said.contains("pytorch_model-00002-of-00002.bin: missing"),
        "{said}"
    );
}
