//! What a prompt does not test: windows and other boundaries that it does not cross, and texts beside prompts that are too short.

use attnscope_checks::{Severity, Status, Thresholds};
use attnscope_forward::Input;
use attnscope_run::{Budget, boundaries, covering};
use serde_json::Value;
use testing::checkpoint_copy::attnscope;
use testing::judged::{fixture, ids, judged_by, prompts_in};
use testing::opening::opened;

const CHECK: &str = "worse-beyond";

#[test]
fn a_window_is_tested_by_a_prompt_that_crosses_it_and_the_covering_one_does() {
    let model = opened(&fixture("readings/local"), &["window=24"]);
    let found = boundaries(&model.spec);
    let lengths: Vec<usize> = found.iter().map(|boundary| boundary.n_tokens).collect();
    assert_eq!(lengths, [24]);
    let texts = prompts_in(&model, &fixture("readings/texts.jsonl"));
    let short: Vec<Input> = texts
        .iter()
        .map(|(_, input)| Input {
            source: None,
            sequence: input.sequence.first(20),
        })
        .collect();
    let named = |inputs: &[Input]| -> Vec<(String, Input)> {
        let named = inputs.iter().enumerate();
        named
            .map(|(idx, input)| (idx.to_string(), input.clone()))
            .collect()
    };
    let asked =
        |inputs: &[Input]| judged_by(&model, &named(inputs), &Thresholds::default(), &[CHECK]);
    let said = asked(&short[..1]);
    assert_eq!(said.status(CHECK), Status::NotTested);
    assert!(
        said.of(CHECK).why.contains("window of 24 keys"),
        "{}",
        said.of(CHECK).why
    );

    let covered = covering(&model, &short, Budget::USUAL);
    let tokens = covered.tokens.expect("a longer prompt");
    assert!(tokens.len() > 24 + 16 && covered.out_of_reach.is_empty());
    assert_eq!(tokens[..20], short[0].sequence.tokens[..]);
    let said = asked(&[ids(&model, &tokens)[0].1.clone()]);
    assert_ne!(said.status(CHECK), Status::NotTested);
    let why = &said.of(CHECK).why;
    assert!(
        why.contains("before and") && why.contains("after the window of 24 keys"),
        "{why}"
    );
    let unaffordable = covering(&model, &short, Budget::of_seconds(0.0));
    let names = unaffordable.out_of_reach.iter().map(|(what, _)| what);
    let names: Vec<&String> = names.collect();
    assert!(names[0].contains("window of 24 keys"), "{names:?}");
    assert!(names[1].contains("end of the context"), "{names:?}");
    assert!(
        unaffordable
            .out_of_reach
            .iter()
            .all(|(_, seconds)| *seconds > 0.0)
    );
}

/// The JSON of `check` on a checkpoint, with the options given.
fn told(of: &str, options: &[&str]) -> Value {
    let path = fixture(of);
    let path = path.to_str().expect("a path");
    let output = attnscope(&[&["check", path, "--format", "json"], options].concat());
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn programs_read_what_was_crossed_what_was_left_out_and_what_tests_the_rest() {
    let set = [
        "--set",
        "window=24",
        "--tokens",
        "5,9,12,7,30,8,11,20,3,14,6,22,17,4,9,12,5,8,13,2,7,9,21,4,6,3,18,11,5,9,10,12",
        "--cover",
    ];
    let said = told("readings/local", &set);
    let cover = said["cover"].as_array().expect("boundaries");
    let of = |what: &str| {
        let mut named = cover.iter();
        let found = named.find(|of| {
            of["boundary"]
                .as_str()
                .is_some_and(|name| name.contains(what))
        });
        found.expect(what)
    };
    assert_eq!(of("window of 24 keys")["crossed"], true, "{said}");
    assert_eq!(of("window of 24 keys")["needs"], 25);
    assert_eq!(of("end of the context")["needs"], 128);
    assert_eq!(of("padding on the left")["crossed"], true);
    assert_eq!(of("cache")["crossed"], false);
    assert!(of("cache")["needs"].is_null());
    assert_eq!(said["left_out"], serde_json::json!([]));
    let checks = said["targets"][0]["checks"].as_array().expect("checks");
    let axis = checks.iter().find(|check| check["id"] == "wrong-axis");
    let axis = axis.expect("a check");
    assert_eq!(axis["status"], "not-tested");
    assert_eq!(
        axis["would_test"],
        "attnscope check FILE.py:NAME --select wrong-axis"
    );
    // Nothing may be spent: neither a longer prompt nor readings.
    let said = told("readings/local", &[&set[..], &["--budget", "0"]].concat());
    let left_out = said["left_out"].as_array().expect("a list");
    let window = left_out[0]["what"].as_str().expect("a name");
    assert!(window.contains("window of 24 keys"), "{said}");
    assert!(left_out[0]["seconds"].as_f64() > Some(0.0), "{said}");
}

#[test]
fn a_named_cause_says_how_much_of_what_is_missing_it_explains() {
    let texts = fixture("readings/texts.jsonl");
    let texts = texts.to_str().expect("a path");
    let said = told("readings/axis_queries", &["--inputs", texts]);
    let findings = said["targets"][0]["findings"].as_array().expect("findings");
    let named = findings
        .iter()
        .find(|of| of["check"] == "trained-otherwise");
    let named = named.expect("a cause");
    let number = |name: &str| named["explains"][name].as_f64().expect("a number");
    assert!((number("nats") - named["value"].as_f64().expect("nats")).abs() < 1e-9);
    assert!(number("nats") >= 0.8 * number("of"), "{named}");
    assert!(
        named["advice"]
            .as_str()
            .is_some_and(|advice| advice.contains("--set"))
    );
    // Nothing else measures that.
    let others = findings
        .iter()
        .filter(|of| of["check"] != "trained-otherwise");
    assert!(others.into_iter().all(|of| of.get("explains").is_none()));
}

/// With tied tables and no norms any weights say the token that they are given.
#[test]
fn a_tied_model_with_random_weights_is_not_accused_of_labels_that_were_not_shifted() {
    let ids = "5,9,12,7,30,8,11,20,3,14,6,22,17,4,9,12,5,8,13,2,7,9,21,4,6,3,18,11,5,9,10,12";
    let said = told("oracle/jamba_b/model", &["--tokens", ids]);
    let findings = said["targets"][0]["findings"].as_array().expect("findings");
    assert!(
        findings.iter().all(|of| of["severity"] != "error"),
        "{findings:?}"
    );
}

/// Trained without a window, and read with one: what lies beyond it is missing.
#[test]
fn a_loss_that_rises_beyond_a_window_is_a_warning() {
    let asked = |set: &[&str]| {
        let model = opened(&fixture("readings/healthy_gpt2"), set);
        let prompts = prompts_in(&model, &fixture("readings/long_texts.jsonl"));
        judged_by(&model, &prompts, &Thresholds::default(), &[CHECK])
    };
    let said = asked(&["window=24"]);
    let finding = said.one(CHECK);
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.value > 1.0, "{finding:?}");
    assert!(
        finding
            .evidence
            .contains("24 tokens before the window of 24 keys"),
        "{}",
        finding.evidence
    );
    assert_eq!(asked(&[]).status(CHECK), Status::NotApplicable);
}

#[test]
fn a_short_prompt_is_judged_with_the_texts_beside_the_checkpoint() {
    let check = "trained-otherwise";
    let model = opened(&fixture("degenerate"), &[]);
    let said = judged_by(
        &model,
        &ids(&model, &[5, 9, 12, 7, 30]),
        &Thresholds::default(),
        &[check],
    );
    let finding = said.one(check);
    assert!(
        finding.evidence.contains("with a softmax over queries"),
        "{}",
        finding.evidence
    );
    assert!(
        finding.evidence.contains("prompts.jsonl"),
        "{}",
        finding.evidence
    );
}
