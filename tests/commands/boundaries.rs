//! What a prompt does not test: windows and other boundaries that it does not cross, and texts beside prompts that are too short.

use attnscope_checks::{Severity, Status, Thresholds};
use attnscope_forward::Input;
use attnscope_run::{Budget, boundaries, covering};
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
    assert!(tokens.len() > 24 + 16 && covered.n_out_of_reach == 0);
    assert_eq!(tokens[..20], short[0].sequence.tokens[..]);
    let said = asked(&[ids(&model, &tokens)[0].1.clone()]);
    assert_ne!(said.status(CHECK), Status::NotTested);
    let why = &said.of(CHECK).why;
    assert!(
        why.contains("before and") && why.contains("after the window of 24 keys"),
        "{why}"
    );
    assert_eq!(
        covering(&model, &short, Budget::of_seconds(0.0)).n_out_of_reach,
        1
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
