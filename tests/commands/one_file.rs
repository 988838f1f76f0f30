//! One file may hold different weights: adapters, slices, packed matrices, settings and names decide what is read from it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use testing::checkpoint_copy::{Copy, attnscope, text};
use testing::pairs::{Found, Pair, diff};

const TOKENS: &str = "5,9,2,13,7,11,3,8,5,9,2,14";
const IDS: [&str; 2] = ["--tokens", TOKENS];

fn format(name: &str) -> PathBuf {
    testing::root().join("fixtures/formats").join(name)
}

/// Copies the files of a directory, or makes them second names of the same files.
fn laid_out(from: &Path, to: &Path, is_linked: bool) {
    fs::create_dir_all(to).expect("makes");
    for entry in fs::read_dir(from).expect("lists") {
        let path = entry.expect("an entry").path();
        let place = to.join(path.file_name().expect("a name"));
        if is_linked {
            fs::hard_link(&path, place).expect("links");
        } else {
            fs::copy(&path, place).expect("copies");
        }
    }
}

/// What a comparison found, without what the sides are called.
fn without_names(mut found: Found) -> (Option<i32>, Value) {
    let document = found.json.as_object_mut().expect("an object");
    for key in ["a", "b", "notes"] {
        document.remove(key);
    }
    (found.code, found.json)
}

#[test]
fn an_adapter_differs_from_the_files_of_its_own_base() {
    for (base, names) in [
        ("llama_base", &["lora", "rslora", "dora", "whole"][..]),
        ("gpt2_base", &["gpt2", "gpt2_dora"]),
        ("bert_base", &["bias"]),
    ] {
        let base = format("adapters").join(base);
        let copied = tempfile::tempdir().expect("a directory");
        laid_out(&base, copied.path(), false);
        for name in names {
            let adapter = format("adapters").join(name);
            let own = without_names(diff(&base, &adapter, &IDS));
            assert_eq!(own.0, Some(1), "{name}: {}", own.1["headline"]);
            let differ = own.1["weights"]["differ"].as_array().expect("a list");
            assert!(!differ.is_empty(), "{name}");
            let with_copy = without_names(diff(copied.path(), &adapter, &IDS));
            assert!(own == with_copy, "{name}: as beside a copy of the base");
            let turned = diff(&adapter, &base, &IDS);
            assert_eq!(turned.code, Some(1), "{name}: {}", turned.said);
            let itself = diff(&adapter, &adapter, &IDS);
            assert_eq!(itself.code, Some(0), "{name}: {}", itself.said);
            let alone = diff(&base, &adapter, &[&IDS[..], &["--no-adapter"]].concat());
            assert_eq!(alone.code, Some(0), "{name}: {}", alone.said);
        }
    }
}

#[test]
fn checkpoints_that_share_one_of_their_files_differ_in_the_other() {
    // Slices: the first rank's file is one file, the second's is not.
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let params = r#"{"dim": 24, "n_layers": 2, "n_heads": 3, "n_kv_heads": 1, "norm_eps": 1e-3, "rope_theta": 500.0, "vocab_size": -1}"#;
    fs::write(a.path().join("params.json"), params).expect("writes");
    for slice in 0..2 {
        let name = format!("consolidated.{slice:02}.safetensors");
        fs::write(a.path().join(name), meta_slice(slice)).expect("writes");
    }
    laid_out(a.path(), b.path(), true);
    let found = diff(a.path(), b.path(), &IDS);
    assert_eq!(found.code, Some(0), "{}", found.said);
    change_last_bytes(&b, "consolidated.01.safetensors");
    let found = diff(a.path(), b.path(), &IDS);
    assert_eq!(found.code, Some(1), "{}", found.said);

    // Packed matrices: codes in one file, scales in another one.
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    for part in ["scales", "others"] {
        fs::write(
            a.path().join(format!("{part}.safetensors")),
            packed_part(part),
        )
        .expect("writes");
    }
    let packed = format("packed/gptq_4");
    fs::copy(packed.join("config.json"), a.path().join("config.json")).expect("copies");
    let index = json!({ "metadata": {}, "weight_map": packed_map() });
    fs::write(
        a.path().join("model.safetensors.index.json"),
        index.to_string(),
    )
    .expect("writes");
    laid_out(a.path(), b.path(), true);
    let found = diff(a.path(), b.path(), &IDS);
    assert_eq!(found.code, Some(0), "{}", found.said);
    change_last_bytes(&b, "scales.safetensors");
    let found = diff(a.path(), b.path(), &IDS);
    assert_eq!(found.code, Some(1), "{}", found.said);
}

/// Half of a model in Meta's names, as the rank of a tensor-parallel program has it.
fn meta_slice(slice: usize) -> Vec<u8> {
    use testing::checkpoint_copy::{Stored, Weights, file_of};
    let whole = attnscope_checkpoint::Checkpoint::open(&format("homegrown/meta"));
    let whole = whole.expect("opens");
    let part = |(name, info): (&str, &attnscope_checkpoint::TensorInfo)| {
        let values = whole
            .tensors
            .get(name)
            .expect("a tensor")
            .widen()
            .expect("reads");
        let is_by_columns = ["wo.", "w2.", "tok_"]
            .iter()
            .any(|part| name.contains(part));
        let stored = match info.shape.as_slice() {
            &[rows, columns] if !is_by_columns => {
                let half = rows / 2 * columns;
                Stored::f32(
                    &[rows / 2, columns],
                    &values[slice * half..(slice + 1) * half],
                )
            }
            &[rows, columns] => {
                let half = columns / 2;
                let kept = values.chunks(columns);
                let kept = kept.flat_map(|row| &row[slice * half..(slice + 1) * half]);
                Stored::f32(&[rows, half], &kept.copied().collect::<Vec<f32>>())
            }
            shape => Stored::f32(shape, &values),
        };
        (name.to_owned(), stored)
    };
    let own: Weights = whole.tensors.iter().map(part).collect();
    file_of(&own)
}

fn packed_weights() -> testing::checkpoint_copy::Weights {
    let bytes = fs::read(format("packed/gptq_4/model.safetensors")).expect("reads");
    testing::checkpoint_copy::weights(&bytes)
}

fn part_of(name: &str) -> &'static str {
    if name.ends_with("q_proj.scales") {
        "scales"
    } else {
        "others"
    }
}

fn packed_part(part: &str) -> Vec<u8> {
    let own = packed_weights().into_iter();
    let own = own.filter(|(name, _)| part_of(name) == part);
    testing::checkpoint_copy::file_of(&own.collect())
}

fn packed_map() -> Value {
    let map = packed_weights().into_keys();
    map.map(|name| {
        let file = format!("{}.safetensors", part_of(&name));
        (name, Value::from(file))
    })
    .collect::<serde_json::Map<_, _>>()
    .into()
}

/// Writes another file of the same name, with a few values at its end that are not those it had.
fn change_last_bytes(directory: &TempDir, name: &str) {
    let path = directory.path().join(name);
    let mut bytes = fs::read(&path).expect("reads");
    let n = bytes.len();
    // The byte of each half that holds most of the exponent.
    let halves = bytes[n - 64..].iter_mut().skip(1).step_by(2);
    halves.for_each(|byte| *byte ^= 0x10);
    fs::remove_file(&path).expect("removes");
    fs::write(path, bytes).expect("writes");
}

#[test]
fn settings_and_configurations_say_as_much_beside_one_file_as_beside_a_copy() {
    const Q: [&str; 2] = [
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.self_attn.q_proj.weight",
    ];
    let rename = format!(
        "[rename]\n\"{}\" = \"{}\"\n\"{}\" = \"{}\"\n",
        Q[0], Q[1], Q[1], Q[0]
    );
    let none = |_: &mut serde_json::Map<String, Value>| {};
    type Change = Box<dyn Fn(&mut serde_json::Map<String, Value>)>;
    let put = |key: &'static str, value: Value| -> Change {
        Box::new(move |config| drop(config.insert(key.to_owned(), value.clone())))
    };
    let cases: Vec<(&str, Change, &str, Option<i32>)> = vec![
        ("nothing", Box::new(none), "", Some(0)),
        ("names", Box::new(none), &rename, Some(1)),
        ("theta", put("rope_theta", json!(5e5)), "", Some(1)),
        ("eps", put("rms_norm_eps", json!(0.1)), "", Some(1)),
        (
            "norm",
            Box::new(none),
            "[set]\nnorm_unit_offset = true\n",
            None,
        ),
        (
            "scale",
            Box::new(none),
            "[set]\nscale = \"none\"\n",
            Some(1),
        ),
        (
            "embed",
            Box::new(none),
            "[set]\nembed_scale = \"sqrt_d\"\n",
            None,
        ),
        (
            "pairs",
            Box::new(none),
            "[set]\nrope_pairs = \"adjacent\"\n",
            None,
        ),
    ];
    for (what, change, settings, code) in cases {
        let sides = [(); 2].map(|()| Pair::of("llama"));
        let of = |is_linked: bool| {
            let pair = &sides[usize::from(is_linked)];
            if is_linked {
                pair.b.remove("model.safetensors");
                let linked = fs::hard_link(
                    pair.a.file("model.safetensors"),
                    pair.b.file("model.safetensors"),
                );
                linked.expect("links");
            }
            pair.b.config(&change);
            if !settings.is_empty() {
                pair.b.write("attnscope.toml", settings);
            }
            let found = pair.diff(&[]);
            (found.code, found.json)
        };
        let [copied, linked] = [false, true].map(of);
        assert_eq!(copied.0, linked.0, "{what}");
        if let Some(code) = code {
            assert_eq!(linked.0, Some(code), "{what}");
        }
        for key in ["first", "knobs", "weights", "isolated", "hooks"] {
            assert_eq!(copied.1[key], linked.1[key], "{what}: {key}");
        }
    }
    // A what-if applies to B only.
    let model = Copy::of("llama");
    for what_if in ["scale=none", "drop=zero@L0H2", "mask=none@L1"] {
        let found = diff(
            model.path(),
            model.path(),
            &[&IDS[..], &["--what-if", what_if]].concat(),
        );
        assert_eq!(found.code, Some(1), "{what_if}: {}", found.said);
    }
}

/// A base, and a directory of steps with one adapter for it.
struct Tuned {
    directory: TempDir,
}

impl Tuned {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        laid_out(
            &format("adapters/llama_base"),
            &directory.path().join("run/llama_base"),
            false,
        );
        let step = directory.path().join("run/steps/checkpoint-5");
        laid_out(&format("adapters/lora"), &step, false);
        // What the adapter was judged by is no checkpoint.
        fs::remove_file(step.join("reference.safetensors")).expect("removes");
        let path = step.join("adapter_config.json");
        let config = fs::read_to_string(&path).expect("reads");
        let config = config.replace("../llama_base", "../../llama_base");
        fs::write(path, config).expect("writes");
        Self { directory }
    }

    fn ran(&self, words: &[&str]) -> (String, String) {
        let output = std::process::Command::new(testing::program())
            .args(words)
            .env("XDG_CACHE_HOME", self.directory.path().join("cache"))
            .env("ATTNSCOPE_CONFIG", "")
            .output()
            .expect("runs");
        (text(&output.stdout), text(&output.stderr))
    }

    /// Files that histories have kept.
    fn n_kept(&self) -> usize {
        let mut directories = vec![self.directory.path().join("cache")];
        let mut n = 0;
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten() {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    directories.push(path);
                } else {
                    n += 1;
                }
            }
        }
        n
    }

    fn change_base(&self) {
        let path = self
            .directory
            .path()
            .join("run/llama_base/model.safetensors");
        let mut bytes = fs::read(&path).expect("reads");
        let n = bytes.len();
        bytes[n - 400..]
            .iter_mut()
            .skip(1)
            .step_by(4)
            .for_each(|byte| *byte ^= 0x55);
        fs::write(path, bytes).expect("writes");
    }
}

#[test]
fn what_is_kept_of_an_adapter_holds_until_its_base_changes() {
    let tuned = Tuned::new();
    let steps = tuned.directory.path().join("run/steps");
    let steps = steps.to_str().expect("a path");
    let history = ["history", steps, "--tokens", TOKENS, "--format", "csv"];
    let (first, _) = tuned.ran(&history);
    let n_kept = tuned.n_kept();
    assert!(n_kept > 0, "is kept");
    assert_eq!(tuned.ran(&history).0, first);
    assert_eq!(tuned.n_kept(), n_kept, "is not read again");

    let inputs = tuned.directory.path().join("inputs.jsonl");
    fs::write(&inputs, "{\"tokens\": [5, 9, 2, 20, 7]}\n").expect("writes");
    let batch = tuned.directory.path().join("batch");
    let [inputs, batch] = [&inputs, &batch].map(|path| path.to_str().expect("a path"));
    let batch = ["batch", steps, "--inputs", inputs, "--output", batch];
    let is_done = |(came_to, _): (String, String)| came_to.contains("1 unit done");
    assert!(is_done(tuned.ran(&batch)));
    assert!(!is_done(tuned.ran(&batch)));

    tuned.change_base();
    let (changed, _) = tuned.ran(&history);
    assert_ne!(changed, first, "the base is another one");
    assert!(is_done(tuned.ran(&batch)));
    let unused = attnscope(&[
        "history",
        steps,
        "--tokens",
        TOKENS,
        "--no-cache",
        "--format",
        "csv",
    ]);
    assert_eq!(text(&unused.stdout), changed);
}
