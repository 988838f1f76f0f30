//! Checkpoints that cannot be run: one line that names the file, what was expected and what was found, and exit code 2.

use serde_json::json;
use testing::checkpoint_copy::{Copy, Stored, put_together, take_apart};
use testing::refusal::{PROMPT, assert_says, refused, refused_by_all};

#[test]
fn a_path_that_is_not_there_is_named() {
    let copy = Copy::of("gpt2");
    for command in ["report", "tensors"] {
        let arguments = if command == "report" { PROMPT } else { &[] };
        let said = refused(command, &copy.file("absent"), arguments);
        assert_says(
            &said,
            &[
                "absent",
                "no such file or directory",
                "expected a checkpoint",
            ],
        );
    }
}

#[test]
fn a_directory_without_configuration_asks_for_what_the_weights_do_not_tell() {
    let copy = Copy::of("gpt2");
    copy.remove("config.json");
    let said = refused_by_all(&copy);
    assert_says(
        &said,
        &["no config.json", "do not tell n_heads", "pass them as"],
    );
}

#[test]
fn a_directory_without_weights_is_refused() {
    let copy = Copy::of("gpt2");
    copy.remove("model.safetensors");
    assert_says(
        &refused_by_all(&copy),
        &["no weights", "expected model.safetensors"],
    );
    refused("tensors", copy.path(), &[]);
}

#[test]
fn a_file_instead_of_a_directory_is_refused() {
    let copy = Copy::of("gpt2");
    let said = refused("report", &copy.file("config.json"), PROMPT);
    assert_says(
        &said,
        &[
            "config.json",
            "expected a checkpoint directory",
            "found a file",
        ],
    );
}

#[test]
fn a_weight_file_that_is_a_directory_is_refused() {
    let copy = Copy::of("gpt2");
    copy.remove("model.safetensors");
    std::fs::create_dir(copy.file("model.safetensors")).expect("a directory");
    assert_says(
        &refused_by_all(&copy),
        &["model.safetensors", "found a directory"],
    );
}

#[test]
fn a_configuration_that_is_not_json_or_no_object_is_refused() {
    let copy = Copy::of("gpt2");
    copy.write("config.json", "{\"model_type\": \"gpt2\",");
    assert_says(&refused_by_all(&copy), &["config.json", "not valid JSON"]);
    copy.write("config.json", "[1, 2]");
    assert_says(
        &refused_by_all(&copy),
        &["config.json", "expected a JSON object", "found"],
    );
    copy.write("config.json", [0xff, 0xfe, 0x00]);
    assert_says(&refused_by_all(&copy), &["config.json", "cannot be read"]);
}

#[test]
fn a_configuration_nested_beyond_reason_is_refused() {
    let copy = Copy::of("gpt2");
    copy.write("config.json", "[".repeat(200_000));
    assert_says(&refused_by_all(&copy), &["config.json", "not valid JSON"]);
}

#[test]
fn an_unknown_model_type_is_named_with_the_family_that_its_tensors_fit() {
    let copy = Copy::of("gpt2");
    copy.config(|config| {
        config.insert("model_type".to_owned(), json!("gpt9"));
        config.insert("architectures".to_owned(), json!(["Gpt9LMHeadModel"]));
    });
    let said = refused_by_all(&copy);
    assert_says(
        &said,
        &["config.json", "model_type", "gpt9", "--set family=gpt2"],
    );
}

#[test]
fn a_class_stands_in_for_a_missing_model_type_and_an_unknown_one_is_named() {
    let copy = Copy::of("gpt2");
    copy.config(|config| {
        config.remove("model_type");
        config.insert(
            "architectures".to_owned(),
            serde_json::json!(["FluxForCausalLM"]),
        );
    });
    let said = refused_by_all(&copy);
    assert_says(
        &said,
        &["config.json", "architectures", "FluxForCausalLM", "known"],
    );
}

#[test]
fn a_missing_model_type_is_asked_for() {
    let copy = Copy::of("gpt2");
    copy.config(|config| {
        config.remove("model_type");
        config.remove("architectures");
    });
    let said = refused_by_all(&copy);
    assert_says(
        &said,
        &[
            "config.json",
            "model_type",
            "missing",
            "expected the name",
            "--set family=gpt2",
        ],
    );
}

#[test]
fn a_model_type_that_is_no_string_is_not_called_missing() {
    let copy = Copy::of("gpt2");
    copy.config(|config| {
        config.insert("model_type".to_owned(), json!(7));
    });
    let said = refused_by_all(&copy);
    assert_says(&said, &["config.json", "model_type", "expected", "found 7"]);
    assert!(!said.contains("missing"), "{said}");
}

#[test]
fn a_truncated_weight_file_is_refused_wherever_it_ends() {
    let copy = Copy::of("gpt2");
    let whole = copy.weight_bytes();
    for n in [0, 3, 8, 9, 500, whole.len() / 2, whole.len() - 1] {
        copy.write("model.safetensors", &whole[..n]);
        let said = refused_by_all(&copy);
        assert_says(&said, &["model.safetensors"]);
        let cause = ["truncated", "expected at least 8 bytes", "header", "mapped"];
        assert!(
            cause.iter().any(|cause| said.contains(cause)),
            "{n} bytes: {said}"
        );
        refused("tensors", copy.path(), &[]);
    }
}

#[test]
fn a_weight_file_with_bytes_after_its_end_is_refused() {
    let copy = Copy::of("gpt2");
    let mut bytes = copy.weight_bytes();
    bytes.extend([0; 16]);
    copy.write("model.safetensors", bytes);
    assert_says(&refused_by_all(&copy), &["model.safetensors", "lengthened"]);
}

#[test]
fn a_header_length_that_lies_is_refused() {
    let copy = Copy::of("gpt2");
    let whole = copy.weight_bytes();
    for length in [whole.len() as u64, 50_000_000, 1 << 40, u64::MAX, 1, 0] {
        let mut bytes = whole.clone();
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        copy.write("model.safetensors", bytes);
        let said = refused_by_all(&copy);
        assert_says(&said, &["model.safetensors", "header"]);
        if length > whole.len() as u64 {
            assert_says(
                &said,
                &[&length.to_string(), &(whole.len() - 8).to_string()],
            );
        }
    }
}

#[test]
fn a_header_that_is_no_json_is_refused() {
    let copy = Copy::of("gpt2");
    let mut bytes = copy.weight_bytes();
    bytes[8] = b'!';
    copy.write("model.safetensors", bytes);
    assert_says(&refused_by_all(&copy), &["model.safetensors", "header"]);
}

/// The tensor whose entry in the header the tests below damage.
const TENSOR: &str = "transformer.h.1.attn.c_proj.weight";

#[test]
fn overlapping_tensors_are_refused() {
    let copy = Copy::of("gpt2");
    copy.header(|header| {
        let offsets = &mut header[TENSOR]["data_offsets"];
        let [start, end] = [0, 1].map(|i| offsets[i].as_u64().expect("an offset"));
        *offsets = json!([start - 64, end - 64]);
    });
    assert_says(&refused_by_all(&copy), &["model.safetensors", "overlap"]);
}

#[test]
fn offsets_that_run_backwards_or_beyond_the_file_are_refused() {
    let beyond = 1u64 << 50;
    for offsets in [
        json!([beyond, beyond + 16_384]),
        json!([700, 600]),
        json!([0, u64::MAX]),
    ] {
        let copy = Copy::of("gpt2");
        copy.header(|header| header[TENSOR]["data_offsets"] = offsets.clone());
        assert_says(&refused_by_all(&copy), &["model.safetensors"]);
    }
}

#[test]
fn a_last_tensor_that_ends_beyond_the_file_is_refused() {
    let copy = Copy::of("gpt2");
    let (header, mut data) = take_apart(&copy.weight_bytes());
    data.truncate(data.len() - 128);
    copy.write("model.safetensors", put_together(&header, &data));
    assert_says(&refused_by_all(&copy), &["model.safetensors", "truncated"]);
}

#[test]
fn a_shape_that_does_not_fill_its_bytes_is_refused() {
    for shape in [json!([64, 63]), json!([]), json!([1u64 << 40, 1u64 << 40])] {
        let copy = Copy::of("gpt2");
        copy.header(|header| header[TENSOR]["shape"] = shape.clone());
        assert_says(&refused_by_all(&copy), &["model.safetensors"]);
    }
    let copy = Copy::of("gpt2");
    copy.header(|header| header[TENSOR]["dtype"] = json!("F16"));
    assert_says(
        &refused_by_all(&copy),
        &["model.safetensors", "shape and element type"],
    );
}

#[test]
fn an_element_type_that_does_not_exist_is_refused() {
    let copy = Copy::of("gpt2");
    copy.header(|header| header[TENSOR]["dtype"] = json!("F31"));
    assert_says(&refused_by_all(&copy), &["model.safetensors", "header"]);
}

#[test]
fn a_missing_shard_is_named() {
    let copy = Copy::of("gpt2");
    copy.shard();
    copy.remove("model-00002-of-00002.safetensors");
    let said = refused_by_all(&copy);
    assert_says(
        &said,
        &["model-00002-of-00002.safetensors", "missing", "index.json"],
    );
}

#[test]
fn an_index_that_points_outside_its_directory_is_refused() {
    for outside in [
        "../model.safetensors",
        "/etc/hostname",
        "sub/model.safetensors",
        "..",
        "",
    ] {
        let copy = Copy::of("gpt2");
        copy.shard();
        copy.index(|map| {
            map.insert(TENSOR.to_owned(), json!(outside));
        });
        let said = refused_by_all(&copy);
        assert_says(
            &said,
            &[
                "index.json",
                TENSOR,
                "expected a file beside the index",
                outside,
            ],
        );
    }
}

#[test]
fn an_index_that_names_a_tensor_that_is_nowhere_is_refused() {
    let copy = Copy::of("gpt2");
    copy.shard();
    copy.index(|map| {
        map.insert(
            "ghost".to_owned(),
            json!("model-00001-of-00002.safetensors"),
        );
    });
    let said = refused_by_all(&copy);
    assert_says(
        &said,
        &["model-00001-of-00002.safetensors", "ghost", "missing"],
    );
}

#[test]
fn an_index_that_is_no_index_is_refused() {
    for content in [
        "{}",
        "[]",
        "{\"weight_map\": 3}",
        "{\"weight_map\": {\"a\": 3}}",
        "nonsense",
    ] {
        let copy = Copy::of("gpt2");
        copy.shard();
        copy.write("model.safetensors.index.json", content);
        assert_says(&refused_by_all(&copy), &["model.safetensors.index.json"]);
    }
}

#[test]
fn an_index_without_tensors_asks_for_the_first_one() {
    let copy = Copy::of("gpt2");
    copy.shard();
    copy.write("model.safetensors.index.json", "{\"weight_map\": {}}");
    assert_says(
        &refused_by_all(&copy),
        &["wte.weight", "missing", "[257, 64]"],
    );
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let copy = Copy::of("gpt2");
    copy.shard();
    let second = copy.file("model-00002-of-00002.safetensors");
    let weights = testing::checkpoint_copy::weights(&std::fs::read(second).expect("reads"));
    let mut first = weights.clone();
    first.retain(|name, _| name.contains("ln_f"));
    first.insert("other".to_owned(), Stored::f32(&[1], &[0.0]));
    copy.write(
        "model-00001-of-00002.safetensors",
        testing::checkpoint_copy::file_of(&first),
    );
    assert_says(&refused_by_all(&copy), &["ln_f", "two shards"]);
}

#[test]
fn a_missing_tensor_is_named_with_the_shape_it_should_have() {
    let copy = Copy::of("gpt2");
    copy.weights(|weights| {
        weights.remove(TENSOR);
    });
    assert_says(
        &refused_by_all(&copy),
        &["model.safetensors", TENSOR, "missing", "[64, 64]"],
    );
}

#[test]
fn a_tensor_of_the_wrong_shape_is_named_with_both_shapes() {
    let copy = Copy::of("gpt2");
    copy.weights(|weights| {
        weights.insert(TENSOR.to_owned(), Stored::f32(&[64, 2], &[0.5; 128]));
    });
    let said = refused_by_all(&copy);
    assert_says(
        &said,
        &[
            "model.safetensors",
            TENSOR,
            "expected shape [64, 64]",
            "found [64, 2]",
        ],
    );
}

#[test]
fn weights_of_whole_numbers_are_refused() {
    let copy = Copy::of("gpt2");
    copy.weights(|weights| {
        weights.get_mut(TENSOR).expect("it").dtype = "I32".to_owned();
    });
    let said = refused_by_all(&copy);
    assert_says(
        &said,
        &["model.safetensors", TENSOR, "expected f32", "found i32"],
    );
}

#[test]
fn sizes_of_zero_and_absurd_ones_are_refused_by_key() {
    let cases = [
        ("gpt2", "n_layer", json!(0)),
        ("gpt2", "n_layer", json!(1_000_000_000)),
        ("gpt2", "n_head", json!(0)),
        ("gpt2", "n_head", json!(1_000_000_000_000_000u64)),
        ("gpt2", "n_embd", json!(-64)),
        ("gpt2", "n_positions", json!(0)),
        ("gpt2", "vocab_size", json!(1e30)),
        ("gpt2", "vocab_size", json!("257")),
        ("gpt2", "layer_norm_epsilon", json!("small")),
        ("llama", "num_key_value_heads", json!(0)),
        ("llama", "head_dim", json!(0)),
        ("llama", "rope_theta", json!(0)),
        ("llama", "hidden_act", json!("sillu")),
        ("bert", "intermediate_size", json!(0)),
        ("bert", "type_vocab_size", json!(0)),
    ];
    for (family, key, value) in cases {
        let copy = Copy::of(family);
        copy.config(|config| {
            config.insert(key.to_owned(), value.clone());
        });
        let said = refused_by_all(&copy);
        assert_says(&said, &["config.json", key]);
        assert!(said.contains("found") || said.contains("known"), "{said}");
    }
}

#[test]
fn sizes_that_are_each_possible_but_not_together_are_refused_without_much_memory() {
    let most = 1u64 << 26;
    let copy = Copy::of("llama");
    copy.config(|config| {
        for key in [
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "hidden_size",
        ] {
            config.insert(key.to_owned(), json!(most));
        }
        config.insert("num_hidden_layers".to_owned(), json!(4096));
    });
    assert_says(
        &refused_by_all(&copy),
        &["model.safetensors", "expected shape", "67108864"],
    );
}

#[test]
fn a_layer_more_than_there_are_tensors_for_is_refused() {
    let copy = Copy::of("gpt2");
    copy.config(|config| {
        config.insert("n_layer".to_owned(), json!(4));
    });
    assert_says(
        &refused_by_all(&copy),
        &["model.safetensors", "h.3.", "missing"],
    );
}

#[test]
fn heads_that_do_not_divide_are_refused() {
    for (family, key, parts) in [
        ("gpt2", "n_head", ["7 heads", "64"]),
        ("bert", "num_attention_heads", ["7 heads", "64"]),
        ("llama", "num_attention_heads", ["7 heads", "2 kv heads"]),
    ] {
        let copy = Copy::of(family);
        copy.config(|config| {
            config.insert(key.to_owned(), json!(7));
        });
        let said = refused_by_all(&copy);
        assert_says(&said, &["config.json", "do not divide"]);
        assert_says(&said, &parts);
    }
}

#[test]
fn a_broken_tokenizer_is_named() {
    for content in ["{", "{}", "[]", "", "{\"model\": {\"type\": \"BPE\"}}"] {
        let copy = Copy::of("gpt2");
        copy.write("tokenizer.json", content);
        let said = refused_by_all(&copy);
        assert_says(
            &said,
            &["tokenizer.json", "is not a tokenizer that can be read"],
        );
    }
}
