//! `attnscope diff` of log-probabilities: who departs from the model, from which token, and why; the forms that engines and trainers write.
//!
//! The sides in `fixtures/logprobs` were computed by transformers (`make_sides.py`), each with one thing changed.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testing::checkpoint_copy::{attnscope, text};

pub fn fixture(name: &str) -> PathBuf {
    testing::root().join("fixtures/logprobs").join(name)
}

pub fn path(path: &Path) -> &str {
    path.to_str().expect("a path")
}

/// Compares a side with the model in front of its name; the exit code and the JSON.
pub fn judged(side: &Path, model: &str) -> (Option<i32>, Value) {
    let output = attnscope(&[
        "diff",
        "--quiet",
        "--format",
        "json",
        path(side),
        path(&fixture(model)),
    ]);
    let said = text(&output.stdout);
    let value = serde_json::from_str(&said)
        .unwrap_or_else(|_| panic!("{side:?}: {said} {}", text(&output.stderr)));
    (output.status.code(), value)
}

fn of(name: &str) -> (Option<i32>, Value) {
    let model = name.split('.').next().expect("a model");
    judged(&fixture(&format!("{name}.jsonl")), model)
}

/// Changes, the cause that is named, and the first token that the cause moves.
const PLANTED: &[(&str, &str, usize)] = &[
    ("llama.base", "50 times the rotary base", 2),
    ("llama.base_bf16", "10 times the rotary base", 2),
    ("llama.odd_base", "a rotary base of 3", 2),
    ("llama.temperature", "a temperature of 0.7", 1),
    ("llama.temperature_bf16", "a temperature of 1.3", 1),
    (
        "llama.top_k",
        "only its 8 likeliest tokens are kept (top-k)",
        1,
    ),
    (
        "llama.top_p",
        "only the likeliest tokens up to p = 0.9 are kept (top-p)",
        1,
    ),
    (
        "llama.shifted",
        "each value belongs to the token after it",
        1,
    ),
    ("llama.bits", "its values are logarithms to base 2", 1),
    ("llama.losses", "its values are losses, −ln p", 1),
    (
        "llama.restart",
        "positions that begin again at token 64",
        65,
    ),
    (
        "llama.prefix",
        "positions that run ahead by 1 from token 40 on",
        42,
    ),
    ("llama.window", "a window of 32 keys", 33),
    ("llama.window_bf16", "a window of 32 keys", 33),
    ("llama.no_mask", "no causal mask", 1),
    ("llama.apart", "documents that do not see each other", 33),
    ("llama.kv_fp8", "kv=fp8", 1),
    ("llama.kv_bf16", "kv=bf16", 2),
    ("llama.no_scale", "no scale", 2),
    ("llama.odd_scale", "scores multiplied by 0.78", 2),
    ("gemma2.no_window", "no window", 21),
    ("gemma2.no_window_bf16", "no window", 21),
    ("gemma2.wider", "a window of one key more", 21),
    ("gemma2.narrower_bf16", "a window of one key less", 20),
    ("gemma2.no_softcap", "no softcap on scores", 2),
    ("gemma2.no_last_softcap", "no softcap on logits", 1),
    (
        "gemma2.other_layers",
        "windows in the layers that have none, and none in the others",
        21,
    ),
    ("gptoss.no_sinks", "no sinks", 1),
    ("gptoss.no_window", "no window", 21),
    ("gptoss.no_yarn", "no scaling of rotary embeddings", 1),
    ("gptoss.one_expert", "one expert less for each token", 1),
    ("gpt2.late_1", "positions counted 1 too late", 1),
    (
        "gpt2.late_4",
        "positions counted over 4 tokens of padding",
        1,
    ),
    ("gpt2.no_scale", "no scale", 2),
    (
        "gpt2.by_layer",
        "scores of each layer divided by its number",
        2,
    ),
    ("qwen3.no_qk_norm", "no QK-norm", 2),
    (
        "phi3.always_long",
        "the factors of longrope for long texts at every length",
        2,
    ),
    (
        "phi3.always_short",
        "the factors of longrope for short texts at every length",
        2,
    ),
    (
        "phi3.always_short_bf16",
        "the factors of longrope for short texts at every length",
        2,
    ),
    // Answers of llama.cpp. Its converter leaves out the head of a Gemma 2, and its yarn always rounds.
    (
        "gemma2.llama_cpp",
        "the unembedding tied to the embeddings",
        1,
    ),
    ("llama.llama_cpp_q4_0", "weights=q4_0", 1),
    ("llama.llama_cpp_iq4_nl", "weights=iq4_nl", 1),
    ("llama.llama_cpp_q5_1", "weights=q5_1", 1),
    (
        "gptoss.llama_cpp",
        "the ends of yarn's ramp rounded to whole dimensions",
        2,
    ),
];

#[test]
fn every_planted_change_is_named_with_its_first_token() {
    for (name, reading, first) in PLANTED {
        let (code, found) = of(name);
        assert_eq!(code, Some(1), "{name}");
        let side = &found["sides"]["a"];
        assert_eq!(side["departs"], true, "{name}");
        let cause = &side["cause"];
        let said = cause["reading"]
            .as_str()
            .unwrap_or_else(|| panic!("{name}: {side}"));
        assert!(said.starts_with(reading), "{name}: {said}");
        assert_eq!(cause["first"]["position"], *first, "{name}");
        // What departs is seen no earlier than it begins.
        let seen = side["first"]["position"].as_u64().expect("a position");
        assert!(seen >= *first as u64, "{name}: {seen}");
    }
}

#[test]
fn files_in_few_bits_that_llama_cpp_runs_differ_by_rounding() {
    // Most tokens are as exact as f32, since its sums are; no cause explains the others.
    for name in ["llama.llama_cpp_bf16", "llama.llama_cpp_q8_0"] {
        let (code, found) = of(name);
        assert_eq!(code, Some(0), "{name}: {found}");
        let side = &found["sides"]["a"];
        assert_eq!(side["precision"], "bf16", "{name}");
        assert_eq!(
            (&side["first"], &side["cause"]),
            (&Value::Null, &Value::Null)
        );
    }
}

#[test]
fn sides_that_differ_by_their_arithmetic_alone_agree_and_are_told_apart() {
    for model in ["llama", "gemma2", "gptoss", "gpt2", "qwen3"] {
        for (ending, precision) in [("same", "f32"), ("same_f16", "f16"), ("same_bf16", "bf16")] {
            let name = format!("{model}.{ending}");
            let (code, found) = of(&name);
            assert_eq!(code, Some(0), "{name}: {found}");
            assert_eq!(found["sides"]["a"]["precision"], precision, "{name}");
            assert_eq!(found["sides"]["a"]["cause"], Value::Null);
            assert_eq!(found["same"], true);
        }
    }
    // Each side is judged on the tokens that it had.
    for name in ["llama.twice_first", "llama.no_first"] {
        assert_eq!(of(name).0, Some(0), "{name}");
    }
    // Texts that begin below the length from which longrope has other factors, and above it.
    for ending in ["same", "same_f16", "same_bf16", "short_texts"] {
        let (code, found) = of(&format!("phi3.{ending}"));
        assert_eq!(code, Some(0), "{ending}: {found}");
    }
}

#[test]
fn a_cache_in_f16_is_no_departure() {
    let (code, found) = of("llama.kv_f16");
    let side = &found["sides"]["a"];
    assert_eq!((code, &side["departs"]), (Some(0), &json!(false)));
    assert_eq!(
        (&side["within"], &side["precision"]),
        (&json!("kv=f16"), &json!("f32"))
    );
    let table = fixture("llama.kv_f16.jsonl");
    let model = fixture("llama");
    let arguments = ["diff", "--quiet", path(&table), path(&model)];
    let said = text(&attnscope(&arguments).stdout);
    assert!(
        said.contains("as f32 arithmetic with an f16 cache is"),
        "{said}"
    );
    // A limit that somebody gives is theirs.
    let output = attnscope(&[&arguments[..], &["--tolerance", "1e-5"][..]].concat());
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("A = this model with kv=f16"), "{said}");
}

#[test]
fn a_rounding_that_the_noise_of_another_hides_is_told_without_being_a_cause() {
    let (code, found) = of("llama.kv_fp8_bf16");
    let side = &found["sides"]["a"];
    assert_eq!(code, Some(1), "{found}");
    assert_eq!(
        (&side["cause"], &side["like"][0]),
        (&Value::Null, &json!("kv=fp8"))
    );
    let arguments = [fixture("llama.kv_fp8_bf16.jsonl"), fixture("llama")];
    let [table, model] = [&arguments[0], &arguments[1]].map(|file| path(file));
    let said = text(&attnscope(&["diff", "--quiet", table, model]).stdout);
    let words = "Cannot be told apart from 16-bit arithmetic with kv=fp8";
    assert!(said.contains(words), "{said}");
    assert_eq!(of("llama.other_weights").1["sides"]["a"]["like"], json!([]));
}

#[test]
fn other_weights_have_no_cause() {
    let (code, found) = of("llama.other_weights");
    assert_eq!(code, Some(1));
    let side = &found["sides"]["a"];
    assert_eq!(
        (&side["departs"], &side["cause"]),
        (&json!(true), &Value::Null)
    );
    assert!(side["tried"].as_u64().expect("a count") > 100);
    assert!(side["best"]["explains"].as_f64().expect("a share") < 0.2);
}

#[test]
fn of_two_sides_the_one_that_departs_is_named() {
    let both = [
        fixture("llama.same_bf16.jsonl"),
        fixture("llama.window.jsonl"),
    ];
    let reference = fixture("llama");
    let arguments = [
        "diff",
        "--quiet",
        path(&both[0]),
        path(&both[1]),
        "--reference",
        path(&reference),
    ];
    let output = attnscope(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    let mut lines = said.lines();
    let first = lines.next().expect("a line");
    assert!(
        first.starts_with("A agrees with the reference")
            && first.ends_with("as bf16 arithmetic is"),
        "{said}"
    );
    let second = lines.next().expect("a line");
    assert!(
        second.contains("B = this model with a window of 32 keys"),
        "{said}"
    );
    assert!(second.ends_with("--set window=32"), "{said}");
    assert!(
        said.contains("B by position") && said.contains("importance ratios"),
        "{said}"
    );
    // Without a third side nobody is accused.
    let output = attnscope(&[
        "diff",
        "--quiet",
        path(&both[0]),
        path(&fixture("llama.base.jsonl")),
    ]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.starts_with("A and B differ by") && said.contains("--reference CHECKPOINT tells who"),
        "{said}"
    );
    let output = attnscope(&[
        "diff",
        "--quiet",
        path(&fixture("llama.same.jsonl")),
        path(&both[0]),
    ]);
    assert_eq!(
        (
            output.status.code(),
            text(&output.stdout).starts_with("A and B agree")
        ),
        (Some(0), true)
    );
}

#[test]
fn other_ids_are_told_before_anything_else() {
    let [a, b] = ["llama.twice_first.jsonl", "llama.same.jsonl"].map(fixture);
    let output = attnscope(&[
        "diff",
        "--quiet",
        path(&a),
        path(&b),
        "--reference",
        path(&fixture("llama")),
    ]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.starts_with("prompt p0: A has 1 token more in front than B"),
        "{said}"
    );
    assert!(
        said.contains("A agrees with the reference")
            && said.contains("B agrees with the reference"),
        "{said}"
    );
}

#[test]
fn weights_rounded_in_blocks_are_those_of_a_file_of_that_type() {
    let file = |name: &str| testing::root().join("fixtures/formats/gguf").join(name);
    let values = |name: &str, what_if: &[&str]| -> Vec<Value> {
        let path = file(name);
        let tokens = "1,12,21,36,0,14,20,5,9,2,33,17";
        let arguments = ["logprobs", "--quiet", "--tokens", tokens];
        let path = path.to_str().expect("a path");
        let output = attnscope(&[&arguments[..], &[path][..], what_if].concat());
        let said = text(&output.stdout);
        let row = |line| serde_json::from_str::<Value>(line).expect("JSON")["logprob"].clone();
        said.lines().map(row).collect()
    };
    let of_file = values("llama-q8_0.gguf", &[]);
    assert_eq!(of_file.len(), 12);
    let plain = values("llama-f32.gguf", &[]);
    assert_ne!(plain, of_file);
    let rounded = values("llama-f32.gguf", &["--what-if", "weights=q8_0"]);
    assert_eq!(rounded, of_file, "bit by bit");
}
