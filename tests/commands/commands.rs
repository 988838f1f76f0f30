//! What the commands write: shapes and names that other programs rely on, the same bytes every time.

use std::process::Command;

use attnscope_checks::stats::STATISTICS;
use serde_json::{Value, json};
use testing::checkpoint_copy::{Copy, Stored, attnscope, original, text, unread, weights};
use testing::running::{ALL_HOOKS, TOKENS, ids, ran, report, report_bytes, trace};

fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect()
}

fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}

#[test]
fn a_report_has_the_shape_that_programs_rely_on() {
    for (family, n_kv_heads) in [("gpt2", 4), ("llama", 2), ("bert", 4)] {
        let copy = Copy::of(family);
        let report = report(&copy, &[]);
        assert_eq!(report["version"], 3);
        assert_eq!(report["what_if"], json!([]));
        let name = copy
            .path()
            .file_name()
            .expect("a name")
            .to_str()
            .expect("a name");
        let model = &report["model"];
        assert_eq!(
            (&model["name"], &model["family"]),
            (&json!(name), &json!(family))
        );
        let sizes = ["n_layers", "n_heads", "n_kv_heads", "d_head", "d_model"];
        assert_eq!(
            sizes.map(|key| model[key].clone()),
            [3, 4, n_kv_heads, 16, 64]
        );
        assert_eq!(
            model["dtype"],
            if family == "llama" { "bf16" } else { "f32" }
        );

        let prompts = report["prompts"].as_array().expect("prompts");
        assert_eq!(prompts.len(), 1);
        assert!(prompts[0]["id"].is_string());
        assert_eq!(prompts[0]["tokens"], json!(ids()));
        assert_eq!(prompts[0]["loss"].is_null(), family == "bert", "{family}");
        let layers = prompts[0]["layers"].as_array().expect("layers");
        assert_eq!(layers.len(), 3);
        for (layer_idx, layer) in layers.iter().enumerate() {
            assert!(layer["stack"].is_null());
            assert_eq!(layer["layer"], layer_idx);
            let registered = STATISTICS.iter().map(|s| s.id).collect();
            assert_eq!(sorted(keys(&layer["stats"])), sorted(registered));
            let heads = layer["heads"].as_array().expect("heads");
            assert_eq!(heads.len(), 4);
            for (head_idx, head) in heads.iter().enumerate() {
                assert_eq!(head["head"], head_idx);
                let registered = STATISTICS.iter().filter(|s| s.is_per_head());
                let registered = registered.map(|s| s.id).collect();
                assert_eq!(sorted(keys(&head["stats"])), sorted(registered));
                assert!(head["stats"]["entropy"].is_number());
            }
        }
    }
}

#[test]
fn a_statistic_that_has_no_meaning_is_null_in_a_report() {
    let copy = Copy::of("gpt2");
    let path = copy.path().to_str().expect("a path");
    // One token sees one key: no entropy relative to log 1, and no next token to lose on.
    let bytes = ran(&["report", path, "--tokens", "5"]);
    let report: Value = serde_json::from_slice(&bytes).expect("JSON");
    let prompt = &report["prompts"][0];
    assert!(prompt["loss"].is_null());
    let layer = &prompt["layers"][0];
    for stats in [&layer["heads"][0]["stats"], &layer["stats"]] {
        assert_eq!(stats.get("entropy_relative"), Some(&Value::Null));
    }
    assert_eq!(prompt["layers"][0]["heads"][0]["stats"]["entropy"], 0.0);
}

#[test]
fn a_report_is_the_same_bytes_every_time_on_any_number_of_threads() {
    for family in ["gpt2", "llama", "bert"] {
        let copy = Copy::of(family);
        let once = report_bytes(&copy, &["--threads", "1"]);
        for threads in ["1", "2", "5"] {
            let again = report_bytes(&copy, &["--threads", threads]);
            assert!(once == again, "{family} differs on {threads} threads");
        }
        assert!(once.ends_with(b"}\n"));
    }
}

#[test]
fn a_report_in_a_file_is_the_report_on_standard_output() {
    let copy = Copy::of("gpt2");
    let target = copy.output("report.json");
    std::fs::write(&target, "an older report").expect("writes");
    let to = target.to_str().expect("a path");
    assert!(report_bytes(&copy, &["--output", to, "--force"]).is_empty());
    assert_eq!(
        std::fs::read(&target).expect("reads"),
        report_bytes(&copy, &[])
    );
    assert_eq!(copy.n_outputs(), 1, "a temporary file was left behind");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let copy = Copy::of("gpt2");
    let path = copy.path().to_str().expect("a path");
    let commands: [&[&str]; 3] = [
        &["report", path, "--tokens", TOKENS],
        &["tensors", path, "--format", "json"],
        &["completions", "bash"],
    ];
    for arguments in commands {
        let output = unread(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        assert!(
            !said.contains("pipe") && !said.contains("panicked"),
            "{said}"
        );
    }
}

#[cfg(unix)]
#[test]
fn an_output_that_is_no_regular_file_is_written_to_and_stays_what_it_is() {
    use std::os::unix::fs::FileTypeExt;
    let copy = Copy::of("gpt2");
    let pipe = copy.output("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || std::fs::read(pipe))
    };
    report_bytes(&copy, &["--output", pipe.to_str().expect("a path")]);
    let kind = std::fs::metadata(&pipe).expect("still there").file_type();
    assert!(kind.is_fifo(), "the pipe was replaced");
    let read = reader.join().expect("no panic").expect("reads");
    assert_eq!(read, report_bytes(&copy, &[]));
}

/// −log p of the next token at each position, from whole logits in f64.
fn next_losses(logits: &Stored) -> Vec<f64> {
    let d_vocab = logits.shape[1];
    let rows: Vec<Vec<f64>> = logits
        .values()
        .chunks(d_vocab)
        .map(|row| row.iter().map(|v| f64::from(*v)).collect())
        .collect();
    let next = ids().into_iter().skip(1);
    let loss = |(row, target): (&Vec<f64>, usize)| {
        row.iter().map(|v| v.exp()).sum::<f64>().ln() - row[target]
    };
    rows.iter().zip(next).map(loss).collect()
}

#[test]
fn the_loss_is_that_of_the_traced_logits() {
    for family in ["gpt2", "llama"] {
        let copy = Copy::of(family);
        let (_, tensors) = trace(&copy, &["--hooks", "logits"]);
        let losses = next_losses(&tensors["logits"]);
        assert_eq!(losses.len(), 11);
        let loss = report(&copy, &[])["prompts"][0]["loss"]
            .as_f64()
            .expect("a loss");
        let expected = losses.iter().sum::<f64>() / 11.0;
        assert!(
            (loss - expected).abs() < 1e-6,
            "{family}: {loss} {expected}"
        );
    }
}

#[test]
fn padding_has_no_part_in_the_loss() {
    let copy = Copy::of("gpt2");
    let mask = ["--attention-mask", "0,0,1,1,1,1,1,1,1,1,1,0"];
    let (_, tensors) = trace(&copy, &[&mask[..], &["--hooks", "logits"]].concat());
    assert_eq!(tensors["attention_mask"].shape, [12]);
    assert_eq!(tensors["attention_mask"].dtype, "I64");
    // Position 1 is padding and position 11 is not a label.
    let counted = &next_losses(&tensors["logits"])[2..10];
    let expected = counted.iter().sum::<f64>() / 8.0;
    let loss = report(&copy, &mask)["prompts"][0]["loss"]
        .as_f64()
        .expect("a loss");
    assert!((loss - expected).abs() < 1e-6, "{loss} {expected}");
}

#[test]
fn a_trace_has_the_names_shapes_and_metadata_that_programs_rely_on() {
    for (family, n_kv_heads, d_vocab) in [("gpt2", 4, 257), ("llama", 2, 256), ("bert", 4, 256)] {
        let copy = Copy::of(family);
        let (metadata, tensors) = trace(&copy, &["--hooks", ALL_HOOKS]);
        assert_eq!(tensors.len(), 3 * 14 + 2, "{:?}", tensors.keys());
        assert_eq!(tensors["tokens"].dtype, "I64");
        let stored: Vec<u8> = ids()
            .iter()
            .flat_map(|id| (*id as i64).to_le_bytes())
            .collect();
        assert_eq!(tensors["tokens"].bytes, stored);
        assert_eq!(tensors["logits"].shape, [12, d_vocab]);
        for layer_idx in 0..3 {
            let shape = |name: &str| {
                let stored = &tensors[&format!("blocks.{layer_idx}.{name}")];
                assert_eq!(stored.dtype, "F32");
                stored.shape.clone()
            };
            for name in ["attn.scores", "attn.pattern", "attn.contribution"] {
                assert_eq!(shape(name), [4, 12, 12]);
            }
            assert_eq!(shape("attn.value_norms"), [4, 12]);
            let of = |name: &str| tensors[&format!("blocks.{layer_idx}.attn.{name}")].values();
            let (pattern, norms) = (of("pattern"), of("value_norms"));
            for (idx, carried) in of("contribution").into_iter().enumerate() {
                assert_eq!(carried, pattern[idx] * norms[idx / 144 * 12 + idx % 12]);
            }
            for name in ["attn.q", "attn.rot_q", "attn.z"] {
                assert_eq!(shape(name), [4, 12, 16]);
            }
            for name in ["attn.k", "attn.rot_k", "attn.v"] {
                assert_eq!(shape(name), [n_kv_heads, 12, 16]);
            }
            for name in ["resid_pre", "attn_out", "mlp_out", "resid_post"] {
                assert_eq!(shape(name), [12, 64]);
            }
        }
        let mask = if family == "bert" {
            "bidirectional"
        } else {
            "causal"
        };
        assert_eq!(metadata["attnscope.mask"], mask);
        assert_eq!(metadata["attnscope.softmax_axis"], "keys");
        let source = metadata["attnscope.source"].as_str().expect("a string");
        assert!(source.contains(family), "{source}");
        let values = metadata.as_object().expect("an object").values();
        assert!(values.into_iter().all(Value::is_string));
        let rope_changes = tensors["blocks.0.attn.q"] != tensors["blocks.0.attn.rot_q"];
        assert_eq!(rope_changes, family == "llama");
    }
}

#[test]
fn a_trace_takes_pattern_residual_and_logits_unless_told_otherwise() {
    let (_, tensors) = trace(&Copy::of("gpt2"), &[]);
    let mut expected = vec!["logits".to_owned(), "tokens".to_owned()];
    for layer_idx in 0..3 {
        expected.push(format!("blocks.{layer_idx}.attn.pattern"));
        expected.push(format!("blocks.{layer_idx}.resid_post"));
    }
    expected.sort();
    assert_eq!(tensors.into_keys().collect::<Vec<_>>(), expected);
}

#[test]
fn the_values_of_a_trace_hold_together() {
    for (family, mask) in [
        ("gpt2", ""),
        ("llama", "1,1,1,1,1,1,1,1,1,1,0,0"),
        ("bert", ""),
    ] {
        let copy = Copy::of(family);
        let flags = ["--attention-mask", mask];
        let flags = if mask.is_empty() { &[] } else { &flags[..] };
        let (_, tensors) = trace(&copy, &[&["--hooks", ALL_HOOKS], flags].concat());
        let is_pad = |j: usize| mask.split(',').nth(j) == Some("0");
        let mut resid = tensors["blocks.0.resid_pre"].values();
        for layer_idx in 0..3 {
            let values = |name: &str| tensors[&format!("blocks.{layer_idx}.{name}")].values();
            let (scores, pattern) = (values("attn.scores"), values("attn.pattern"));
            for (row_idx, (s, p)) in scores.chunks(12).zip(pattern.chunks(12)).enumerate() {
                let query_idx = row_idx % 12;
                for key_idx in 0..12 {
                    let is_masked = is_pad(key_idx) || (family != "bert" && key_idx > query_idx);
                    assert_eq!(s[key_idx] == f32::NEG_INFINITY, is_masked);
                    assert_eq!(p[key_idx] == 0.0, is_masked, "{family} {row_idx} {key_idx}");
                }
                let sum: f32 = p.iter().sum();
                assert!((sum - 1.0).abs() < 1e-5, "{sum}");
            }
            assert_eq!(
                values("resid_pre"),
                resid,
                "a layer begins where the last one ended"
            );
            let after = values("resid_post");
            // BERT normalises after each addition: its branches do not sum to the difference.
            if family != "bert" {
                let (attn_out, mlp_out) = (values("attn_out"), values("mlp_out"));
                for (i, after) in after.iter().enumerate() {
                    let sum = resid[i] + attn_out[i] + mlp_out[i];
                    assert!((after - sum).abs() < 1e-4 * (1.0 + sum.abs()));
                }
            }
            resid = after;
        }
    }
}

/// Some heads of a tensor whose first axis is heads.
fn heads_of(stored: &Stored, heads: &[usize]) -> Stored {
    let per_head = stored.bytes.len() / stored.shape[0];
    let bytes = heads
        .iter()
        .flat_map(|h| &stored.bytes[h * per_head..(h + 1) * per_head]);
    let mut shape = stored.shape.clone();
    shape[0] = heads.len();
    Stored {
        dtype: stored.dtype.clone(),
        shape,
        bytes: bytes.copied().collect(),
    }
}

#[test]
fn chosen_layers_and_heads_are_those_of_the_whole_trace() {
    // Four heads share two key and value heads.
    let copy = Copy::of("llama");
    let (_, whole) = trace(&copy, &["--hooks", ALL_HOOKS]);
    for (heads, chosen, kv_chosen) in [
        ("1-2", &[1, 2][..], &[0, 1][..]),
        ("2,3", &[2, 3], &[1]),
        ("3,0,3", &[0, 3], &[0, 1]),
        ("1", &[1], &[0]),
    ] {
        let flags = ["--hooks", ALL_HOOKS, "--layers", "2,0", "--heads", heads];
        let (_, some) = trace(&copy, &flags);
        assert_eq!(some.len(), 2 * 14 + 2);
        for (name, found) in &some {
            assert!(!name.starts_with("blocks.1."), "{name}");
            let expected = match name.rsplit('.').next().expect("a name") {
                "q" | "rot_q" | "z" | "scores" | "pattern" | "value_norms" | "contribution" => {
                    heads_of(&whole[name], chosen)
                }
                "k" | "rot_k" | "v" => heads_of(&whole[name], kv_chosen),
                _ => whole[name].clone(),
            };
            assert!(*found == expected, "{name} of heads {heads}");
        }
    }
}

#[test]
fn a_hook_named_twice_is_written_once() {
    let copy = Copy::of("gpt2");
    let twice = trace(&copy, &["--hooks", "pattern,z,pattern"]);
    assert!(twice == trace(&copy, &["--hooks", "pattern,z"]));
}

#[test]
fn a_trace_is_the_same_on_any_number_of_threads() {
    let copy = Copy::of("llama");
    let once = trace(&copy, &["--hooks", ALL_HOOKS, "--threads", "1"]);
    assert!(trace(&copy, &["--hooks", ALL_HOOKS, "--threads", "2"]) == once);
    assert_eq!(copy.n_outputs(), 1, "a temporary file was left behind");
}

#[test]
fn shards_read_the_same_as_one_file() {
    for family in ["gpt2", "llama", "bert"] {
        let (whole, sharded) = (Copy::of(family), Copy::of(family));
        sharded.shard();
        let expected = report(&whole, &[]);
        let found = report(&sharded, &[]);
        assert_eq!(found["prompts"], expected["prompts"]);
        assert_eq!(found["model"]["dtype"], expected["model"]["dtype"]);
        let list = |copy: &Copy| ran(&["tensors", copy.path().to_str().expect("a path")]);
        assert_eq!(list(&sharded), list(&whole));
    }
}

#[test]
fn half_precision_reads_as_the_f32_numbers_it_holds() {
    let to_f16 = |v: f32| {
        let half = half::f16::from_f32(v);
        (half.to_le_bytes(), half.to_f32())
    };
    let to_bf16 = |v: f32| {
        let half = half::bf16::from_f32(v);
        (half.to_le_bytes(), half.to_f32())
    };
    type Round = dyn Fn(f32) -> ([u8; 2], f32);
    let kinds: [(&str, &str, &Round); 2] = [("F16", "f16", &to_f16), ("BF16", "bf16", &to_bf16)];
    for (stored_as, label, round) in kinds {
        let (short, long) = (Copy::of("gpt2"), Copy::of("gpt2"));
        short.weights(|weights| {
            for stored in weights.values_mut() {
                stored.bytes = stored.values().iter().flat_map(|v| round(*v).0).collect();
                stored.dtype = stored_as.to_owned();
            }
        });
        long.weights(|weights| {
            for stored in weights.values_mut() {
                let rounded: Vec<f32> = stored.values().iter().map(|v| round(*v).1).collect();
                *stored = Stored::f32(&stored.shape, &rounded);
            }
        });
        // With these instructions every weight is widened: matrix tiles would sum bf16 products in another order.
        let widened = |copy: &Copy| -> Value {
            let ran = Command::new(testing::program())
                .env("ATTNSCOPE_SIMD", "portable")
                .args(["report", copy.path().to_str().expect("a path")])
                .args(["--tokens", TOKENS])
                .output()
                .expect("the program starts");
            serde_json::from_slice(&ran.stdout).expect("JSON")
        };
        let (found, expected) = (widened(&short), widened(&long));
        assert_eq!(found["prompts"], expected["prompts"], "{label}");
        assert_eq!(found["model"]["dtype"], label);
        assert_ne!(found["prompts"], report(&Copy::of("gpt2"), &[])["prompts"]);
    }
}

#[test]
fn the_tensor_list_has_the_figures_of_every_tensor() {
    for family in ["gpt2", "llama"] {
        let copy = Copy::of(family);
        if family == "gpt2" {
            copy.weights(|weights| {
                let odd = [1.5, f32::NAN, -2.0, f32::INFINITY, f32::NEG_INFINITY, 3.0];
                weights.insert("odd".to_owned(), Stored::f32(&[2, 3], &odd));
            });
        }
        let path = copy.path().to_str().expect("a path");
        let bytes = ran(&["tensors", path, "--stats", "--format", "json"]);
        let listed: Vec<Value> = serde_json::from_slice(&bytes).expect("JSON");
        let stored = weights(&copy.weight_bytes());
        assert_eq!(listed.len(), stored.len());
        for (entry, (name, stored)) in listed.iter().zip(&stored) {
            assert_eq!(
                (&entry["name"], &entry["shape"]),
                (&json!(name), &json!(stored.shape))
            );
            assert_eq!(entry["dtype"], stored.dtype.to_lowercase());
            assert_eq!(entry["bytes"], stored.bytes.len());
            let values = stored.values();
            let finite = || {
                values
                    .iter()
                    .copied()
                    .filter(|v| v.is_finite())
                    .map(f64::from)
            };
            let figures = [
                ("min", finite().fold(f64::INFINITY, f64::min)),
                ("max", finite().fold(f64::NEG_INFINITY, f64::max)),
                ("mean", finite().sum::<f64>() / finite().count() as f64),
                ("nan", values.iter().filter(|v| v.is_nan()).count() as f64),
                (
                    "infinite",
                    values.iter().filter(|v| v.is_infinite()).count() as f64,
                ),
            ];
            for (figure, expected) in figures {
                let found = entry["stats"][figure].as_f64().expect("a number");
                assert!(
                    (found - expected).abs() < 1e-9,
                    "{name} {figure}: {found} {expected}"
                );
            }
        }
        let table = text(&ran(&["tensors", path]));
        assert_eq!(table.lines().count(), stored.len() + 1);
    }
}

#[test]
fn completions_know_the_subcommands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&ran(&["completions", shell]));
        for word in [
            "report",
            "trace",
            "tensors",
            "completions",
            "attention-mask",
        ] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
}

#[test]
fn without_a_prompt_a_built_in_one_runs_and_says_so() {
    let output = attnscope(&["report", original("llama").to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("no prompt given"));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        report["prompts"][0]["tokens"].as_array().map(Vec::len),
        Some(24)
    );
}
