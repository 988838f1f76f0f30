//! Vocabularies that are made, or broken, so that a text never ends, becomes huge, or gets other ids each time.

use std::path::Path;
use std::time::{Duration, Instant};

use attnscope_checkpoint::TokenizerFile;
use attnscope_compute::error::Result;
use attnscope_prompt::{PromptForm, Tokenizer};
use serde_json::{Value, json};

/// Byte pairs of a few letters; `change` breaks it.
fn tokenizer(change: impl FnOnce(&mut Value)) -> Value {
    let mut value = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": null,
        "model": {
            "type": "BPE",
            "vocab": { "a": 0, "b": 1, "aa": 2, "aaaa": 3, "x": 4 },
            "merges": [["a", "a"], ["aa", "aa"]],
        },
    });
    change(&mut value);
    value
}

fn open(value: &Value) -> Result<Tokenizer> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tokenizer.json");
    std::fs::write(&path, value.to_string()).expect("writes");
    match Tokenizer::open(&TokenizerFile::Path(path))? {
        PromptForm::Tokenizer(tokenizer) => Ok(tokenizer),
        PromptForm::Ids(reason) => panic!("ids: {reason}"),
    }
}

fn encoded(value: &Value, text: &str) -> std::result::Result<Vec<u32>, String> {
    let tokenizer = open(value).map_err(|e| e.to_string())?;
    tokenizer.encode(text, true).map_err(|e| e.to_string())
}

fn refused(value: &Value, text: &str) -> String {
    let begun = Instant::now();
    let said = encoded(value, text).expect_err("refused");
    assert!(begun.elapsed() < Duration::from_secs(10), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn a_text_that_doubles_again_and_again_is_refused() {
    let double = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
    let all = vec![double; 40];
    let value = tokenizer(|t| t["normalizer"] = json!({ "type": "Sequence", "normalizers": all }));
    let said = refused(&value, "a text");
    assert!(said.contains("more than 64 times longer"), "{said}");
    // One step alone can be as bad, and nothing of it may be made.
    let content = "b".repeat(1 << 20);
    let value = tokenizer(|t| {
        t["normalizer"] =
            json!({ "type": "Replace", "pattern": { "Regex": "" }, "content": content });
    });
    let said = refused(&value, &"a".repeat(1 << 14));
    assert!(said.contains("more than 64 times longer"), "{said}");
}

#[test]
fn a_pattern_that_gives_up_is_told_and_never_taken_for_none() {
    let split = |pattern: &str| json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false });
    let nested = "(?:(?=a)a+)+(?=b)";
    let text = "a".repeat(60);
    let cut = tokenizer(|t| t["pre_tokenizer"] = split(nested));
    let said = refused(&cut, &text);
    assert!(
        said.contains("(?:(?=a)a+)+") && said.contains("gives up"),
        "{said}"
    );
    let inside = tokenizer(|t| {
        let whole = split("x");
        t["pre_tokenizer"] = json!({ "type": "Sequence", "pretokenizers": [whole, split(nested)] });
    });
    assert!(refused(&inside, &text).contains("gives up"));
    let normalizer = tokenizer(|t| {
        t["normalizer"] =
            json!({ "type": "Replace", "pattern": { "Regex": nested }, "content": "x" });
    });
    assert!(refused(&normalizer, &text).contains("gives up"));
    // The same pattern on a text that it can decide.
    assert_eq!(encoded(&cut, "aab").expect("decided"), [2, 1]);
}

#[test]
fn merges_that_are_left_out_at_random_in_training_are_all_made() {
    let value = tokenizer(|t| t["model"]["dropout"] = json!(0.9));
    for _ in 0..20 {
        assert_eq!(encoded(&value, "aaaaaaaa").expect("ids"), [3, 3]);
    }
}

#[test]
fn what_the_library_stumbles_over_is_one_line() {
    let template = json!({
        "type": "TemplateProcessing",
        "single": [{ "SpecialToken": { "id": "[CLS]", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
        "pair": [],
        "special_tokens": {},
    });
    let value = tokenizer(|t| t["post_processor"] = template);
    let said = refused(&value, "a");
    assert!(said.contains("[CLS]"), "{said}");
    let value = tokenizer(|t| t["pre_tokenizer"] = json!({ "type": "FixedLength", "length": 0 }));
    assert!(refused(&value, "a").contains("FixedLength"));
    let value = tokenizer(|t| t["decoder"] = json!(7));
    refused(&value, "a");
}

#[test]
fn a_decoder_that_cannot_be_asked_leaves_labels_as_they_are_stored() {
    let double = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
    for decoder in [
        json!({ "type": "Strip", "content": "a", "start": 0, "stop": 1u64 << 62 }),
        json!({ "type": "Strip", "content": "a", "start": 0, "stop": 3 }),
        json!({ "type": "Sequence", "decoders": vec![double; 40] }),
    ] {
        let value = tokenizer(|t| t["decoder"] = decoder);
        let tokenizer = open(&value).expect("opens");
        assert_eq!(tokenizer.label(2), "aa");
    }
}

#[test]
fn bytes_in_any_order_are_refused_or_read_and_nothing_else() {
    let whole = tokenizer(|_| ()).to_string().into_bytes();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tokenizer.json");
    let mut random = fastrand::Rng::with_seed(14);
    for _ in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => bytes[at] = random.u8(..),
                1 => {
                    let end = (at + random.usize(1..9)).min(bytes.len());
                    bytes.drain(at..end);
                }
                _ => bytes.truncate(at.max(1)),
            }
            if bytes.is_empty() {
                bytes.push(b'{');
            }
        }
        std::fs::write(&path, &bytes).expect("writes");
        if let Ok(PromptForm::Tokenizer(tokenizer)) =
            Tokenizer::open(&TokenizerFile::Path(path.clone()))
        {
            let _ = tokenizer.encode("aaab", true);
            let _ = tokenizer.label(2);
        }
    }
    assert!(Path::new(&path).exists());
}
