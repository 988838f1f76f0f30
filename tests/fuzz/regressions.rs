//! Files of earlier findings: each is read, or refused in a line that holds some words. Small ones lie in `fixtures/fuzz`; what would
//! be large is built here.

use serde_json::{Map, Value, json};
use testing::checkpoint_copy::{put_together, take_apart};

use super::execution::Case;
use super::mutate::archive;
use super::seeds::{Kind, Place, Seed, fixture};

/// A name, the file, and a part of the line that refuses it; `None` where it is read.
pub type Regression = (&'static str, Case, Option<&'static str>);

/// The regressions of a target.
pub fn of(target: &str) -> Vec<Regression> {
    match target {
        "arrays" => arrays(),
        "words" => words(),
        "traces" => traces(),
        "tokenizer" => tokenizers(),
        "vocabulary" => vocabularies(),
        "safetensors" => safetensors(),
        "homegrown" => homegrown(),
        "config" => configs(),
        _ => Vec::new(),
    }
}

fn case(seed: Seed) -> Case {
    let bytes = seed.bytes.clone();
    Case { seed, bytes }
}

/// An array of version 1.
fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len()).expect("short").to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

fn shaped(kind: &str, shape: &str) -> String {
    format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n")
}

fn arrays() -> Vec<Regression> {
    let array = |bytes: Vec<u8>| {
        case(Seed::ending(Kind::Npy, "npy", bytes).with("words.json", r#"{"the": 0}"#))
    };
    let four = |shape: &str| array(npy(&shaped("<f4", shape), &[0; 16]));
    vec![
        // Sixteen opened braces took a parser of Python's literals twenty seconds.
        (
            "nested_header",
            array(fixture("fuzz/nested.npy")),
            Some("byte 1"),
        ),
        (
            "four_thousand_million",
            four("(65536, 65535)"),
            Some("truncated"),
        ),
        // A row that is wider than the file was held for every word before it was looked for.
        (
            "wide_row",
            array(fixture("fuzz/wide.npy")),
            Some("truncated"),
        ),
        (
            "beyond_counting",
            four("(0, 1099511627776, 1099511627776)"),
            Some("elements"),
        ),
        ("no_number", four("(-1, 2)"), Some("a whole number")),
    ]
}

fn words() -> Vec<Regression> {
    let text = |name: &str| {
        case(Seed::ending(
            Kind::Lines,
            "txt",
            fixture(&format!("fuzz/{name}")),
        ))
    };
    vec![
        // A form feed is not an end of a field: rows were shifted by one number.
        ("form_feed", text("form_feed.txt"), None),
        (
            "claims_more",
            text("claims_more.txt"),
            Some("18446744073709551615 words, 1 follow"),
        ),
    ]
}

fn traces() -> Vec<Regression> {
    let correct = fixture("captured/correct.safetensors");
    let (mut header, data) = take_apart(&correct);
    header["__metadata__"] = json!({ "attnscope.window": "18446744073709551615" });
    let window = Seed::ending(
        Kind::Safetensors,
        "safetensors",
        put_together(&header, &data),
    );
    // 40 million bytes that deflate to forty thousand.
    let zeros = npy(&shaped("|u1", "(1, 1, 5000, 8000)"), &vec![0; 40_000_000]);
    let inflating = archive(&[("blocks.0.attn.pattern.npy".to_owned(), zeros)], true);
    let short = npy(&shaped("<f4", "(1, 2, 30000, 30000)"), &[0; 16]);
    let short = archive(&[("blocks.0.attn.pattern.npy".to_owned(), short)], false);
    let zip =
        |bytes: Option<Vec<u8>>| case(Seed::ending(Kind::Zip, "npz", bytes.expect("an archive")));
    vec![
        // The sum of a position and this width wrapped around.
        ("endless_window", case(window), None),
        (
            "inflating",
            zip(inflating),
            Some("save it without compression"),
        ),
        ("short", zip(short), Some("truncated")),
    ]
}

fn tokenizers() -> Vec<Regression> {
    let of = |parts: Value| {
        let mut whole: Value =
            serde_json::from_slice(&fixture("fuzz/tokenizer.json")).expect("JSON");
        for (key, part) in parts.as_object().into_iter().flatten() {
            whole[key] = part.clone();
        }
        case(Seed::ending(Kind::Json, "json", whole.to_string()))
    };
    let double = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
    let spelled = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false });
    let template = json!({
        "type": "TemplateProcessing", "pair": [], "special_tokens": {},
        "single": [{ "SpecialToken": { "id": "[CLS]", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
    });
    let bpe = json!({ "type": "BPE", "dropout": 0.9, "vocab": { "a": 0, "h": 1 }, "merges": [] });
    vec![
        ("as_it_is", of(json!({})), None),
        (
            "doubling",
            of(json!({ "normalizer": { "type": "Sequence", "normalizers": vec![double; 40] } })),
            Some("64 times longer"),
        ),
        (
            "doubling_cuts",
            of(
                json!({ "pre_tokenizer": { "type": "Sequence", "pretokenizers": vec![spelled; 40] } }),
            ),
            Some("pre-tokenizer makes the text more than 64 times longer"),
        ),
        (
            "unknown_template_token",
            of(json!({ "post_processor": template })),
            Some("[CLS]"),
        ),
        (
            "pieces_of_nothing",
            of(json!({ "pre_tokenizer": { "type": "FixedLength", "length": 0 } })),
            Some("FixedLength"),
        ),
        (
            "strips_beyond_the_end",
            of(
                json!({ "decoder": { "type": "Strip", "content": "a", "start": 0, "stop": 1u64 << 62 } }),
            ),
            None,
        ),
        ("dropout", of(json!({ "model": bpe })), None),
    ]
}

fn vocabularies() -> Vec<Regression> {
    let t5 = |config: Value| {
        case(
            Seed::named(Kind::Json, "tokenizer_config.json", config.to_string())
                .with(
                    "spiece.model",
                    fixture("formats/tokenizers/t5/spiece.model"),
                )
                .with("config.json", r#"{"model_type": "t5"}"#),
        )
    };
    vec![
        ("extra_ids", t5(json!({ "extra_ids": 100 })), None),
        (
            "million_extra_ids",
            t5(json!({ "extra_ids": 1_000_000_000 })),
            Some("extra_ids"),
        ),
    ]
}

fn safetensors() -> Vec<Regression> {
    let file = |shape: Value, n: usize| {
        let header = json!({ "a": { "dtype": "F32", "shape": shape, "data_offsets": [0, n] } });
        case(Seed::ending(
            Kind::Safetensors,
            "safetensors",
            put_together(&header, &vec![0; n]),
        ))
    };
    let long =
        json!({ ("x".repeat(70_000)): { "dtype": "F32", "shape": [1], "data_offsets": [0, 4] } });
    let mut many = Map::new();
    for n in 0..30_000 {
        let place = json!({ "dtype": "U8", "shape": [1], "data_offsets": [n, n + 1] });
        many.insert(format!("t{n:05}"), place);
    }
    let seed = |header: &Value, n: usize| {
        case(Seed::ending(
            Kind::Safetensors,
            "safetensors",
            put_together(header, &vec![0; n]),
        ))
    };
    vec![
        (
            "beyond_counting",
            file(json!([0, 1u64 << 40, 1u64 << 40]), 0),
            Some("more elements than can be counted"),
        ),
        ("many_dimensions", file(json!(vec![1; 30_000]), 4), None),
        ("long_name", seed(&long, 4), None),
        ("many_tensors", seed(&Value::Object(many), 30_000), None),
    ]
}

fn homegrown() -> Vec<Regression> {
    // An axis of 1 before the others: the shape fits but for it, and rows are looked for along the wrong one.
    let bytes = fixture("formats/homegrown/encoder/weights.safetensors");
    let (mut header, data) = take_apart(&bytes);
    let names: Vec<String> = header
        .as_object()
        .expect("an object")
        .keys()
        .cloned()
        .collect();
    for name in names.iter().filter(|name| *name != "__metadata__") {
        let shape = header[name]["shape"].as_array_mut().expect("a shape");
        shape.insert(0, json!(1));
    }
    let set = "[set]\nn_heads = 2\nactivation = \"relu\"\nnorm_first = false\nembed_scale = 1.0\nmask = \"causal\"\n";
    let seed = Seed::ending(
        Kind::Safetensors,
        "safetensors",
        put_together(&header, &data),
    );
    vec![(
        "leading_ones",
        case(seed.with("attnscope.toml", set)),
        Some("expected a matrix"),
    )]
}

fn configs() -> Vec<Regression> {
    let with = |family: &str, key: &str, value: Value| {
        let of = |name: &str| fixture(&format!("oracle/{family}/model/{name}"));
        let mut config: Value = serde_json::from_slice(&of("config.json")).expect("JSON");
        config[key] = value;
        let seed = Seed {
            kind: Kind::Json,
            place: Place::Named("config.json"),
            bytes: config.to_string().into_bytes(),
            siblings: vec![("model.safetensors".to_owned(), of("model.safetensors"))],
        };
        case(seed)
    };
    vec![
        (
            "inner_groups",
            with("albert_b", "inner_group_num", json!(1u64 << 31)),
            Some("inner_group_num"),
        ),
        (
            "negative_clip",
            with("olmo_clip", "clip_qkv", json!(-1)),
            Some("clip_qkv"),
        ),
        (
            "many_layers",
            with("albert_b", "num_hidden_layers", json!(1u64 << 40)),
            Some("num_hidden_layers"),
        ),
        (
            "endless_window",
            with("mistral_full", "sliding_window", json!(u64::MAX)),
            None,
        ),
    ]
}
