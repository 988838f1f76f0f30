//! Vocabularies in every form: opened, a text encoded, ids spelled.

use std::path::Path;

use attnscope_checkpoint::TokenizerFile;
use attnscope_prompt::{PromptForm, Tokenizer};
use serde_json::{Value, json};

use super::Target;
use crate::seeds::{Kind, Seed, directories, fixture};

const TEXT: &str = "hello a hello";

/// Opens a vocabulary, and uses it both ways.
fn used(file: &TokenizerFile) -> Result<(), String> {
    let said = |e: attnscope_compute::error::Error| e.to_string();
    match Tokenizer::open(file).map_err(said)? {
        PromptForm::Ids(reason) => Err(reason),
        PromptForm::Tokenizer(tokenizer) => {
            let ids = tokenizer.encode(TEXT, true).map_err(said)?;
            for id in ids.iter().take(4).chain(&[0, 1, u32::MAX]) {
                tokenizer.label(*id);
            }
            Ok(())
        }
    }
}

/// A vocabulary by its directory, as a checkpoint finds it.
fn in_directory_of(path: &Path) -> Result<(), String> {
    let directory = path.parent().expect("a directory");
    let config = std::fs::read(directory.join("config.json")).unwrap_or_default();
    let config: Value = serde_json::from_slice(&config).unwrap_or_default();
    used(&TokenizerFile::find(
        directory,
        config["model_type"].as_str(),
    ))
}

pub const TOKENIZER_JSON: Target = Target {
    name: "tokenizer",
    n_quick: 2_000,
    seeds: || {
        let base = |parts: Value| {
            let mut whole = json!({
                "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
                "pre_tokenizer": null, "post_processor": null, "decoder": null,
            });
            for (key, part) in parts.as_object().expect("an object") {
                whole[key] = part.clone();
            }
            Seed::ending(Kind::Json, "json", whole.to_string())
        };
        let bpe = json!({ "type": "BPE", "vocab": { "a": 0, "b": 1, "aa": 2, "aab": 3, "H": 4, "e": 5, "l": 6, "o": 7, "Ġ": 8 }, "merges": [["a", "a"], ["aa", "b"]] });
        let special = json!({ "id": 9, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true });
        let template = json!({
            "type": "TemplateProcessing",
            "single": [{ "SpecialToken": { "id": "<s>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
            "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
            "special_tokens": { "<s>": { "id": "<s>", "ids": [9], "tokens": ["<s>"] } },
        });
        vec![
            base(json!({ "model": bpe })),
            base(json!({
                "model": bpe, "added_tokens": [special], "post_processor": template,
                "normalizer": { "type": "Sequence", "normalizers": [{ "type": "NFC" }, { "type": "Lowercase" }, { "type": "Replace", "pattern": { "String": "a" }, "content": "b" }] },
                "pre_tokenizer": { "type": "Sequence", "pretokenizers": [{ "type": "Split", "pattern": { "Regex": "[a-z]+|\\d{1,3}" }, "behavior": "Isolated", "invert": false }, { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false }] },
                "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
            })),
            base(json!({
                "model": { "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": { "[UNK]": 0, "a": 1, "##a": 2, "hello": 3, "1": 4, "##2": 5 } },
                "normalizer": { "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true },
                "pre_tokenizer": { "type": "BertPreTokenizer" },
                "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
            })),
            base(json!({
                "model": { "type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": [["<unk>", 0.0], ["▁", -2.0], ["a", -1.0], ["aa", -1.5], ["▁He", -3.0]] },
                "pre_tokenizer": { "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true },
                "decoder": { "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true },
            })),
            base(json!({
                "model": { "type": "WordLevel", "unk_token": "u", "vocab": { "u": 0, "Hello": 1, "123": 2 } },
                "pre_tokenizer": { "type": "Sequence", "pretokenizers": [{ "type": "WhitespaceSplit" }, { "type": "Digits", "individual_digits": true }, { "type": "Punctuation", "behavior": "Isolated" }, { "type": "FixedLength", "length": 3 }] },
                "normalizer": { "type": "Sequence", "normalizers": [{ "type": "Strip", "strip_left": true, "strip_right": true }, { "type": "Prepend", "prepend": "x" }, { "type": "StripAccents" }] },
                "decoder": { "type": "Sequence", "decoders": [{ "type": "Strip", "content": " ", "start": 1, "stop": 0 }, { "type": "Fuse" }, { "type": "Replace", "pattern": { "String": "_" }, "content": " " }, { "type": "ByteFallback" }] },
            })),
        ]
    },
    tokens: &[
        "BPE",
        "WordPiece",
        "Unigram",
        "WordLevel",
        "Sequence",
        "Replace",
        "Split",
        "ByteLevel",
        "Metaspace",
        "Digits",
        "Punctuation",
        "Whitespace",
        "CharDelimiterSplit",
        "UnicodeScripts",
        "FixedLength",
        "BertPreTokenizer",
        "NFKD",
        "Nmt",
        "Precompiled",
        "Prepend",
        "Lowercase",
        "StripAccents",
        "Strip",
        "TemplateProcessing",
        "BertProcessing",
        "RobertaProcessing",
        "CTC",
        "Fuse",
        "ByteFallback",
        "BPEDecoder",
        "dropout",
        "unk_token",
        "unk_id",
        "byte_fallback",
        "fuse_unk",
        "ignore_merges",
        "content",
        "pattern",
        "Regex",
        "String",
        "(?:a+)+b",
        "(?=a)",
        "\\X+",
        ".*",
        "",
        "[",
        "prepend_scheme",
        "never",
        "length",
        "vocab",
        "merges",
        "type",
        "MergedWithNext",
        "Removed",
        "single_word",
        "lstrip",
        "normalized",
        "special",
    ],
    read: |path| used(&TokenizerFile::Path(path.to_path_buf())),
};

pub const SENTENCE_PIECE: Target = Target {
    name: "sentencepiece",
    n_quick: 4_000,
    seeds: || {
        let mut seeds = Vec::new();
        for (kind, file) in [
            ("llama", "tokenizer.model"),
            ("t5", "spiece.model"),
            ("xlm-roberta", "sentencepiece.bpe.model"),
            ("mbart", "sentencepiece.bpe.model"),
            ("marian", "source.spm"),
        ] {
            let of_kind = |name: &str| fixture(&format!("formats/tokenizers/{kind}/{name}"));
            let mut seed = Seed::named(Kind::Fields, file, of_kind(file))
                .with("config.json", of_kind("config.json"));
            if kind == "marian" {
                seed = seed.with("vocab.json", of_kind("vocab.json"));
            }
            seeds.push(seed);
        }
        seeds
    },
    tokens: &[
        "▁",
        "<unk>",
        "<s>",
        "</s>",
        "<0x41>",
        "<pad>",
        "nmt_nfkc",
        "identity",
        "\u{0}",
        "▁Hello",
        "<extra_id_0>",
    ],
    read: in_directory_of,
};

/// What stands beside a vocabulary, and what is one by itself.
const FILES: &[&str] = &[
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "config.json",
];

pub const VOCABULARY: Target = Target {
    name: "vocabulary",
    n_quick: 2_000,
    seeds: || {
        let mut seeds = Vec::new();
        for kind in directories("formats/tokenizers") {
            if kind.starts_with("gguf") {
                continue;
            }
            let directory = testing::root()
                .join("fixtures/formats/tokenizers")
                .join(&kind);
            let files = std::fs::read_dir(&directory).expect("the fixtures");
            let mut names: Vec<String> = files
                .map(|file| {
                    file.expect("a file")
                        .file_name()
                        .to_string_lossy()
                        .into_owned()
                })
                .filter(|name| name != "expected.json")
                .collect();
            names.sort();
            for name in FILES.iter().filter(|name| names.iter().any(|n| n == *name)) {
                let bytes = |name: &str| fixture(&format!("formats/tokenizers/{kind}/{name}"));
                let form = if name.ends_with("json") {
                    Kind::Json
                } else {
                    Kind::Lines
                };
                let mut seed = Seed::named(form, name, bytes(name));
                for other in names.iter().filter(|other| other != name) {
                    seed = seed.with(other, bytes(other));
                }
                seeds.push(seed);
            }
        }
        let bytes = fixture("formats/homegrown/nanogpt/meta.pkl");
        seeds.push(Seed::named(Kind::Pickle, "meta.pkl", bytes));
        seeds
    },
    tokens: &[
        "add_prefix_space",
        "bos_token",
        "eos_token",
        "unk_token",
        "pad_token",
        "extra_ids",
        "added_tokens_decoder",
        "content",
        "lstrip",
        "additional_special_tokens",
        "tokenizer_class",
        "do_lower_case",
        "GPT2Tokenizer",
        "Ġ",
        "<|endoftext|>",
        "[UNK]",
        "##",
        "stoi",
        "itos",
        "model_type",
        "legacy",
        "gpt2",
        "bert",
        "roberta",
        "t5",
        "llama",
        "add_bos_token",
        "#version: 0.2",
    ],
    read: in_directory_of,
};
