//! Ids of many texts in every form of vocabulary, against the reference implementations; and damaged vocabularies.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::TokenizerFile;
use attnscope_prompt::{PromptForm, Tokenizer, Vocabulary};
use serde_json::{Value, json};

fn fixtures() -> PathBuf {
    testing::root().join("fixtures/formats/tokenizers")
}

fn json_at(path: &Path) -> Value {
    let bytes = std::fs::read(path).expect("a fixture");
    serde_json::from_slice(&bytes).expect("JSON")
}

fn prompt_form(directory: &Path) -> attnscope_compute::error::Result<PromptForm> {
    if directory.join("vocabulary.json").exists() {
        let path = directory.join("vocabulary.json");
        return Tokenizer::vocabulary(&path, &vocabulary(&json_at(&path)));
    }
    let config = json_at(&directory.join("config.json"));
    Tokenizer::open(&TokenizerFile::find(
        directory,
        config["model_type"].as_str(),
    ))
}

fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.map(|text| text.as_str().expect("a text").to_owned())
        .collect()
}

fn numbers(value: &Value) -> Vec<u32> {
    let all = value.as_array().into_iter().flatten();
    all.map(|id| id.as_u64().expect("an id") as u32).collect()
}

fn vocabulary(value: &Value) -> Vocabulary {
    let id = |key: &str| value[key].as_u64().map(|id| id as u32);
    let flag = |key: &str| value[key].as_bool().unwrap_or(false);
    let hex = value["precompiled_charsmap"].as_str().unwrap_or("");
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    let scores = value["scores"].as_array().into_iter().flatten();
    Vocabulary {
        model: value["model"].as_str().expect("a model").to_owned(),
        pre: value["pre"].as_str().map(str::to_owned),
        tokens: texts(&value["tokens"]),
        scores: scores
            .map(|s| s.as_f64().expect("a score") as f32)
            .collect(),
        token_types: numbers(&value["token_types"])
            .iter()
            .map(|t| *t as i32)
            .collect(),
        merges: texts(&value["merges"]),
        bos: id("bos"),
        eos: id("eos"),
        unk: id("unk"),
        add_bos: flag("add_bos"),
        add_eos: flag("add_eos"),
        add_space_prefix: flag("add_space_prefix"),
        remove_extra_whitespaces: flag("remove_extra_whitespaces"),
        precompiled_charsmap: (0..hex.len()).step_by(2).map(byte).collect(),
        lowercase: true,
        ..Vocabulary::default()
    }
}

#[test]
fn every_kind_of_vocabulary_gives_the_ids_of_its_reference() {
    let (mut n_kinds, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(fixtures()).expect("the fixtures") {
        let directory = entry.expect("an entry").path();
        let kind = directory
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let expected = json_at(&directory.join("expected.json"));
        let prompt_form = prompt_form(&directory).expect(&kind);
        let tokenizer = prompt_form
            .tokenizer()
            .unwrap_or_else(|| panic!("{kind}: {}", prompt_form.describe()));
        assert_eq!(
            Some(tokenizer.source_name()),
            expected["source"].as_str(),
            "{kind}"
        );
        for case in expected["cases"].as_array().expect("cases") {
            let text = case["text"].as_str().expect("a text");
            let bare = numbers(&case["bare"]);
            let whole = [
                numbers(&expected["before"]),
                bare.clone(),
                numbers(&expected["after"]),
            ]
            .concat();
            for (ids, special_tokens) in [(whole, true), (bare, false)] {
                let found = tokenizer.encode(text, special_tokens).expect("ids");
                if found != ids {
                    wrong.push(format!(
                        "{kind}: {text:?}\n  expected {ids:?}\n  found    {found:?}"
                    ));
                }
            }
        }
        n_kinds += 1;
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(n_kinds >= 16, "{n_kinds} kinds only");
}

/// A checkpoint's vocabulary in a directory of its own, to be damaged.
fn copy(kind: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for entry in std::fs::read_dir(fixtures().join(kind)).expect("a fixture") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        std::fs::copy(&path, directory.path().join(name)).expect("a copy");
    }
    directory
}

/// What is said after one file was given other contents: one line that names the file.
fn refused(kind: &str, name: &str, contents: &str) -> String {
    let directory = copy(kind);
    std::fs::write(directory.path().join(name), contents).expect("written");
    let said = prompt_form(directory.path()).expect_err(name).to_string();
    assert!(said.contains(name) && !said.contains('\n'), "{said}");
    said
}

/// Why only ids can be given after one file was given other contents.
fn ids_only(kind: &str, name: &str, contents: &str) -> String {
    let directory = copy(kind);
    std::fs::write(directory.path().join(name), contents).expect("written");
    match prompt_form(directory.path()).expect("a reading") {
        PromptForm::Ids(reason) => reason,
        PromptForm::Tokenizer(tokenizer) => panic!("{kind}: {}", tokenizer.source_name()),
    }
}

#[test]
fn damaged_vocabularies_are_refused_in_one_line_that_names_the_file() {
    refused("gpt2", "vocab.json", "{\"a\": 0,");
    refused("gpt2", "vocab.json", "[1, 2]");
    refused("gpt2", "vocab.json", "{}");
    refused("gpt2", "vocab.json", "{\"a\": -1}");
    let said = refused("gpt2", "vocab.json", "{\"a\": 0, \"b\": 0}");
    assert!(said.contains("\"a\" and \"b\""), "{said}");
    let said = refused("gpt2", "merges.txt", "#version: 0.2\nzz qq\n");
    assert!(said.contains("line 2") && said.contains("\"zz\""), "{said}");
    let said = refused("gpt2", "merges.txt", "a b c\n");
    assert!(said.contains("line 1"), "{said}");
    let said = refused("bert", "vocab.txt", "[PAD]\n[CLS]\n[SEP]\na\n");
    assert!(said.contains("[UNK]"), "{said}");
    refused("bert", "vocab.txt", "");
    for kind in ["gpt2", "bert", "llama"] {
        refused(kind, "tokenizer_config.json", "{\"a\": ");
        refused(kind, "tokenizer_config.json", "[]");
        refused(
            kind,
            "tokenizer_config.json",
            "{\"added_tokens_decoder\": {\"x\": {\"content\": \"a\"}}}",
        );
        refused(kind, "tokenizer_config.json", "{\"unk_token\": 5}");
        refused(kind, "special_tokens_map.json", "7");
    }
    refused(
        "gpt2",
        "tokenizer_config.json",
        "{\"add_prefix_space\": \"yes\"}",
    );
    let contradicts = "{\"added_tokens_decoder\": {\"7\": {\"content\": \"<new>\"}}}";
    let said = refused("gpt2", "tokenizer_config.json", contradicts);
    assert!(said.contains("\"<new>\"") && said.contains('7'), "{said}");
    refused("gpt2", "added_tokens.json", "{\"<new>\": \"x\"}");
    let said = refused("marian", "vocab.json", "{\"a\": 0}");
    assert!(said.contains("<unk>"), "{said}");
    refused("marian", "vocab.json", "{\"<unk>\": 0, \"a\": 0}");
    let said = refused(
        "mbart",
        "tokenizer_config.json",
        "{\"src_lang\": \"xx_XX\"}",
    );
    assert!(said.contains("src_lang"), "{said}");
    refused("llama", "tokenizer.model", "");
    refused("llama", "tokenizer.model", "not a model");
}

#[test]
fn a_merge_that_is_no_token_in_tokenizer_json_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tokenizer.json");
    let value = json!({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}});
    std::fs::write(&path, value.to_string()).expect("written");
    let said = Tokenizer::open(&TokenizerFile::find(directory.path(), None))
        .expect_err("no token is ab")
        .to_string();
    assert!(
        said.contains("tokenizer.json") && said.contains("\"ab\""),
        "{said}"
    );
}

#[test]
fn a_table_of_replacements_that_leads_nowhere_in_tokenizer_json_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tokenizer.json");
    let model = json!({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]});
    // Four bytes of trie whose one unit points far outside it.
    for table in ["", "AA==", "BAAAAP///38="] {
        let normalizer = json!({"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": table}]});
        let value = json!({"version": "1.0", "normalizer": normalizer, "model": model});
        std::fs::write(&path, value.to_string()).expect("written");
        let said = Tokenizer::open(&TokenizerFile::find(directory.path(), None)).expect_err(table);
        assert!(said.to_string().contains("precompiled_charsmap"), "{said}");
    }
}

#[test]
fn what_is_not_known_exactly_gives_ids_and_says_why() {
    let reason = ids_only(
        "bert",
        "tokenizer_config.json",
        "{\"tokenizer_class\": \"BertJapaneseTokenizer\"}",
    );
    assert!(reason.contains("BertJapaneseTokenizer"), "{reason}");
    for kind in ["gpt2", "bert", "llama"] {
        let split = "{\"split_special_tokens\": true}";
        assert!(ids_only(kind, "tokenizer_config.json", split).contains("split_special_tokens"));
    }
    let class = "{\"model_type\": \"bert\", \"tokenizer_class\": \"BertJapaneseTokenizer\"}";
    let reason = ids_only("bert", "config.json", class);
    assert!(reason.contains("BertJapaneseTokenizer"), "{reason}");
    let reason = ids_only("gpt2", "config.json", "{\"model_type\": \"clip\"}");
    assert!(reason.contains("clip"), "{reason}");
    for kind in ["m2m_100", "pegasus", "albert"] {
        let config = json!({ "model_type": kind }).to_string();
        let reason = ids_only("t5", "config.json", &config);
        assert!(reason.contains(kind), "{reason}");
    }
    let empty = tempfile::tempdir().expect("a directory");
    std::fs::write(empty.path().join("config.json"), "{}").expect("written");
    let reason = prompt_form(empty.path()).expect("ids").describe();
    assert!(reason.contains("tokenizer.json"), "{reason}");
    let mut gguf = vocabulary(&json_at(&fixtures().join("gguf-gpt-2/vocabulary.json")));
    for pre in [None, Some("superbpe"), Some("youtu")] {
        gguf.pre = pre.map(str::to_owned);
        let prompt_form = Tokenizer::vocabulary(Path::new("a.gguf"), &gguf).expect("ids");
        assert!(
            prompt_form.tokenizer().is_none()
                && prompt_form.describe().contains(pre.unwrap_or("none"))
        );
    }
}

#[test]
fn a_gguf_vocabulary_whose_lists_do_not_fit_is_refused() {
    let bytes = vocabulary(&json_at(&fixtures().join("gguf-gpt-2/vocabulary.json")));
    let pieces = vocabulary(&json_at(&fixtures().join("gguf-llama/vocabulary.json")));
    let refused = |change: &dyn Fn(&mut Vocabulary), of: &Vocabulary| {
        let mut changed = of.clone();
        change(&mut changed);
        let said = Tokenizer::vocabulary(Path::new("a.gguf"), &changed).expect_err("refused");
        assert!(said.to_string().starts_with("a.gguf: "), "{said}");
    };
    for of in [&bytes, &pieces] {
        refused(&|v| v.tokens.clear(), of);
        refused(&|v| v.token_types.truncate(3), of);
        refused(&|v| v.token_types[5] = 77, of);
        refused(&|v| v.tokens[9] = v.tokens[8].clone(), of);
        refused(&|v| v.bos = Some(1 << 20), of);
    }
    refused(&|v| v.merges[0] = "alone".to_owned(), &bytes);
    refused(&|v| v.merges[0] = "no token".to_owned(), &bytes);
    refused(&|v| v.scores.truncate(5), &pieces);
    refused(&|v| v.scores[5] = f32::NAN, &pieces);
    refused(&|v| v.tokens[5] = "<0xZZ>".to_owned(), &pieces);
}

#[test]
fn a_damaged_sentence_piece_model_is_an_error_or_a_reading_but_never_a_panic() {
    let mut state = 7u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for (kind, name) in [
        ("t5", "spiece.model"),
        ("llama", "tokenizer.model"),
        ("mt5", "spiece.model"),
    ] {
        let directory = copy(kind);
        let path = directory.path().join(name);
        let whole = std::fs::read(&path).expect("a model");
        for round in 0..300 {
            let mut bytes = whole.clone();
            if round % 3 == 0 {
                bytes.truncate(random(whole.len()));
            } else {
                for _ in 0..=random(8) {
                    let at = random(bytes.len());
                    bytes[at] = random(256) as u8;
                }
            }
            std::fs::write(&path, &bytes).expect("written");
            match prompt_form(directory.path()) {
                Ok(prompt_form) => {
                    if let Some(tokenizer) = prompt_form.tokenizer() {
                        let ids = tokenizer
                            .encode("Ｈello  wörld ﬁne\n<0x41> 東京 é", true)
                            .expect("ids");
                        ids.iter().for_each(|id| drop(tokenizer.label(*id)));
                    }
                }
                Err(error) => assert!(error.to_string().contains(name), "{error}"),
            }
        }
    }
}

#[test]
fn a_table_of_characters_reads_what_it_knows_and_names_what_it_does_not() {
    let path = Path::new("ckpt.pt");
    let tokenizer =
        Tokenizer::characters(path, &json!({"\n": 0, "a": 1, "é": 2})).expect("a table");
    assert_eq!(
        tokenizer.encode("aé\na", true).expect("known"),
        [1, 2, 0, 1]
    );
    assert_eq!(tokenizer.label(2), "é");
    assert_eq!(tokenizer.label(9), "9");
    let said = tokenizer
        .encode("aab", true)
        .expect_err("unknown")
        .to_string();
    assert!(
        said.contains("'b'") && said.contains("position 2"),
        "{said}"
    );
    for broken in [
        json!([]),
        json!({}),
        json!({"ab": 0}),
        json!({"a": -1}),
        json!({"a": 0, "b": 0}),
    ] {
        let said = Tokenizer::characters(path, &broken)
            .expect_err("refused")
            .to_string();
        assert!(said.starts_with("ckpt.pt: stoi: "), "{said}");
    }
}

#[test]
fn labels_read_as_the_text_does() {
    for (kind, text, labels) in [
        ("gpt2", " world", " world"),
        ("llama", "<s>the", "<s>the"),
        ("xlm-roberta", "the", " the"),
    ] {
        let directory = fixtures().join(kind);
        let prompt_form = prompt_form(&directory).expect(kind);
        let tokenizer = prompt_form.tokenizer().expect(kind);
        let ids = tokenizer.encode(text, false).expect("ids");
        let read: String = ids.iter().map(|id| tokenizer.label(*id)).collect();
        assert_eq!(read.trim_start(), labels.trim_start(), "{kind}");
    }
    let prompt_form = prompt_form(&fixtures().join("xlm-roberta")).expect("a reading");
    let label = |id| prompt_form.label(id);
    assert_eq!(
        [label(0), label(1), label(2), label(3)],
        ["<s>", "<pad>", "</s>", "<unk>"]
    );
}

#[test]
fn the_tokenizer_of_another_part_is_not_taken_for_that_of_what_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let from = testing::root().join("fixtures");
    for (file, place) in [
        ("config.json", "oracle/bark/model"),
        ("model.safetensors", "oracle/bark/model"),
        ("tokenizer.json", "induction"),
    ] {
        let copied = std::fs::copy(from.join(place).join(file), directory.path().join(file));
        copied.expect("copies");
    }
    let model = directory.path().to_str().expect("a path");
    let ran = testing::checkpoint_copy::attnscope(&["report", model, "--text", "the old king"]);
    assert_eq!(ran.status.code(), Some(2));
    let said = testing::checkpoint_copy::text(&ran.stderr);
    testing::refusal::assert_says(&said, &["text_encoding_offset", "give ids with --tokens"]);
}
