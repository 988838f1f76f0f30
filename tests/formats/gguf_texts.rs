//! Texts on GGUF files: the vocabulary inside one gives the ids of its reference, or the reason why it gives none.

use attnscope_checkpoint::Checkpoint;
use attnscope_prompt::{PromptForm, Tokenizer};
use serde_json::Value;
use testing::gguf_pieces::{BOOL, LIST, Pieces, Place, TEXT, entry, number, text, word};

const U8: u32 = 0;
const I32: u32 = 5;
const F32: u32 = 6;

fn json(kind: &str, file: &str) -> Value {
    let directory = testing::root().join("fixtures/formats/tokenizers");
    let bytes = std::fs::read(directory.join(kind).join(file)).expect("a fixture");
    serde_json::from_slice(&bytes).expect("JSON")
}

fn list(kind: u32, values: &[Value], bytes: impl Fn(&Value) -> Vec<u8>) -> Vec<u8> {
    let mut list = kind.to_le_bytes().to_vec();
    list.extend((values.len() as u64).to_le_bytes());
    values.iter().for_each(|value| list.extend(bytes(value)));
    list
}

/// A small model with the vocabulary of a fixture; what is called in `without` is left out.
fn file_of(vocabulary: &Value, without: &[&str]) -> Pieces {
    let mut pieces = Pieces::sound();
    let texts = |v: &Value| text(v.as_str().expect("a text"));
    let whole = |v: &Value| {
        (v.as_i64().expect("a number") as i32)
            .to_le_bytes()
            .to_vec()
    };
    let real = |v: &Value| {
        (v.as_f64().expect("a number") as f32)
            .to_le_bytes()
            .to_vec()
    };
    for (key, value) in vocabulary.as_object().expect("an object") {
        if without.contains(&key.as_str()) || value.is_null() {
            continue;
        }
        let key = match key.as_str() {
            "bos" => "tokenizer.ggml.bos_token_id".to_owned(),
            "eos" => "tokenizer.ggml.eos_token_id".to_owned(),
            "unk" => "tokenizer.ggml.unknown_token_id".to_owned(),
            "token_types" => "tokenizer.ggml.token_type".to_owned(),
            "add_bos" | "add_eos" => format!("tokenizer.ggml.{key}_token"),
            other => format!("tokenizer.ggml.{other}"),
        };
        let made = match value {
            Value::String(hex) if key.ends_with("charsmap") => {
                let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
                let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
                let mut list = U8.to_le_bytes().to_vec();
                list.extend((bytes.len() as u64).to_le_bytes());
                list.extend(bytes);
                entry(&key, LIST, &list)
            }
            Value::String(value) => word(&key, value),
            Value::Bool(value) => entry(&key, BOOL, &[u8::from(*value)]),
            Value::Number(value) => number(&key, value.as_u64().expect("an id") as u32),
            Value::Array(values) if values.first().is_some_and(Value::is_string) => {
                entry(&key, LIST, &list(TEXT, values, texts))
            }
            Value::Array(values) if key.ends_with("scores") => {
                entry(&key, LIST, &list(F32, values, real))
            }
            Value::Array(values) => entry(&key, LIST, &list(I32, values, whole)),
            other => panic!("{key}: {other}"),
        };
        pieces = pieces.entry(made);
    }
    pieces
}

fn prompt_form(pieces: &Pieces) -> PromptForm {
    let place = Place::default();
    let checkpoint = Checkpoint::open(&place.write(&pieces.bytes())).expect("opens");
    Tokenizer::open(&checkpoint.tokenizer).expect("a reading")
}

fn ids(value: &Value) -> Vec<u32> {
    let all = value.as_array().into_iter().flatten();
    all.map(|id| id.as_u64().expect("an id") as u32).collect()
}

#[test]
fn the_vocabulary_inside_a_file_gives_the_ids_of_its_reference() {
    // What each kind of file does where it leaves out whether a text begins or ends with a token.
    for (kind, begins_unasked) in [
        ("gguf-gpt-2", false),
        ("gguf-qwen2", false),
        ("gguf-llama-bpe", true),
        ("gguf-llama", true),
        ("gguf-t5", true),
        ("gguf-kimi-k2", false),
        ("gguf-gemma4", false),
    ] {
        let (vocabulary, expected) = (json(kind, "vocabulary.json"), json(kind, "expected.json"));
        let whole = prompt_form(&file_of(&vocabulary, &[]));
        let flags = ["add_bos", "add_eos", "add_space_prefix"];
        let bare = prompt_form(&file_of(&vocabulary, &flags));
        let [whole, bare] = [&whole, &bare].map(|r| r.tokenizer().expect(kind));
        assert_eq!(Some(whole.source_name()), expected["source"].as_str());
        for case in expected["cases"].as_array().expect("cases") {
            let text = case["text"].as_str().expect("a text");
            let inside = ids(&case["bare"]);
            let all = [
                ids(&expected["before"]),
                inside.clone(),
                ids(&expected["after"]),
            ]
            .concat();
            assert_eq!(
                whole.encode(text, true).expect("ids"),
                all,
                "{kind}: {text:?}"
            );
            let unasked = if begins_unasked { all } else { inside };
            assert_eq!(
                bare.encode(text, true).expect("ids"),
                unasked,
                "{kind}: {text:?}"
            );
        }
    }
}

#[test]
fn a_vocabulary_that_is_not_known_exactly_gives_ids_and_the_reason() {
    let vocabulary = json("gguf-llama", "vocabulary.json");
    for (without, part) in [
        ("scores", "tokenizer.ggml.scores"),
        ("token_types", "does not say which tokens are text"),
        ("model", "\"\" is not known"),
    ] {
        let prompt_form = prompt_form(&file_of(&vocabulary, &[without]));
        assert!(
            prompt_form.tokenizer().is_none() && prompt_form.describe().contains(part),
            "{}",
            prompt_form.describe()
        );
    }
    let mut other = json("gguf-gpt-2", "vocabulary.json");
    other["pre"] = "a-new-one".into();
    let said = prompt_form(&file_of(&other, &[])).describe();
    assert!(said.contains("a-new-one"), "{said}");
    // Words of tiktoken's vocabularies are not known without merges.
    other["pre"] = "kimi-k2".into();
    let said = prompt_form(&file_of(&other, &["merges"])).describe();
    assert!(said.contains("lists no merges"), "{said}");
    let said = prompt_form(&Pieces::sound()).describe();
    assert!(said.contains("no tokenizer.json"), "{said}");
}

/// The list of word pieces of a fixture as GGUF stores it: marks before those that begin a word, none inside of words.
fn word_pieces(kind: &str) -> Value {
    let path = testing::root()
        .join("fixtures/formats/tokenizers")
        .join(kind)
        .join("vocab.txt");
    let list = std::fs::read_to_string(path).expect("a list");
    let is_special =
        |token: &str| token.starts_with('[') && token.ends_with(']') && token.len() > 2;
    let stored = |token: &str| match token.strip_prefix("##") {
        Some(inside) => inside.to_owned(),
        None if is_special(token) => token.to_owned(),
        None => format!("\u{2581}{token}"),
    };
    let tokens: Vec<String> = list.lines().map(stored).collect();
    let types: Vec<u32> = list
        .lines()
        .map(|token| if is_special(token) { 3 } else { 1 })
        .collect();
    let id = |text: &str| list.lines().position(|token| token == text);
    serde_json::json!({
        "model": "bert", "tokens": tokens, "token_types": types, "unk": id("[UNK]"),
        "cls_token_id": id("[CLS]"), "seperator_token_id": id("[SEP]"),
    })
}

#[test]
fn word_pieces_inside_a_file_give_the_ids_of_their_list() {
    let (vocabulary, expected) = (word_pieces("bert"), json("bert", "expected.json"));
    let around = [ids(&expected["before"]), ids(&expected["after"])];
    // The ends of a text are found by their texts where no key names them.
    for without in [&[][..], &["cls_token_id", "seperator_token_id", "unk"]] {
        let prompt_form = prompt_form(&file_of(&vocabulary, without));
        let tokenizer = prompt_form.tokenizer().expect("word pieces");
        for case in expected["cases"].as_array().expect("cases") {
            let text = case["text"].as_str().expect("a text");
            let all = [&around[0][..], &ids(&case["bare"]), &around[1]].concat();
            assert_eq!(tokenizer.encode(text, true).expect("ids"), all, "{text:?}");
        }
    }
    let mut cased = vocabulary.clone();
    cased["normalizer.lowercase"] = false.into();
    let [small, cased] = [&vocabulary, &cased].map(|v| prompt_form(&file_of(v, &[])));
    let [small, cased] = [&small, &cased].map(|prompt_form| {
        let tokenizer = prompt_form.tokenizer().expect("word pieces");
        tokenizer.encode("Hello", false).expect("ids")
    });
    assert_ne!(small, cased);
    let without = prompt_form(&file_of(&vocabulary, &["tokens"]));
    assert!(without.tokenizer().is_none());
}
