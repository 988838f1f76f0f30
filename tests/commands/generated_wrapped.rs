//! The table of what stands around a model: weights packed by libraries, adapters, and containers, as the fixtures have them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::{Checkpoint, Dtype};
use serde_json::Value;

/// The directories of a kind, sorted.
fn directories(kind: &str) -> Vec<PathBuf> {
    let directory = testing::root().join("fixtures/formats").join(kind);
    let entries = std::fs::read_dir(directory).expect("the fixtures");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
    paths.sort();
    paths
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Element types other than those that every checkpoint has.
fn packings(checkpoint: &Checkpoint) -> String {
    let dtypes = checkpoint.tensors.iter().map(|(_, info)| info.dtype);
    let plain = [Dtype::F32, Dtype::F16, Dtype::Bf16].map(|dtype| dtype.to_string());
    let found: BTreeSet<String> = dtypes.map(|dtype| dtype.to_string()).collect();
    let found: Vec<String> = found
        .into_iter()
        .filter(|name| !plain.contains(name))
        .collect();
    found.join(", ")
}

/// What the adapter's own configuration says that it is.
fn adapter(path: &Path) -> String {
    let config = json(&path.join("adapter_config.json"));
    let is = |key: &str| config[key].as_bool() == Some(true);
    let mut words = vec![config["peft_type"].as_str().unwrap_or("?").to_owned()];
    words.extend(is("use_dora").then(|| "DoRA".to_owned()));
    words.extend(is("use_rslora").then(|| "rsLoRA".to_owned()));
    let saved = config["modules_to_save"].as_array();
    words.extend(saved.map(|_| "whole modules".to_owned()));
    let bias = config["bias"].as_str().filter(|bias| *bias != "none");
    words.extend(bias.map(|bias| format!("biases: {bias}")));
    words.join(", ")
}

/// One line for each fixture: what it is, how it is read, and what it is held against.
pub fn wrapped_table() -> String {
    let mut table = String::new();
    let mut line = |path: &Path, is: &str, against: &str| {
        let checkpoint = Checkpoint::open(path).expect("opens");
        let packed = packings(&checkpoint);
        let spec = attnscope_families::read(checkpoint)
            .expect("is understood")
            .spec;
        let is = if is.is_empty() { packed.as_str() } else { is };
        let _ = writeln!(
            table,
            "| `{}` | {is} | {} | {against} |",
            name(path),
            spec.family
        );
    };
    for path in directories("packed") {
        let method = json(&path.join("config.json"));
        let method = method["quantization_config"]["quant_method"].as_str();
        let published = method.is_some_and(|method| ["gptq", "awq"].contains(&method));
        let against = if published {
            "to the bit: the published layout"
        } else {
            "to the bit: what the library reads"
        };
        line(&path, "", against);
    }
    for path in directories("adapters") {
        if path.join("adapter_config.json").exists() {
            line(&path, &adapter(&path), "patterns and logits of PEFT");
        }
    }
    for path in directories("containers") {
        line(&path, "a container", "the model alone, to the bit");
    }
    table
}

/// One line for each fixture of a head: its class, how it is read, and where its labels are.
pub fn heads_table() -> String {
    let mut table = String::new();
    for path in directories("heads") {
        let class = &json(&path.join("config.json"))["architectures"][0];
        let checkpoint = Checkpoint::open(&path).expect("opens");
        let spec = attnscope_families::read(checkpoint)
            .expect("is understood")
            .spec;
        let head = spec.head.as_ref().expect("a head");
        let labels = head.labels.as_deref().expect("labels");
        let _ = writeln!(
            table,
            "| `{}` | {} | {} | {} | {} |",
            name(&path),
            class.as_str().unwrap_or_default(),
            spec.family,
            labels.names.len(),
            labels.pooled.word()
        );
    }
    table
}
