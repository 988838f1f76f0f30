//! Readings that would be silently short or wrong: adapters, tensors that nothing reads, tokenizers that do not fit, heads that a
//! class does not have, values at the edge, and families that only a person names.

use std::path::Path;

use attnscope_checkpoint::{Checkpoint, Opening};
use attnscope_prompt::{Request, Tokenizer};
use serde_json::{Value, json};
use testing::checkpoint_copy::{attnscope as program, original, text};
use testing::opening::{fails, knob, opened};

/// A copy of a small checkpoint, its configuration changed.
fn changed(family: &str, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for entry in std::fs::read_dir(original(family)).expect("a fixture") {
        let path = entry.expect("an entry").path();
        let to = directory.path().join(path.file_name().expect("a name"));
        std::fs::copy(&path, to).expect("a copy");
    }
    let path = directory.path().join("config.json");
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("JSON");
    change(&mut config);
    std::fs::write(&path, config.to_string()).expect("written");
    directory
}

fn remarks(path: &Path, set: &[&str]) -> String {
    opened(path, set).checkpoint.remarks().join("\n")
}

#[test]
fn an_adapter_beside_the_weights_is_refused_or_left_out_with_a_word() {
    let copy = changed("llama", |_| {});
    let adapter = r#"{"peft_type": "LORA", "base_model_name_or_path": "."}"#;
    std::fs::write(copy.path().join("adapter_config.json"), adapter).expect("written");
    let said = fails(copy.path(), &[]);
    assert!(
        said.contains("adapter_config.json") && said.contains("--no-adapter"),
        "{said}"
    );
    let opening = Opening {
        ignores_adapter: true,
        ..Opening::from(Some(copy.path().to_path_buf()))
    };
    let model = attnscope_families::read(opening.open().expect("opens")).expect("is read");
    assert!(model.checkpoint.remarks().join("\n").contains("left out"));
    let path = copy.path().to_str().expect("a path");
    let output = program(&["report", path, "--tokens", "1,2,3", "--no-adapter"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("left out"));
}

#[test]
fn tensors_that_a_near_relative_leaves_unread_are_named_everywhere() {
    for (family, relative) in [("glm4", "glm"), ("seed_oss", "qwen2"), ("olmo2_b", "olmo3")] {
        assert_eq!(remarks(&original(family), &[]), "", "{family}");
        let set = format!("family={relative}");
        let set: &[&str] = &[set.as_str()];
        match attnscope_engine_reads(&original(family), set) {
            Some(said) if relative == "glm" => {
                assert!(said.contains("4 tensors were never read"), "{said}");
                assert!(said.contains("post_self_attn_layernorm"), "{said}");
            }
            _ => {}
        }
    }
    let path = original("glm4");
    let path = path.to_str().expect("a path");
    for command in [
        &["report", path, "--tokens", "1,2,3"][..],
        &["check", path, "--tokens", "1,2,3", "--format", "json"],
    ] {
        let output = program(&[command, &["--set", "family=glm"]].concat());
        assert!(text(&output.stderr).contains("never read"), "{command:?}");
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let holder = match document.get("targets") {
            Some(targets) => &targets[0],
            None => &document,
        };
        let unread = holder["unread"].as_array().expect("names");
        assert_eq!(unread.len(), 4, "{unread:?}");
    }
}

fn attnscope_engine_reads(path: &Path, set: &[&str]) -> Option<String> {
    let opening = testing::opening::opening(path, set);
    let model = opening.open().and_then(attnscope_families::read).ok()?;
    Some(model.checkpoint.remarks().join("\n"))
}

#[test]
fn copies_buffers_and_states_of_optimisers_are_no_unread_tensors() {
    // Both hold tensors that no part reads: a mask, and frequencies of rotation.
    for family in ["gpt2_hub", "llama_linear"] {
        let model = opened(&original(family), &[]);
        assert!(
            !model
                .spec
                .unused_tensors(&model.checkpoint.tensors)
                .is_empty(),
            "{family}"
        );
        assert_eq!(model.checkpoint.unread, Vec::<String>::new(), "{family}");
    }
}

#[test]
fn a_class_without_an_unembedding_has_no_logits() {
    for (family, class) in [
        ("gpt2", "GPT2ForSequenceClassification"),
        ("gpt2", "GPT2Model"),
        ("gemma_b", "GemmaForTokenClassification"),
        ("gemma2_b", "Gemma2Model"),
    ] {
        let copy = changed(family, |config| config["architectures"] = json!([class]));
        let model = opened(copy.path(), &[]);
        assert!(
            model.spec.head.is_none() && !model.spec.is_causal_lm,
            "{class}"
        );
        assert!(knob(&model, "head").1.contains(class));
    }
    let copy = changed("gpt2", |config| {
        config["architectures"] = json!(["GPT2DoubleHeadsModel"])
    });
    assert!(opened(copy.path(), &[]).spec.head.is_some());
}

#[test]
fn empty_rotary_parameters_are_absent_ones() {
    // An empty `rope_scaling` hides neither the share that rotates nor the base beside it.
    for family in ["glm_b", "gpt_neox_v5"] {
        let plain = opened(&original(family), &[]);
        for key in ["rope_scaling", "rope_parameters"] {
            let copy = changed(family, |config| {
                if config.get(key).is_none_or(Value::is_null) {
                    config[key] = json!({});
                }
            });
            let model = opened(copy.path(), &[]);
            for name in ["positions", "rope_theta"] {
                assert_eq!(knob(&model, name), knob(&plain, name), "{family} {key}");
            }
        }
    }
    let copy = changed("gemma3_b", |config| {
        config["rope_scaling"] = json!({ "rope_type": "linear", "factor": 2.0 });
    });
    assert_eq!(knob(&opened(copy.path(), &[]), "rope_factor").0, "2");
    let copy = changed("gpt_oss", |config| {
        config["rope_scaling"] = json!({});
        config["rope_parameters"] = Value::Null;
    });
    let read = Checkpoint::open(copy.path()).and_then(attnscope_families::read);
    let said = read.expect_err("refused").to_string();
    assert!(said.contains("rope_parameters"), "{said}");
}

#[test]
fn values_at_the_edge_are_refused_by_their_key() {
    for (family, key, value) in [
        ("mixtral_b", "sliding_window", json!(0)),
        ("mixtral_b", "sliding_window", json!(-1)),
        ("mixtral_b", "sliding_window", json!(2.5)),
        ("gemma2_b", "sliding_window", json!(0)),
        ("gemma2_b", "sliding_window", Value::Null),
        ("granite", "logits_scaling", json!(0)),
        ("gemma2_b", "final_logit_softcapping", json!(0)),
        ("gemma2_b", "attn_logit_softcapping", json!(0.0)),
        ("cohere", "logit_scale", Value::Null),
        ("glm", "partial_rotary_factor", Value::Null),
        (
            "gemma3_b",
            "rope_scaling",
            json!({ "type": "linear", "factor": 2.0 }),
        ),
        ("olmo3_b", "rope_scaling", json!({ "type": "default" })),
        ("t5_pads", "relative_attention_max_distance", json!(1)),
        ("deepseek_v3", "head_dim", json!(5)),
        ("gpt_neox_b", "head_dim", json!(4)),
        ("llama", "rms_norm_eps", json!(-1e-5)),
        ("qwen2_types", "use_sliding_window", json!(false)),
        ("gpt_oss", "num_local_experts", json!(1)),
    ] {
        if !original(family).exists() {
            continue;
        }
        let copy = changed(family, |config| config[key] = value.clone());
        let read = Checkpoint::open(copy.path()).and_then(attnscope_families::read);
        let said = match read {
            Ok(_) => panic!("{family}: {key} = {value} is read"),
            Err(e) => e.to_string(),
        };
        let is_told = [key, "layer_types", "num_experts_per_tok", "experts"]
            .iter()
            .any(|word| said.contains(word));
        assert!(
            is_told && said.lines().count() == 1,
            "{family} {key}: {said}"
        );
    }
    let copy = changed("llama", |config| {
        config["num_key_value_heads"] = Value::Null
    });
    let read = Checkpoint::open(copy.path()).and_then(attnscope_families::read);
    // As many as there are heads, or refused by the shape where the file has fewer.
    if let Ok(model) = read {
        let attention = model
            .spec
            .main_stack()
            .first_attention()
            .expect("attention");
        assert_eq!(attention.n_kv_heads, attention.n_heads);
    }
}

#[test]
fn an_unknown_kind_is_read_by_a_class_that_is_known_and_says_so() {
    let copy = changed("llama", |config| {
        config["model_type"] = json!("my_llama");
        config["architectures"] = json!(["LlamaForCausalLM"]);
    });
    let said = remarks(copy.path(), &[]);
    assert!(
        said.contains("my_llama") && said.contains("read as llama"),
        "{said}"
    );
    let copy = changed("llama", |config| {
        config["model_type"] = json!("my_llama");
        config["architectures"] = json!(["MyForCausalLM"]);
    });
    assert!(fails(copy.path(), &[]).contains("my_llama"));
}

#[test]
fn a_family_that_a_person_names_is_read_without_a_configuration() {
    let with = opened(&original("bloom_b"), &[]);
    let copy = changed("bloom_b", |_| {});
    std::fs::remove_file(copy.path().join("config.json")).expect("removed");
    assert!(fails(copy.path(), &[]).contains("no config.json"));
    let settings = "[set]\nfamily = \"bloom\"\nn_heads = 6\n";
    std::fs::write(copy.path().join("attnscope.toml"), settings).expect("written");
    let model = opened(copy.path(), &[]);
    assert_eq!(model.spec.family, "bloom");
    assert_eq!(
        (
            model.spec.d_model,
            model.spec.d_vocab,
            model.spec.main_stack().n_layers()
        ),
        (
            with.spec.d_model,
            with.spec.d_vocab,
            with.spec.main_stack().n_layers()
        )
    );
    assert!(model.spec.head.is_some());
}

#[test]
fn positions_can_be_taken_away() {
    for family in ["llama", "bloom_b", "gpt2"] {
        if !original(family).exists() {
            continue;
        }
        let model = opened(&original(family), &["positions=none"]);
        let stack = model.spec.main_stack();
        let attention = stack.first_attention().expect("attention");
        assert!(
            attention.rope.is_none() && stack.embed.positions.is_none(),
            "{family}"
        );
        assert_eq!(format!("{:?}", attention.bias), "None", "{family}");
        assert_eq!(knob(&model, "positions").0, "none", "{family}");
    }
}

/// Weights of GPT-2's names as nn.Linear stores them, with an unembedding of their own or a copy.
fn output_major(is_tied: bool) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let (d, n_vocab) = (4usize, 6usize);
    let mut all: Vec<(String, Vec<usize>)> = vec![
        ("transformer.wte.weight".into(), vec![n_vocab, d]),
        ("transformer.wpe.weight".into(), vec![8, d]),
        ("transformer.ln_f.weight".into(), vec![d]),
        ("transformer.ln_f.bias".into(), vec![d]),
        ("lm_head.weight".into(), vec![n_vocab, d]),
    ];
    for (name, shape) in [
        ("ln_1", vec![d]),
        ("attn.c_attn", vec![3 * d, d]),
        ("attn.c_proj", vec![d, d]),
        ("ln_2", vec![d]),
        ("mlp.c_fc", vec![4 * d, d]),
        ("mlp.c_proj", vec![d, 4 * d]),
    ] {
        all.push((format!("transformer.h.0.{name}.bias"), vec![shape[0]]));
        all.push((format!("transformer.h.0.{name}.weight"), shape));
    }
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = all
        .into_iter()
        .enumerate()
        .map(|(idx, (name, shape))| {
            let n: usize = shape.iter().product();
            let seed = if is_tied && name == "lm_head.weight" {
                0
            } else {
                idx
            };
            let value = |i: usize| ((i * 7 + seed * 13) % 11) as f32 * 0.1 - 0.5;
            let bytes = (0..n).flat_map(|i| value(i).to_le_bytes()).collect();
            (name, shape, bytes)
        })
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        let view =
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes);
        (name.clone(), view.expect("a view"))
    });
    let file = safetensors::serialize(views, None).expect("a file");
    std::fs::write(directory.path().join("model.safetensors"), file).expect("written");
    directory
}

#[test]
fn mingpt_and_nanogpt_are_told_apart_by_their_unembedding() {
    for (is_tied, activation) in [(true, "gelu"), (false, "gelu_new")] {
        let directory = output_major(is_tied);
        let model = opened(directory.path(), &["n_heads=2"]);
        assert_eq!(knob(&model, "activation").0, activation);
        let said = model.checkpoint.remarks().join("\n");
        assert_eq!(said.contains("minGPT"), !is_tied, "{said}");
        let set = opened(directory.path(), &["n_heads=2", "activation=relu"]);
        assert_eq!(knob(&set, "activation").0, "relu");
    }
}

fn stub(vocab: &Value) -> tempfile::TempDir {
    let copy = changed("llama", |_| {});
    let tokenizer = json!({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": null, "dropout": null}});
    std::fs::write(copy.path().join("tokenizer.json"), tokenizer.to_string()).expect("written");
    copy
}

#[test]
fn characters_that_the_tokenizer_loses_are_counted_and_a_lost_text_is_refused() {
    let copy = stub(&json!({"q": 0, "h": 1}));
    let model = opened(copy.path(), &[]);
    let prompt_form = Tokenizer::open(&model.checkpoint.tokenizer).expect("a tokenizer");
    let limits = model.spec.limits();
    let prepared =
        |text: &str| attnscope_prompt::prepare(&Request::text(text), &prompt_form, limits);
    let said = prepared("ello world")
        .expect_err("nothing comes through")
        .to_string();
    assert!(
        said.contains("9 are dropped") && said.contains("--tokenizer"),
        "{said}"
    );
    let prompt = prepared("hello h").expect("some come through");
    let said = prompt.lost_words().expect("some are lost");
    assert!(said.contains("6 characters, 4 are dropped"), "{said}");
    assert_eq!(prepared("hqhq").expect("fits").lost_words(), None);
    let path = copy.path().to_str().expect("a path");
    let output = program(&["report", path, "--text", "hello h"]);
    assert!(
        text(&output.stderr).contains("4 are dropped"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_spelled_end_is_not_written_twice_by_t5() {
    let directory = testing::root().join("fixtures/formats/tokenizers/t5");
    let run = |given: &str| {
        let path = directory.to_str().expect("a path");
        let output = program(&["tokens", path, "--text", given, "--format", "json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let tokens = document["tokens"].as_array().expect("tokens").clone();
        assert_eq!(document["version"], 1);
        tokens
    };
    let once = run("the clock</s>");
    let plain = run("the clock");
    let ids =
        |tokens: &[Value]| -> Vec<u64> { tokens.iter().filter_map(|t| t["id"].as_u64()).collect() };
    assert_eq!(ids(&once), ids(&plain));
    let last = plain.last().expect("a token");
    assert_eq!(
        (&last["special"], &last["start"], &last["end"]),
        (&json!(true), &json!(9), &json!(9))
    );
    let first = &plain[0];
    assert_eq!(
        (&first["special"], &first["start"]),
        (&json!(false), &json!(0))
    );
}

#[test]
fn a_sentencepiece_model_of_any_name_is_found_and_another_can_be_named() {
    let pieces = testing::root().join("fixtures/formats/tokenizers/llama/tokenizer.model");
    let copy = changed("llama", |_| {});
    let odd = copy.path().join("my_pieces.model");
    std::fs::copy(&pieces, &odd).expect("a copy");
    let path = copy.path().to_str().expect("a path");
    let ids = |arguments: &[&str]| {
        let output = program(
            &[
                &["tokens", path, "--text", "the clock", "--format", "json"],
                arguments,
            ]
            .concat(),
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let found = ids(&[]);
    std::fs::copy(&pieces, copy.path().join("other.spm")).expect("a copy");
    let output = program(&["tokens", path, "--text", "the clock"]);
    assert!(
        text(&output.stderr).contains("--tokenizer FILE"),
        "{}",
        text(&output.stderr)
    );
    let named = odd.to_str().expect("a path");
    assert_eq!(ids(&["--tokenizer", named]), found);
}
