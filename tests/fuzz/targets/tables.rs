//! Arrays of others: tables of words with their dictionaries, and captured attention.

use std::path::Path;

use attnscope_checkpoint::embeddings::Table;
use attnscope_checks::Thresholds;
use attnscope_compute::attention::SoftmaxAxis;
use attnscope_run::align::Alignment;
use attnscope_run::{Declared, judge_captured, open_trace};
use serde_json::json;
use testing::checkpoint_copy::{Weights, put_together, take_apart};
use testing::embedding_files::{Stored, npy, npz, pickle, tensors};
use testing::trace_files::{arrays, npz as npz_of};

use super::Target;
use crate::seeds::{Kind, Seed};

const DICTIONARY: &str = "words.json";

/// What `attnscope align` does with a table of two sides.
fn aligned(path: &Path) -> Result<(), String> {
    let said = |e: attnscope_compute::error::Error| e.to_string();
    let dictionary = path.with_file_name(DICTIONARY);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (table, words) = match name.as_ref() {
        DICTIONARY | "words.pkl" => (path.with_file_name("table.npy"), Some(path.to_path_buf())),
        _ => (
            path.to_path_buf(),
            Some(dictionary).filter(|path| path.exists()),
        ),
    };
    let open = || Table::open(&table, words.as_deref(), "query").map_err(said);
    let tables = [open()?, open()?];
    let alignment = Alignment::new(tables, ["the cat the", "dog b"], SoftmaxAxis::Keys, &[]);
    alignment.map_err(said)?.align();
    Ok(())
}

fn words() -> Vec<u8> {
    json!({ "the": 0, "cat": 1, "dog": 2 })
        .to_string()
        .into_bytes()
}

fn numbers() -> [f32; 6] {
    [0.5, -1.0, 2.0, 0.25, 0.0, 1.5]
}

pub const ARRAYS: Target = Target {
    name: "arrays",
    n_quick: 5_000,
    seeds: || {
        let stored = |kind, is_fortran, is_deflated| Stored {
            kind,
            is_fortran,
            is_deflated,
        };
        let plain = stored("f4", false, false);
        let array = |stored: &Stored| npy(stored, [3, 2], &numbers());
        let seed = |kind, ending, bytes: Vec<u8>| {
            Seed::ending(kind, ending, bytes).with(DICTIONARY, words())
        };
        vec![
            seed(Kind::Npy, "npy", array(&plain)),
            seed(Kind::Npy, "npy", array(&stored("f8", true, false))),
            seed(Kind::Npy, "table", array(&stored("f2", false, false))),
            seed(
                Kind::Zip,
                "npz",
                npz("embeddings", &plain, [3, 2], &numbers()),
            ),
            seed(
                Kind::Zip,
                "npz",
                npz("one", &stored("f8", true, true), [3, 2], &numbers()),
            ),
            seed(
                Kind::Safetensors,
                "safetensors",
                tensors("embeddings", [3, 2], &numbers()),
            ),
        ]
    },
    tokens: &[
        "descr",
        "fortran_order",
        "shape",
        "<f4",
        "True",
        "(",
        ")",
        "{",
        "}",
        "embeddings.npy",
        "one.npy",
        "\u{0}",
    ],
    read: aligned,
};

pub const WORDS: Target = Target {
    name: "words",
    n_quick: 8_000,
    seeds: || {
        let table = npy(
            &Stored {
                kind: "f4",
                is_fortran: false,
                is_deflated: false,
            },
            [3, 2],
            &numbers(),
        );
        let text = "3 2\nthe 0.5 -1\ncat 2 0.25\ndog 0 1.5\n";
        vec![
            Seed::ending(Kind::Lines, "txt", text),
            Seed::ending(Kind::Lines, "vec", &text[4..]),
            Seed::named(Kind::Json, DICTIONARY, words()).with("table.npy", table.clone()),
            Seed::named(Kind::Pickle, "words.pkl", pickle(&["the", "cat", "dog"]))
                .with("table.npy", table),
        ]
    },
    tokens: &[
        "the", "cat", "1e39", "nan", "inf", "0x1p3", "\u{c}", "\u{a0}", "\t", "}", "(", "u.",
        "K\u{1}", "\u{0}",
    ],
    read: aligned,
};

/// A probe, a trace, or anything else with such names in it.
fn judged(path: &Path) -> Result<(), String> {
    let judged = judge_captured(path, &Declared::default(), &Thresholds::default(), &|_| {
        true
    });
    judged.map(drop).map_err(|e| e.to_string())
}

/// A trace of few positions, so that judging it is fast.
fn small(name: &str) -> Weights {
    arrays(name)
}

pub const TRACES: Target = Target {
    name: "traces",
    n_quick: 1_500,
    seeds: || {
        let file = |name: &str| {
            let path = testing::root().join("fixtures/captured").join(name);
            std::fs::read(path).expect("a fixture")
        };
        let seed = |name: &str| Seed::ending(Kind::Safetensors, "safetensors", file(name));
        let (mut header, data) = take_apart(&file("correct.safetensors"));
        header["__metadata__"] = json!({
            "attnscope.causal": "true", "attnscope.window": "3", "attnscope.axis": "key", "attnscope.sinks": "false",
            "attnscope.documents": "0,3", "attnscope.source": "a test",
        });
        let told = Seed::ending(
            Kind::Safetensors,
            "safetensors",
            put_together(&header, &data),
        );
        let zipped = npz_of(&small("sdpa.safetensors"));
        vec![
            seed("correct.safetensors"),
            seed("masked_padding.safetensors"),
            seed("encoder_decoder.safetensors"),
            seed("probe_correct.safetensors"),
            seed("probe_attended_padding.safetensors"),
            told,
            Seed::ending(Kind::Zip, "npz", file("pattern_only.npz")),
            Seed::ending(Kind::Zip, "npz", zipped),
        ]
    },
    tokens: &[
        "blocks.0.attn.pattern",
        "blocks.1.attn.scores",
        "blocks.18446744073709551615.attn.pattern",
        "encoder.blocks.0.attn.pattern",
        "decoder.blocks.0.cross_attn.pattern",
        "tokens",
        "attention_mask",
        "attentions.0",
        "h.0.attn",
        "probe.future",
        "probe.padding",
        "attnscope.window",
        "attnscope.causal",
        "attnscope.axis",
        "attnscope.modules",
        "attnscope.noise",
        "attnscope.documents",
        "18446744073709551615",
        "-1",
        "true",
        "query",
        "[0, 1]",
        "[\"a\"]",
        "blocks.0.attn.pattern.npy",
        "__metadata__",
    ],
    read: judged,
};

/// The names and shapes of a dump's hooks, as everything else asks for them.
fn opened(path: &Path) -> Result<(), String> {
    let captured = open_trace(path).map_err(|e| e.to_string())?;
    let names = captured.names();
    names.iter().for_each(|name| drop(captured.shape(name)));
    Ok(())
}

pub const DUMPS: Target = Target {
    name: "dumps",
    n_quick: 3_000,
    seeds: || {
        let file = |name: &str| {
            let path = testing::root().join("fixtures/dumps").join(name);
            std::fs::read(path).expect("a fixture")
        };
        let mut printed = file("llama_cpp.txt");
        printed.truncate(12 << 10);
        vec![
            Seed::ending(Kind::Lines, "txt", printed),
            Seed::ending(Kind::Zip, "pt", file("modules.pt")),
            Seed::named(
                Kind::Zip,
                "Pass00000.pt",
                file("sglang/TP0_PP0_Rank0_pid4000/Pass00000.pt"),
            ),
        ]
    },
    tokens: &[
        "common_debug_cb_eval: Qcur-0 = (f32) ROPE(x{1, 1, 1, 1}, }) = {12, 4, 10, 1}\n",
        "ggml_debug:",
        " = {4294967296, 4294967296, 1, 1}",
        "{0, 0, 0, 0}",
        "...,",
        "[",
        "]",
        "nan",
        "-inf",
        "general.architecture = llama",
        "l_out-18446744073709551615",
        "kqv_out-0",
        "model.layers.1.self_attn.k_proj",
        "model.layers.18446744073709551615.mlp",
        "forward_batch_info.seq_lens",
    ],
    read: opened,
};
