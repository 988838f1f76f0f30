//! Quantised checkpoints that cannot be read are refused by name; damaged ones are refused or read, never a panic.

use std::path::Path;

use attnscope_checkpoint::Checkpoint;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tempfile::TempDir;
use testing::checkpoint_copy::{
    Stored, Weights, attnscope, file_of, put_together, take_apart, text, weights,
};
use testing::effort::tries;

/// A quantised checkpoint of the fixtures, taken apart.
struct Copy {
    directory: TempDir,
    config: Value,
    weights: Weights,
}

impl Copy {
    fn of(name: &str) -> Self {
        let original = testing::root()
            .join("fixtures/formats/quantised")
            .join(name)
            .join("model");
        let config = std::fs::read(original.join("config.json")).expect("reads");
        let mut all = Weights::new();
        for entry in std::fs::read_dir(original).expect("lists") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|e| e == "safetensors") {
                all.extend(weights(&std::fs::read(path).expect("reads")));
            }
        }
        Self {
            directory: tempfile::tempdir().expect("a directory"),
            config: serde_json::from_slice(&config).expect("JSON"),
            weights: all,
        }
    }

    fn write(&self) -> &Path {
        self.write_file(&file_of(&self.weights))
    }

    /// The configuration, and a file of weights as it is given.
    fn write_file(&self, file: &[u8]) -> &Path {
        let at = self.directory.path();
        std::fs::write(at.join("config.json"), self.config.to_string()).expect("writes");
        std::fs::write(at.join("model.safetensors"), file).expect("writes");
        at
    }

    fn tensor(&mut self, name: &str) -> &mut Stored {
        self.weights.get_mut(name).expect("a tensor")
    }

    /// What is said of it; it must be refused in one line.
    fn refused(&self) -> String {
        let opened = Checkpoint::open(self.write()).and_then(attnscope_families::read);
        let said = opened.expect_err("refused").to_string();
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    }
}

fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "expected {part:?} in: {said}");
    }
}

const GATE_UP: &str = "model.layers.0.mlp.experts.gate_up_proj";
const KV: &str = "model.layers.0.self_attn.kv_b_proj.weight";

#[test]
fn copies_that_nothing_was_done_to_open() {
    for name in ["gpt_oss_mxfp4", "deepseek_v3_fp8", "qwen3_fp8"] {
        let copy = Copy::of(name);
        let model = Checkpoint::open(copy.write()).and_then(attnscope_families::read);
        assert!(model.is_ok(), "{name}: {:?}", model.err());
    }
}

#[test]
fn other_methods_are_refused_by_name() {
    let methods = ["hqq", "quanto", "aqlm", "fbgemm_fp8", "modelopt", "FP8", ""];
    for method in methods {
        let mut copy = Copy::of("qwen3_fp8");
        copy.config["quantization_config"] = json!({ "quant_method": method, "bits": 4 });
        // What such a method stores instead; the refusal comes before any tensor is missed.
        let name = "model.layers.0.mlp.up_proj.weight";
        copy.weights.remove(name);
        copy.weights.remove(&format!("{name}_scale_inv"));
        let qweight = Stored {
            dtype: "I32".to_owned(),
            shape: vec![2],
            bytes: vec![0; 8],
        };
        copy.weights
            .insert("model.layers.0.mlp.up_proj.qweight".to_owned(), qweight);
        let said = copy.refused();
        let found = format!("{method:?} cannot be read");
        assert_says(
            &said,
            &[
                "config.json: quantization_config.quant_method:",
                &found,
                "readable: gptq, awq",
            ],
        );
        // What is stored can still be listed.
        let listed = attnscope(&["tensors".as_ref(), copy.directory.path().as_os_str()]);
        assert!(text(&listed.stdout).contains("up_proj.qweight"));

        let mut inner = copy.config.clone();
        let object = inner.as_object_mut().expect("an object");
        object.remove("model_type");
        object.insert("model_type".to_owned(), json!("qwen3"));
        copy.config = json!({ "model_type": "some_vl", "text_config": inner });
        let said = copy.refused();
        assert_says(
            &said,
            &["text_config.quantization_config.quant_method:", &found],
        );
        // Beside the text part it counts as well.
        let moved = copy.config["text_config"]
            .as_object_mut()
            .expect("an object")
            .remove("quantization_config");
        copy.config["quantization_config"] = moved.expect("was there");
        assert_says(
            &copy.refused(),
            &["json: quantization_config.quant_method:", &found],
        );
    }
}

#[test]
fn a_quantisation_that_says_nothing_or_nonsense_is_refused() {
    let cases = [
        (
            json!({}),
            vec!["quantization_config.quant_method: missing", "fp8"],
        ),
        (
            json!({ "load_in_3bit": true }),
            vec!["quant_method: missing, found load_in_3bit"],
        ),
        (
            json!("gptq"),
            vec!["quantization_config: expected an object, found \"gptq\""],
        ),
        (
            json!({ "quant_method": 7 }),
            vec!["quant_method: 7 cannot be read"],
        ),
        (
            json!({ "quant_method": "fp8", "weight_block_size": [0, 16] }),
            vec!["weight_block_size: expected two positive sizes, found [0,16]"],
        ),
        (
            json!({ "quant_method": "fp8", "weight_block_size": [16] }),
            vec!["weight_block_size", "[16]"],
        ),
        (
            json!({ "quant_method": "fp8", "weight_block_size": null }),
            vec!["weight_block_size", "null"],
        ),
        (
            json!({ "quant_method": "fp8", "weight_block_size": [16, 1e300] }),
            vec!["weight_block_size"],
        ),
        // Another block size than that of the file.
        (
            json!({ "quant_method": "fp8" }),
            vec!["_scale_inv", "blocks of 128 × 128"],
        ),
    ];
    for (said, parts) in cases {
        let mut copy = Copy::of("deepseek_v3_fp8");
        copy.config["quantization_config"] = said;
        assert_says(&copy.refused(), &parts);
    }
    let mut copy = Copy::of("qwen3_fp8");
    copy.config["quantization_config"]["quant_method"] = json!("x".repeat(10_000));
    assert!(copy.refused().len() < 400);
}

#[test]
fn numbers_without_scales_and_scales_without_numbers_are_refused() {
    let (blocks, scales) = (format!("{GATE_UP}_blocks"), format!("{GATE_UP}_scales"));
    for (missing, left) in [(&blocks, &scales), (&scales, &blocks)] {
        for has_config in [true, false] {
            let mut copy = Copy::of("gpt_oss_mxfp4");
            copy.weights.remove(missing);
            if !has_config {
                copy.config["quantization_config"] = json!(null);
            }
            assert_says(
                &copy.refused(),
                &["model.safetensors", missing, left, "missing"],
            );
        }
    }
    let scales = format!("{KV}_scale_inv");
    for (missing, left) in [(KV, scales.as_str()), (&scales, KV)] {
        let mut copy = Copy::of("deepseek_v3_fp8");
        copy.weights.remove(missing);
        assert_says(
            &copy.refused(),
            &["model.safetensors", missing, left, "missing"],
        );
    }
}

#[test]
fn one_scale_for_a_whole_matrix_is_read_where_the_configuration_says_so() {
    for has_config in [true, false] {
        let mut copy = Copy::of("qwen3_fp8");
        let name = "model.layers.0.self_attn.q_proj.weight";
        copy.weights.remove(&format!("{name}_scale_inv"));
        copy.weights
            .insert(format!("{name}_scale"), Stored::f32(&[], &[0.5]));
        if !has_config {
            let object = copy.config.as_object_mut().expect("an object");
            object.remove("quantization_config");
            copy.weights.retain(|name, _| !name.ends_with("_scale_inv"));
        }
        if has_config {
            let opened = Checkpoint::open(copy.write()).and_then(attnscope_families::read);
            assert!(opened.is_ok(), "{:?}", opened.err());
            continue;
        }
        assert_says(
            &copy.refused(),
            &[name, "q_proj.weight_scale, cannot be read"],
        );
    }
}

#[test]
fn shapes_and_element_types_that_do_not_fit_are_refused() {
    type Change = fn(&mut Copy);
    let cases: [(&str, Change, &[&str]); 12] = [
        (
            "gpt_oss_mxfp4",
            |c| c.tensor(&format!("{GATE_UP}_scales")).shape = vec![3, 32, 4],
            &[
                "gate_up_proj_scales: expected shape [3, 64, 2]",
                "found [3, 32, 4]",
            ],
        ),
        (
            "gpt_oss_mxfp4",
            |c| c.tensor(&format!("{GATE_UP}_scales")).shape = vec![384],
            &[
                "gate_up_proj_scales: expected shape [3, 64, 2]",
                "found [384]",
            ],
        ),
        (
            "gpt_oss_mxfp4",
            |c| c.tensor(&format!("{GATE_UP}_blocks")).shape = vec![3, 64, 4, 8],
            &[
                "gate_up_proj_blocks: expected shape",
                "16]",
                "found [3, 64, 4, 8]",
            ],
        ),
        (
            "gpt_oss_mxfp4",
            |c| c.tensor(&format!("{GATE_UP}_blocks")).shape = vec![192, 2, 16],
            &["gate_up_proj_blocks: expected shape", "found [192, 2, 16]"],
        ),
        (
            "gpt_oss_mxfp4",
            |c| c.tensor(&format!("{GATE_UP}_blocks")).dtype = "I8".to_owned(),
            &["gate_up_proj_blocks: expected u8, found i8"],
        ),
        (
            "gpt_oss_mxfp4",
            |c| c.tensor(&format!("{GATE_UP}_scales")).dtype = "BOOL".to_owned(),
            &["gate_up_proj_scales: expected u8, found bool"],
        ),
        (
            "gpt_oss_mxfp4",
            |c| {
                for (end, last) in [("_blocks", 16), ("_scales", 2)] {
                    let tensor = c.tensor(&format!("{GATE_UP}{end}"));
                    tensor.bytes.clear();
                    tensor.shape = if last == 16 {
                        vec![1 << 50, 0, 2, 16]
                    } else {
                        vec![1 << 50, 0, 2]
                    };
                }
            },
            &["gate_up_proj_blocks: expected no dimension of 0"],
        ),
        // They fit each other, and not the model.
        (
            "gpt_oss_mxfp4",
            |c| {
                c.tensor(&format!("{GATE_UP}_blocks")).shape = vec![3, 32, 4, 16];
                c.tensor(&format!("{GATE_UP}_scales")).shape = vec![3, 32, 4];
            },
            &[
                "tensor model.layers.0.mlp.experts.gate_up_proj: expected shape [3, 64, 64], found [3, 128, 32]",
            ],
        ),
        (
            "gpt_oss_mxfp4",
            |c| {
                c.weights
                    .insert(GATE_UP.to_owned(), Stored::f32(&[1], &[0.0]));
            },
            &["tensor model.layers.0.mlp.experts.gate_up_proj: stands twice"],
        ),
        (
            "deepseek_v3_fp8",
            |c| c.tensor(&format!("{KV}_scale_inv")).shape.reverse(),
            &[
                "kv_b_proj.weight_scale_inv: expected shape [6, 2], blocks of 16 × 16",
                "[88, 20]",
                "found [2, 6]",
            ],
        ),
        (
            "deepseek_v3_fp8",
            |c| {
                let scales = c.tensor(&format!("{KV}_scale_inv"));
                scales.dtype = "I32".to_owned();
            },
            &["kv_b_proj.weight_scale_inv: expected f32, f16 or bf16, found i32"],
        ),
        (
            "deepseek_v3_fp8",
            |c| c.tensor(KV).dtype = "U8".to_owned(),
            &[
                "kv_b_proj.weight: expected f8_e4m3 or f8_e5m2 beside",
                "weight_scale_inv, found u8",
            ],
        ),
    ];
    for (name, change, parts) in cases {
        let mut copy = Copy::of(name);
        change(&mut copy);
        assert_says(&copy.refused(), parts);
    }
}

/// What stands in a header and is replaced by something else.
fn odd_values() -> Vec<Value> {
    vec![
        json!(0),
        json!(1),
        json!(-1),
        json!(2.5),
        json!(null),
        json!("U8"),
        json!("F8_E4M3"),
        json!("F8_E5M2"),
        json!("F32"),
        json!([]),
        json!([0]),
        json!([0, 1u64 << 62]),
        json!([1u64 << 62, 0, 2]),
        json!([1u64 << 62, 0, 2, 16]),
        json!([1u64 << 40, 1u64 << 40, 0]),
        json!([3, 64, 2]),
        json!([3, 64, 2, 16]),
        json!([6144]),
        json!([u64::MAX, 1]),
    ]
}

#[test]
fn damaged_headers_are_refused_or_read_correctly() {
    for name in ["gpt_oss_mxfp4", "deepseek_v3_fp8"] {
        let copy = Copy::of(name);
        let (header, data) = take_apart(&file_of(&copy.weights));
        let quantised: Vec<String> = copy
            .weights
            .iter()
            .filter(|(_, stored)| ["U8", "F8_E4M3", "F32"].contains(&stored.dtype.as_str()))
            .map(|(name, _)| name.clone())
            .collect();
        let edits = (
            prop::sample::select(quantised),
            prop::sample::select(vec!["dtype", "shape", "rename", "swap", "factor"]),
            prop::sample::select(odd_values()),
            0usize..4,
        );
        let config = Config {
            cases: tries(80, 3),
            failure_persistence: None,
            ..Config::default()
        };
        let n_refused = std::cell::Cell::new(0);
        TestRunner::new(config)
            .run(&edits, |(tensor, how, odd, at)| {
                let mut damaged = header.clone();
                let entry = &mut damaged[tensor.as_str()];
                match how {
                    "dtype" | "shape" => entry[how] = odd,
                    "swap" => entry["shape"].as_array_mut().expect("a shape").reverse(),
                    "factor" => {
                        // As many elements, in other places.
                        let shape = entry["shape"].as_array_mut().expect("a shape");
                        let n = shape.len();
                        let (from, to) = (at % n, (at + 1) % n);
                        let numbers =
                            [&shape[from], &shape[to]].map(|v| v.as_u64().expect("a size"));
                        if numbers[0] % 2 == 0 {
                            shape[from] = json!(numbers[0] / 2);
                            shape[to] = json!(numbers[1] * 2);
                        }
                    }
                    _ => {
                        let entry = entry.take();
                        let object = damaged.as_object_mut().expect("an object");
                        object.remove(&tensor);
                        let ends = ["_blocks", "_scales", "_scale_inv", ""];
                        object.insert(
                            format!("{}{}", tensor.trim_end_matches("_blocks"), ends[at]),
                            entry,
                        );
                    }
                }
                let opened = Checkpoint::open(copy.write_file(&put_together(&damaged, &data)));
                match opened {
                    Ok(checkpoint) => {
                        for (name, info) in checkpoint.tensors.iter() {
                            let view = checkpoint.tensors.get(name).expect("is there");
                            if info.dtype.is_float() {
                                prop_assert_eq!(
                                    view.widen().expect("reads").len(),
                                    info.n_elements()
                                );
                            }
                        }
                        if attnscope_families::read(checkpoint).is_err() {
                            n_refused.set(n_refused.get() + 1);
                        }
                    }
                    Err(_) => n_refused.set(n_refused.get() + 1),
                }
                Ok(())
            })
            .expect("no damage goes unnoticed");
        let n_refused = n_refused.get();
        assert!(n_refused > tries(30, 3), "{name}: {n_refused} refused");
    }
}
