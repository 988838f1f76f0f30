//! Distributed checkpoints of PyTorch, as 1, 2 and 4 processes save them: equal to the plain model to the bit, or refused by name.

use std::fs;
use std::path::Path;

use attnscope_checkpoint::{Checkpoint, Opening, Tensors};
use serde_json::json;
use tempfile::TempDir;
use testing::distributed::{files_of, plain, written};

/// Checkpoints of the plain model, and whether tensors of theirs are in several parts.
const OF_LLAMA: [(&str, bool); 4] = [
    ("whole", false),
    ("fsdp4", true),
    ("columns", true),
    ("mesh", true),
];

fn opened(path: &Path) -> Checkpoint {
    Checkpoint::open(path).unwrap_or_else(|e| panic!("{e}"))
}

/// Every name with its shape, type and the bits of its values, whole and row by row.
fn bits(tensors: &Tensors) -> Vec<(String, Vec<usize>, String, Vec<u32>)> {
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let of = |(name, info): (&str, &attnscope_checkpoint::TensorInfo)| {
        let view = tensors.get(name).expect("a tensor");
        let whole = bits(&view.widen().expect("reads"));
        let n_rows = info.shape.first().copied().unwrap_or(1);
        let by_rows = (0..n_rows).flat_map(|row| {
            let read = view.widen_rows(row..row + 1).expect("reads");
            bits(&read)
        });
        assert_eq!(by_rows.collect::<Vec<_>>(), whole, "{name}");
        assert!(!whole.is_empty(), "{name}");
        let dtype = info.dtype.to_string();
        (name.to_owned(), info.shape.clone(), dtype, whole)
    };
    tensors.iter().map(of).collect()
}

#[test]
fn checkpoints_of_1_2_and_4_processes_equal_the_plain_model() {
    let expected = bits(&opened(&plain().join("model.safetensors")).tensors);
    for (name, is_divided) in OF_LLAMA {
        let written = written(name, &["step-100"]);
        let step = written.path().join("step-100");
        let mut checkpoint = opened(&step);
        let names: Vec<&str> = checkpoint.tensors.iter().map(|(name, _)| name).collect();
        let optimiser = names.iter().find(|name| name.contains("exp_avg"));
        assert_eq!(optimiser, None, "{name}");
        let has_parts = checkpoint.tensors.iter().any(|(_, info)| !info.is_plain());
        assert_eq!(has_parts, is_divided, "{name}");
        assert!(bits(&checkpoint.tensors) == expected, "{name}");
        let n_bytes = |tensors: &Tensors| {
            tensors
                .iter()
                .map(|(_, info)| info.n_bytes())
                .sum::<usize>()
        };
        assert_eq!(
            n_bytes(&checkpoint.tensors),
            expected.iter().map(|(.., v)| 4 * v.len()).sum::<usize>()
        );
        // The configuration lies above the step, and a part stands for all of it.
        assert_eq!(checkpoint.config.get("model_type"), Some(&json!("llama")));
        assert_eq!(checkpoint.name, "step-100");
        assert!(checkpoint.unchanged().is_ok());
        checkpoint = opened(&step.join("__0_0.distcp"));
        assert_eq!(
            (checkpoint.tensors.len(), &*checkpoint.name),
            (expected.len(), "step-100")
        );
        assert_eq!(opened(written.path()).tensors.len(), expected.len());
    }
}

#[test]
fn what_trainers_save_beside_the_weights_is_kept_but_for_the_optimiser() {
    let whole = written("whole", &["last"]);
    let state = &opened(&whole.path().join("last")).plain_values;
    assert_eq!(state["train_state"]["step"], json!(100.0));
    assert_eq!(state["train_state"]["ntokens_seen"], json!(2048));
    assert_eq!(state.len(), 1, "{state:?}");
}

#[test]
fn stacked_layers_of_megatron_are_the_layers_of_one_rank() {
    let root = testing::root().join("fixtures/formats/layouts/megatron_grouped");
    let expected = opened(&root);
    let written = written("torch_dist", &["run"]);
    fs::remove_file(written.path().join("config.json")).expect("removed");
    let found = opened(&written.path().join("run"));
    assert!(bits(&found.tensors) == bits(&expected.tensors));
    assert_eq!(found.plain_values["args"]["num_layers"], json!(2));
    assert!(attnscope_families::read(found).is_ok());
}

#[test]
fn parts_of_the_hugging_face_storage_are_put_together() {
    let expected = bits(&opened(&plain().join("model.safetensors")).tensors);
    let directory = written("safetensors", &["out"]);
    let out = directory.path().join("out");
    assert!(bits(&opened(&out).tensors) == expected);
    let names = |n: usize| out.join(format!("shard-{n:05}-model-00001-of-00001.safetensors"));
    fs::rename(names(2), names(3)).expect("renamed");
    let said = Checkpoint::open(&out).expect_err("a gap").to_string();
    all_of(&said, &["shard 2 is missing", "shard-00003"]);
    fs::copy(names(1), names(2)).expect("copied");
    let said = Checkpoint::open(&out).expect_err("twice").to_string();
    all_of(&said, &["overlap"]);
}

#[test]
fn ranks_of_megatron_are_one_model() {
    for (name, ranks) in [("normed", "ranks_normed"), ("grouped", "ranks_grouped")] {
        let root = testing::root().join(format!("fixtures/formats/layouts/megatron_{name}"));
        let expected = opened(&root);
        let directory = written(ranks, &["run"]);
        fs::remove_file(directory.path().join("config.json")).expect("removed");
        let run = directory.path().join("run");
        let found = opened(&run);
        let table = "output_layer.weight";
        let of_one = |mut all: Vec<(String, Vec<usize>, String, Vec<u32>)>| {
            // With stages, a table that is used twice is saved at both ends.
            all.retain(|(name, ..)| name != table || expected.tensors.contains(table));
            all
        };
        assert!(
            of_one(bits(&found.tensors)) == bits(&expected.tensors),
            "{name}"
        );
        assert!(attnscope_families::read(found).is_ok(), "{name}");
        let files = files_of(ranks).into_keys();
        let mut others = files.filter(|file| file.contains("mp_rank_01"));
        let rank = others.next().expect("a rank");
        fs::remove_file(run.join(&rank)).expect("removed");
        let read = Checkpoint::open(&run).and_then(attnscope_families::read);
        let said = read.expect_err("a rank is missing").to_string();
        match others.next() {
            Some(_) => all_of(&said, &["mp_rank_01_000", "missing, while other ranks"]),
            None => all_of(&said, &["args tensor_model_parallel_size is 2", "one part"]),
        }
    }
}

#[test]
fn directories_of_accelerate_and_olmo_core_are_opened_by_their_step() {
    for (step, inside) in [
        ("checkpoint-5", "pytorch_model_fsdp_0"),
        ("step1000", "model_and_optim"),
    ] {
        let written = written("columns", &[&format!("{step}/{inside}")]);
        for path in [written.path().join(step), written.path().to_path_buf()] {
            let checkpoint = opened(&path);
            assert_eq!(checkpoint.tensors.len(), 12);
            assert!(!checkpoint.config.is_absent(), "{}", path.display());
        }
    }
}

/// The refusal of a checkpoint in which something was changed: one line.
fn refusal(name: &str, change: impl Fn(&Path)) -> String {
    let written = written(name, &["step"]);
    change(&written.path().join("step"));
    let said = Checkpoint::open(&written.path().join("step"))
        .expect_err(name)
        .to_string();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// Replaces the nth occurrence of some bytes of the index.
fn replaced(directory: &Path, old: &[u8], nth: &[usize], new: &[u8]) {
    let path = directory.join(".metadata");
    let bytes = fs::read(&path).expect("reads");
    let mut found = Vec::new();
    let (mut at, mut n) = (0, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(old) {
            found.extend(if nth.contains(&n) { new } else { old });
            n += 1;
            at += old.len();
        } else {
            found.push(bytes[at]);
            at += 1;
        }
    }
    assert!(nth.iter().all(|nth| *nth < n), "{n} occurrences");
    fs::write(path, found).expect("writes");
}

fn all_of(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

#[test]
fn parts_that_are_missing_or_cut_short_are_named() {
    let said = refusal("fsdp4", |step| {
        fs::remove_file(step.join("__2_0.distcp")).expect("removed");
    });
    all_of(&said, &["__2_0.distcp", "missing", ".metadata names it"]);
    let said = refusal("fsdp4", |step| {
        let part = step.join("__1_0.distcp");
        let bytes = fs::read(&part).expect("reads");
        fs::write(part, &bytes[..2000]).expect("writes");
    });
    all_of(&said, &["__1_0.distcp", "truncated", "the file holds 2000"]);
    let said = refusal("fsdp4", |step| {
        let part = step.join("__1_0.distcp");
        let mut bytes = fs::read(&part).expect("reads");
        bytes[..4000].fill(0);
        fs::write(part, bytes).expect("writes");
    });
    all_of(&said, &["__1_0.distcp", "expected a tensor of torch.save"]);
    let said = refusal("fsdp4", |step| {
        fs::remove_file(step.join(".metadata")).expect("removed");
    });
    all_of(
        &said,
        &["without their index .metadata", "still being saved"],
    );
    let said = refusal("fsdp4", |step| {
        fs::rename(step.join(".metadata"), step.join("__0.metadata")).expect("renamed");
    });
    all_of(&said, &["without a common index", "use_collectives=True"]);
}

#[test]
fn an_index_that_is_cut_short_is_refused_wherever_it_is_cut() {
    let directory = written("mesh", &["step"]);
    let path = directory.path().join("step/.metadata");
    let bytes = fs::read(&path).expect("reads");
    for n in (0..bytes.len()).step_by(97) {
        fs::write(&path, &bytes[..n]).expect("writes");
        let said = Checkpoint::open(&directory.path().join("step"))
            .expect_err("cut short")
            .to_string();
        assert!(
            said.contains(".metadata") && said.lines().count() == 1,
            "{n}: {said}"
        );
    }
}

#[test]
fn an_index_that_contradicts_itself_or_the_parts_is_refused() {
    // The shape and then the only part of the table of tokens: 9 rows of 16.
    const SIZE: &[u8] = b"K\x09K\x10\x86";
    let said = refusal("whole", |step| {
        replaced(step, SIZE, &[0], b"K\x0aK\x10\x86")
    });
    all_of(
        &said,
        &[
            "embed_tokens.weight",
            "144 of the 160 elements",
            "rows 9 to 9 are missing",
        ],
    );
    let said = refusal("whole", |step| {
        replaced(step, SIZE, &[1], b"K\x0aK\x10\x86")
    });
    all_of(
        &said,
        &[
            "embed_tokens.weight",
            "[10, 16] at [0, 0] is not inside shape [9, 16]",
        ],
    );
    let said = refusal("whole", |step| {
        replaced(step, SIZE, &[0, 1], b"K\x08K\x10\x86")
    });
    all_of(
        &said,
        &[
            "__0_0.distcp",
            "embed_tokens.weight",
            "expected shape [8, 16]",
            "found [9, 16]",
        ],
    );
    let huge = b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86";
    let said = refusal("whole", |step| replaced(step, SIZE, &[0], huge));
    all_of(
        &said,
        &[
            "embed_tokens.weight",
            "144 of the 4611686014132420609 elements",
        ],
    );
    let beyond = b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x10\x86";
    let said = refusal("whole", |step| replaced(step, SIZE, &[0], beyond));
    all_of(&said, &["embed_tokens.weight", "too large"]);
    let said = refusal("whole", |step| replaced(step, b"float32", &[0], b"float16"));
    all_of(
        &said,
        &["__0_0.distcp", "expected f16 as .metadata says, found f32"],
    );
    // Two parts at one place: in the list of parts, then in that of places.
    const OFFSET: &[u8] = b"K\x03K\x00\x86";
    let said = refusal("fsdp4", |step| {
        replaced(step, OFFSET, &[0], b"K\x00K\x00\x86")
    });
    all_of(&said, &["embed_tokens.weight", "overlap"]);
    let said = refusal("fsdp4", |step| {
        replaced(step, OFFSET, &[2, 3], b"K\x03K\x01\x86")
    });
    all_of(&said, &["does not say where its part at [3, 0] is stored"]);
}

#[test]
fn parts_that_overlap_in_their_file_are_refused() {
    let said = refusal("columns", |step| {
        let path = step.join(".metadata");
        let mut bytes = fs::read(&path).expect("reads");
        // The length of the first part, in two bytes.
        let key = b"\x8c\x06length\x94M";
        let at = bytes.windows(key.len()).position(|bytes| bytes == key);
        bytes[at.expect("a length") + key.len()..][..2].fill(0xff);
        fs::write(path, bytes).expect("writes");
    });
    all_of(
        &said,
        &[
            "embed_tokens.weight",
            "are stored in one place of __0_0.distcp",
        ],
    );
}

#[test]
fn an_index_never_leads_out_of_its_directory_and_never_runs_code() {
    let said = refusal("whole", |step| {
        replaced(step, b"\x8c\x0c__0_0.distcp", &[0], b"\x8c\x0c../__.distcp");
    });
    all_of(&said, &["../__.distcp", "expected a file beside .metadata"]);
    let said = refusal("whole", |step| {
        fs::write(step.join(".metadata"), b"cos\nsystem\n(S'ls'\ntR.").expect("writes");
    });
    all_of(&said, &[".metadata", "os.system"]);
    let said = refusal("whole", |step| {
        fs::write(step.join(".metadata"), b"}.").expect("writes");
    });
    all_of(
        &said,
        &[
            ".metadata",
            "expected the metadata of torch.distributed.checkpoint",
        ],
    );
}

#[test]
fn states_of_optimisers_alone_hold_no_weights() {
    // What accelerate saves of an optimiser is a checkpoint too.
    let said = refusal("whole", |step| {
        replaced(step, b"\x8c\x05model", &[0], b"\x8c\x05optim")
    });
    all_of(&said, &[".metadata", "describes no weights"]);
}

#[test]
fn one_of_several_models_is_named_after_the_directory() {
    let directory: TempDir = written("whole", &["step"]);
    let named = format!("{}#model", directory.path().join("step").display());
    let checkpoint = Opening::from(Some(named.into())).open().expect("opens");
    assert_eq!(
        (checkpoint.tensors.len(), &*checkpoint.name),
        (12, "step#model")
    );
    let other = format!("{}#ema", directory.path().join("step").display());
    let said = Opening::from(Some(other.into()))
        .open()
        .expect_err("no ema")
        .to_string();
    all_of(&said, &["no model called", "model"]);
    assert!(files_of("whole").len() == 2);
}
