//! Chat templates against what transformers makes of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use attnscope_prompt::{ChatTemplate, Messages};
use serde_json::Value;
use testing::root;

#[test]
fn conversations_are_written_as_transformers_writes_them() {
    let path = root().join("fixtures/chat/cases.json");
    let text = std::fs::read_to_string(path).expect("the cases");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("a list");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("messages.json");
    let special = [
        ("bos_token", "<s>"),
        ("eos_token", "</s>"),
        ("unk_token", "<unk>"),
    ];
    let special: BTreeMap<String, String> = special
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect();
    let (mut told, mut n_refused) = (Vec::new(), 0);
    for case in &cases {
        let messages = case["messages"].as_str().expect("JSON, in its order");
        std::fs::write(&file, messages).expect("writes");
        let messages = Messages::read(&file).expect("messages");
        let source = case["template"].as_str().expect("a template").to_owned();
        let template = ChatTemplate::new(PathBuf::from("chat.jinja"), source, special.clone());
        let found = template.apply(&messages, 0);
        n_refused += usize::from(case["expected"].is_null());
        match (case["expected"].as_str(), found) {
            (Some(expected), Ok(found)) if found == expected => {}
            (None, Err(_)) => {}
            (expected, found) => {
                told.push(format!("{}: {found:?}, not {expected:?}", case["name"]))
            }
        }
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
    assert!(cases.len() > 60 && n_refused > 3, "{n_refused}");
}
