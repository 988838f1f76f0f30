//! Selects the files of a repository that a model needs: its configuration, its tokenizer, and its weights in one format.

use std::collections::HashSet;
use std::path::{Component, Path};

use attnscope_checkpoint::{CONFIGURATION, VOCABULARY, index_files};
use attnscope_compute::error::Error;

/// Files that describe weights, and tokenizer files.
const CONFIGS_AND_TOKENIZERS: [&str; 22] = [
    "config.json",
    "params.json",
    "adapter_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "target.spm",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "trainer_state.json",
];
/// Names of weights in one or several files, the preferred ones first.
const WEIGHTS: [&str; 8] = [
    "model.safetensors.index.json",
    "model.safetensors",
    "adapter_model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "adapter_model.bin",
    "consolidated.safetensors",
    "consolidated.00.pth",
];

/// Selects the files to download; if one is named, that file and those that describe it.
///
/// # Errors
/// Lists the available files if no weights can be selected.
pub fn wanted(files: &[String], named: Option<&str>) -> Result<Vec<String>, String> {
    let files: Vec<&str> = files
        .iter()
        .map(String::as_str)
        .filter(|file| is_inside(file))
        .collect();
    let mut wanted: Vec<String> = Vec::new();
    let names: HashSet<&str> = files.iter().copied().collect();
    let has = |name: &str| names.contains(name);
    let prefix = match named.and_then(|file| file.rsplit_once('/')) {
        Some((directory, _)) => format!("{directory}/"),
        None => String::new(),
    };
    for name in CONFIGS_AND_TOKENIZERS {
        let name = format!("{prefix}{name}");
        if has(&name) {
            wanted.push(name);
        }
    }
    if let Some(file) = named {
        if !has(file) {
            return Err(format!("has no file {file} on the hub"));
        }
        wanted.push(file.to_owned());
        return Ok(wanted);
    }
    if let Some(name) = WEIGHTS.iter().find(|name| has(name)) {
        wanted.push((*name).to_owned());
        return Ok(wanted);
    }
    for ending in [
        ".safetensors",
        ".gguf",
        ".bin",
        ".pt",
        ".pth",
        ".ckpt",
        ".msgpack",
    ] {
        let found: Vec<&str> = files
            .iter()
            .copied()
            .filter(|file| file.ends_with(ending) && !file.contains('/') && !is_state(file))
            .collect();
        match found.as_slice() {
            [] => {}
            // Shards without an index are one model.
            many if many.len() == 1 || many.iter().all(|file| file.contains("-of-")) => {
                wanted.extend(many.iter().map(|file| (*file).to_owned()));
                return Ok(wanted);
            }
            many => {
                let first: Vec<&str> = many.iter().copied().take(6).collect();
                return Err(format!(
                    "holds {} files that end in {ending}; name one, as in hf://ORG/NAME/{}: {}",
                    many.len(),
                    first[0],
                    first.join(", ")
                ));
            }
        }
    }
    Err("holds no weights that can be read".to_owned())
}

/// Returns the most bytes of a file: descriptions have the same limit as in the program's readers. Weights have no limit.
pub fn most_bytes(file: &str) -> Option<u64> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let is_vocabulary = matches!(
        name,
        "tokenizer.json" | "vocab.json" | "merges.txt" | "vocab.txt"
    ) || [".model", ".spm"]
        .iter()
        .any(|ending| name.ends_with(ending));
    let is_short = CONFIGS_AND_TOKENIZERS
        .iter()
        .any(|known| known.ends_with(name))
        || name.ends_with(".json");
    match () {
        () if is_vocabulary => Some(VOCABULARY as u64),
        () if is_short => Some(CONFIGURATION as u64),
        () => None,
    }
}

/// Whether a file is training state that trainers upload with the weights.
fn is_state(file: &str) -> bool {
    [
        "optimizer",
        "scheduler",
        "training_args",
        "rng_state",
        "scaler",
        "mmproj",
    ]
    .iter()
    .any(|word| file.starts_with(word))
}

/// Whether a file name from the hub stays in its directory.
fn is_inside(file: &str) -> bool {
    !file.is_empty()
        && Path::new(file)
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}

/// Returns the shards that an index names.
///
/// # Errors
/// When the file is not an index.
pub fn shards_of(index: &Path) -> Result<Vec<String>, Error> {
    index_files(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[&str], named: Option<&str>) -> Result<Vec<String>, String> {
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        wanted(&files, named)
    }

    #[test]
    fn only_weights_have_no_size_limit() {
        for file in [
            "config.json",
            "1_Pooling/config.json",
            "model.safetensors.index.json",
            "a/tokenizer.json",
            "spiece.model",
        ] {
            assert!(most_bytes(file).is_some(), "{file}");
        }
        for file in WEIGHTS.iter().filter(|file| !file.ends_with(".json")) {
            assert_eq!(most_bytes(file), None, "{file}");
        }
    }

    #[test]
    fn one_format_of_weights_is_selected_with_the_files_that_describe_it() {
        let files = [
            "README.md",
            "config.json",
            "flax_model.msgpack",
            "model.safetensors",
            "pytorch_model.bin",
            "vocab.txt",
        ];
        assert_eq!(
            of(&files, None).expect("chosen"),
            ["config.json", "vocab.txt", "model.safetensors"]
        );
        let old = ["config.json", "pytorch_model.bin", "optimizer.pt"];
        assert_eq!(
            of(&old, None).expect("chosen"),
            ["config.json", "pytorch_model.bin"]
        );
        let quantised = ["m.Q4_K_M.gguf", "m.Q8_0.gguf"];
        assert!(
            of(&quantised, None)
                .expect_err("two")
                .contains("hf://ORG/NAME/m.Q4_K_M.gguf")
        );
        assert_eq!(
            of(&quantised, Some("m.Q8_0.gguf")).expect("named"),
            ["m.Q8_0.gguf"]
        );
        assert!(of(&files, Some("other.bin")).is_err());
        assert!(of(&["../config.json", "/etc/x.safetensors"], None).is_err());
    }
}
