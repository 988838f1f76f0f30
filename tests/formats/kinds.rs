//! Kinds of models that are read as another kind: their own defaults, what is said of them, and kinds that nothing reads.

use attnscope_checkpoint::Opening;
use serde_json::json;
use testing::checkpoint_copy::{Copy, attnscope, text};
use testing::opening::{knob, opened};
use testing::refusal::{PROMPT, assert_says, refused};

/// Makes a copy of a case another kind of model, without some keys of its configuration.
fn another(case: &str, kind: &str, without: &[&str]) -> Copy {
    let copy = Copy::of(case);
    copy.config(|config| {
        config.insert("model_type".to_owned(), json!(kind));
        config.remove("architectures");
        without.iter().for_each(|key| drop(config.remove(*key)));
    });
    copy
}

#[test]
fn what_a_configuration_leaves_out_is_what_its_own_kind_has() {
    const ROPE: &[&str] = &["rope_theta", "rope_parameters", "rope_scaling"];
    for (case, kind, without, name, value) in [
        ("qwen3_b", "qwen3_vl_text", ROPE, "rope_theta", "500000"),
        ("qwen3_b", "qwen3", ROPE, "rope_theta", "10000"),
        (
            "qwen3_moe",
            "qwen3_vl_moe_text",
            ROPE,
            "rope_theta",
            "500000",
        ),
        (
            "qwen3_moe",
            "qwen3_vl_moe_text",
            &["norm_topk_prob"],
            "normalises_experts",
            "true",
        ),
        (
            "qwen3_moe",
            "qwen3_moe",
            &["norm_topk_prob"],
            "normalises_experts",
            "false",
        ),
        (
            "qwen2_types",
            "qwen2_vl_text",
            ROPE,
            "rope_theta",
            "1000000",
        ),
        (
            "qwen2_types",
            "qwen2_5_vl_text",
            &["rms_norm_eps"],
            "norm_eps",
            "1e-5",
        ),
        (
            "qwen2_types",
            "qwen2",
            &["rms_norm_eps"],
            "norm_eps",
            "1e-6",
        ),
        (
            "xlm_roberta_xl",
            "xlm-roberta-xl",
            &["layer_norm_eps"],
            "norm_eps",
            "1e-5",
        ),
        ("persimmon", "persimmon", ROPE, "rope_theta", "10000"),
    ] {
        let copy = another(case, kind, without);
        let model = opened(copy.path(), &[]);
        assert_eq!(knob(&model, name).0, value, "{kind} without {without:?}");
    }
    // The router of this kind divides by the sum whatever its configuration says.
    let copy = another("qwen3_moe", "qwen3_vl_moe_text", &[]);
    copy.config(|config| drop(config.insert("norm_topk_prob".to_owned(), json!(false))));
    assert_eq!(
        knob(&opened(copy.path(), &[]), "normalises_experts").0,
        "true"
    );
    let glm = another("glm4_b", "glm4", &["attention_bias"]);
    let read = attnscope_families::read(
        Opening::from(Some(glm.path().to_path_buf()))
            .open()
            .expect("opens"),
    );
    match read {
        Ok(model) => {
            let own = model.spec.main_stack().blocks()[0]
                .own()
                .expect("attention");
            assert!(own.projections.q.bias.is_some());
        }
        Err(e) => assert!(e.to_string().contains("q_proj.bias"), "{e}"),
    }
    for (case, kind) in [("bart_b", "plbart"), ("nllb_moe", "nllb-moe")] {
        let model = opened(another(case, kind, &["scale_embedding"]).path(), &[]);
        assert_eq!(knob(&model, "scales_embedding").0, "true", "{kind}");
    }
    let model = opened(
        another("deepseek_v3", "deepseek_v3", &["n_group", "topk_group"]).path(),
        &[],
    );
    assert_eq!(knob(&model, "n_expert_groups").0, "8");
    assert_eq!(knob(&model, "n_expert_groups_kept").0, "4");
}

#[test]
fn a_kind_that_begins_targets_says_so_in_its_settings_of_generation() {
    let copy = another("bart_b", "plbart", &["decoder_start_token_id"]);
    let start = |copy: &Copy| {
        let spec = opened(copy.path(), &[]).spec;
        spec.decoder_start.expect("a start").start_token
    };
    let bos = 0;
    assert_eq!(start(&copy), bos);
    copy.write("generation_config.json", r#"{"decoder_start_token_id": 5}"#);
    assert_eq!(start(&copy), 5);
}

#[test]
fn a_family_that_overrules_the_configuration_is_said_with_what_it_does_not_read() {
    let copy = another("qwen3_moe", "lumen", &[]);
    copy.config(|config| drop(config.insert("odd_switch".to_owned(), json!(true))));
    let path = copy.path().to_str().expect("a path");
    let ran = |set: &[&str]| {
        let output = attnscope(&[&["report", path][..], PROMPT, set].concat());
        (output.status.code(), text(&output.stderr))
    };
    let (code, said) = ran(&["--set", "family=qwen3_moe"]);
    assert_eq!(code, Some(0), "{said}");
    for part in [
        "model_type lumen is read as qwen3_moe",
        "does not read",
        "odd_switch",
    ] {
        assert!(said.contains(part), "{said}");
    }
    // The same family by its own name is no other one.
    copy.config(|config| drop(config.insert("model_type".to_owned(), json!("qwen3_moe"))));
    let (_, said) = ran(&["--set", "family=qwen3_moe"]);
    assert!(!said.contains("is read as"), "{said}");
}

#[test]
fn an_unknown_kind_is_told_its_nearest_by_name_and_by_tensors() {
    let copy = another("qwen3_moe", "lumen", &[]);
    let said = refused("report", copy.path(), PROMPT);
    assert_says(&said, &["lumen", "qwen3_moe", "attnscope guess"]);
    assert!(said.len() < 600, "{said}");
    let copy = another("llama", "lama", &[]);
    let said = refused("report", copy.path(), PROMPT);
    assert_says(&said, &["the nearest name is llama", "--set family=llama"]);
}

#[test]
fn kinds_without_softmax_attention_are_refused_by_what_they_have_instead() {
    for (kind, instead) in [
        ("mamba", "a selective state space (Mamba)"),
        ("rwkv", "a recurrence of decaying sums (RWKV)"),
        ("fnet", "Fourier transforms"),
        ("resnet", "convolutions"),
    ] {
        let copy = another("llama", kind, &[]);
        let said = refused("report", copy.path(), PROMPT);
        let line = format!(
            "config.json: model_type: \"{kind}\" has no softmax attention, so there is nothing to show: its layers have {instead}\n"
        );
        assert!(said.ends_with(&line) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_model_around_a_known_text_part_that_is_not_read_is_named() {
    let copy = Copy::of("qwen3_b");
    copy.config(|config| {
        let text = serde_json::Value::Object(config.clone());
        config.clear();
        config.insert("model_type".to_owned(), json!("kimi_k25"));
        config.insert("text_config".to_owned(), text);
    });
    copy.weights(|weights| {
        let old = std::mem::take(weights);
        let renamed = old.into_iter().map(|(name, stored)| {
            let name = name.replace("layers.", "blocks_of.");
            (name, stored)
        });
        weights.extend(renamed);
    });
    let said = refused("report", copy.path(), PROMPT);
    assert_says(
        &said,
        &["kimi_k25", "qwen3", "not read as a whole", "missing"],
    );
}
