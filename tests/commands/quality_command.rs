//! `attnscope quality`: scores of translators with attention and without, and what is refused.

use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};

fn fixture(name: &str) -> String {
    let path = testing::root().join("fixtures").join(name);
    path.to_string_lossy().into()
}

fn quality(words: &[&str]) -> std::process::Output {
    attnscope(&[&["quality", "--quiet"], words].concat())
}

#[test]
fn without_attention_long_sentences_are_lost_and_short_ones_less() {
    let pairs = fixture("quality/pairs.jsonl");
    let models = [fixture("seq2seq/scaled"), fixture("seq2seq/without")];
    let words = [
        models[0].as_str(),
        &models[1],
        "--inputs",
        &pairs,
        "--length-step",
        "10",
        "--format",
        "json",
    ];
    let output = quality(&words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let number = |value: &Value| value.as_f64().expect("a number");
    let [with, without] = [0, 1].map(|nth| &document["models"][nth]);
    let spans = |model: &Value| -> Vec<f64> {
        let spans = model["by_length"].as_array().expect("spans").iter();
        spans.map(|span| number(&span["bleu"])).collect()
    };
    assert!(spans(with).iter().all(|bleu| *bleu > 90.0), "{with}");
    let lost = spans(without);
    assert!(lost[0] > lost[lost.len() - 1] + 20.0, "{lost:?}");
    assert!(number(&with["all"]["alignment_error"]) < 0.4);
    assert!(number(&without["all"]["alignment_error"]) > 0.6);
    assert_eq!(with["translations"].as_array().map(Vec::len), Some(6));
}

#[test]
fn what_is_no_pair_and_what_is_no_translator_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pairs.jsonl");
    let name = path.to_str().expect("a path");
    let model = fixture("seq2seq/scaled");
    for (line, said) in [
        (r#"{"text": "das jahr"}"#, "reference"),
        (
            r#"{"text": "a", "reference": "b", "alignment": "0:0"}"#,
            "0-1",
        ),
        (r#"{"reference": "b"}"#, "text or tokens"),
        ("", "holds no pair"),
    ] {
        std::fs::write(&path, line).expect("written");
        let output = quality(&[&model, "--inputs", name]);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(
            text(&output.stderr).contains(said),
            "{}",
            text(&output.stderr)
        );
    }
    std::fs::write(&path, r#"{"text": "a", "reference": "b"}"#).expect("written");
    let output = quality(&[&fixture("induction"), "--inputs", name]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no encoder and decoder"));
}
