//! Models that `attnscope.toml` describes whole: what a description may leave out or turn round, against what PyTorch computes.

use std::path::PathBuf;

use attnscope_checkpoint::values::Values;
use attnscope_prompt::{PromptForm, Request, Source, prepare};
use attnscope_spec::{LabelKind, StackSpec};
use safetensors::SafeTensors;
use testing::opening::{fails, opened};
use testing::refusal::assert_says;

use super::homegrown_files::{agrees, agrees_on};

fn fixtures() -> PathBuf {
    testing::root().join("fixtures/formats/described")
}

/// Checks what is said of a description in which one text stands in place of another.
fn refuses_changed(name: &str, (from, to): (&str, &str), parts: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory");
    let copied = |file: &str| fixtures().join(name).join(file);
    let weights = directory.path().join("model.safetensors");
    std::fs::copy(copied("model.safetensors"), weights).expect("a copy");
    let text = std::fs::read_to_string(copied("attnscope.toml")).expect("a text");
    assert!(text.contains(from), "{from}");
    let changed = text.replacen(from, to, 1);
    std::fs::write(directory.path().join("attnscope.toml"), changed).expect("is written");
    assert_says(&fails(directory.path(), &[]), parts);
}

#[test]
fn what_a_description_leaves_out_is_left_out_of_the_run() {
    for name in [
        "without_maps",
        "attention_only",
        "turned_table",
        "hidden_states",
        "mean_pooled",
        "max_pooled",
        "mean_from_two",
        "experts",
        "experts_in_slabs",
        "encoder_decoder",
        "encoder_decoder_after",
    ] {
        let model = opened(&fixtures().join(name), &[]);
        assert_eq!(model.spec.family, "described", "{name}");
        agrees(
            &model,
            &fixtures().join(format!("{name}.reference.safetensors")),
        );
    }
}

#[test]
fn an_encoder_has_its_own_settings_where_it_says_so_and_the_decoders_otherwise() {
    let model = opened(&fixtures().join("encoder_decoder"), &[]);
    let [encoder, decoder] = &model.spec.stacks[..] else {
        panic!("expected two stacks, found {}", model.spec.stacks.len());
    };
    assert_eq!((encoder.n_layers(), decoder.n_layers()), (1, 2));
    let is_causal = |stack: &StackSpec| stack.first_attention().map(|own| own.mask.causal);
    assert_eq!(
        (is_causal(encoder), is_causal(decoder)),
        (Some(false), Some(true))
    );
    assert_eq!(encoder.embed.scale, decoder.embed.scale);
    let start = model.spec.decoder_start.expect("a start");
    assert!(!start.has_own_vocabulary, "one table, one vocabulary");
}

#[test]
fn a_description_of_two_stacks_that_do_not_fit_is_refused() {
    for (from, to, parts) in [
        (
            "[tensors.cross]",
            "[tensors.crossed]",
            &["\"crossed\" is not known", "cross"][..],
        ),
        (
            "[tensors.encoder]\n",
            "[tensors.encoder]\nkey = \"x\"\n",
            &["\"key\" is not known"],
        ),
        (
            "\npre = { weight",
            "\nbefore = { weight",
            &["cross.before: is not known", "pre"],
        ),
        (
            "n_layers = 1",
            "n_layer = 1",
            &["tensors.encoder", "set", "n_layers"],
        ),
        (
            "n_layers = 1",
            "scale = 1.0",
            &["tensors.encoder", "scale", "encoder and decoder share it"],
        ),
        (
            "n_layers = 1",
            "n_ctx = 4",
            &["tensors.encoder", "no n_ctx to set"],
        ),
        ("start_token = 10", "", &["start_token", "--set"]),
    ] {
        refuses_changed("encoder_decoder", (from, to), parts);
    }
}

#[test]
fn a_description_of_experts_that_do_not_fit_is_refused() {
    for (from, to, parts) in [
        (
            "n_used = 2",
            "n_used = 9",
            &["n_used", "at most the 4 experts", "found 9"][..],
        ),
        (
            "n_used = 2",
            "n_used = 0",
            &["experts.n_used", "a whole number from 1", "found 0"],
        ),
        (
            "n_used = 2",
            "used = 2",
            &["experts.used: is not known", "n_used"],
        ),
        (
            "\"softmax\"",
            "\"softmin\"",
            &["experts.scores", "softmax_of_chosen", "softmin"],
        ),
        ("1*i+1", "all", &["experts.layers", "STEP*i+FIRST", "all"]),
        (
            "router = ",
            "routers = ",
            &["experts.routers: is not known", "router"],
        ),
        (".router.weight", ".route.weight", &["out.route.weight"]),
        (
            ".experts.{expert}.down",
            ".expert.{expert}.down",
            &["expert.0.down"],
        ),
    ] {
        refuses_changed("experts", (from, to), parts);
    }
}

#[test]
fn rows_of_numbers_run_as_in_pytorch_and_others_are_refused() {
    let path = fixtures().join("rows_of_numbers");
    let model = opened(&path, &[]);
    let rows = Values::read(&fixtures().join("rows_of_numbers.csv")).expect("rows");
    let request = Request {
        source: Source::Values(rows),
        ..Request::ids(Vec::new())
    };
    let bytes = std::fs::read(path.with_extension("reference.safetensors")).expect("a reference");
    let reference = SafeTensors::deserialize(&bytes).expect("a reference");
    agrees_on(&model, &request, &reference);
    let labels = model
        .spec
        .head
        .as_ref()
        .and_then(|head| head.labels.as_ref());
    assert_eq!(labels.map(|labels| labels.kind), Some(LabelKind::Value));
    let directory = tempfile::tempdir().expect("a directory");
    let narrow = directory.path().join("narrow.csv");
    std::fs::write(&narrow, "1,2\n").expect("is written");
    let narrow = Request {
        source: Source::Values(Values::read(&narrow).expect("rows")),
        ..request.clone()
    };
    for (request, parts) in [
        (
            narrow,
            &["narrow.csv", "expected 5 numbers in a row", "found 2"][..],
        ),
        (
            Request::ids(vec![1, 2]),
            &["reads rows of numbers", "found token ids"],
        ),
    ] {
        let form = PromptForm::Ids("none".to_owned());
        let said = prepare(&request, &form, model.spec.limits()).expect_err("refused");
        assert_says(&said.to_string(), parts);
    }
}

#[test]
fn a_pooled_head_gives_labels_and_a_model_without_a_head_none() {
    let pooled = opened(&fixtures().join("mean_pooled"), &[]);
    let labels = pooled.spec.head.and_then(|head| head.labels);
    assert_eq!(labels.map(|labels| labels.names.len()), Some(3));
    let hidden = opened(&fixtures().join("hidden_states"), &[]);
    assert!(hidden.spec.head.is_none() && !hidden.spec.is_causal_lm);
}

#[test]
fn every_position_may_have_labels() {
    let model = opened(&fixtures().join("mean_pooled"), &["pooled=no"]);
    let labels = model.spec.head.and_then(|head| head.labels);
    assert_eq!(
        labels.map(|labels| labels.pooled.word()),
        Some("every token")
    );
}

#[test]
fn divisors_that_are_no_numbers_are_refused() {
    let said = fails(&fixtures().join("turned_table"), &["rope_divisors=1 x"]);
    assert_says(&said, &["rope_divisors", "a number above 0 for each pair"]);
}
