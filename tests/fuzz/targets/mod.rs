//! What is fuzzed: one target for each kind of file that a person may hand over.

mod batches;
mod checkpoints;
mod configs;
mod documents;
mod histories;
mod homegrown;
mod logprobs;
mod losses;
mod processors;
mod records;
mod tables;
mod templates;
mod vocabularies;

use std::path::Path;

use super::seeds::{Kind, Seed};

/// A reader, what its mutants are made from, and the words that they are made with.
pub struct Target {
    pub name: &'static str,
    /// Executions of an ordinary test.
    pub n_quick: u64,
    pub seeds: fn() -> Vec<Seed>,
    pub tokens: &'static [&'static str],
    /// Reads a file as the program would, and whatever a command would then read of it.
    pub read: fn(&Path) -> Result<(), String>,
}

/// All of them, the slowest first.
pub static TARGETS: &[Target] = &[
    configs::FAMILIES,
    templates::TEMPLATES,
    processors::PROCESSORS,
    batches::BATCHES,
    vocabularies::TOKENIZER_JSON,
    vocabularies::VOCABULARY,
    tables::TRACES,
    tables::DUMPS,
    vocabularies::SENTENCE_PIECE,
    homegrown::HOMEGROWN,
    checkpoints::GGUF,
    configs::SETTINGS,
    checkpoints::QUANTISED,
    checkpoints::SAFETENSORS,
    checkpoints::SHARDS,
    checkpoints::PYTORCH,
    checkpoints::LEGACY,
    checkpoints::DISTRIBUTED,
    tables::ARRAYS,
    tables::WORDS,
    records::PARQUET,
    records::CSV,
    histories::SCREENS,
    losses::FILES,
    losses::RECORDS,
    logprobs::LOGPROBS,
    documents::PICTURES,
    documents::PROMPTS,
    documents::BASELINES,
    documents::THRESHOLDS,
    documents::SOUNDS,
];

/// Targets that must fail: what they do wrong is what an execution is watched for.
pub static WRONG: &[Target] = &[
    Target {
        name: "wrong-panic",
        read: |_| panic!("as it must be"),
        ..NOTHING
    },
    Target {
        name: "wrong-memory",
        read: |_| {
            let held = vec![1u8; 80 << 20];
            assert_eq!(std::hint::black_box(&held).len(), 80 << 20);
            Ok(())
        },
        ..NOTHING
    },
    Target {
        name: "wrong-time",
        read: |_| {
            std::thread::sleep(std::time::Duration::from_secs(7));
            Ok(())
        },
        ..NOTHING
    },
    Target {
        name: "wrong-overflow",
        read: |path| {
            let largest = u8::try_from(path.as_os_str().len()).map(|_| u8::MAX);
            Err(format!("{}", largest.unwrap_or_default() + 1))
        },
        ..NOTHING
    },
];

const NOTHING: Target = Target {
    name: "",
    n_quick: 1,
    seeds: || vec![Seed::ending(Kind::Bytes, "bytes", *b"anything")],
    tokens: &[],
    read: |_| Ok(()),
};

/// # Panics
/// When there is none of that name.
pub fn by_name(name: &str) -> &'static Target {
    let found = TARGETS
        .iter()
        .chain(WRONG)
        .find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("no target {name}"))
}
