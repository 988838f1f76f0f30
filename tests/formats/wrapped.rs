//! Adapters, packed weights and everything else that stands around a model: held against what the libraries compute.

use std::io::Write;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::{Checkpoint, Opening};
use attnscope_compute::ops::Cpu;
use attnscope_prompt::Request;
use attnscope_spec::Model;
use safetensors::SafeTensors;
use testing::checkpoint_copy::{Stored, Weights, file_of, weights};
use testing::hooks::hooks_of;

/// Largest difference of a probability, and of logits relative to the largest.
const PATTERN_TOLERANCE: f32 = 2e-4;

const LOGIT_TOLERANCE: f32 = 2e-3;

const ADAPTERS: [&str; 7] = [
    "lora",
    "rslora",
    "dora",
    "whole",
    "gpt2",
    "gpt2_dora",
    "bias",
];

const PACKED: [&str; 25] = [
    "awq",
    "bnb_fp4",
    "bnb_int8",
    "bnb_nf4",
    "bnb_nf4_nested",
    "ct_float",
    "ct_float_rows",
    "ct_int8",
    "ct_packed",
    "ct_packed_zeros",
    "fp8_tensor",
    "gptq_3_v2",
    "gptq_4",
    "gptq_8_reordered",
    "mlx_4",
    "mlx_8",
    "torchao_affine_int4",
    "torchao_affine_int8",
    "torchao_bin_fp8",
    "torchao_bin_int4",
    "torchao_bin_int8",
    "torchao_fp8",
    "torchao_int4",
    "torchao_int8",
    "torchao_int8_groups",
];

fn adapter(name: &str) -> PathBuf {
    testing::root().join("fixtures/formats/adapters").join(name)
}

fn packed(name: &str) -> PathBuf {
    testing::root().join("fixtures/formats/packed").join(name)
}

fn opened(path: &Path) -> Model {
    let opened = Checkpoint::open(path).and_then(attnscope_families::read);
    opened.unwrap_or_else(|e| panic!("{e}"))
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    let chunks = bytes.chunks(4);
    chunks
        .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
        .collect()
}

/// Logits and the pattern of the first layer.
fn ran(model: &Model) -> [Vec<f32>; 2] {
    let ids = vec![5, 7, 9, 11, 6, 3, 2];
    let mut hooks = hooks_of(&Cpu, model, &Request::ids(ids));
    ["logits", "blocks.0.attn.pattern"].map(|hook| hooks.remove(hook).expect(hook))
}

fn largest(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let gaps = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    // A difference that is NaN is not a small one.
    gaps.fold(0.0, |most, gap| if gap <= most { most } else { gap })
}

/// Holds what a model computes against its reference.
fn agrees(directory: &Path) {
    let bytes = std::fs::read(directory.join("reference.safetensors")).expect("a reference");
    let reference = SafeTensors::deserialize(&bytes).expect("a reference");
    let expected = |name: &str| f32s(reference.tensor(name).expect(name).data());
    let [logits, pattern] = ran(&opened(directory));
    let name = directory.display();
    let gap = largest(&pattern, &expected("pattern"));
    assert!(gap <= PATTERN_TOLERANCE, "{name}: patterns differ by {gap}");
    let expected = expected("logits");
    // A classifier has logits at one position.
    let found = &logits[..expected.len()];
    let scale = expected.iter().fold(1.0f32, |most, v| most.max(v.abs()));
    let gap = largest(found, &expected) / scale;
    assert!(gap <= LOGIT_TOLERANCE, "{name}: logits differ by {gap}");
}

#[test]
fn adapted_models_compute_what_peft_computes() {
    for name in ADAPTERS {
        agrees(&adapter(name));
    }
}

#[test]
fn an_adapter_counts_unless_it_is_left_out_and_its_base_may_be_named() {
    let plain = ran(&opened(&adapter("llama_base")));
    let lora = adapter("lora");
    let alone = Opening {
        ignores_adapter: true,
        ..Opening::from(Some(lora.clone()))
    };
    assert_eq!(
        ran(&attnscope_families::read(alone.open().expect("opens")).expect("reads")),
        plain
    );
    let adapted = opened(&lora);
    assert_ne!(ran(&adapted), plain);
    assert_eq!(adapted.checkpoint.name, "lora");
    let remarks = adapted.checkpoint.remarks().join("\n");
    assert!(
        remarks.contains("LoRA of rank 2, 3, 4") && remarks.contains("base llama_base"),
        "{remarks}"
    );

    // Moved away from its base, an adapter asks for it.
    let moved = tempfile::tempdir().expect("a directory");
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(lora.join(file), moved.path().join(file)).expect("copies");
    }
    let said = Checkpoint::open(moved.path())
        .expect_err("no base")
        .to_string();
    assert!(
        said.contains("--base") && said.contains("llama_base"),
        "{said}"
    );
    let named = Opening {
        base: Some(adapter("llama_base")),
        ..Opening::from(Some(moved.path().to_path_buf()))
    };
    let named = attnscope_families::read(named.open().expect("opens")).expect("reads");
    assert_eq!(ran(&named), ran(&adapted));
    // Beside a whole model, it is for that model.
    for file in ["config.json", "model.safetensors"] {
        let base = adapter("llama_base").join(file);
        std::fs::copy(base, moved.path().join(file)).expect("copies");
    }
    assert_eq!(ran(&opened(moved.path())), ran(&adapted));
    // Rows of an adapted matrix, read alone, are those of the whole.
    let name = "model.layers.0.self_attn.q_proj.weight";
    let view = adapted.checkpoint.tensors.get(name).expect("a tensor");
    let whole = view.widen().expect("reads");
    let width = view.shape()[1];
    for row in 0..view.shape()[0] {
        let found = view.widen_rows(row..row + 1).expect("reads");
        assert_eq!(*found, whole[row * width..(row + 1) * width]);
    }
}

#[test]
fn adapters_that_do_not_fit_are_refused_in_one_line() {
    let refused = |change: &dyn Fn(&Path), part: &str| {
        let directory = tempfile::tempdir().expect("a directory");
        for file in ["adapter_config.json", "adapter_model.safetensors"] {
            std::fs::copy(adapter("lora").join(file), directory.path().join(file)).expect("copies");
        }
        change(directory.path());
        let opening = Opening {
            base: Some(adapter("llama_base")),
            ..Opening::from(Some(directory.path().to_path_buf()))
        };
        let said = opening.open().expect_err(part).to_string();
        assert!(said.contains(part), "expected {part:?} in: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    let config = |directory: &Path, from: &str, to: &str| {
        let path = directory.join("adapter_config.json");
        let text = std::fs::read_to_string(&path).expect("reads");
        assert!(text.contains(from), "{from}");
        std::fs::write(path, text.replace(from, to)).expect("writes");
    };
    refused(
        &|at| config(at, "\"LORA\"", "\"IA3\""),
        "peft_type: IA3 cannot be applied",
    );
    refused(
        &|at| config(at, "\"use_dora\": false", "\"use_dora\": true"),
        "magnitudes are missing",
    );
    refused(
        &|at| config(at, "\"down_proj\": 3", "\"(\": 3"),
        "no regular expression",
    );
    refused(
        &|at| std::fs::write(at.join("adapter_config.json"), "{").expect("writes"),
        "not valid JSON",
    );
    refused(
        &|at| std::fs::remove_file(at.join("adapter_model.safetensors")).expect("removes"),
        "expected adapter_model",
    );
    let gpt2 = adapter("gpt2").join("adapter_model.safetensors");
    refused(
        &|at| {
            std::fs::copy(&gpt2, at.join("adapter_model.safetensors")).expect("copies");
        },
        "the base has no tensor for it",
    );
}

#[test]
fn packed_weights_mean_to_the_bit_what_they_mean_to_their_library() {
    for name in PACKED {
        let bytes = std::fs::read(packed(name).join("reference.safetensors")).expect("a reference");
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        let checkpoint = Checkpoint::open(&packed(name)).unwrap_or_else(|e| panic!("{e}"));
        let mut n = 0;
        for meant in reference.names() {
            let Some(tensor) = meant.strip_prefix("dequantised.") else {
                continue;
            };
            let expected = reference.tensor(meant).expect("a tensor");
            let view = checkpoint.tensors.expect(tensor, expected.shape());
            let view = view.unwrap_or_else(|e| panic!("{name}: {e}"));
            let expected = f32s(expected.data());
            let bits =
                |values: &[f32]| -> Vec<u32> { values.iter().map(|v| v.to_bits()).collect() };
            assert_eq!(
                bits(&view.widen().expect("reads")),
                bits(&expected),
                "{name}: {tensor}"
            );
            let width = view.shape()[1];
            let rows = view.widen_rows(3..7).expect("reads");
            assert_eq!(
                bits(&rows),
                bits(&expected[3 * width..7 * width]),
                "{name}: {tensor}, rows"
            );
            n += 1;
        }
        assert_eq!(n, 2, "{name}");
        agrees(&packed(name));
    }
}

/// What stands around the model's own files, as PyTorch, Lightning, DeepSpeed and NumPy write it.
const CONTAINERS: [&str; 9] = [
    "averaged",
    "deepspeed",
    "lightning_logs_around",
    "nest_twice",
    "npz",
    "npz_compressed",
    "torchscript",
    "whole_module_alone",
    "whole_module_legacy",
];

#[test]
fn compressed_arrays_that_would_fill_the_memory_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("weights.npz");
    let mut archive = zip::ZipWriter::new(std::fs::File::create(&path).expect("a file"));
    let deflated = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated);
    archive.start_file("w.npy", deflated).expect("an entry");
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (25000000,), }";
    let header = format!("{header:117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend_from_slice(header.as_bytes());
    archive.write_all(&bytes).expect("a header");
    let zeros = vec![0u8; 1_000_000];
    (0..100).for_each(|_| archive.write_all(&zeros).expect("zeros"));
    archive.finish().expect("an archive");
    let error = Checkpoint::open(&path).expect_err("is refused").to_string();
    for part in ["weights.npz", "inflate to 95 MiB", "without compression"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_model_inside_something_else_computes_what_it_computes_alone() {
    let plain = ran(&opened(&adapter("llama_base")));
    for name in CONTAINERS {
        let directory = testing::root()
            .join("fixtures/formats/containers")
            .join(name);
        assert_eq!(ran(&opened(&directory)), plain, "{name}");
    }
    let bytes = std::fs::read(adapter("llama_base").join("model.safetensors")).expect("reads");
    let weights = weights(&bytes);
    let wrapped = |rename: &dyn Fn(&str) -> String, files: &[&str]| {
        let directory = tempfile::tempdir().expect("a directory");
        let config = adapter("llama_base").join("config.json");
        std::fs::copy(config, directory.path().join("config.json")).expect("copies");
        for (nth, file) in files.iter().enumerate() {
            let own = weights
                .iter()
                .enumerate()
                .filter(|(idx, _)| idx % files.len() == nth);
            let own: Weights = own
                .map(|(_, (name, stored))| (rename(name), stored.clone()))
                .collect();
            std::fs::write(directory.path().join(file), file_of(&own)).expect("writes");
        }
        directory
    };
    for prefix in [
        "net.",
        "model.",
        "module.",
        "_orig_mod.",
        "module._orig_mod.",
        "a.b.c.",
    ] {
        let directory = wrapped(&|name| format!("{prefix}{name}"), &["model.safetensors"]);
        assert_eq!(ran(&opened(directory.path())), plain, "{prefix}");
    }
    let fsdp = |name: &str| {
        format!(
            "_fsdp_wrapped_module.{}",
            name.replace("layers.0.", "layers.0._checkpoint_wrapped_module.")
        )
    };
    assert_eq!(
        ran(&opened(wrapped(&fsdp, &["model.safetensors"]).path())),
        plain
    );
    let shards = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ];
    let directory = wrapped(&str::to_owned, &shards);
    assert_eq!(ran(&opened(directory.path())), plain);
    assert_eq!(ran(&opened(&directory.path().join(shards[1]))), plain);
    std::fs::remove_file(directory.path().join(shards[0])).expect("removes");
    let said = Checkpoint::open(directory.path())
        .expect_err("a shard is missing")
        .to_string();
    assert!(
        said.contains(shards[0]) && said.contains("download or copy it again"),
        "{said}"
    );
}

#[test]
fn a_trainer_s_directory_opens_at_its_newest_step() {
    let directory = tempfile::tempdir().expect("a directory");
    for step in [9, 10] {
        let at = directory.path().join(format!("checkpoint-{step}"));
        std::fs::create_dir(&at).expect("makes");
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(adapter("llama_base").join(file), at.join(file)).expect("copies");
        }
        std::fs::write(at.join("optimizer.pt"), "state").expect("writes");
    }
    let model = opened(directory.path());
    assert!(
        model
            .checkpoint
            .remarks()
            .join(" ")
            .contains("opened checkpoint-10")
    );
}

#[test]
fn slices_of_one_model_are_put_together_by_rule() {
    // One model in Meta's names, whole and in two slices.
    let name = "meta";
    let at = testing::root()
        .join("fixtures/formats/homegrown")
        .join(name);
    let whole = Checkpoint::open(&at).expect("opens");
    let directory = tempfile::tempdir().expect("a directory");
    for entry in std::fs::read_dir(&at).expect("lists") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "json") {
            std::fs::copy(
                &path,
                directory.path().join(path.file_name().expect("a name")),
            )
            .expect("copies");
        }
    }
    for slice in 0..2 {
        let own: Weights = whole
            .tensors
            .iter()
            .map(|(name, info)| {
                let values = whole
                    .tensors
                    .get(name)
                    .expect("a tensor")
                    .widen()
                    .expect("reads");
                let part = match (info.shape.as_slice(), name) {
                    (&[rows, columns], _)
                        if !name.contains("wo.")
                            && !name.contains("w2.")
                            && !name.contains("tok_") =>
                    {
                        let rows = rows / 2;
                        Stored::f32(
                            &[rows, columns],
                            &values[slice * rows * columns..(slice + 1) * rows * columns],
                        )
                    }
                    (&[rows, columns], _) => {
                        let half = columns / 2;
                        let kept = values
                            .chunks(columns)
                            .flat_map(|row| &row[slice * half..(slice + 1) * half]);
                        Stored::f32(&[rows, half], &kept.copied().collect::<Vec<f32>>())
                    }
                    (shape, _) => Stored::f32(shape, &values),
                };
                (name.to_owned(), part)
            })
            .collect();
        let file = format!("consolidated.{slice:02}.safetensors");
        std::fs::write(directory.path().join(file), file_of(&own)).expect("writes");
    }
    let joined = Checkpoint::open(directory.path()).expect("opens");
    for (name, info) in whole.tensors.iter() {
        let found = joined
            .tensors
            .expect(name, &info.shape)
            .unwrap_or_else(|e| panic!("{e}"));
        let expected = whole.tensors.get(name).expect("a tensor");
        assert_eq!(
            found.widen().expect("reads"),
            expected.widen().expect("reads"),
            "{name}"
        );
        if info.shape.len() == 2 {
            assert_eq!(
                found.widen_rows(1..3).expect("reads"),
                expected.widen_rows(1..3).expect("reads")
            );
        }
    }
    std::fs::remove_file(directory.path().join("consolidated.00.safetensors")).expect("removes");
    let said = Checkpoint::open(directory.path())
        .expect_err("a slice is missing")
        .to_string();
    assert!(
        said.contains("consolidated.00.safetensors") && said.contains("missing"),
        "{said}"
    );
}

#[test]
fn pickles_that_would_run_something_are_refused_even_around_a_module() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("model.bin");
    // A module, and beside it a call.
    let pickle = b"\x80\x02}(X\x01\0\0\0ac__main__\nNet\n)\x81}X\x08\0\0\0_modules}sbX\x01\0\0\0bcos\nsystem\nX\x04\0\0\0true\x85Ru.";
    let mut archive = zip::ZipWriter::new(std::fs::File::create(&file).expect("a file"));
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    archive
        .start_file("archive/data.pkl", stored)
        .expect("begins");
    std::io::Write::write_all(&mut archive, pickle).expect("writes");
    archive.finish().expect("ends");
    let said = Checkpoint::open(&file).expect_err("refused").to_string();
    assert!(said.contains("no code of a pickle is run"), "{said}");
}
