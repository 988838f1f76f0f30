//! Ids that are no text are told apart from those of a text.

use serde_json::{Map, Value, json};
use testing::checkpoint_copy::{attnscope, original, text};

/// Letters whose pairs the tokenizer joins.
const JOINED: &str = "etaoin";

/// Byte pairs: 26 letters, a blank, and every pair of six letters.
fn tokenizer() -> Value {
    let letters = ('a'..='z').chain([' ']).map(String::from);
    let pairs = || {
        let seconds = |first: char| JOINED.chars().map(move |second| (first, second));
        JOINED.chars().flat_map(seconds)
    };
    let all = letters.chain(pairs().map(|(first, second)| format!("{first}{second}")));
    let vocab: Map<String, Value> = all.zip(0..).map(|(piece, id)| (piece, json!(id))).collect();
    let merges: Vec<Value> = pairs()
        .map(|(first, second)| json!([first, second]))
        .collect();
    json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    })
}

#[test]
fn ids_of_a_text_pass_and_ids_of_none_are_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokenizer.json");
    std::fs::write(&file, tokenizer().to_string()).expect("writes");
    let (model, file) = (original("llama"), file.display().to_string());
    let model = model.display().to_string();
    let asked = |command: &str, prompt: [&str; 2]| -> Value {
        let [flag, value] = prompt;
        let all = [
            command,
            &model,
            flag,
            value,
            "--tokenizer",
            &file,
            "--format",
            "json",
        ];
        let output = attnscope(&all);
        serde_json::from_str(&text(&output.stdout)).expect("JSON")
    };
    let said_of = |prompt: [&str; 2]| {
        let verdict = asked("check", prompt);
        let target = &verdict["targets"][0];
        let checks = target["checks"].as_array().expect("a list").iter();
        let of = |id: &str| {
            let check = checks.clone().find(|check| check["id"] == id);
            check.expect("the check").clone()
        };
        (of("foreign-ids"), of("knows-nothing"))
    };
    let list = |ids: &[u64]| {
        let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
        ids.join(",")
    };

    let given = "a tin of tea is not on an oak table";
    let (said, _) = said_of(["--text", given]);
    assert_eq!(said["status"], "not-applicable", "{said}");
    let listed = asked("tokens", ["--text", given]);
    let ids: Vec<u64> = listed["tokens"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|token| token["id"].as_u64().expect("an id"))
        .collect();
    assert!(ids.len() < given.len(), "pairs are joined");
    let (said, _) = said_of(["--tokens", &list(&ids)]);
    assert_eq!(said["status"], "passed", "{said}");
    let (said, _) = said_of(["--tokens", &list(&ids[..5])]);
    assert_eq!(said["status"], "undecidable", "{said}");

    // Letters that any tokenization of their text would join.
    let single: Vec<u64> = (0..40)
        .map(|idx| [4, 19, 0, 14, 8, 13][idx * 7 % 6])
        .collect();
    let (said, unknowing) = said_of(["--tokens", &list(&single)]);
    assert_eq!(said["status"], "fired", "{said}");
    let why = unknowing["why"].as_str().unwrap_or_default();
    assert!(unknowing["status"] != "fired", "{why}");
}
