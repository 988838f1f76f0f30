//! `--generate` and `--chat`: what models of one stack write, what is told of it, and what is refused.

use serde_json::Value;
use testing::checkpoint_copy::{Copy, attnscope, original, text};

const TEXT: &str = "one cold morning the old king gave a red apple . one cold morning the";

fn induction() -> String {
    let path = testing::root().join("fixtures/induction");
    path.to_string_lossy().into_owned()
}

fn report(checkpoint: &str, words: &[&str]) -> Value {
    let all = [
        &["report", checkpoint, "--quiet", "--format", "json"],
        words,
    ]
    .concat();
    let output = attnscope(&all);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn refused(words: &[&str]) -> String {
    let output = attnscope(words);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
    assert!(output.stdout.is_empty(), "{words:?}");
    assert_eq!(said.trim_end().lines().count(), 1, "{words:?}: {said}");
    said
}

fn ids(value: &Value) -> Vec<u64> {
    let list = value.as_array().expect("a list");
    list.iter().map(|id| id.as_u64().expect("an id")).collect()
}

fn joined(ids: &[u64]) -> String {
    let words: Vec<String> = ids.iter().map(u64::to_string).collect();
    words.join(",")
}

#[test]
fn what_is_written_is_what_runs_of_the_text_so_far_predict() {
    let all = report(&induction(), &["--text", TEXT, "--generate", "5"]);
    let prompt = &all["prompts"][0];
    let (tokens, written) = (ids(&prompt["tokens"]), &prompt["written"]);
    let first = written["first"].as_u64().expect("a position") as usize;
    assert_eq!(ids(&written["tokens"]), tokens[first..]);
    assert_eq!(tokens.len(), first + 5);
    assert!(
        written["text"]
            .as_str()
            .expect("a text")
            .contains("old king")
    );
    // One token at a time, each from a run of its own.
    for n in first..tokens.len() {
        let so_far = joined(&tokens[..n]);
        let next = report(&induction(), &["--tokens", &so_far, "--generate", "1"]);
        assert_eq!(ids(&next["prompts"][0]["tokens"]), tokens[..=n]);
    }
    // The report of what was written is that of a text given whole.
    let whole = report(&induction(), &["--tokens", &joined(&tokens)]);
    assert_eq!(whole["prompts"][0]["layers"], prompt["layers"]);
    assert!(whole["prompts"][0].get("written").is_none());
}

#[test]
fn tokens_are_drawn_by_a_seed() {
    let drawn = |seed: &str| {
        let more = ["--temperature", "3", "--seed", seed, "--top-k", "200"];
        let words = [&["--text", TEXT, "--generate", "6"][..], &more].concat();
        ids(&report(&induction(), &words)["prompts"][0]["written"]["tokens"])
    };
    assert_eq!(drawn("4"), drawn("4"));
    assert_ne!(drawn("4"), drawn("5"));
    let path = induction();
    for (flag, value) in [
        ("--temperature", "-1"),
        ("--top-k", "0"),
        ("--top-p", "1.5"),
    ] {
        let said = refused(&[
            "report",
            &path,
            "--text",
            TEXT,
            "--generate",
            "2",
            flag,
            value,
        ]);
        assert!(said.contains(flag), "{said}");
    }
}

#[test]
fn traces_and_checks_take_what_is_written_and_models_that_cannot_write_say_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("trace.safetensors");
    let to = trace.to_str().expect("a path");
    let path = induction();
    let words = ["--text", TEXT, "--generate", "3", "--quiet", "--output", to];
    let output = attnscope(&[&["trace", &path][..], &words].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let bytes = std::fs::read(&trace).expect("a trace");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("tensors");
    let pattern = tensors.tensor("blocks.0.attn.pattern").expect("a pattern");
    // 15 words, and what was written.
    let n = 15 + 3;
    assert_eq!(pattern.shape()[pattern.shape().len() - 2..], [n, n]);
    let output = attnscope(&["check", &path, "--text", TEXT, "--generate", "3", "--quiet"]);
    assert_ne!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let bert = original("bert_b");
    let bert = bert.to_str().expect("a path");
    let said = refused(&["report", bert, "--tokens", "1,2,3", "--generate", "2"]);
    assert!(said.contains("cannot write"), "{said}");
}

#[test]
fn an_end_token_ends_the_text() {
    let (_copy, path) = with_settings(&serde_json::json!({}));
    let told = report(&path, &["--text", TEXT, "--generate", "9"]);
    let written = ids(&told["prompts"][0]["written"]["tokens"]);
    let config = std::path::Path::new(&path).join("config.json");
    let mut values: Value =
        serde_json::from_slice(&std::fs::read(&config).expect("a file")).expect("JSON");
    values["eos_token_id"] = Value::from(written[3]);
    std::fs::write(&config, values.to_string()).expect("writes");
    let told = report(&path, &["--text", TEXT, "--generate", "9"]);
    let ended = ids(&told["prompts"][0]["written"]["tokens"]);
    let at = written.iter().position(|id| *id == written[3]).expect("it");
    assert_eq!(ended, written[..=at]);
}

/// A copy of the induction demo with settings of its tokenizer.
fn with_settings(settings: &Value) -> (Copy, String) {
    let from = testing::root().join("fixtures/induction");
    let copy = Copy::of_directory(&from);
    let tokenizer = "tokenizer.json";
    std::fs::copy(from.join(tokenizer), copy.path().join(tokenizer)).expect("copies");
    let file = copy.path().join("tokenizer_config.json");
    std::fs::write(file, settings.to_string()).expect("writes");
    let path = copy.path().to_string_lossy().into_owned();
    (copy, path)
}

#[test]
fn a_turn_is_written_as_the_template_says() {
    let template = "{{ messages[0].content }}{% for m in messages[1:] %} . {{ m.content }}{% endfor %}\
                    {% if add_generation_prompt %} .{% endif %}";
    let (copy, path) = with_settings(&serde_json::json!({ "chat_template": template }));
    let tokens = |words: &[&str]| ids(&report(&path, words)["prompts"][0]["tokens"]);
    let plain = |text: &str| tokens(&["--text", text, "--no-special-tokens"]);
    let turn = plain("the old king .");
    assert_eq!(tokens(&["--text", "the old king", "--chat"]), turn);
    assert_eq!(tokens(&["--chat", "the old king"]), turn);
    let with_system = tokens(&["--chat", "the old king", "--system", "one cold morning"]);
    assert_eq!(with_system, plain("one cold morning . the old king ."));
    let file = copy.path().join("talk.json");
    let talk = r#"[{"role": "user", "content": "a red apple"}, {"role": "assistant", "content": "the old king"}]"#;
    std::fs::write(&file, talk).expect("writes");
    let file = file.to_str().expect("a path");
    assert_eq!(
        tokens(&["--chat", file]),
        plain("a red apple . the old king")
    );
    let said = refused(&["report", &path, "--tokens", "1,2", "--chat"]);
    assert!(said.contains("--chat"), "{said}");
}

#[test]
fn hostile_templates_end_with_one_error() {
    let says = |template: &str, words: &str| {
        let (_copy, path) = with_settings(&serde_json::json!({ "chat_template": template }));
        let said = refused(&[
            "report",
            &path,
            "--text",
            "the old king",
            "--chat",
            "--quiet",
        ]);
        assert!(said.contains(words), "{template}: {said}");
    };
    says(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "more steps or memory",
    );
    says(
        "{% set n = namespace(x='xxxx') %}{% for a in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "more steps or memory",
    );
    says("{{ raise_exception('no turns here') }}", "no turns here");
    says("{% if %}", "chat template");
    let said = refused(&["report", &induction(), "--text", "the old king", "--chat"]);
    assert!(said.contains("chat_template"), "{said}");
}

/// What a copy of a small model writes, with settings of generation beside it.
fn written_with(family: &str, settings: &str, words: &[&str]) -> (Vec<u64>, String) {
    let copy = Copy::of(family);
    copy.write("generation_config.json", settings);
    let path = copy.path().to_str().expect("a path");
    let all = [&["report", path, "--format", "json"], words].concat();
    let output = attnscope(&all);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{settings}: {said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    (ids(&report["prompts"][0]["written"]["tokens"]), said)
}

#[test]
fn settings_of_generation_change_what_is_written_as_they_do_in_transformers() {
    // What `generate` of transformers 5.23 gives, ten tokens by the largest score.
    let cases: &[(&str, &str, &[u64])] = &[
        (
            "mistral_full",
            "{}",
            &[51, 16, 42, 10, 8, 44, 60, 21, 8, 24],
        ),
        (
            "mistral_full",
            r#"{"repetition_penalty": 3.0}"#,
            &[51, 16, 42, 10, 8, 44, 60, 21, 62, 3],
        ),
        (
            "mistral_full",
            r#"{"suppress_tokens": [16]}"#,
            &[51, 42, 22, 8, 51, 4, 57, 8, 13, 13],
        ),
        (
            "mistral_full",
            r#"{"begin_suppress_tokens": [51]}"#,
            &[4, 57, 38, 33, 56, 40, 48, 19, 10, 15],
        ),
        (
            "mistral_full",
            r#"{"bad_words_ids": [[51, 16], [42]]}"#,
            &[51, 4, 10, 8, 5, 20, 10, 28, 50, 62],
        ),
        (
            "mistral_full",
            r#"{"forced_bos_token_id": 7}"#,
            &[51, 16, 42, 10, 8, 44, 60, 21, 8, 24],
        ),
        (
            "gpt2",
            r#"{"repetition_penalty": 3.0}"#,
            &[186, 152, 92, 17, 86, 55, 135, 88, 14, 63],
        ),
        (
            "gpt2",
            r#"{"no_repeat_ngram_size": 2}"#,
            &[186, 186, 254, 254, 152, 152, 86, 86, 110, 17],
        ),
    ];
    for (family, settings, expected) in cases {
        let words = ["--tokens", "5,9,2,20,7", "--generate", "10"];
        let (found, _) = written_with(family, settings, &words);
        assert_eq!(found, *expected, "{family} {settings}");
    }
    // Behind a prompt of one token stands what is forced.
    let forced = r#"{"forced_bos_token_id": 7}"#;
    let words = ["--tokens", "5", "--generate", "4"];
    let (found, _) = written_with("mistral_full", forced, &words);
    assert_eq!(found, [7, 18, 3, 41]);
}

#[test]
fn a_file_of_settings_of_generation_counts_and_not_the_configuration() {
    let words = ["--tokens", "5,9,2,20,7", "--generate", "10"];
    for (settings, expected) in [
        (
            r#"{"no_repeat_ngram_size": 2}"#,
            &[42, 42, 48, 48, 26, 26, 42, 26, 40, 40][..],
        ),
        (r#"{"forced_bos_token_id": 7}"#, &[7; 10]),
    ] {
        let (found, _) = written_with("bart_b", settings, &words);
        assert_eq!(found, expected, "{settings}");
    }
    // Of a configuration with such a key, beside a file without it.
    let copy = Copy::of("bart_b");
    copy.config(|config| {
        config.insert("forced_bos_token_id".to_owned(), 7.into());
    });
    let path = copy.path().to_str().expect("a path");
    let first = |words: &[&str]| {
        let prompt = report(path, words)["prompts"][0].clone();
        ids(&prompt["written"]["tokens"])[0]
    };
    assert_eq!(first(&words), 7);
    copy.write("generation_config.json", "{}");
    assert_eq!(first(&words), 42);
}

#[test]
fn settings_of_generation_that_are_not_followed_are_named() {
    let words = ["--tokens", "5,9,2", "--generate", "2"];
    let settings = r#"{"num_beams": 4, "do_sample": true, "min_length": 0}"#;
    let (_, said) = written_with("mistral_full", settings, &words);
    let note = "writing does not follow generation_config.json do_sample true, num_beams 4";
    assert!(said.contains(note), "{said}");
    let (_, said) = written_with("mistral_full", r#"{"num_beams": 1}"#, &words);
    assert!(!said.contains("does not follow"), "{said}");
}
