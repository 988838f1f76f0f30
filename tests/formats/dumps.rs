//! Dumps of engines and debuggers (`fixtures/dumps`), each of `mistral_full` with one planted difference.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testing::checkpoint_copy::{Stored, Weights, attnscope, file_of, original, text};
use testing::pairs::{Found, diff};
use testing::refusal::assert_says;

const TOKENS: &[&str] = &["--tokens", "5,9,2,20,7,11,3,8,5,9"];

fn dump(name: &str) -> PathBuf {
    testing::root().join("fixtures/dumps").join(name)
}

fn found(name: &str, arguments: &[&str]) -> Found {
    diff(&original("mistral_full"), &dump(name), arguments)
}

/// The relative difference of a hook of layer 0.
fn relative(found: &Found, hook: &str) -> f64 {
    let hooks = found.json["hooks"].as_array().expect("hooks");
    let of = |h: &&Value| h["hook"] == hook && h["layer"] == 0;
    let value = hooks.iter().find(of).and_then(|h| h["relative"].as_f64());
    value.unwrap_or_else(|| panic!("{hook}: {}", found.json["hooks"]))
}

fn hooks(found: &Found) -> Vec<String> {
    let hooks = found.json["hooks"].as_array().expect("hooks").iter();
    let of_first = hooks.filter(|h| h["layer"] == 0);
    let names = of_first.filter_map(|h| h["hook"].as_str());
    names.map(str::to_owned).collect()
}

fn notes(found: &Found) -> String {
    found.json["notes"].to_string()
}

/// What `diff` says of a dump that it refuses.
fn refused(path: &Path) -> String {
    let found = diff(&original("mistral_full"), path, &[]);
    assert_eq!(found.code, Some(2), "{}", found.said);
    assert_eq!(found.said.trim().lines().count(), 1, "{}", found.said);
    found.said
}

fn copy_of(name: &str) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        for entry in fs::read_dir(from).expect("lists") {
            let path = entry.expect("an entry").path();
            let to = to.join(path.file_name().expect("a name"));
            if path.is_dir() {
                fs::create_dir(&to).expect("makes");
                copy(&path, &to);
            } else {
                fs::copy(&path, &to).expect("copies");
            }
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    copy(&dump(name), directory.path());
    directory
}

#[test]
fn another_rotation_shows_in_the_patterns_of_transformers_debugger() {
    let other = found("transformers", &[]);
    assert!(other.first().starts_with("pattern L0"), "{}", other.first());
    for hook in ["resid_pre", "q", "k", "v"] {
        assert!(relative(&other, hook) < 1e-5, "{hook}");
    }
    let expected = [
        "resid_pre",
        "q",
        "k",
        "v",
        "pattern",
        "z",
        "attn_out",
        "mlp_out",
        "resid_post",
    ];
    assert_eq!(hooks(&other), expected);
    assert!(notes(&other).contains("transformers' model debugger: read resid_pre, q"));
    // With the rotation that was planted, every hook is the same.
    let planted = found("transformers", &["--set", "rope_theta=1000000"]);
    assert_eq!((planted.code, planted.said.as_str()), (Some(0), ""));
    let tree = dump("transformers/MistralForCausalLM_debug_tree_FULL_TENSORS.json");
    let by_tree = diff(&original("mistral_full"), &tree, &[]);
    assert_eq!(by_tree.first(), other.first());
}

#[test]
fn values_that_transformers_wrote_as_text_are_refused_with_the_call_that_writes_them() {
    let said = refused(&dump("transformers_as_text"));
    assert_says(&said, &["transformers_as_text", "use_repr=False"]);
}

#[test]
fn patterns_of_a_dump_are_judged_and_other_dumps_say_what_they_lack() {
    let check = |name: &str| attnscope(&[Path::new("check"), &dump(name)]);
    let output = check("transformers");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert_says(&said, &["transformers' model debugger", "causal inferred"]);
    let output = check("sglang");
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert_says(&said, &["no pattern", "attnscope diff CHECKPOINT DUMP"]);
}

#[test]
fn outputs_saved_under_names_of_modules_are_compared_where_they_are() {
    let found = found("modules.pt", TOKENS);
    assert!(found.first().starts_with("k L1"), "{}", found.first());
    let expected = ["q", "k", "v", "attn_out", "mlp_out", "resid_post"];
    assert_eq!(hooks(&found), expected);
    let said = refused(&dump("modules.pt"));
    assert_says(&said, &["modules", "--tokens"]);
}

#[test]
fn tensor_parallel_ranks_of_sglang_are_put_together() {
    let other = found("sglang", &[]);
    assert!(other.first().starts_with("rot_q L0"), "{}", other.first());
    assert_eq!(other.knobs(), "rope_interleaved false true");
    // Four ranks share two key heads; values were rounded to bf16.
    for hook in ["q", "k", "v"] {
        assert!(relative(&other, hook) < 0.004, "{hook}");
    }
    assert!(
        notes(&other).contains("Pass00000.pt of 4 ranks"),
        "{}",
        notes(&other)
    );
    for part in [
        "TP2_PP0_Rank2_pid4002",
        "TP1_PP0_Rank1_pid4001/Pass00000.pt",
    ] {
        let of_part = diff(&original("mistral_full"), &dump("sglang").join(part), &[]);
        assert_eq!(of_part.first(), other.first(), "{part}");
    }
    let planted = found("sglang", &["--set", "rope_interleaved=true"]);
    assert_eq!((planted.code, planted.said.as_str()), (Some(0), ""));
}

#[test]
fn passes_that_are_no_whole_sequence_are_refused() {
    let said = refused(&dump("sglang/TP0_PP0_Rank0_pid4000/Pass00001.pt"));
    assert_says(
        &said,
        &["Pass00001.pt", "found one over 1 of its 11 tokens"],
    );
    let copy = copy_of("sglang");
    let again = copy.path().join("TP0_PP0_Rank0_pid5000");
    fs::create_dir(&again).expect("makes");
    let said = refused(copy.path());
    assert_says(&said, &["expected one run", "pid4000", "pid5000"]);
    fs::remove_dir(again).expect("removes");
    fs::remove_file(copy.path().join("TP3_PP0_Rank3_pid4003/Pass00000.pt")).expect("removes");
    let said = refused(copy.path());
    assert_says(&said, &["TP3_PP0_Rank3_pid4003/Pass00000.pt"]);
}

#[test]
fn a_dropped_window_shows_in_the_heads_of_sglangs_dumper() {
    let other = found("sglang_dumper", &[]);
    assert!(other.first().starts_with("z L0"), "{}", other.first());
    for hook in ["q", "k", "v", "rot_q", "rot_k"] {
        assert!(relative(&other, hook) < 1e-4, "{hook}");
    }
    let planted = found("sglang_dumper", &["--set", "window=4"]);
    assert_eq!((planted.code, planted.said.as_str()), (Some(0), ""));
}

#[test]
fn tensors_that_llama_cpp_printed_are_compared_as_far_as_they_were_written() {
    let other = found("llama_cpp.txt", &[]);
    assert!(other.first().starts_with("rot_q L0"), "{}", other.first());
    for hook in ["resid_pre", "q", "k", "v"] {
        assert_eq!(relative(&other, hook), 0.0, "{hook}");
    }
    let planted = found("llama_cpp.txt", &["--set", "rope_theta=500"]);
    assert_eq!((planted.code, planted.said.as_str()), (Some(0), ""));
    let hooks = planted.json["hooks"].as_array().expect("hooks");
    assert!(hooks.iter().any(|h| h["hook"] == "logits"));
}

#[test]
fn without_the_architecture_llama_cpps_queries_are_left_out() {
    let all = fs::read_to_string(dump("llama_cpp.txt")).expect("reads");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("out.log");
    let (_, rest) = all.split_once('\n').expect("lines");
    fs::write(&path, rest).expect("writes");
    let found = diff(&original("mistral_full"), &path, &[]);
    assert!(found.first().starts_with("z L0"), "{}", found.first());
    assert!(
        notes(&found).contains("general.architecture"),
        "{}",
        notes(&found)
    );
    let huge = all.replacen("= {32, 10, 1, 1}", "= {4294967296, 4294967296, 1, 1}", 1);
    fs::write(&path, huge).expect("writes");
    assert_says(&refused(&path), &["out.log", "expected sizes of a tensor"]);
}

#[test]
fn dumps_of_two_engines_are_compared_with_each_other() {
    let found = diff(&dump("sglang"), &dump("sglang_dumper"), &[]);
    assert!(found.first().starts_with("rot_q L0"), "{}", found.first());
}

#[test]
fn fused_projections_are_divided_as_their_numbers_say() {
    for (name, family, words) in [
        (
            "neox",
            "gpt_neox_v5",
            "q, k, v of 4 groups one after another",
        ),
        (
            "falcon",
            "falcon_11b",
            "q, k, v of 2 groups one after another",
        ),
        ("falcon_blocks", "falcon_11b", "q, k, v one after another"),
    ] {
        let path = dump(&format!("fused_{name}.pt"));
        let found = diff(&original(family), &path, &[]);
        let said = format!("query_key_value has {words}, by the first position's z");
        assert!(notes(&found).contains(&said), "{name}: {}", notes(&found));
        // Only the keys of the last position were changed.
        assert!(
            found.first().starts_with("k L0"),
            "{name}: {}",
            found.first()
        );
        for hook in ["q", "v", "z"] {
            assert!(relative(&found, hook) < 1e-5, "{name} {hook}");
        }
    }
}

#[test]
fn a_fused_projection_that_nothing_tells_apart_is_left_out_and_named() {
    let layer = "gpt_neox.layers.0.attention";
    let values: Vec<f32> = (0..960).map(|at| (at % 37) as f32).collect();
    let all: Weights = [
        (
            format!("{layer}.query_key_value.output"),
            Stored::f32(&[1, 10, 96], &values),
        ),
        (
            format!("{layer}.dense.output"),
            Stored::f32(&[1, 10, 32], &values[..320]),
        ),
    ]
    .into();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("saved.safetensors");
    fs::write(&path, file_of(&all)).expect("writes");
    let found = diff(&original("gpt_neox_v5"), &path, TOKENS);
    assert_eq!(hooks(&found), ["attn_out"]);
    let said = notes(&found);
    assert!(
        said.contains("left out query_key_value: without z"),
        "{said}"
    );
}

#[test]
fn values_of_onnx_graphs_are_compared_whoever_exported_them() {
    for name in ["onnx_exported.safetensors", "onnx_traced.safetensors"] {
        let other = found(name, &[]);
        assert!(
            other.first().starts_with("pattern L0"),
            "{name}: {}",
            other.first()
        );
        for hook in ["q", "k", "v"] {
            assert!(relative(&other, hook) < 1e-5, "{name} {hook}");
        }
        let expected = [
            "q",
            "k",
            "v",
            "pattern",
            "z",
            "attn_out",
            "mlp_out",
            "resid_post",
        ];
        assert_eq!(hooks(&other), expected, "{name}");
        let planted = found(name, &["--set", "rope_theta=1000000"]);
        assert_eq!(
            (planted.code, planted.said.as_str()),
            (Some(0), ""),
            "{name}"
        );
    }
    // One operator projects and one attends; the rotated keys are those of the cache.
    let genai = dump("onnx_genai.safetensors");
    let other = diff(&original("llama"), &genai, &[]);
    assert!(other.first().starts_with("rot_k L0"), "{}", other.first());
    assert!(
        notes(&other).contains("qkv_proj has q, k, v one after another"),
        "{}",
        notes(&other)
    );
    let expected = [
        "q",
        "k",
        "v",
        "rot_k",
        "z",
        "attn_out",
        "mlp_out",
        "resid_post",
    ];
    assert_eq!(hooks(&other), expected);
    let planted = diff(&original("llama"), &genai, &["--set", "rope_theta=1000000"]);
    assert_eq!((planted.code, planted.said.as_str()), (Some(0), ""));
}

#[test]
fn the_cache_that_tensorrt_edge_llm_dumps_is_compared_where_it_is_in_use() {
    let other = found("edge_llm.safetensors", TOKENS);
    assert!(other.first().starts_with("rot_k L0"), "{}", other.first());
    assert_eq!(hooks(&other), ["v", "rot_k"]);
    assert!(relative(&other, "v") < 1e-3);
    let planted = [TOKENS, &["--set", "rope_interleaved=true"]].concat();
    let planted = found("edge_llm.safetensors", &planted);
    assert_eq!((planted.code, planted.said.as_str()), (Some(0), ""));
    let bare = refused(&dump("edge_llm.safetensors"));
    assert_says(&bare, &["edge_llm", "--tokens"]);
}
