//! Keys that transformers obeys in ways of its own: obeyed alike, or refused in one line; never passed by.

use attnscope_checkpoint::{Checkpoint, Opening};
use attnscope_compute::attention::{Bias, Window};
use attnscope_spec::{BlockSpec, FeedForward, Model};
use serde_json::{Value, json};
use testing::checkpoint_copy::Copy;
use testing::refusal::{assert_says, refused_report};

fn set(copy: &Copy, key: &str, value: Value) {
    let path = copy.file("config.json");
    let text = std::fs::read_to_string(&path).expect("a configuration");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    let keys = config.as_object_mut().expect("an object");
    match value {
        Value::Null => drop(keys.remove(key)),
        value => drop(keys.insert(key.to_owned(), value)),
    }
    std::fs::write(&path, config.to_string()).expect("written");
}

fn opened(copy: &Copy) -> Model {
    let checkpoint = Checkpoint::open(copy.path()).expect("a checkpoint");
    attnscope_families::read(checkpoint).expect("a model")
}

fn windows(copy: &Copy) -> Vec<Option<Window>> {
    let model = opened(copy);
    let blocks = model.spec.main_stack().blocks().iter();
    blocks
        .map(|block| block.own().expect("attention").attention.mask.window)
        .collect()
}

#[test]
fn what_would_be_computed_otherwise_is_refused() {
    for (fixture, changes, parts) in [
        (
            "llama",
            vec![("use_bidirectional_attention", json!(true))],
            "use_bidirectional_attention",
        ),
        ("qwen3_b", vec![("is_causal", json!(false))], "is_causal"),
        (
            "llama",
            vec![("partial_rotary_factor", json!(0.5))],
            "partial_rotary_factor",
        ),
        (
            "gemma3_b",
            vec![("attn_logit_softcapping", json!(50.0))],
            "attn_logit_softcapping",
        ),
        (
            "gpt_oss",
            vec![("rope_scaling", Value::Null)],
            "rope_parameters",
        ),
        // Two experts are left to choose three from.
        (
            "deepseek_v3",
            vec![("topk_group", json!(1))],
            "num_experts_per_tok",
        ),
        ("glm4_moe", vec![("topk_group", Value::Null)], "topk_group"),
        // A layer that does not rotate takes no latents of one that does.
        (
            "mistral_large4_text",
            vec![("kv_source_layers", json!([0, 0, 0, 1]))],
            "kv_source_layers",
        ),
        (
            "muse_spark_text",
            vec![("layer_rope_theta", json!([10000.0]))],
            "layer_rope_theta",
        ),
        (
            "beam",
            vec![(
                "rope_parameters",
                json!({"sliding_attention": null, "full_attention": null}),
            )],
            "rope_parameters.sliding_attention",
        ),
        (
            "zamba",
            vec![("attention_hidden_size", json!(32))],
            "attention_hidden_size",
        ),
        (
            "zamba2_b",
            vec![(
                "layers_block_type",
                json!(["hybrid", "full_attention", "hybrid"]),
            )],
            "layers_block_type",
        ),
        (
            "t5_v11",
            vec![("dense_act_fn", json!("silu"))],
            "dense_act_fn",
        ),
        (
            "t5_v11",
            vec![("is_gated_act", json!(false))],
            "is_gated_act",
        ),
        // It takes its segments from separators.
        (
            "big_bird",
            vec![("architectures", json!(["BigBirdForQuestionAnswering"]))],
            "BigBirdForQuestionAnswering",
        ),
        (
            "whisper",
            vec![("architectures", json!(["WhisperForCausalLM"]))],
            "WhisperForCausalLM",
        ),
        (
            "whisper",
            vec![("architectures", json!(["WhisperForAudioClassification"]))],
            "WhisperForAudioClassification",
        ),
    ] {
        let copy = Copy::of(fixture);
        opened(&copy);
        for (key, value) in changes {
            set(&copy, key, value);
        }
        let said = refused_report(&copy, &["--tokens", "5,9,2,5"]);
        assert_says(&said, &["config.json", parts]);
    }
}

#[test]
fn an_untied_head_that_is_not_stored_is_missed() {
    let copy = Copy::of("bert_b");
    assert!(opened(&copy).spec.head.is_some());
    set(&copy, "tie_word_embeddings", json!(false));
    let said = refused_report(&copy, &["--tokens", "5,9,2,5"]);
    assert_says(&said, &["decoder.weight"]);
}

#[test]
fn a_tied_embedding_is_found_under_the_name_of_the_head() {
    // As transformers stores the first GPT with two heads.
    let copy = Copy::of("openai_gpt");
    copy.weights(|weights| {
        let names: Vec<String> = weights.keys().cloned().collect();
        let name = names
            .iter()
            .find(|name| name.ends_with("tokens_embed.weight"));
        let table = weights.remove(name.expect("a table")).expect("a table");
        weights.insert("lm_head.weight".to_owned(), table);
    });
    set(&copy, "architectures", json!(["OpenAIGPTDoubleHeadsModel"]));
    let renamed = opened(&copy);
    assert_eq!(
        renamed.spec.main_stack().embed.tokens.tensor,
        "lm_head.weight"
    );
}

#[test]
fn keys_that_a_class_passes_over_change_nothing() {
    for (fixture, key, value) in [
        ("roformer_b", "rope_theta", json!(100.0)),
        (
            "roformer_b",
            "rope_scaling",
            json!({ "type": "linear", "factor": 2.0 }),
        ),
        (
            "roformer_b",
            "rope_parameters",
            json!({ "rope_theta": 100.0 }),
        ),
        ("led_b", "scale_embedding", json!(true)),
        ("mpnet_b", "is_decoder", json!(true)),
    ] {
        let copy = Copy::of(fixture);
        let before = opened(&copy).spec.stacks;
        set(&copy, key, value);
        assert_eq!(opened(&copy).spec.stacks, before, "{fixture} {key}");
    }
    // Angles that are stored count, and those of the configuration must be the same.
    let copy = Copy::of("esm");
    opened(&copy);
    set(&copy, "rope_theta", json!(20000.0));
    let said = refused_report(&copy, &["--tokens", "5,9,2,5"]);
    assert_says(&said, &["inv_freq", "rope_theta 20000"]);
    // A person's word counts.
    let copy = Copy::of("roformer_b");
    let opening = Opening {
        set: vec![("rope_theta".to_owned(), "100".to_owned())],
        ..Opening::from(Some(copy.path().to_path_buf()))
    };
    let changed = opening
        .open()
        .and_then(attnscope_families::read)
        .expect("opens");
    assert_ne!(changed.spec.stacks, opened(&copy).spec.stacks);
}

#[test]
fn what_is_not_stated_is_what_the_class_takes() {
    for (fixture, key, value) in [
        ("m2m_100", "scale_embedding", json!(true)),
        ("m2m_100", "activation_function", json!("relu")),
        ("bart_b", "scale_embedding", json!(false)),
        ("bart_b", "activation_function", json!("gelu")),
    ] {
        let copy = Copy::of(fixture);
        set(&copy, key, value);
        let stated = opened(&copy).spec.stacks;
        set(&copy, key, Value::Null);
        assert_eq!(opened(&copy).spec.stacks, stated, "{fixture} {key}");
    }
    // Newer versions state where gates are clamped.
    for (key, value) in [("swiglu_limit", json!(7.0)), ("swiglu_alpha", json!(1.702))] {
        let copy = Copy::of("gpt_oss");
        let unstated = opened(&copy).spec.stacks;
        set(&copy, key, value);
        assert_eq!(opened(&copy).spec.stacks, unstated, "{key}");
        set(&copy, key, json!(3.5));
        assert_ne!(opened(&copy).spec.stacks, unstated, "{key}");
    }
    // A bias that is stored counts for nothing where the class makes none.
    let bias = |copy: &Copy| opened(copy).spec.head.expect("a head").unembed.bias;
    for (fixture, key) in [("modernbert_b", "decoder_bias"), ("phimoe", "lm_head_bias")] {
        let copy = Copy::of(fixture);
        assert!(bias(&copy).is_some(), "{fixture}");
        set(&copy, key, json!(false));
        assert!(bias(&copy).is_none(), "{fixture}");
    }
}

#[test]
fn values_that_say_nothing_are_what_transformers_makes_of_them() {
    let with = |fixture: &str, key: &str| {
        let copy = Copy::of(fixture);
        let path = copy.file("config.json");
        let text = std::fs::read_to_string(&path).expect("a configuration");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        config[key] = Value::Null;
        std::fs::write(&path, config.to_string()).expect("written");
        copy
    };
    // Only what is stated as false leaves the outputs of T5 as they are.
    let scale = |copy: &Copy| opened(copy).spec.head.expect("a head").scale;
    assert_eq!(scale(&Copy::of("t5_v11")), 1.0);
    assert!(scale(&with("t5_v11", "tie_word_embeddings")) < 1.0);
    let copy = Copy::of("gpt_oss");
    let untruncated = opened(&copy).spec.stacks;
    copy.config(|config| config["rope_scaling"]["truncate"] = Value::Null);
    assert_eq!(opened(&copy).spec.stacks, untruncated);
    copy.config(|config| config["rope_scaling"]["truncate"] = json!(true));
    assert_ne!(opened(&copy).spec.stacks, untruncated);
    // Two names of one thing that say different things.
    let copy = Copy::of("recurrent_gemma");
    opened(&copy);
    set(&copy, "sliding_window", json!(100));
    let said = refused_report(&copy, &["--tokens", "5"]);
    assert_says(&said, &["sliding_window", "attention_window_size"]);
    let said = refused_report(
        &with("esm_b", "position_embedding_type"),
        &["--tokens", "5"],
    );
    assert_says(&said, &["position_embedding_type", "null"]);
}

#[test]
fn a_decoder_inside_another_configuration_is_refused_where_it_looks_ahead() {
    for fixture in ["encoder_decoder_b", "t5gemma_b"] {
        let copy = Copy::of(fixture);
        opened(&copy);
        copy.config(|config| config["decoder"]["is_causal"] = json!(false));
        let said = refused_report(&copy, &["--tokens", "5,9,2,5"]);
        assert_says(&said, &["is_causal", "expected true"]);
    }
}

#[test]
fn windows_stand_where_transformers_puts_them() {
    let copy = Copy::of("modernbert_b");
    set(&copy, "sliding_window", json!(3));
    let found = windows(&copy);
    assert!(found.contains(&Some(Window::Around(3))), "{found:?}");

    let copy = Copy::of("gpt_oss");
    set(&copy, "layer_types", Value::Null);
    let before = windows(&copy);
    assert_eq!(
        before.iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, false, true]
    );
    set(&copy, "sliding_window_pattern", json!(3));
    assert_eq!(
        windows(&copy),
        before,
        "this family fixes which layers have one"
    );

    let copy = Copy::of("smollm3");
    let n_layers = windows(&copy).len();
    set(&copy, "use_sliding_window", json!(false));
    set(&copy, "sliding_window", json!(4));
    set(
        &copy,
        "layer_types",
        json!(vec!["sliding_attention"; n_layers]),
    );
    assert_eq!(windows(&copy), vec![Some(Window::Back(4)); n_layers]);

    let copy = Copy::of("starcoder2");
    set(&copy, "sliding_window", json!(4));
    let n_layers = windows(&copy).len();
    set(
        &copy,
        "layer_types",
        json!(vec!["full_attention"; n_layers]),
    );
    assert_eq!(windows(&copy), vec![Some(Window::Back(4)); n_layers]);
}

/// What becomes of the biases behind attention and feed-forward layers.
fn output_biases(copy: &Copy) -> Vec<bool> {
    let model = opened(copy);
    let blocks = model.spec.main_stack().blocks().iter();
    let of = |block: &BlockSpec| {
        let own = block.own().expect("attention");
        let FeedForward::Dense(mlp) = &block.feed_forward else {
            panic!("a dense layer");
        };
        [own.projections.o.bias.is_some(), mlp.down.bias.is_some()]
    };
    blocks.flat_map(of).collect()
}

#[test]
fn sums_of_several_ranks_go_without_their_biases() {
    let copy = Copy::of("bloom_b");
    assert_eq!(output_biases(&copy), [true; 4]);
    set(&copy, "slow_but_exact", json!(true));
    assert_eq!(output_biases(&copy), [true; 4], "one rank");
    set(&copy, "pretraining_tp", json!(2));
    assert_eq!(output_biases(&copy), [false; 4]);
}

#[test]
fn a_width_that_leaves_nothing_is_refused() {
    for (family, key, value) in [
        ("lfm2_b", "intermediate_size", json!(1)),
        ("lfm2_b", "block_ffn_dim_multiplier", json!(0.0)),
        ("recurrent_gemma", "intermediate_size", json!(1)),
    ] {
        let copy = Copy::of(family);
        set(&copy, key, value);
        assert_says(
            &refused_report(&copy, &["--tokens", "1,2"]),
            &["intermediate_size"],
        );
    }
}

#[test]
fn slopes_of_one_position_are_none() {
    let copy = Copy::of("mpt");
    let is_none = |copy: &Copy| {
        let model = opened(copy);
        let block = &model.spec.main_stack().blocks()[0];
        block.own().expect("attention").attention.bias == Bias::None
    };
    assert!(!is_none(&copy));
    set(&copy, "max_seq_len", json!(1));
    assert!(is_none(&copy));
}
