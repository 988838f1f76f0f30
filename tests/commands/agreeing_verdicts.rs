//! Verdicts that agree with each other: statistics, checks, panels, help and exit codes say one thing of one model.

use attnscope_checks::stats::{LayerReport, Stat};
use attnscope_checks::{Status, Thresholds};
use attnscope_compute::ops::Cpu;
use attnscope_prompt::{Request, Target, Tokenizer};
use attnscope_run::{Layers, Options, input_of};
use serde_json::Value;
use testing::checkpoint_copy::{Copy, Stored, attnscope, text};
use testing::judged::{fixture, healthy_with, ids, judged_by, stories};
use testing::opening::opened;

/// The layers of a run.
fn layers(directory: &std::path::Path, request: &Request) -> Vec<LayerReport> {
    let model = opened(directory, &[]);
    let prompt_form = Tokenizer::open(&model.checkpoint.tokenizer).expect("a tokenizer");
    let prompt =
        attnscope_prompt::prepare(request, &prompt_form, model.spec.limits()).expect("fits");
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    let mut keep = Layers::default();
    let input = input_of(&prompt);
    attnscope_run::run(&Cpu, &model, &input, options, &mut keep, None, &|| false).expect("runs");
    keep.0
}

#[test]
fn learned_sinks_that_take_nearly_all_make_no_collapse_and_no_duplicates() {
    let copy = Copy::of("gpt_oss_b");
    copy.weights(|weights| {
        for layer_idx in 0..2 {
            let name = format!("model.layers.{layer_idx}.self_attn.sinks");
            weights.insert(name, Stored::f32(&[4], &[20.0; 4]));
        }
    });
    let tokens: Vec<u32> = (0..40).map(|i| (i * i * 7 + 3 * i) % 61).collect();
    for layer in layers(copy.path(), &Request::ids(tokens.clone())) {
        for head in &layer.heads {
            let of = |stat: Stat| head.stats.of(stat);
            assert!(of(Stat::SinkMass) > 0.9, "{}", of(Stat::SinkMass));
            assert!(
                of(Stat::MaxProbability) < 0.1,
                "{}",
                of(Stat::MaxProbability)
            );
            assert!(of(Stat::EntropyRelative) < 0.3, "what is left is little");
            assert!(of(Stat::EffectiveKeys) > 1.2, "{}", of(Stat::EffectiveKeys));
        }
    }
    let model = opened(copy.path(), &[]);
    let only = [
        "entropy-collapse",
        "duplicate-heads",
        "softmax-saturation",
        "row-sum",
    ];
    let said = judged_by(&model, &ids(&model, &tokens), &Thresholds::default(), &only);
    assert!(said.fired().is_empty(), "{:?}", said.fired());
    assert_eq!(said.status("entropy-collapse"), Status::Passed);
}

#[test]
fn heads_are_not_compared_on_fewer_than_eight_rows() {
    // Head 3 of layer 0 is a copy of head 1.
    let copy = healthy_with(|weights| {
        for name in ["weight", "bias"] {
            let name = format!("transformer.h.0.attn.c_attn.{name}");
            let stored = weights.get_mut(&name).expect("a projection");
            let mut values = stored.values();
            for row in values.chunks_mut(192) {
                row.copy_within(16..32, 48);
                row.copy_within(80..96, 112);
            }
            *stored = Stored::f32(&stored.shape.clone(), &values);
        }
    });
    let model = opened(copy.path(), &[]);
    let story = stories(&model)[0].1.sequence.tokens.clone();
    let judged = |n: usize| {
        let tokens = &story[..n.min(story.len())];
        let prompts = ids(&model, tokens);
        judged_by(
            &model,
            &prompts,
            &Thresholds::default(),
            &["duplicate-heads"],
        )
    };
    let short = judged(7);
    assert_eq!(short.status("duplicate-heads"), Status::NotApplicable);
    assert!(short.of("duplicate-heads").why.contains("only 7"));
    assert_eq!(judged(100).status("duplicate-heads"), Status::Fired);
}

#[test]
fn an_induction_head_is_one_on_a_prompt_that_repeats_nothing() {
    let directory = fixture("induction");
    let path = directory.to_str().expect("a path");
    let tokens = "3,9,14,5,22,17,8,11,26,4";
    let output = attnscope(&["heads", path, "--tokens", tokens, "--format", "json"]);
    let heads: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let heads = heads["prompts"][0]["heads"]
        .as_array()
        .expect("heads")
        .clone();
    let on_random = |head: &Value| head["random"]["induction"].as_f64().unwrap_or(0.0);
    let clear: Vec<&Value> = heads.iter().filter(|head| on_random(head) > 0.6).collect();
    assert!(!clear.is_empty(), "the demo has an induction head");
    for head in clear {
        assert_eq!(head["type"], "induction", "{head}");
        assert_eq!(head["type_seen_on"], "random tokens", "{head}");
    }
    // Where the prompt says the same, or speaks alone, that is said.
    let known = ["prompt", "random tokens", "both"];
    for head in &heads {
        let seen_on = head["type_seen_on"].as_str();
        assert_eq!(seen_on.is_some(), head["type"].is_string(), "{head}");
        assert!(
            seen_on.is_none_or(|seen_on| known.contains(&seen_on)),
            "{head}"
        );
    }
    let table = text(&attnscope(&["heads", path, "--tokens", tokens]).stdout);
    assert!(
        table.contains("seen on") && table.contains("random tokens"),
        "{table}"
    );
}

#[test]
fn what_ifs_give_one_model_in_either_order() {
    let directory = fixture("induction");
    let path = directory.to_str().expect("a path");
    let layers = |what_ifs: [&str; 2]| {
        let [first, second] = what_ifs;
        let arguments = [
            "report",
            path,
            "--tokens",
            "3,9,14,5",
            "--what-if",
            first,
            "--what-if",
            second,
        ];
        let output = attnscope(&arguments);
        let mut report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        // The words stand in the order in which they were written.
        report
            .as_object_mut()
            .expect("an object")
            .remove("what_if")
            .expect("what was supposed");
        report
    };
    let one = layers(["temperature=4", "scale=none"]);
    assert_eq!(one, layers(["scale=none", "temperature=4"]));
    assert_ne!(one, layers(["scale=none", "scale=none"]));
    let output = attnscope(&[
        "report",
        path,
        "--tokens",
        "3,9",
        "--what-if",
        "scale=none",
        "--what-if",
        "scale=inv_d",
    ]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("contradicts"));
}

#[test]
fn the_step_after_the_end_of_a_translation_counts_nowhere() {
    let directory = fixture("seq2seq/unscaled");
    let run = |target: &[u32]| {
        let request = Request {
            target: Target::Ids(target.to_vec()),
            ..Request::ids(vec![5, 6, 7, 8, 2])
        };
        let layers = layers(&directory, &request);
        layers
            .into_iter()
            .find(|layer| !layer.heads.is_empty())
            .expect("attention")
    };
    let (open, ended) = (run(&[1, 9, 10, 11]), run(&[1, 9, 10, 11, 2]));
    for stat in [
        Stat::Entropy,
        Stat::EntropyRelative,
        Stat::ScoreStd,
        Stat::MaxProbability,
        Stat::QNorm,
    ] {
        let [open, ended] = [&open, &ended].map(|layer| layer.heads[0].stats.of(stat));
        assert!((open - ended).abs() < 1e-9, "{stat:?}: {open} {ended}");
    }
    assert_eq!(ended.heads[0].summary.rows.len(), 5);
    // The mark of the end elsewhere is a word like others.
    let within = run(&[1, 9, 2, 11]);
    assert!(within.heads[0].summary.rows.iter().all(|row| row.is_real));
}

#[test]
fn junit_fails_where_the_exit_code_does() {
    // One warning, and no error.
    let copy = healthy_with(|weights| {
        let stored = weights
            .get_mut("transformer.h.1.mlp.c_proj.weight")
            .expect("a matrix");
        *stored = Stored::f32(&stored.shape.clone(), &vec![0.0; stored.values().len()]);
    });
    let path = copy.path().to_str().expect("a path");
    for (fail_on, code, n_failures) in [("error", 0, 0), ("warning", 1, 1), ("never", 0, 0)] {
        let arguments = [
            "check",
            path,
            "--tokens",
            "1,2,3",
            "--select",
            "zero-weights,nan-or-inf",
        ];
        let asked = ["--format", "junit", "--fail-on", fail_on];
        let output = attnscope(&[&arguments[..], &asked[..]].concat());
        assert_eq!(output.status.code(), Some(code), "{fail_on}");
        let xml = text(&output.stdout);
        let document = roxmltree::Document::parse(&xml).expect("XML");
        let failures = document
            .descendants()
            .filter(|node| node.has_tag_name("failure"));
        assert_eq!(failures.count(), n_failures, "{fail_on}: {xml}");
        let suite = document
            .descendants()
            .find(|node| node.has_tag_name("testsuite"));
        let stated = suite.and_then(|suite| suite.attribute("failures"));
        assert_eq!(stated, Some(n_failures.to_string().as_str()), "{fail_on}");
    }
}

#[test]
fn the_help_of_check_says_what_its_exit_codes_are() {
    let help = text(&attnscope(&["check", "--help"]).stdout);
    assert!(
        help.contains("Exit codes") && !help.contains("when there are some"),
        "{help}"
    );
    for line in [
        "0  no finding is as severe as --fail-on",
        "1  at least one finding is as severe as --fail-on",
        "2  a target could not",
    ] {
        assert!(help.contains(line), "{line}: {help}");
    }
}

#[test]
fn figures_that_are_ours_are_not_called_those_of_a_write_up() {
    let page = std::fs::read_to_string(testing::root().join("docs/collapse.md")).expect("a page");
    assert!(!page.contains("own figures"));
    assert!(page.contains("0.714") && page.contains("0.880"));
}
