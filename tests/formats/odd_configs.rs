//! Keys that transformers obeys in ways of its own: obeyed alike, or refused in one line; never passed by.

use attnscope_engine::attention::Window;
use attnscope_engine::checkpoint::Checkpoint;
use attnscope_engine::family;
use attnscope_engine::model::Model;
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
    family::read(checkpoint).expect("a model")
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
