//! GGUF files against what transformers and the gguf package make of the same bytes: names, values, logits.
//!
//! The logits are those of the weights in the file. How far those are from the weights before quantisation, measured by
//! `fixtures/formats/make_gguf.py` as relative distance of logits: see the table in [`FILES`].

use std::path::{Path, PathBuf};

use attnscope_checkpoint::{Checkpoint, TokenizerFile};
use attnscope_compute::ops::Cpu;
use attnscope_prompt::Request;
use safetensors::SafeTensors;
use testing::gguf_pieces::{self, Pieces};
use testing::hooks::hooks_of;

/// Name, model type, element types, relative distance of the logits from the unquantised model's (nothing more than
/// a record: these models have random weights, which quantisation hurts more than trained ones).
const FILES: &[(&str, &str, &str, f64)] = &[
    ("llama-f32", "llama", "f32", 0.0),
    ("llama-f16", "llama", "f16+f32", 0.0),
    ("llama-q8_0", "llama", "q8_0+f16+f32", 3.04e-2),
    ("llama-q4_k", "llama", "q4_k+f32", 2.40e-1),
    ("qwen2-f16", "qwen2", "f16+f32", 0.0),
    ("qwen2-q8_0", "qwen2", "f16+q8_0+f32", 2.71e-3),
    ("gpt2-q8_0", "gpt2", "q8_0+f32", 1.25e-2),
    ("gemma2-q8_0", "gemma2", "q8_0+f32", 1.45e-2),
    ("mixtral-f16", "mixtral", "f16+f32", 6.69e-4),
];
/// Values that the references hold of each tensor, or a few more.
const N_SAMPLES: usize = 48;

/// Largest relative difference of logits, by Frobenius norms.
const RELATIVE_TOLERANCE: f64 = 1e-3;

fn directory() -> PathBuf {
    testing::root().join("fixtures/formats/gguf")
}

fn file(name: &str) -> PathBuf {
    directory().join(format!("{name}.gguf"))
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks(4)
        .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
        .collect()
}

/// The distance of two vectors over the length of the second.
fn relative(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let squared = |v: f32| f64::from(v) * f64::from(v);
    let distance: f64 = found
        .iter()
        .zip(expected)
        .map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2))
        .sum();
    let length: f64 = expected.iter().map(|v| squared(*v)).sum();
    (distance / length).sqrt()
}

fn reference(name: &str) -> Vec<u8> {
    let path = directory().join(format!("{name}.reference.safetensors"));
    std::fs::read(path).expect("a reference")
}

#[test]
fn every_tensor_has_its_hugging_face_name_and_values() {
    for (name, ..) in FILES {
        let opened = attnscope_checkpoint::gguf::open_file(&file(name)).expect("opens");
        let bytes = reference(name);
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        let mut n_compared = 0;
        for stored in reference.names() {
            let Some(tensor) = stored.strip_prefix("sample.") else {
                continue;
            };
            let expected = f32s(reference.tensor(stored).expect("a tensor").data());
            let view = opened
                .tensors
                .get(tensor)
                .unwrap_or_else(|| panic!("{name}: {tensor} is missing"));
            let all = view.widen().expect("reads");
            assert_eq!(all.len(), view.info.n_elements(), "{name}: {tensor}");
            let step = (all.len() / N_SAMPLES).max(1);
            let found: Vec<f32> = all.iter().copied().step_by(step).collect();
            assert_eq!(found.len(), expected.len(), "{name}: {tensor}");
            let worst = found
                .iter()
                .zip(&expected)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f32::max);
            assert!(worst <= 1e-6, "{name}: {tensor} differs by {worst:e}");
            // Rows that are asked for are the rows of the whole.
            if let [n_rows, width] = view.info.shape[..] {
                for rows in [0..1, n_rows / 2..n_rows, n_rows / 3..n_rows / 3 + 2] {
                    let expected = &all[rows.start * width..rows.end * width];
                    assert_eq!(
                        view.widen_rows(rows).expect("reads").as_ref(),
                        expected,
                        "{name}: {tensor}"
                    );
                }
            }
            n_compared += 1;
        }
        assert!(n_compared >= 10, "{name}: compared {n_compared}");
    }
}

#[test]
fn every_file_gives_the_logits_of_the_weights_in_it() {
    let mut n_run = 0;
    for (name, model_type, dtypes, distance) in FILES {
        let checkpoint = Checkpoint::open(&file(name)).expect("opens");
        assert_eq!(checkpoint.name, *name);
        assert!(matches!(
            checkpoint.tokenizer,
            TokenizerFile::Gguf { .. } | TokenizerFile::Missing
        ));
        assert_eq!(checkpoint.dtype_label(), *dtypes, "{name}");
        let found = checkpoint.config.get("model_type");
        assert_eq!(found.and_then(|v| v.as_str()), Some(*model_type), "{name}");
        if !attnscope_families::FAMILIES
            .iter()
            .any(|f| f.model_type == *model_type)
        {
            continue;
        }
        let model = attnscope_families::read(checkpoint).unwrap_or_else(|e| panic!("{name}: {e}"));
        let bytes = reference(name);
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        let tensor = |name: &str| reference.tensor(name).expect("a tensor").data().to_vec();
        let tokens: Vec<u32> = tensor("tokens")
            .chunks(8)
            .map(|b| i64::from_le_bytes(b.try_into().expect("8 bytes")) as u32)
            .collect();
        let ours = hooks_of(&Cpu, &model, &Request::ids(tokens));
        let expected = f32s(&tensor("logits"));
        let difference = relative(&ours["logits"], &expected);
        assert!(
            difference <= RELATIVE_TOLERANCE,
            "{name}: logits differ by {difference:e}"
        );
        let from_full = relative(&ours["logits"], &f32s(&tensor("full_logits")));
        assert!(
            (from_full - distance).abs() <= 0.02 * distance + 1e-5,
            "{name}: {from_full:e} from the full model"
        );
        n_run += 1;
    }
    assert!(n_run >= 5, "{n_run}");
}

#[test]
fn a_file_s_metadata_becomes_the_configuration_that_hugging_face_would_write() {
    let value = |name: &str, key: &str| {
        let opened = attnscope_checkpoint::gguf::open_file(&file(name)).expect("opens");
        opened.config.get(key).cloned().unwrap_or_default()
    };
    // The factors of llama3 that the file holds as a tensor are found out.
    let scaling = value("llama-f16", "rope_scaling");
    assert_eq!(scaling["rope_type"], "llama3");
    assert_eq!(scaling["factor"], 8.0);
    assert_eq!(scaling["original_max_position_embeddings"], 64);
    assert_eq!(value("llama-f16", "rms_norm_eps"), 0.001);
    assert_eq!(value("llama-f16", "tie_word_embeddings"), false);
    assert_eq!(value("llama-q4_k", "tie_word_embeddings"), true);
    assert!(value("llama-q4_k", "rope_scaling").is_null());
    assert_eq!(value("llama-q4_k", "num_key_value_heads"), 1);
    assert_eq!(value("llama-q4_k", "head_dim"), 64);
    assert_eq!(value("qwen2-f16", "rms_norm_eps"), 1e-6);
    assert_eq!(value("qwen2-f16", "rope_theta"), 1e6);
    assert_eq!(value("qwen2-f16", "vocab_size"), 48);
    assert_eq!(value("gemma2-q8_0", "attn_logit_softcapping"), 6.0);
    let scalar = value("gemma2-q8_0", "query_pre_attn_scalar").as_f64();
    assert!((scalar.expect("a number") - 24.0).abs() < 1e-4);
    assert_eq!(value("gemma2-q8_0", "sliding_window"), 8);
    let layers = value("gemma2-q8_0", "layer_types");
    assert_eq!(layers[0], "sliding_attention");
    assert_eq!(layers[1], "full_attention");
    assert_eq!(value("mixtral-f16", "num_local_experts"), 2);
    assert_eq!(value("mixtral-f16", "num_experts_per_tok"), 2);
}

#[test]
fn a_vocabulary_is_decoded_when_it_is_asked_for() {
    let opened = attnscope_checkpoint::gguf::open_file(&file("llama-q8_0")).expect("opens");
    let vocabulary = opened.vocabulary.expect("a vocabulary");
    assert_eq!(vocabulary.model, "llama");
    assert_eq!((vocabulary.bos, vocabulary.eos), (Some(1), Some(2)));
    assert_eq!((vocabulary.unk, vocabulary.pad), (None, None));
    assert_eq!(vocabulary.add_bos, Some(true));
    assert_eq!(vocabulary.len(), 48);
    let words = vocabulary.decode().expect("decodes");
    assert_eq!(words.tokens[47], "<47>");
    assert_eq!(words.scores.expect("scores")[3], -3.0);
    assert_eq!(words.token_types.expect("types"), vec![1; 48]);
    assert_eq!(words.merges, None);
}

#[test]
fn a_directory_with_one_file_opens_it_and_with_two_asks_which() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::copy(file("qwen2-q8_0"), directory.path().join("one.gguf")).expect("copies");
    let checkpoint = Checkpoint::open(directory.path()).expect("opens");
    assert_eq!(checkpoint.name, "one");
    std::fs::copy(file("qwen2-q8_0"), directory.path().join("two.GGUF")).expect("copies");
    let error = Checkpoint::open(directory.path()).expect_err("two files");
    assert!(error.to_string().contains("holds 2 GGUF files"), "{error}");
    // A name of another kind is not an obstacle.
    let plain = directory.path().join("sha256-1234");
    std::fs::copy(file("qwen2-q8_0"), &plain).expect("copies");
    assert!(Checkpoint::open(&plain).is_ok());
}

/// Three parts of one model, the first of which holds no tensor, and the paths of them.
fn parts(directory: &Path) -> Vec<PathBuf> {
    let split = |number: u32| {
        [
            ("split.no", number),
            ("split.count", 3),
            ("split.tensors.count", 2),
        ]
        .map(|(key, value)| gguf_pieces::number(key, value))
    };
    let whole = Pieces::sound();
    let [embedding, queries] = [&whole.tensors[0], &whole.tensors[1]].map(Clone::clone);
    let first = Pieces {
        entries: [whole.entries.clone(), split(0).to_vec()].concat(),
        tensors: Vec::new(),
        data: Vec::new(),
        ..whole.clone()
    };
    let bare = |number: u32, tensor: Vec<u8>, data: Vec<u8>| Pieces {
        entries: split(number).to_vec(),
        tensors: vec![tensor],
        data,
        ..whole.clone()
    };
    // Offsets count from each file's own data.
    let queries_alone = gguf_pieces::tensor("blk.0.attn_q.weight", &[4, 4], 0, 0);
    assert_ne!(queries, queries_alone);
    let ones = 1f32.to_le_bytes().repeat(16);
    let files = [
        first,
        bare(1, embedding, vec![0; 64]),
        bare(2, queries_alone, ones),
    ];
    let name = |number: usize| directory.join(format!("tiny-{number:05}-of-00003.gguf"));
    files
        .iter()
        .zip(1..)
        .map(|(pieces, number)| {
            std::fs::write(name(number), pieces.bytes()).expect("writes");
            name(number)
        })
        .collect()
}

#[test]
fn a_model_in_parts_opens_by_any_of_them_or_by_its_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let parts = parts(directory.path());
    let projector = Pieces {
        entries: vec![
            gguf_pieces::word("general.architecture", "clip"),
            gguf_pieces::word("general.type", "mmproj"),
        ],
        tensors: Vec::new(),
        ..Pieces::sound()
    };
    for (projector, name) in [
        (None, ""),
        (Some(&projector), "mmproj-tiny.gguf"),
        (Some(&projector), "vision-of-another-name.gguf"),
    ] {
        let path = directory.path().join(name);
        if let Some(projector) = projector {
            std::fs::write(&path, projector.bytes()).expect("writes");
        }
        for target in parts.iter().map(PathBuf::as_path).chain([directory.path()]) {
            let checkpoint = Checkpoint::open(target).expect("opens");
            let queries = "model.layers.0.self_attn.q_proj.weight";
            assert!(checkpoint.tensors.contains("model.embed_tokens.weight"));
            let values = checkpoint.tensors.get(queries).expect("the last part's");
            assert_eq!(*values.widen().expect("reads"), [1.0; 16]);
            let said = checkpoint.remarks().join("\n");
            assert_eq!(
                projector.is_some(),
                said.contains(&format!("({name}) lies beside")),
                "{said}"
            );
        }
        if projector.is_some() {
            let alone = Checkpoint::open(&path).expect_err("no model").to_string();
            assert!(alone.contains("mmproj"), "{alone}");
            std::fs::remove_file(&path).expect("removes");
        }
    }
    std::fs::remove_file(&parts[1]).expect("removes");
    for target in [&parts[0], &parts[2], &directory.path().to_path_buf()] {
        let said = Checkpoint::open(target)
            .expect_err("a part is missing")
            .to_string();
        assert!(said.contains("tiny-00002-of-00003.gguf"), "{said}");
    }
}
