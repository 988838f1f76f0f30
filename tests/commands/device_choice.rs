//! `--device`: what is not there is refused in one line, and `auto` falls back with one.

use serde_json::Value;
use testing::checkpoint_copy::{Copy, attnscope, text};
use testing::refusal::{PROMPT, assert_says, refused_report};

fn report(copy: &Copy, device: &str) -> (Vec<u8>, String) {
    let path = copy.path().to_str().expect("a path");
    let all = [&["report", path, "--device", device], PROMPT].concat();
    let output = attnscope(&all);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    (output.stdout, said)
}

#[cfg(not(feature = "cuda"))]
#[test]
fn without_cuda_a_build_says_how_to_make_one_that_has_it() {
    let copy = Copy::of("gpt2");
    for device in ["cuda", "cuda:0", "cuda:7"] {
        let said = refused_report(&copy, &[PROMPT, &["--device", device]].concat());
        assert_says(&said, &[&format!("--device {device}"), "--features cuda"]);
    }
}

#[test]
fn a_device_without_a_name_is_refused() {
    let copy = Copy::of("gpt2");
    for device in [
        "cuda:", "cuda:x", "cuda:-1", "CUDA", "cpu:0", "candel", "metal",
    ] {
        let said = refused_report(&copy, &[PROMPT, &["--device", device]].concat());
        let known = "expected cpu, candle, cuda, cuda:N or auto";
        assert_says(&said, &[&format!("--device {device}"), known]);
    }
}

#[test]
fn candle_on_the_cpu_is_another_engine_with_nearly_the_same_numbers() {
    let copy = Copy::of("gpt2");
    let entropies = |device: &str| {
        let report: Value = serde_json::from_slice(&report(&copy, device).0).expect("JSON");
        let layers = report["prompts"][0]["layers"].as_array().expect("layers");
        let heads = layers
            .iter()
            .flat_map(|layer| layer["heads"].as_array().expect("heads"));
        let entropies = heads.map(|head| head["stats"]["entropy_relative"].as_f64());
        entropies
            .map(|entropy| entropy.expect("a number"))
            .collect::<Vec<f64>>()
    };
    let (ours, candle) = (entropies("cpu"), entropies("candle"));
    assert_eq!(ours.len(), candle.len());
    assert_ne!(ours, candle, "one engine gave both");
    for (ours, candle) in ours.iter().zip(&candle) {
        assert!((ours - candle).abs() <= 1e-4, "{ours} and {candle}");
    }
}

#[cfg(not(feature = "cuda"))]
#[test]
fn auto_says_in_one_line_that_it_is_the_cpu_and_gives_the_same_bytes() {
    let copy = Copy::of("gpt2");
    let (expected, without) = report(&copy, "cpu");
    let (found, said) = report(&copy, "auto");
    assert_eq!(found, expected);
    let more: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("--device auto"))
        .collect();
    assert_eq!(more.len(), 1, "{said}");
    assert!(more[0].contains("CPU"), "{said}");
    let n_lines = |text: &str| text.lines().count();
    assert_eq!(n_lines(&said), n_lines(&without) + 1, "{said}");
}
