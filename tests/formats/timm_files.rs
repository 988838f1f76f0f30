//! Vision Transformers as timm saves them, with its configuration or without any, against what timm computes of a picture.

use std::path::PathBuf;

use attnscope_compute::ops::Cpu;
use attnscope_prompt::{Request, Source};
use attnscope_spec::{Model, Pooled};
use safetensors::SafeTensors;
use testing::hooks::hooks_of;
use testing::opening::{fails, opened};
use testing::refusal::assert_says;

use super::homegrown_files::f32s;

fn fixtures() -> PathBuf {
    testing::root().join("fixtures/formats/timm")
}

/// The relative distance of one hook, over as many values as the reference has.
fn distance(model: &Model, name: &str, hook: &str) -> f64 {
    let picture = testing::root().join("fixtures/formats/pictures/plain_jpg.rgb.png");
    let request = Request {
        source: Source::picture(picture),
        ..Request::text("")
    };
    let path = fixtures().join(format!("{name}.reference.safetensors"));
    let bytes = std::fs::read(path).expect("a reference");
    let reference = SafeTensors::deserialize(&bytes).expect("a reference");
    let expected = f32s(reference.tensor(hook).expect("a tensor").data());
    let found = &hooks_of(&Cpu, model, &request)[hook];
    assert!(found.len() >= expected.len(), "{name}: {hook}");
    let pairs = || {
        let pairs = found.iter().zip(&expected);
        pairs.map(|(a, b)| (f64::from(*a), f64::from(*b)))
    };
    let away: f64 = pairs().map(|(a, b)| (a - b).powi(2)).sum();
    let size: f64 = pairs().map(|(_, b)| b * b).sum();
    (away / size).sqrt()
}

#[test]
fn its_pictures_and_blocks_and_heads_are_those_of_timm() {
    for (name, pooled) in [
        ("class_token", Some(Pooled::First)),
        ("registers", Some(Pooled::MeanFrom(1))),
        ("clip", Some(Pooled::First)),
        ("distilled", None),
    ] {
        let model = opened(&fixtures().join(name), &[]);
        assert_eq!(model.spec.family, "timm_vit", "{name}");
        let labels = model.spec.head.as_ref().map(|head| {
            let labels = head.labels.as_ref().expect("labels");
            labels.pooled
        });
        assert_eq!(labels, pooled, "{name}");
        let mut hooks = vec!["blocks.1.resid_post"];
        hooks.extend(pooled.map(|_| "logits"));
        for hook in hooks {
            let away = distance(&model, name, hook);
            assert!(away < 1e-5, "{name}: {hook} lies {away} away");
        }
    }
}

#[test]
fn weights_alone_say_what_is_taken_as_usual_and_other_architectures_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let from = |name: &str| fixtures().join("class_token").join(name);
    let to = |name: &str| directory.path().join(name);
    std::fs::copy(from("model.safetensors"), to("model.safetensors")).expect("a copy");
    // 32 values are no heads of 64.
    assert_says(&fails(directory.path(), &[]), &["n_heads", "--set"]);
    let model = opened(directory.path(), &["n_heads=4"]);
    assert_eq!(model.spec.family, "timm_vit");
    let stated = std::fs::read_to_string(from("config.json")).expect("a text");
    for name in ["vit_base_patch16_rpn_224", "eva02_tiny_patch14_224"] {
        let changed = stated.replace("vit_tiny_patch16_224", name);
        std::fs::write(to("config.json"), changed).expect("is written");
        assert_says(&fails(directory.path(), &[]), &[name, "plain Vision"]);
    }
}
