//! Models that `attnscope.toml` describes whole: what a description may leave out or turn round, against what PyTorch computes.

use std::path::PathBuf;

use attnscope_checkpoint::values::Values;
use attnscope_compute::attention::{Alibi, Bias};
use attnscope_prompt::{PromptForm, Request, Source, prepare};
use attnscope_spec::{BlockSpec, FeedForward, LabelKind, StackSpec};
use safetensors::SafeTensors;
use testing::opening::{fails, knob, opened};
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
        "score_buckets",
        "score_distances",
        "score_slopes",
        "score_pairs",
        "score_grid",
        "gated",
        "branches_in_order",
        "stored_angles",
        "largest_scores",
        "normed_middles",
        "narrow_values",
        "value_residual",
        "tanhs_for_norms",
        "distance_vectors",
        "distance_copies",
        "latent_vectors",
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
fn what_is_added_to_scores_and_does_not_fit_is_refused() {
    for (name, from, to, parts) in [
        (
            "score_buckets",
            "max_distance = 9",
            "max_distance = 4",
            &["bias", "bias.rows.weight", "max_distance", "found 8 rows"][..],
        ),
        (
            "score_buckets",
            "max_distance = 9",
            "own = 3",
            &["bias.own", "says nothing where by is \"buckets\""],
        ),
        (
            "score_buckets",
            "by = \"buckets\"",
            "by = \"bucket\"",
            &["bias.by", "buckets, distances, grid, pairs", "\"bucket\""],
        ),
        (
            "score_buckets",
            "bias.rows.weight",
            "bias.row.weight",
            &["bias", "no tensor is called bias.row.weight"],
        ),
        (
            "score_buckets",
            "weight = \"bias.rows.weight\", ",
            "",
            &["bias.weight: missing", "a tensor's name"],
        ),
        (
            "score_distances",
            "own = 4",
            "own = 9",
            &["layers.0.bias.values", "more than own, 9", "found 9 rows"],
        ),
        (
            "score_distances",
            "axes = \"head row\"",
            "axes = \"row head\"",
            &["layers.0.bias.values", "each of 4 heads", "[4, 9]"],
        ),
        (
            "score_distances",
            "key - query",
            "key + query",
            &["bias.counts", "query - key", "key + query"],
        ),
        (
            "score_grid",
            "grid = [3, 3]",
            "grid = [3, 4]",
            &[
                "relative_position_bias_table",
                "expected 38",
                "found 28 rows",
            ],
        ),
        (
            "score_grid",
            "grid = [3, 3]",
            "grid = 3",
            &["bias.grid", "such as [7, 7]", "found 3"],
        ),
        (
            "score_grid",
            "first_token = true",
            "first_token = 1",
            &["bias.first_token", "true or false", "found 1"],
        ),
        (
            "score_slopes",
            "layers.0.bias.slopes",
            "norm.weight",
            &["norm.weight", "each of 4 heads", "[1, 32]"],
        ),
        (
            "gated",
            "out_gate = { weight = \"blocks.{layer}.gate.weight\"",
            "out_gate = { weight = \"blocks.{layer}.up.weight\"",
            &[
                "out_gate",
                "blocks.0.up.weight",
                "4 or 32 outputs",
                "found 64",
            ],
        ),
        (
            "gated",
            "per = \"head\"",
            "per = \"all\"",
            &["q_norm", "per: expected head", "all"],
        ),
    ] {
        refuses_changed(name, (from, to), parts);
    }
}

#[test]
fn vectors_of_distances_and_latent_vectors_that_do_not_fit_are_refused() {
    for (name, from, to, parts) in [
        (
            "distance_vectors",
            "own = 5",
            "own = 11",
            &["relative.own", "one of the 11 rows", "found 11"][..],
        ),
        (
            "distance_vectors",
            "counts = \"key - query\"",
            "counts = \"key\"",
            &["relative.counts", "query - key", "\"key\""],
        ),
        (
            "distance_vectors",
            "layers.0.bias.table",
            "layers.0.down.weight",
            &["relative", "8 or 32 values for each distance", "[32, 64]"],
        ),
        (
            "distance_vectors",
            "own = 5",
            "first = 5",
            &["relative.first: is not known", "own"],
        ),
        (
            "distance_copies",
            "limits = true",
            "limits = 1",
            &["relative.limits", "true or false", "found 1"],
        ),
        (
            "latent_vectors",
            "kv_norm = ",
            "q_norms = ",
            &["latent.q_norms: is not known", "kv_norm"],
        ),
        (
            "latent_vectors",
            "kv_norm = \"layers.{2*layer}.of_latent.gain\"\n",
            "",
            &["latent.kv_norm: missing", "expected a norm"],
        ),
        (
            "tanhs_for_norms",
            "kind = \"tanh\", ",
            "",
            &["kind = \"tanh\" and alpha together"],
        ),
    ] {
        refuses_changed(name, (from, to), parts);
    }
}

#[test]
fn a_table_of_pairs_limits_how_long_a_text_may_be() {
    for (name, n_positions) in [
        ("score_pairs", 12),
        ("score_grid", 10),
        ("distance_copies", 10),
    ] {
        let model = opened(&fixtures().join(name), &[]);
        assert_eq!(
            model.spec.limits().hard_n_ctx(),
            Some(n_positions),
            "{name}"
        );
        let form = PromptForm::Ids("none".to_owned());
        let request = Request::ids(vec![1; n_positions + 1]);
        let said = prepare(&request, &form, model.spec.limits()).expect_err("refused");
        assert_says(&said.to_string(), &[&n_positions.to_string()]);
    }
    let buckets = opened(&fixtures().join("score_buckets"), &[]);
    assert_eq!(buckets.spec.limits().hard_n_ctx(), None);
}

#[test]
fn slopes_are_those_that_are_stored() {
    let model = opened(&fixtures().join("score_slopes"), &[]);
    let attention = model.spec.main_stack().first_attention().cloned();
    let Some(Bias::Alibi(alibi)) = attention.map(|own| own.bias) else {
        panic!("expected slopes");
    };
    let usual = Alibi::new(4, 8.0);
    assert!(alibi.is_both_ways && alibi.slopes.len() == 4 && alibi.slopes != usual.slopes);
    assert_eq!(knob(&model, "score_bias").0, "slopes of distance, stored");
    let tensors = &model.checkpoint.tensors;
    assert_eq!(model.spec.unused_tensors(tensors), Vec::<&str>::new());
}

#[test]
fn no_positions_take_away_what_is_added_to_scores() {
    let model = opened(&fixtures().join("score_slopes"), &["positions=none"]);
    let attention = model.spec.main_stack().first_attention().cloned();
    assert_eq!(attention.map(|own| own.bias), Some(Bias::None));
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
fn layers_have_the_branches_that_a_description_gives_them() {
    let model = opened(&fixtures().join("branches_in_order"), &[]);
    let blocks = model.spec.stacks[0].blocks();
    let attends: Vec<bool> = blocks.iter().map(|block| block.own().is_some()).collect();
    assert_eq!(attends, [false, true, false, false, true, false]);
    let feeds = |block: &BlockSpec| block.feed_forward != FeedForward::None;
    let feeds: Vec<bool> = blocks.iter().map(feeds).collect();
    assert_eq!(feeds, [true, false, true, true, false, true]);
    for (given, parts) in [
        (
            "attention_layers=1 6",
            &["attention_layers", "up to 5", "found 6"][..],
        ),
        (
            "feed_forward_layers=3*i+7",
            &["feed_forward_layers", "up to 5", "found 7"],
        ),
        (
            "attention_layers=4 1",
            &["attention_layers", "0 2 5", "4 1"],
        ),
    ] {
        let said = fails(&fixtures().join("branches_in_order"), &[given]);
        assert_says(&said, parts);
    }
}

#[test]
fn norms_and_activations_in_the_middle_of_a_branch_need_what_they_stand_between() {
    let down = ("\ndown = ", "\n# down = ");
    let lacks = ["hidden_norm: expected up, or gate and up, and down beside it"];
    refuses_changed("normed_middles", down, &lacks);
    let wide = ("d_value = 4", "d_value = 5");
    refuses_changed("narrow_values", wide, &["layers.0.qkv", "expected shape"]);
    let unknown = ("out_activation = \"gelu\"", "out_activation = \"bent\"");
    refuses_changed("narrow_values", unknown, &["out_activation", "\"bent\""]);
    let per = ("per = \"head\" }", "per = \"row\" }");
    refuses_changed(
        "normed_middles",
        per,
        &["z_norm: per: expected head, found \"row\""],
    );
}

#[test]
fn angles_are_a_row_for_each_position_and_longer_texts_are_refused() {
    let model = opened(&fixtures().join("stored_angles"), &[]);
    assert_eq!(model.spec.n_ctx, Some(10));
    let name = "stored_angles";
    refuses_changed(
        name,
        ("angles = \"angles\"", "angles = \"tok.weight\""),
        &["angles", "tok.weight", "[position, 4]", "[23, 32]"],
    );
    refuses_changed(
        name,
        ("angles = \"angles\"", "angles = \"other\""),
        &["angles", "other"],
    );
}

#[test]
fn divisors_that_are_no_numbers_are_refused() {
    let said = fails(&fixtures().join("turned_table"), &["rope_divisors=1 x"]);
    assert_says(&said, &["rope_divisors", "a number above 0 for each pair"]);
}
