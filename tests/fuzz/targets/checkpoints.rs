//! Weights in every format: opened, listed, widened, and read as whatever family they could be.

use std::path::Path;

use attnscope_checkpoint::{Checkpoint, Opening};
use attnscope_compute::error::Result;
use attnscope_prompt::Tokenizer;
use attnscope_run::tensor_stats;
use serde_json::{Value, json};
use testing::checkpoint_copy::{Stored, Weights, file_of, put_together};
use testing::gguf_pieces::{BOOL, LIST, Pieces, TEXT, entry, number, tensor, text, word};

use super::Target;
use crate::seeds::{Kind, Seed, fixture};

/// Words of headers, and names that families look for.
pub const NAMES: &[&str] = &[
    "__metadata__",
    "dtype",
    "shape",
    "data_offsets",
    "F32",
    "BF16",
    "U8",
    "weight",
    "transformer.wte.weight",
    "transformer.h.0.attn.c_attn.weight",
    "transformer.h.18446744073709551615.attn.c_attn.weight",
    "model.embed_tokens.weight",
    "model.layers.0.self_attn.q_proj.weight",
    "layers.0.attention.wq.weight",
    "encoder.layers.0.self_attn.in_proj_weight",
    "decoder.layers.0.multihead_attn.in_proj_weight",
    "bert.encoder.layer.0.attention.self.query.weight",
    "tok_embeddings.weight",
    "_orig_mod.",
    "module.",
];

/// A file that opens counts as read: few mutants stay a model.
fn opens(path: &Path) -> std::result::Result<(), String> {
    let said = |e: attnscope_compute::error::Error| e.to_string();
    let checkpoint = Checkpoint::open(path).map_err(said)?;
    list(&checkpoint).map_err(said)?;
    let vocabulary = Tokenizer::open(&checkpoint.tokenizer).map_err(said)?;
    if let Some(tokenizer) = vocabulary.tokenizer() {
        let _ = tokenizer.encode("Hello, 12 worlds", true);
        for id in [0, 7, u32::MAX] {
            tokenizer.label(id);
        }
    }
    let _ = attnscope_families::read(checkpoint);
    Ok(())
}

pub fn list(checkpoint: &Checkpoint) -> Result<()> {
    for (name, info) in checkpoint.tensors.iter() {
        assert_eq!(
            info.shape.iter().product::<usize>(),
            info.n_elements(),
            "{name}"
        );
        let _ = info.n_bytes();
        // What is damaged in one tensor says nothing of the next.
        let _ = tensor_stats(&checkpoint.tensors, name);
    }
    checkpoint.dtype_label();
    Ok(())
}

fn values(n: usize) -> Vec<f32> {
    (0..n).map(|idx| (idx as f32 * 0.37).sin()).collect()
}

pub fn f32s(shape: &[usize]) -> Stored {
    Stored::f32(shape, &values(shape.iter().product()))
}

fn zeros(dtype: &str, shape: &[usize], size: usize) -> Stored {
    Stored {
        dtype: dtype.to_owned(),
        shape: shape.to_vec(),
        bytes: vec![1; shape.iter().product::<usize>() * size],
    }
}

pub fn of(tensors: &[(&str, Stored)]) -> Weights {
    let owned = tensors.iter().cloned();
    owned
        .map(|(name, stored)| (name.to_owned(), stored))
        .collect()
}

pub const SAFETENSORS: Target = Target {
    name: "safetensors",
    n_quick: 8_000,
    seeds: || {
        let plain = of(&[
            ("a.weight", f32s(&[3, 4])),
            ("b", zeros("BF16", &[2, 2], 2)),
            ("c", zeros("I64", &[3], 8)),
            ("d", zeros("F64", &[1, 2], 8)),
            ("e", zeros("F8_E4M3", &[4], 1)),
            ("f", zeros("BOOL", &[0, 3], 1)),
        ]);
        let named = put_together(
            &json!({ "__metadata__": { "format": "pt" }, "x": { "dtype": "F16", "shape": [2], "data_offsets": [0, 4] } }),
            &[0, 1, 2, 3],
        );
        vec![
            Seed::ending(Kind::Safetensors, "safetensors", file_of(&plain)),
            Seed::ending(Kind::Safetensors, "safetensors", named),
            Seed::ending(Kind::Safetensors, "safetensors", gpt2()),
        ]
    },
    tokens: NAMES,
    read: opens,
};

/// One layer of four numbers a position.
pub fn gpt2() -> Vec<u8> {
    file_of(&of(&[
        ("wte.weight", f32s(&[6, 4])),
        ("wpe.weight", f32s(&[5, 4])),
        ("h.0.ln_1.weight", f32s(&[4])),
        ("h.0.ln_1.bias", f32s(&[4])),
        ("h.0.attn.c_attn.weight", f32s(&[4, 12])),
        ("h.0.attn.c_attn.bias", f32s(&[12])),
        ("h.0.attn.c_proj.weight", f32s(&[4, 4])),
        ("h.0.attn.c_proj.bias", f32s(&[4])),
        ("h.0.ln_2.weight", f32s(&[4])),
        ("h.0.ln_2.bias", f32s(&[4])),
        ("h.0.mlp.c_fc.weight", f32s(&[4, 16])),
        ("h.0.mlp.c_fc.bias", f32s(&[16])),
        ("h.0.mlp.c_proj.weight", f32s(&[16, 4])),
        ("h.0.mlp.c_proj.bias", f32s(&[4])),
        ("ln_f.weight", f32s(&[4])),
        ("ln_f.bias", f32s(&[4])),
    ]))
}

pub const SHARDS: Target = Target {
    name: "shards",
    n_quick: 5_000,
    seeds: || {
        let index =
            |map: Value| json!({ "metadata": { "total_size": 32 }, "weight_map": map }).to_string();
        let first = file_of(&of(&[("a", f32s(&[2, 2]))]));
        let second = file_of(&of(&[("b", f32s(&[4]))]));
        let safetensors = index(json!({ "a": "one.safetensors", "b": "two.safetensors" }));
        let directory = "formats/pytorch/sharded";
        let shard = |name: &str| fixture(&format!("{directory}/{name}"));
        let names = [
            "pytorch_model-00001-of-00002.bin",
            "pytorch_model-00002-of-00002.bin",
        ];
        vec![
            Seed::ending(Kind::Json, "safetensors.index.json", safetensors)
                .with("one.safetensors", first)
                .with("two.safetensors", second),
            Seed::ending(
                Kind::Json,
                "bin.index.json",
                shard("pytorch_model.bin.index.json"),
            )
            .with(names[0], shard(names[0]))
            .with(names[1], shard(names[1])),
        ]
    },
    tokens: &[
        "weight_map",
        "metadata",
        "one.safetensors",
        "two.safetensors",
        "../one.safetensors",
        ".",
        "..",
        "/dev/zero",
        "pytorch_model-00001-of-00002.bin",
        "one.safetensors/",
    ],
    read: opens,
};

/// Opcodes, and names that a pickle of `torch.save` calls.
const OPCODES: &[&str] = &[
    "c__builtin__\neval\n",
    "ctorch._utils\n_rebuild_tensor_v2\n",
    "ctorch._utils\n_rebuild_parameter\n",
    "ctorch\nFloatStorage\n",
    "ccollections\nOrderedDict\n",
    "(",
    ")",
    "}",
    "]",
    "t",
    "l",
    "d",
    "R",
    "b",
    "Q",
    "s",
    "u",
    "a",
    "e",
    "0",
    "1",
    "2",
    ".",
    "N",
    "K\u{1}",
    "M\u{7f}\u{7f}",
    "J\u{7f}\u{7f}\u{7f}\u{7f}",
    "\u{0}",
    "q\u{0}",
    "h\u{0}",
    "r\u{0}\u{0}\u{0}\u{0}",
    "j\u{0}\u{0}\u{0}\u{0}",
    "I1\n",
    "L1L\n",
    "F1.5\n",
    "Vtext\n",
    "Stext\n",
    "Ptext\n",
    "g0\n",
    "p0\n",
    "(K\u{1}K\u{2}t",
    "(lp0\n",
    "}q\u{0}(",
];

pub const PYTORCH: Target = Target {
    name: "pytorch",
    n_quick: 6_000,
    seeds: || {
        let files = ["zip.pt", "trainer.pt", "protocol5.pt", "parallel.pth"];
        let seed =
            |name: &str| Seed::ending(Kind::Zip, "pt", fixture(&format!("formats/pytorch/{name}")));
        files.map(seed).into()
    },
    tokens: OPCODES,
    read: opens,
};

pub const LEGACY: Target = Target {
    name: "legacy",
    n_quick: 8_000,
    seeds: || {
        let files = ["legacy.pt", "trainer_legacy.pt"];
        let seed = |name: &str| {
            Seed::ending(
                Kind::Pickle,
                "pth",
                fixture(&format!("formats/pytorch/{name}")),
            )
        };
        files.map(seed).into()
    },
    tokens: OPCODES,
    read: opens,
};

pub const DISTRIBUTED: Target = Target {
    name: "distributed",
    n_quick: 3_000,
    seeds: || {
        let seed = |name: &str| {
            let mut files = testing::distributed::files_of(name);
            let index = files.remove(".metadata").expect("an index");
            let seed = Seed::named(Kind::Pickle, ".metadata", index);
            let with = |seed: Seed, (name, bytes): (&String, &Vec<u8>)| seed.with(name, &bytes[..]);
            files.iter().fold(seed, with)
        };
        ["whole", "columns", "mesh"].map(seed).into()
    },
    tokens: &[
        "offsets",
        "sizes",
        "size",
        "chunks",
        "properties",
        "offset",
        "length",
        "relative_path",
        "transform_descriptors",
        "storage_data",
        "planner_data",
        "__0_0.distcp",
        "__1_0.distcp",
        "K\u{0}",
        "K\u{10}",
        "M\u{7f}\u{7f}",
        "J\u{7f}\u{7f}\u{7f}\u{7f}",
        "\u{0}",
        "h\u{1}",
        "h\u{10}",
        ")",
        "}",
        "(",
        "u",
        "b",
    ],
    read: opens,
};

pub const QUANTISED: Target = Target {
    name: "quantised",
    n_quick: 5_000,
    seeds: || {
        let mxfp4 = of(&[
            ("w_blocks", zeros("U8", &[1, 2, 1, 16], 1)),
            ("w_scales", zeros("U8", &[1, 2, 1], 1)),
            ("b", f32s(&[2])),
        ]);
        let fp8 = of(&[
            ("w", zeros("F8_E4M3", &[3, 5], 1)),
            ("w_scale_inv", f32s(&[2, 3])),
            ("v", zeros("F8_E5M2", &[2, 3, 5], 1)),
            ("v_scale_inv", zeros("BF16", &[2, 2, 3], 2)),
        ]);
        let how = json!({ "quantization_config": { "quant_method": "fp8", "weight_block_size": [2, 2], "activation_scheme": "dynamic" } });
        let mx = json!({ "quantization_config": { "quant_method": "mxfp4" } });
        vec![
            Seed::ending(Kind::Safetensors, "safetensors", file_of(&mxfp4))
                .with("config.json", mx.to_string()),
            Seed::ending(Kind::Safetensors, "safetensors", file_of(&fp8))
                .with("config.json", how.to_string()),
            Seed::named(Kind::Json, "config.json", how.to_string())
                .with("model.safetensors", file_of(&fp8)),
        ]
    },
    tokens: &[
        "w_blocks",
        "w_scales",
        "w_scale_inv",
        "w_scale",
        "v_scale_inv",
        "quantization_config",
        "quant_method",
        "mxfp4",
        "fp8",
        "awq",
        "weight_block_size",
        "modules_to_not_convert",
        "activation_scheme",
        "static",
    ],
    read: |path| {
        // A configuration stands for the directory that it is in.
        let is_config = path.file_name().is_some_and(|name| name == "config.json");
        let path = if is_config { path.parent() } else { Some(path) };
        opens(path.expect("a directory"))
    },
};

/// A small file with the vocabulary of a fixture's first words.
fn with_vocabulary(name: &str, n_words: usize) -> Vec<u8> {
    let stored = fixture(&format!("formats/tokenizers/{name}/vocabulary.json"));
    let stored: Value = serde_json::from_slice(&stored).expect("JSON");
    let mut pieces = Pieces::sound();
    for (key, value) in stored.as_object().expect("an object") {
        let key = match key.as_str() {
            "bos" => "tokenizer.ggml.bos_token_id".to_owned(),
            "unk" => "tokenizer.ggml.unknown_token_id".to_owned(),
            "token_types" => "tokenizer.ggml.token_type".to_owned(),
            "add_bos" | "add_eos" => format!("tokenizer.ggml.{key}_token"),
            other => format!("tokenizer.ggml.{other}"),
        };
        let list = |kind: u32, values: &[Value], bytes: &dyn Fn(&Value) -> Vec<u8>| {
            let values = &values[..values.len().min(n_words)];
            let mut list = kind.to_le_bytes().to_vec();
            list.extend((values.len() as u64).to_le_bytes());
            values.iter().for_each(|value| list.extend(bytes(value)));
            entry(&key, LIST, &list)
        };
        let whole = |v: &Value| {
            (v.as_i64().unwrap_or_default() as i32)
                .to_le_bytes()
                .to_vec()
        };
        let real = |v: &Value| {
            (v.as_f64().unwrap_or_default() as f32)
                .to_le_bytes()
                .to_vec()
        };
        let words = |v: &Value| text(v.as_str().unwrap_or_default());
        let made = match value {
            Value::String(hex) if key.ends_with("charsmap") => {
                let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
                let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
                let mut list = 0u32.to_le_bytes().to_vec(); // u8
                list.extend((bytes.len() as u64).to_le_bytes());
                list.extend(bytes);
                entry(&key, LIST, &list)
            }
            Value::String(value) => word(&key, value),
            Value::Bool(value) => entry(&key, BOOL, &[u8::from(*value)]),
            Value::Number(value) => number(&key, value.as_u64().unwrap_or_default() as u32),
            Value::Array(values) if values.first().is_some_and(Value::is_string) => {
                list(TEXT, values, &words)
            }
            Value::Array(values) if key.ends_with("scores") => list(6, values, &real),
            Value::Array(values) => list(5, values, &whole),
            _ => continue,
        };
        pieces = pieces.entry(made);
    }
    pieces.bytes()
}

pub const GGUF: Target = Target {
    name: "gguf",
    n_quick: 4_000,
    seeds: || {
        let mut all: Vec<Seed> = [Pieces::sound(), {
            let pieces = Pieces::sound()
                .entry(number("llama.attention.head_count_kv", 1))
                .entry(number("llama.context_length", 16))
                .entry(entry("llama.rope.freq_base", 6, &1e4f32.to_le_bytes()))
                .tensor(tensor("blk.0.ffn_down.weight", &[32, 2], 8, 128));
            Pieces {
                data: vec![1; 256],
                ..pieces
            }
        }]
        .iter()
        .map(|pieces| Seed::ending(Kind::Gguf, "gguf", pieces.bytes()))
        .collect();
        let named = [
            ("gguf-gpt-2", 60),
            ("gguf-llama", 90),
            ("gguf-t5", 60),
            ("gguf-qwen2", 400),
        ];
        let texts =
            named.map(|(name, n)| Seed::ending(Kind::Gguf, "gguf", with_vocabulary(name, n)));
        all.extend(texts);
        all.push(Seed::ending(
            Kind::Gguf,
            "gguf",
            fixture("formats/gguf/qwen2-q8_0.gguf"),
        ));
        all
    },
    tokens: &[
        "GGUF",
        "general.architecture",
        "general.alignment",
        "general.file_type",
        "llama",
        "gpt2",
        "gemma2",
        "qwen2",
        "mixtral",
        "llama.block_count",
        "llama.embedding_length",
        "llama.attention.head_count",
        "llama.attention.head_count_kv",
        "llama.vocab_size",
        "llama.rope.dimension_count",
        "llama.rope.scaling.type",
        "llama.expert_count",
        "tokenizer.ggml.model",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges",
        "tokenizer.ggml.scores",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.pre",
        "token_embd.weight",
        "output.weight",
        "blk.0.attn_q.weight",
        "blk.1.attn_q.weight",
        "blk.0.attn_q.bias",
        "rope_freqs.weight",
        "split.count",
    ],
    read: opens,
};

/// What the program opens when it is told nothing else.
pub fn opened(path: &Path) -> Result<Checkpoint> {
    Opening::from(Some(path.to_path_buf())).open()
}
