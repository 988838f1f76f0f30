//! Small models that were trained with one mistake each, and what the catalogue of readings says of them.
//!
//! `fixtures/readings/make_readings.py`, `make_declared.py` and `make_encoders.py` trained them in PyTorch; their files say nothing
//! of the mistake.

use attnscope_checks::{Severity, Status, Thresholds};
use attnscope_forward::Input;
use serde_json::Value;
use testing::effort::{some_of, tries_all};
use testing::judged::{Said, fixture, judged, judged_by, prompts_in};
use testing::opening::opened;

/// Mistakes that change so little that a loss does not show them.
const WITHOUT_EFFECT: [&str; 2] = ["soft_mask_ten", "softmax_plus_one"];

/// Mistakes that a reading of another family explains nearly as well, on these texts.
const OPEN: [&str; 2] = ["inv_d", "prefix"];

/// Readings that another one of the family explains as well: the mistake stands behind “as near” or “the same as”.
const NEAR: [&str; 0] = [];

struct Case {
    name: String,
    texts: String,
    /// The family, and a part of the name, of the reading that restores the loss; `None` of healthy models.
    expected: Option<(String, String)>,
    layer: Option<u64>,
    head: Option<u64>,
}

fn cases(families: &[&str]) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for entry in std::fs::read_dir(fixture("readings")).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        let Ok(text) = std::fs::read_to_string(path.join("truth.json")) else {
            continue;
        };
        let truth: Value = serde_json::from_str(&text).expect("JSON");
        let text_at = |idx: usize| truth["expected"][idx].as_str().map(str::to_owned);
        let expected = text_at(0).zip(text_at(1));
        if expected
            .as_ref()
            .is_some_and(|(family, _)| families.contains(&family.as_str()))
        {
            cases.push(Case {
                name: path
                    .file_name()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned(),
                texts: texts_of(&truth),
                expected,
                layer: truth["mistakes"]["layer"].as_u64(),
                head: truth["mistakes"]["head"].as_u64(),
            });
        }
    }
    assert!(!cases.is_empty(), "no model of {families:?}");
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

impl Case {
    fn family(&self) -> &str {
        self.expected.as_ref().map_or("", |(family, _)| family)
    }
}

fn texts_of(truth: &Value) -> String {
    truth["texts"].as_str().unwrap_or("texts.jsonl").to_owned()
}

fn prompts(model: &attnscope_spec::Model, texts: &str) -> Vec<(String, Input)> {
    prompts_in(model, &fixture("readings").join(texts))
}

fn asked(name: &str, texts: &str) -> Said {
    let model = opened(&fixture("readings").join(name), &[]);
    judged_by(
        &model,
        &prompts(&model, texts),
        &Thresholds::default(),
        &["trained-otherwise"],
    )
}

/// Every model of these families is accused of its mistake and of no other.
fn are_named(families: &[&str]) {
    for case in some_of(cases(families), 8) {
        let (name, said) = (&case.name, asked(&case.name, &case.texts));
        let verdict = said.of("trained-otherwise");
        if WITHOUT_EFFECT.contains(&name.as_str()) {
            assert_eq!(verdict.status, Status::Passed, "{name}: {}", verdict.why);
            continue;
        }
        let [finding] = &verdict.findings[..] else {
            panic!("{name}: {} ({:?})", verdict.why, verdict.status);
        };
        let (_, part) = case.expected.as_ref().expect("a mistake");
        if OPEN.contains(&name.as_str()) {
            assert!(
                finding.advice.contains("not decided between"),
                "{name}: {}",
                finding.advice
            );
            continue;
        }
        assert!(
            !finding.advice.contains("not decided between"),
            "{name}: {}",
            finding.evidence
        );
        // What is named first, before “as near” and what else follows the figures.
        let (named, after) = finding
            .evidence
            .split_once(" with ")
            .and_then(|(_, rest)| rest.split_once(": "))
            .expect("a reading and its figures");
        if NEAR.contains(&name.as_str()) {
            assert!(
                !named.contains(part.as_str()) && after.contains(part.as_str()),
                "{name}: {named}"
            );
        } else {
            assert!(
                named.contains(part.as_str()),
                "{name}: {}",
                finding.evidence
            );
        }
        let is_of_part = case.family() == "silence";
        assert!(
            is_of_part || finding.advice.contains(named),
            "{name}: {}",
            finding.advice
        );
        let place = (finding.place.layer_idx, finding.place.head_idx);
        let expected = (
            case.layer.map(|idx| idx as usize),
            case.head.map(|idx| idx as usize),
        );
        assert_eq!(place, expected, "{name}: {}", finding.evidence);
    }
}

#[test]
fn other_axes_scales_and_softmaxes_are_named() {
    are_named(&["axis", "scale", "softmax"]);
}

#[test]
fn other_masks_are_named_with_their_layer_and_head() {
    are_named(&["mask"]);
}

#[test]
fn other_positions_are_named() {
    are_named(&["position"]);
}

#[test]
fn other_layouts_are_named() {
    are_named(&["layout"]);
}

#[test]
fn other_blocks_norms_labels_and_vocabularies_are_named() {
    are_named(&["block", "qk-norm", "labels", "vocabulary"]);
}

/// Of two mistakes, neither may show alone; and what a layer does may be wrong in a way that no reading knows.
#[test]
fn two_mistakes_are_named_together_and_a_part_that_does_harm_by_its_layer() {
    are_named(&["several", "silence"]);
}

#[test]
fn healthy_models_are_accused_of_nothing_and_the_order_of_prompts_does_not_matter() {
    let models = [
        ("healthy", "texts.jsonl"),
        ("healthy_gpt2", "texts.jsonl"),
        ("experts", "texts.jsonl"),
        ("hybrid", "texts.jsonl"),
        ("local", "texts.jsonl"),
        ("bert_healthy", "texts.jsonl"),
        ("t5_healthy", "pairs.jsonl"),
    ];
    for (idx, (name, texts)) in models.into_iter().enumerate() {
        let model = opened(&fixture("readings").join(name), &[]);
        let mut prompts = prompts(&model, texts);
        let said = judged(&model, &prompts);
        for severity in [Severity::Error, Severity::Warning] {
            assert!(said.with(severity).is_empty(), "{name}: {:?}", said.fired());
        }
        assert_eq!(said.status("trained-otherwise"), Status::Passed, "{name}");
        assert_eq!(said.status("knows-nothing"), Status::Passed, "{name}");
        if idx > 0 && !tries_all() {
            continue;
        }
        prompts.reverse();
        let other = judged_by(
            &model,
            &prompts,
            &Thresholds::default(),
            &["trained-otherwise"],
        );
        assert_eq!(other.status("trained-otherwise"), Status::Passed, "{name}");
    }
}

/// Trained on 48 tokens, with 96 positions in the configuration, and read on 92 and on 200.
#[test]
fn healthy_models_on_longer_texts_than_they_were_trained_on_are_accused_of_nothing() {
    let mut n_told = 0;
    for name in ["short_llama", "short_qwen3", "short_gpt_neox", "short_mla"] {
        for texts in ["long_texts.jsonl", "longer_texts.jsonl"] {
            let said = asked(name, texts);
            let verdict = said.of("trained-otherwise");
            for finding in &verdict.findings {
                assert_eq!(
                    finding.severity,
                    Severity::Info,
                    "{name}, {texts}: {}",
                    finding.evidence
                );
                assert!(
                    finding
                        .evidence
                        .contains("attention gets worse beyond about")
                        && finding.advice.contains("the 96 positions"),
                    "{name}, {texts}: {finding:?}"
                );
                n_told += 1;
            }
        }
    }
    assert!(n_told >= 4, "{n_told}");
}

/// Another window shows beyond the configuration's context as well.
#[test]
fn another_window_is_named_on_texts_of_any_length() {
    let said = asked("full_window", "longer_texts.jsonl");
    let finding = said.one("trained-otherwise");
    assert_eq!(finding.severity, Severity::Error);
    assert!(
        finding.advice.contains("a window of 16 keys"),
        "{}",
        finding.advice
    );
}

#[test]
fn a_verdict_on_a_broken_model_does_not_depend_on_the_order_of_prompts() {
    let models = [
        ("no_mask", "texts.jsonl"),
        ("axis_queries", "texts.jsonl"),
        ("rope_twice", "texts.jsonl"),
        ("t5_scaled", "pairs.jsonl"),
    ];
    for (name, texts) in some_of(models, 4) {
        let model = opened(&fixture("readings").join(name), &[]);
        let mut prompts = prompts(&model, texts);
        let first = asked(name, texts).one("trained-otherwise").clone();
        prompts.rotate_left(3);
        let said = judged_by(
            &model,
            &prompts,
            &Thresholds::default(),
            &["trained-otherwise"],
        );
        let second = said.one("trained-otherwise");
        assert!((first.value - second.value).abs() < 1e-4, "{name}");
        assert_eq!(first.advice, second.advice);
    }
}

/// What a verdict says to run is run: with these settings the model has no mistake left.
#[test]
fn the_settings_that_a_verdict_advises_bring_back_the_loss() {
    let families = ["axis", "scale", "softmax", "mask", "position", "layout"];
    let mut n_advised = 0;
    for case in some_of(cases(&families), 8) {
        let said = asked(&case.name, &case.texts);
        let Some(finding) = said.of("trained-otherwise").findings.first() else {
            continue;
        };
        let words = finding.advice.split_once("as trained with --set ");
        let Some((_, settings)) = words else { continue };
        let settings: Vec<&str> = settings.split(" --set ").collect();
        let model = opened(&fixture("readings").join(&case.name), &settings);
        let prompts = prompts(&model, &case.texts);
        let after = judged_by(
            &model,
            &prompts,
            &Thresholds::default(),
            &["trained-otherwise"],
        );
        assert!(
            after.with(Severity::Error).is_empty(),
            "{} with {settings:?}: {:?}",
            case.name,
            after.of("trained-otherwise").findings
        );
        n_advised += 1;
    }
    assert!(n_advised > 0);
}
