//! What inference engines change of a model, against PyTorch: rounded keys and values, dropped keys, sparse rows, rounded weights.

use std::collections::BTreeMap;

use attnscope_compute::attention::KvFormat;
use attnscope_compute::kernels::NumberFormat;
use attnscope_compute::ops::{Candle, Cpu, Ops};
use attnscope_prompt::Request;
use attnscope_run::{WhatIf, with_what_ifs};
use attnscope_spec::Model;
use safetensors::SafeTensors;
use testing::hooks::hooks_of;
use testing::oracle_case::{model_of, reference_bytes, request_of};

/// What PyTorch gave: `fixtures/serving/make_serving.py`.
fn expected() -> BTreeMap<String, Vec<f32>> {
    let path = testing::root().join("fixtures/serving/expected.safetensors");
    let bytes = std::fs::read(path).expect("the fixture");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let numbers = |bytes: &[u8]| -> Vec<f32> {
        let number = |b: &[u8]| f32::from_le_bytes(b.try_into().expect("4 bytes"));
        bytes.chunks(4).map(number).collect()
    };
    let tensors = file.tensors().into_iter();
    tensors
        .map(|(name, tensor)| (name, numbers(tensor.data())))
        .collect()
}

fn case(name: &str) -> (Model, Request) {
    let case = testing::root().join("fixtures/oracle").join(name);
    let bytes = reference_bytes(&case);
    let reference = SafeTensors::deserialize(&bytes).expect("a reference");
    (
        model_of(&case).expect("opens"),
        request_of(&case, &reference),
    )
}

fn changed(model: &Model, words: &str) -> Model {
    let what_ifs: Vec<WhatIf> = words
        .split(' ')
        .map(|word| word.parse().expect(word))
        .collect();
    model.with_spec(with_what_ifs(&model.spec, &what_ifs).expect(words))
}

/// The logits of every fourth position.
fn some_logits(ops: &impl Ops, model: &Model, request: &Request) -> Vec<f32> {
    let logits = &hooks_of(ops, model, request)["logits"];
    let rows = logits.chunks(model.spec.d_vocab).step_by(4);
    rows.flatten().copied().collect()
}

/// √Σ(a − b)².
fn size_of_difference(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let squares = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2));
    squares.sum::<f64>().sqrt()
}

#[test]
fn pytorch_gives_the_same_logits_on_each_engine() {
    let mut n_compared = 0;
    for (name, expected) in expected() {
        let Some((model, words)) = name.split_once('|').filter(|(of, _)| *of != "values") else {
            continue;
        };
        let (model, request) = case(model);
        let base = some_logits(&Cpu, &model, &request);
        let model = changed(&model, words);
        let on_cpu = some_logits(&Cpu, &model, &request);
        let on_candle = some_logits(&Candle::cpu(), &model, &request);
        let far = size_of_difference(&base, &expected);
        // A value next to the middle between two steps may be rounded to either, since sums are added in another order.
        let most = if words.contains("kv=") { 0.1 } else { 1e-3 };
        for (engine, found) in [("cpu", on_cpu), ("candle", on_candle)] {
            let apart = size_of_difference(&found, &expected);
            assert!(apart < most * far, "{name} on {engine}: {apart} of {far}");
        }
        n_compared += 1;
    }
    assert!(n_compared > 30, "{n_compared}");
}

#[test]
fn keys_and_values_are_those_of_the_run_rounded_head_by_head() {
    for (word, format) in [
        ("fp8", KvFormat::Number(NumberFormat::E4m3)),
        ("int8", KvFormat::Int8),
        ("int4", KvFormat::Int4),
    ] {
        let (model, request) = case("llama");
        let base = hooks_of(&Cpu, &model, &request);
        let d_head = model.spec.main_stack().blocks()[1]
            .attention()
            .expect("attention")
            .d_head;
        let then = hooks_of(&Cpu, &changed(&model, &format!("kv={word}@L1")), &request);
        for hook in ["blocks.1.attn.rot_k", "blocks.1.attn.v"] {
            let mut rounded = base[hook].clone();
            format.round(&mut rounded, d_head);
            assert_ne!(rounded, base[hook], "{word}: {hook}");
            assert_eq!(rounded, then[hook], "{word}: {hook}");
        }
        let hook = "blocks.1.attn.rot_q";
        assert_eq!(base[hook], then[hook], "{word}: queries stay");
    }
}

#[test]
fn pytorch_rounds_vectors_in_the_same_way() {
    let expected = expected();
    for (name, format) in [
        ("fp8_e4m3", KvFormat::Number(NumberFormat::E4m3)),
        ("fp8_e5m2", KvFormat::Number(NumberFormat::E5m2)),
        ("bf16", KvFormat::Number(NumberFormat::Bf16)),
        ("f16", KvFormat::Number(NumberFormat::F16)),
        ("int8", KvFormat::Int8),
        ("int4", KvFormat::Int4),
    ] {
        let mut found = expected["values"].clone();
        format.round(&mut found, 72);
        assert_ne!(found, expected["values"], "{name}");
        assert_eq!(found, expected[&format!("values|{name}")], "{name}");
    }
}
