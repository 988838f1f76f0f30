//! Documents that the program writes, against the schemas that the docs have of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use attnscope_report::{SCHEMAS, schema};
use boon::{Compiler, Schemas};
use serde_json::{Map, Value};
use testing::checkpoint_copy::{Copy, attnscope, original, text};
use testing::effort::some_of;
use testing::refusal::PROMPT;

/// Commands that write JSON: the name of the schema, and the command's words. What is after `@` is under `fixtures/`; of a file with
/// `:2` behind its name, the first two lines.
const COMMANDS: &[(&str, &str)] = &[
    ("report", "report @oracle/gpt2/model --tokens 5,9,2,5,9,2"),
    (
        "report",
        "report @oracle/gpt2/model --tokens 5,9,2,5,9,2 --what-if scale=x1e30",
    ),
    (
        "report",
        "report @oracle/t5_v11/model --tokens 5,9,2,20,7 --target-tokens 0,5,9",
    ),
    ("report-several", "report @healthy @unscaled quiet"),
    (
        "check",
        "check @degenerate --inputs @degenerate/prompts.jsonl:4 --format json",
    ),
    (
        "check",
        "check @oracle/gpt2/model @nowhere --tokens 5,9,2 --what-if scale=none --format json",
    ),
    (
        "heads",
        "heads @oracle/gpt2/model --tokens 5,9,2,5,9,2 --format json",
    ),
    (
        "heads-over-prompts",
        "heads @degenerate --inputs @degenerate/prompts.jsonl:4 --over-prompts --format json",
    ),
    (
        "heads",
        "heads @oracle/t5_v11/model --tokens 5,9,2,20,7 --target-tokens 0,5,9 --format json",
    ),
    (
        "effect",
        "effect @oracle/gpt2/model --tokens 5,9,2,5,9,2 --by ablation --token 3 --format json",
    ),
    (
        "effect",
        "effect @oracle/t5_v11/model --tokens 5,9,2,20,7 --target-tokens 0,5,9 --by attribution --sources --format json",
    ),
    (
        "effect",
        "effect @oracle/bert/model --tokens 5,9,2,5 --by lens --format json",
    ),
    (
        "effect",
        "effect @oracle/gpt2/model --by circuits --format json",
    ),
    (
        "effect",
        "effect @degenerate_early --by retrieval --format json",
    ),
    (
        "heads",
        "heads @oracle/gpt2/model --tokens 5,9,2,5 --effect contribution,copying --format json",
    ),
    (
        "quality",
        "quality @seq2seq/scaled --inputs @quality/pairs.jsonl:3 --format json",
    ),
    ("sweep", "sweep --format json"),
    ("sweep", "sweep --dist laplace --format json"),
    (
        "sweep",
        "sweep @oracle/gpt2/model --tokens 5,9,2,5 --at L1H2 --what-if qk_norm=on --format json",
    ),
    (
        "sweep",
        "sweep @oracle/t5_v11/model --tokens 5,9,2 --target-tokens 0,5,9 --at cross.L0 --format json",
    ),
    ("lab-rescale", "lab rescale --format json"),
    ("lab-variance", "lab variance --format json"),
    (
        "lab-match",
        "lab variance --match hard,soft --similarity rbf --d 8 --keys 5 --rows 3 --format json",
    ),
    (
        "align",
        "align --queries @alignment/en.npz --keys @alignment/de.npz --queries-vocab @alignment/en.json \
         --keys-vocab @alignment/de.pkl --query-text letters,xyzzy --key-text Briefe --format json",
    ),
    ("config", "config --format json"),
    ("tensors", "tensors @oracle/gpt2/model --format json"),
    (
        "tokens",
        "tokens @formats/tokenizers/t5 --text hello --format json",
    ),
    (
        "guess",
        "guess @guess/mini.pt --inputs @guess/text.jsonl:1 --tokenizer @guess/chars.json --kind decoder --format json",
    ),
    (
        "tensors",
        "tensors @oracle/bert/model --stats --format json",
    ),
    (
        "verify",
        "verify @oracle/gpt2/model --tokens 5,9,2,5,9,2 --format json",
    ),
    (
        "verify",
        "verify @oracle/gpt2/model --tokens 5,9,2,5,9,2 --floor 1e-12 --format json",
    ),
    (
        "verify",
        "verify @oracle/t5_v11/model --tokens 5,9,2 --target-tokens 0,5,9 --format json",
    ),
    (
        "diff",
        "diff @oracle/gpt2/model @oracle/gpt2/model --what-if scale=none --tokens 5,9,2,5,9,2 --format json",
    ),
    (
        "diff",
        "diff @oracle/gpt2/model @oracle/llama/model --tokens 5,9,2 --format json",
    ),
    (
        "diff",
        "diff @oracle/mistral_full/model @ports/mistral_alternating.safetensors --format json",
    ),
    (
        "diff",
        "diff @formats/gguf/llama-f32.gguf @formats/gguf/llama-q8_0.gguf --tokens 5,9,2 --format json",
    ),
    (
        "diff-logprobs",
        "diff @logprobs/llama.same_bf16.jsonl @logprobs/llama.window.jsonl --reference @logprobs/llama --format json",
    ),
    // One of two checkpoints that can be read, and one that cannot: the others are missing.
    ("batch-unit", "batch"),
    ("merge", "batch merged"),
    ("history", "history @history/run.jsonl --format json"),
    (
        "history",
        "history @history --tokens 5,9,2,20,7 --no-cache --format json",
    ),
];

/// What a command writes.
fn written(words: &[&str]) -> Value {
    let output = attnscope(words);
    let said = text(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{words:?}: {e}; {said}"))
}

/// What a command of [`COMMANDS`] writes.
fn document(command: &str) -> Value {
    let fixtures = testing::root().join("fixtures");
    if let Some(more) = command.strip_prefix("batch") {
        return of_batch(&fixtures, !more.is_empty());
    }
    let directory = tempfile::tempdir().expect("a directory");
    let word = |word: &str| {
        let Some(path) = word.strip_prefix('@') else {
            return word.to_owned();
        };
        match path.split_once(':') {
            Some((path, n)) => beginning(&fixtures.join(path), n, directory.path()),
            None => fixtures.join(path),
        }
        .display()
        .to_string()
    };
    let words: Vec<String> = command.split_whitespace().map(word).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    written(&words)
}

/// A file of the first lines of another.
fn beginning(of: &Path, n_lines: &str, directory: &Path) -> PathBuf {
    let whole = std::fs::read_to_string(of).expect("reads");
    let lines = whole.lines().take(n_lines.parse().expect("a number"));
    let to = directory.join(of.file_name().expect("a name"));
    std::fs::write(&to, lines.collect::<Vec<_>>().join("\n")).expect("writes");
    to
}

/// What a batch leaves of a unit with findings, or what all of it is merged to.
fn of_batch(fixtures: &Path, is_merged: bool) -> Value {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |path: &Path| path.display().to_string();
    let steps = ["step-400", "step-401", "step-250"];
    let steps = steps.map(|name| at(&fixtures.join("history").join(name)) + ".safetensors");
    let to = at(directory.path());
    let [first, nowhere, third] = &steps;
    let flags = ["--tokens", "5,9,2,20,7", "--output", &to, "--shard"];
    for shard in ["0/3", "1/3"] {
        let words = [&["batch", first, nowhere, third], &flags[..], &[shard]].concat();
        assert!(attnscope(&words).status.code().is_some());
    }
    if is_merged {
        return written(&["merge", &to, "--format", "json"]);
    }
    let parts = std::fs::read_dir(directory.path().join("parts")).expect("the units");
    let mut records = parts.map(|part| part.expect("an entry").path());
    let records = records
        .by_ref()
        .filter(|path| path.extension().is_some_and(|e| e == "json"));
    let read = |path: PathBuf| std::fs::read(path).expect("reads");
    let mut records =
        records.map(|path| -> Value { serde_json::from_slice(&read(path)).expect("JSON") });
    records
        .find(|record| record["status"] == "done")
        .expect("a unit")
}

/// A schema, ready to be held against documents.
struct Compiled {
    schemas: Schemas,
    index: boon::SchemaIndex,
}

impl Compiled {
    fn of(name: &str) -> Self {
        let schema = schema(name).expect("a schema").to_value();
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler
            .add_resource("schema.json", schema)
            .expect("is added");
        let index = compiler.compile("schema.json", &mut schemas);
        let index = index.unwrap_or_else(|e| panic!("{name}: {e:#}"));
        Self { schemas, index }
    }

    /// Why a document does not fit; `None` where it does.
    fn refusal(&self, document: &Value) -> Option<String> {
        let found = self.schemas.validate(document, self.index);
        found.err().map(|refusal| format!("{refusal:#}"))
    }
}

/// Every key of every object in a document.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            found.extend(entries.keys().cloned());
            entries.values().for_each(|value| keys(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

/// Renames the first entry that has a key; whether there is one.
fn rename(value: &mut Value, key: &str) -> bool {
    match value {
        Value::Object(entries) => {
            if let Some(value) = entries.remove(key) {
                entries.insert(format!("{key}_renamed"), value);
                return true;
            }
            entries.values_mut().any(|value| rename(value, key))
        }
        Value::Array(values) => values.iter_mut().any(|value| rename(value, key)),
        _ => false,
    }
}

/// Every other document fits its schema, and no longer does with a key renamed.
fn every_other_fits(from: usize) {
    for (name, command) in COMMANDS.iter().skip(from).step_by(2) {
        let (compiled, document) = (Compiled::of(name), document(command));
        assert_eq!(compiled.refusal(&document), None, "{command}");
        let mut names = BTreeSet::new();
        keys(&document, &mut names);
        assert!(names.len() > 3, "{command}: {names:?}");
        for key in some_of(names, 16) {
            let mut renamed = document.clone();
            assert!(rename(&mut renamed, &key));
            assert!(compiled.refusal(&renamed).is_some(), "{command}: {key}");
        }
    }
}

#[test]
fn documents_fit_their_schemas_and_no_longer_do_with_a_key_renamed() {
    every_other_fits(0);
}

#[test]
fn so_do_the_documents_between_them() {
    every_other_fits(1);
}

#[test]
fn every_schema_has_a_command() {
    let seen: BTreeSet<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
    let all: BTreeSet<&str> = SCHEMAS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(seen, all);
}

#[test]
fn notes_on_how_a_checkpoint_was_read_fit_too() {
    let copy = Copy::of("gpt2");
    copy.write("attnscope.toml", "[set]\nn_heads = 4\n");
    let path = copy.path().to_str().expect("a path");
    let other = original("gpt2");
    let other = other.to_str().expect("a path");
    for (name, command) in [
        ("report", &["report", path][..]),
        ("report-several", &["report", path, other]),
        ("check", &["check", path, "--format", "json"]),
    ] {
        let document = written(&[command, PROMPT].concat());
        let mut names = BTreeSet::new();
        keys(&document, &mut names);
        assert!(names.contains("notes"), "{name}: {names:?}");
        assert_eq!(Compiled::of(name).refusal(&document), None);
    }
}

/// Objects of a schema that take keys which it does not name.
fn open_objects(schema: &Value, at: &str, found: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match schema {
        Value::Object(entries) => {
            let of =
                |entries: &Map<String, Value>, key: &str| entries.get(key) == Some(&false.into());
            let is_closed =
                of(entries, "additionalProperties") || of(entries, "unevaluatedProperties");
            if entries.get("type") == Some(&"object".into()) && !is_closed {
                found.push(at.to_owned());
            }
            entries
                .iter()
                .map(|(key, value)| (key.clone(), value))
                .collect()
        }
        Value::Array(values) => {
            let values = values.iter().enumerate();
            values
                .map(|(idx, value)| (idx.to_string(), value))
                .collect()
        }
        _ => Vec::new(),
    };
    for (key, value) in children {
        open_objects(value, &format!("{at}/{key}"), found);
    }
}

#[test]
fn every_object_of_a_schema_is_closed_and_every_schema_says_what_it_is_of() {
    for (name, ..) in SCHEMAS {
        let schema = schema(name).expect("a schema").to_value();
        let mut found = Vec::new();
        open_objects(&schema, name, &mut found);
        assert_eq!(found, [""; 0]);
        for key in ["title", "description"] {
            assert!(schema[key].is_string(), "{name}: {key}");
        }
        assert_eq!(
            schema["$schema"],
            "https://json-schema.org/draft/2020-12/schema"
        );
    }
    assert!(schema("nothing").is_none());
}

#[test]
fn a_number_is_a_number_or_the_word_of_one_that_is_not_finite() {
    let compiled = Compiled::of("sweep");
    let document = document("sweep --format json");
    for (value, fits) in [
        (Value::from(0.5), true),
        ("NaN".into(), true),
        ("Infinity".into(), true),
        ("-Infinity".into(), true),
        ("0.5".into(), false),
        (Value::Null, false),
    ] {
        let mut changed = document.clone();
        changed["points"][0]["scale"] = value.clone();
        assert_eq!(compiled.refusal(&changed).is_none(), fits, "{value}");
    }
}
