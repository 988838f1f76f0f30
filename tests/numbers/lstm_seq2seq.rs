//! LSTM encoders and decoders with attention against what PyTorch computes for the same checkpoints: every rule, within 1e-5.

use std::path::{Path, PathBuf};

use attnscope_compute::ops::{Cpu, Ops};
use attnscope_prompt::{Request, Target};
use attnscope_run::{WhatIf, with_what_ifs};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::json;
use testing::checkpoint_copy::Copy;
use testing::hooks::hooks_of;
use testing::on_each_device;
use testing::opening::{fails, opened};

/// Largest difference, relative to the largest value of a tensor where that is above 1. The references are computed in f64: in f32,
/// PyTorch is as far as 1.5e-5 from them, in the states of `general`, whose scores are steep.
const TOLERANCE: f64 = 1e-5;
/// That of other products in f32.
const DEVICE_TOLERANCE: f64 = 1.5e-5;

fn fixtures() -> PathBuf {
    testing::root().join("fixtures/seq2seq")
}

/// Every directory with a reference.
fn cases() -> Vec<PathBuf> {
    let mut cases = Vec::new();
    for parent in [fixtures(), fixtures().join("cases")] {
        for entry in std::fs::read_dir(parent).expect("fixtures") {
            let path = entry.expect("an entry").path();
            if path.join("reference.safetensors").exists() {
                cases.push(path);
            }
        }
    }
    cases.sort();
    cases
}

fn f32s(tensor: &TensorView<'_>) -> Vec<f32> {
    let values = tensor.data().chunks(4);
    values
        .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
        .collect()
}

fn ids(tensor: &TensorView<'_>) -> Vec<u32> {
    let values = tensor.data().chunks(8);
    values
        .map(|b| i64::from_le_bytes(b.try_into().expect("8 bytes")) as u32)
        .collect()
}

/// One pair of a reference: its ids, which source words are real, and what the hooks are to hold.
struct Pair {
    request: Request,
    expected: Vec<(&'static str, Vec<f32>)>,
}

/// What a tensor of the reference is called by the hooks.
const NAMES: [(&str, &str); 6] = [
    ("encoder", "encoder.last_hidden_state"),
    ("decoder", "decoder.blocks.0.cross_attn.resid_pre"),
    ("scores", "decoder.blocks.0.cross_attn.scores"),
    ("pattern", "decoder.blocks.0.cross_attn.pattern"),
    ("hidden", "decoder.blocks.0.resid_post"),
    ("logits", "logits"),
];

/// All pairs; a padded batch row by row.
fn pairs(reference: &SafeTensors<'_>) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for nth in 0.. {
        let Ok(source) = reference.tensor(&format!("source.{nth}")) else {
            break;
        };
        let n_rows = match source.shape() {
            [n_rows, _] => *n_rows,
            _ => 1,
        };
        let tensor = |name: &str| reference.tensor(&format!("{name}.{nth}"));
        let part = |values: Vec<u32>, row: usize| -> Vec<u32> {
            let width = values.len() / n_rows;
            values[row * width..][..width].to_vec()
        };
        for row in 0..n_rows {
            let mask = tensor("mask").ok().map(|mask| part(ids(&mask), row));
            let target = part(ids(&tensor("target").expect("a target")), row);
            let request = Request {
                attention_mask: mask.map(|mask| mask.into_iter().map(|m| m != 0).collect()),
                target: Target::Ids(target),
                ..Request::ids(part(ids(&source), row))
            };
            let expected = NAMES.map(|(name, hook)| {
                let values = f32s(&tensor(name).unwrap_or_else(|e| panic!("{name}: {e}")));
                let width = values.len() / n_rows;
                (hook, values[row * width..][..width].to_vec())
            });
            pairs.push(Pair {
                request,
                expected: expected.into(),
            });
        }
    }
    pairs
}

on_each_device! {
    every_rule_gives_what_pytorch_gives_on_a_device: every_rule_on_device;
}

#[test]
fn every_rule_gives_what_pytorch_gives() {
    every_rule(&Cpu, TOLERANCE);
}

fn every_rule_on_device(ops: &impl Ops) {
    every_rule(ops, DEVICE_TOLERANCE);
}

fn every_rule(ops: &impl Ops, tolerance: f64) {
    let mut furthest = (0.0, String::new());
    let mut n_pairs = 0;
    for case in cases() {
        let name = case
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let model = opened(&case, &[]);
        let bytes = std::fs::read(case.join("reference.safetensors")).expect("a reference");
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        for pair in pairs(&reference) {
            n_pairs += 1;
            let ours = hooks_of(ops, &model, &pair.request);
            for (hook, expected) in &pair.expected {
                let found = &ours[*hook];
                assert_eq!(found.len(), expected.len(), "{name} {hook}");
                let finite = expected.iter().filter(|v| v.is_finite());
                let largest = finite.fold(1.0f64, |most, v| most.max(f64::from(v.abs())));
                for (found, expected) in found.iter().zip(expected) {
                    if found == expected {
                        continue;
                    }
                    let apart = f64::from((found - expected).abs()) / largest;
                    assert!(apart <= tolerance, "{name} {hook}: {found} for {expected}");
                    if apart > furthest.0 {
                        furthest = (apart, format!("{name} {hook}"));
                    }
                }
            }
        }
    }
    assert!(n_pairs >= 20, "{n_pairs} pairs");
    testing::devices::tell(&format!(
        "{:.1e} in {} of {n_pairs} pairs",
        furthest.0, furthest.1
    ));
}

#[test]
fn scaled_scores_are_those_of_the_unscaled_model_divided() {
    let case = fixtures().join("cases/no_feeding");
    let model = opened(&case, &[]);
    let request = Request {
        target: Target::Ids(vec![1, 3, 4, 5]),
        ..Request::ids(vec![3, 4, 5, 6, 2])
    };
    let what_if: WhatIf = "scale=x0.25@cross".parse().expect("well-formed");
    let spec = with_what_ifs(&model.spec, &[what_if]).expect("possible");
    let base = hooks_of(&Cpu, &model, &request);
    let then = hooks_of(&Cpu, &model.with_spec(spec), &request);
    let scores = "decoder.blocks.0.cross_attn.scores";
    // Without input feeding the states do not depend on what was attended.
    for (before, after) in base[scores].iter().zip(&then[scores]) {
        assert!((before * 0.25 - after).abs() < 1e-6);
    }
    assert_ne!(base["logits"], then["logits"]);
}

/// A name of one's own, and the same with any layer.
fn own_name(name: &str) -> String {
    let name = name.replace("encoder.", "enc.rnn.");
    format!("mine.{}", name.replace("decoder.", "dec.rnn."))
}

fn of_any_layer(name: &str) -> String {
    let (before, after) = name.split_once("_l").unwrap_or((name, ""));
    match after.strip_prefix(|digit: char| digit.is_ascii_digit()) {
        Some(after) => format!("{before}_l{{layer}}{after}"),
        None => name.to_owned(),
    }
}

#[test]
fn a_model_with_names_of_its_own_opens_after_a_rename_map() {
    let original = fixtures().join("scaled");
    let copy = Copy::of_directory(&original);
    let mut lines = std::collections::BTreeSet::new();
    copy.weights(|weights| {
        let taken = std::mem::take(weights);
        for name in taken.keys() {
            let [from, to] = [own_name(name), name.clone()].map(|name| of_any_layer(&name));
            lines.insert(format!("{from:?} = {to:?}\n"));
        }
        let renamed = taken
            .into_iter()
            .map(|(name, stored)| (own_name(&name), stored));
        *weights = renamed.collect();
    });
    let said = fails(copy.path(), &[]);
    assert!(said.contains("src_embedding.weight"), "{said}");
    let lines: String = lines.into_iter().collect();
    assert!(lines.contains("_l{layer}_reverse"));
    copy.write("attnscope.toml", format!("[rename]\n{lines}"));
    let request = Request {
        target: Target::Ids(vec![1, 3, 4, 5]),
        ..Request::ids(vec![3, 4, 5, 6, 2])
    };
    let values = |path: &Path| hooks_of(&Cpu, &opened(path, &[]), &request);
    assert_eq!(values(copy.path()), values(&original));
}

#[test]
fn what_no_order_of_steps_could_compute_is_refused() {
    let model = opened(&fixtures().join("cases/dot"), &[]);
    for words in ["softmax_axis=queries", "drop=mean"] {
        let what_if: WhatIf = words.parse().expect("well-formed");
        let message = with_what_ifs(&model.spec, &[what_if])
            .expect_err(words)
            .to_string();
        assert!(message.contains("input feeding"), "{message}");
    }
}

#[test]
fn a_softmax_over_queries_has_columns_that_sum_to_one() {
    let model = opened(&fixtures().join("cases/no_feeding"), &[]);
    let what_if: WhatIf = "softmax_axis=queries".parse().expect("well-formed");
    let spec = with_what_ifs(&model.spec, &[what_if]).expect("possible");
    let (n, n_keys) = (4, 5);
    let request = Request {
        target: Target::Ids(vec![1, 3, 4, 5]),
        ..Request::ids(vec![3, 4, 5, 6, 2])
    };
    let ours = hooks_of(&Cpu, &model.with_spec(spec), &request);
    let pattern = &ours["decoder.blocks.0.cross_attn.pattern"];
    assert_eq!(pattern.len(), n * n_keys);
    for key_idx in 0..n_keys {
        let sum: f32 = pattern.iter().skip(key_idx).step_by(n_keys).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    }
}

#[test]
fn a_configuration_that_cannot_be_is_refused() {
    for (key, value, expected) in [
        (
            "attention",
            json!("cosine"),
            "dot, scaled-dot, general, additive",
        ),
        ("attention", json!(3), "expected a string"),
        ("initial_state", json!("ones"), "zeros, encoder, bridge"),
        ("decoder_hidden_size", json!(5), "one width"),
        (
            "num_decoder_layers",
            json!(3),
            "as many layers on both sides",
        ),
        ("num_decoder_layers", json!(99_999), "layer per tensor"),
        ("hidden_size", json!(0), "hidden_size"),
        ("hidden_size", json!(1u64 << 40), "hidden_size"),
        ("bos_token_id", json!(null), "start_token=ID"),
        ("bos_token_id", json!(99), "bos_token_id"),
        ("bidirectional", json!(false), "found"),
        ("embedding_size", json!(6), "expected"),
        ("input_feeding", json!(false), "decoder.weight_ih_l0"),
    ] {
        let copy = Copy::of_directory(&fixtures().join("cases/dot"));
        copy.config(|config| {
            config.insert(key.to_owned(), value.clone());
        });
        let message = fails(copy.path(), &[]);
        assert!(message.contains(expected), "{key}={value}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
}
