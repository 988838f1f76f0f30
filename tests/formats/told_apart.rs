//! Files and tensors that look like something else: layouts that came before, archives of weights, models of numbers, and classifiers.

use attnscope_checkpoint::Checkpoint;
use serde_json::Value;
use tempfile::TempDir;
use testing::checkpoint_copy::{Stored, Weights, attnscope, file_of, text};
use testing::opening::{fails, knob, opened};

/// A file of tensors of these names and shapes, with made-up values.
pub fn stored(tensors: &[(&str, &[usize])]) -> (TempDir, std::path::PathBuf) {
    let weights: Weights = tensors
        .iter()
        .enumerate()
        .map(|(nth, (name, shape))| {
            let n: usize = shape.iter().product();
            let values: Vec<f32> = (0..n)
                .map(|i| ((i * 7919 + nth * 31) % 17) as f32 / 40.0 - 0.2)
                .collect();
            ((*name).to_owned(), Stored::f32(shape, &values))
        })
        .collect();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("model.safetensors");
    std::fs::write(&path, file_of(&weights)).expect("writes");
    (directory, path)
}

/// One layer of `torch.nn.TransformerEncoder`, with what else a test adds.
fn encoder(more: &[(&str, &[usize])]) -> (TempDir, std::path::PathBuf) {
    let layer: [(&str, &[usize]); 12] = [
        ("layers.0.self_attn.in_proj_weight", &[24, 8]),
        ("layers.0.self_attn.in_proj_bias", &[24]),
        ("layers.0.self_attn.out_proj.weight", &[8, 8]),
        ("layers.0.self_attn.out_proj.bias", &[8]),
        ("layers.0.linear1.weight", &[16, 8]),
        ("layers.0.linear1.bias", &[16]),
        ("layers.0.linear2.weight", &[8, 16]),
        ("layers.0.linear2.bias", &[8]),
        ("layers.0.norm1.weight", &[8]),
        ("layers.0.norm1.bias", &[8]),
        ("layers.0.norm2.weight", &[8]),
        ("layers.0.norm2.bias", &[8]),
    ];
    stored(&[&layer[..], more].concat())
}

const SET: [&str; 5] = [
    "n_heads=2",
    "mask=bidirectional",
    "activation=relu",
    "norm_first=false",
    "positions=none",
];

#[test]
fn a_classifier_behind_an_encoder_is_no_forgotten_weight() {
    let (_directory, path) = encoder(&[
        ("embedding.weight", &[20, 8]),
        ("fc.weight", &[3, 8]),
        ("fc.bias", &[3]),
    ]);
    let path = path.to_str().expect("a path");
    let mut words = vec!["check", path, "--tokens", "5,9,2,7", "--format", "json"];
    SET.iter().for_each(|set| words.extend(["--set", set]));
    words.extend(["--set", "embed_scale=none"]);
    let output = attnscope(&words);
    let said = text(&output.stderr);
    let verdicts: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    let checks = verdicts["targets"][0]["checks"].as_array().expect("checks");
    let unread = checks.iter().find(|check| check["id"] == "unread-weights");
    assert_eq!(unread.expect("the check")["status"], "passed", "{said}");
    assert!(
        said.contains("of other heads or modalities were left aside: fc."),
        "{said}"
    );
}

#[test]
fn a_model_of_numbers_reads_rows_and_ends_with_its_states_where_no_head_is_stored() {
    let maps: [(&str, &[usize]); 2] = [("input_proj.weight", &[8, 5]), ("input_proj.bias", &[8])];
    let (_directory, path) = encoder(&maps);
    let model = opened(&path, &SET);
    assert_eq!(model.spec.family, "described");
    assert_eq!(knob(&model, "head").0, "none");
    // Without a bias, a map of numbers and a table with a column per token are alike, and another one could be either.
    let also: [(&str, &[usize]); 2] = [("input_proj.weight", &[8, 5]), ("side.weight", &[8, 6])];
    let (_directory, path) = encoder(&also);
    let said = fails(&path, &SET);
    for part in [
        "no table of tokens",
        "maps 5 numbers per position",
        "[tensors]",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn matrices_that_easy_transformer_saved_are_those_of_transformer_lens() {
    let from = testing::root().join("fixtures/formats/layouts/lens_learned");
    let open = Checkpoint::open(&from).expect("opens");
    let turned: Weights = open
        .tensors
        .iter()
        .filter(|(_, info)| info.dtype.is_float())
        .map(|(name, info)| {
            let values = open
                .tensors
                .get(name)
                .expect("a tensor")
                .widen()
                .expect("reads");
            let is_map = name
                .rsplit('.')
                .next()
                .is_some_and(|last| last.starts_with("W_"));
            let stored = match info.shape.as_slice() {
                [before @ .., rows, columns] if is_map => {
                    let (rows, columns) = (*rows, *columns);
                    let mut turned = Vec::with_capacity(values.len());
                    for matrix in values.chunks(rows * columns) {
                        for column in 0..columns {
                            turned.extend((0..rows).map(|row| matrix[row * columns + column]));
                        }
                    }
                    Stored::f32(&[before, &[columns, rows]].concat(), &turned)
                }
                shape => Stored::f32(shape, &values),
            };
            (name.to_owned(), stored)
        })
        .collect();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("model.safetensors");
    std::fs::write(&path, file_of(&turned)).expect("writes");
    let loss = |path: &std::path::Path| {
        let path = path.to_str().expect("a path");
        let words = ["report", path, "--tokens", "5,9,2,7,11", "--format", "json"];
        let set = ["--set", "activation=gelu_new", "--set", "norm_eps=1e-5"];
        let output = attnscope(&[&words[..], &set].concat());
        let said = text(&output.stderr);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
        report["prompts"][0]["loss"].as_f64().expect("a loss")
    };
    let (new, old) = (loss(&from), loss(&path));
    assert!((new - old).abs() < 1e-6, "{new} {old}");
}

#[test]
fn an_archive_of_weights_is_no_trace() {
    let path = testing::root().join("fixtures/formats/containers/npz");
    let file = std::fs::read_dir(path).expect("lists").flatten();
    let file = file.map(|entry| entry.path());
    let file = file.filter(|path| path.extension().is_some_and(|ending| ending == "npz"));
    for file in file {
        assert!(!attnscope_run::is_captured(&file), "{}", file.display());
    }
}
