//! Probes of models with one fault each, beside healthy look-alikes: what fires, and which module is named first.

use attnscope_run::Declared;
use testing::judged::{Said, captured, fixture};

fn said(name: &str) -> Said {
    captured(
        &fixture("captured/probes").join(format!("{name}.safetensors")),
        &Declared::default(),
    )
}

/// Severity and check of every finding, with what is to be found in its evidence.
const EXPECTED: &[(&str, &[(&str, &str)])] = &[
    ("healthy_learned", &[]),
    ("healthy_rotary", &[]),
    ("healthy_alibi", &[]),
    ("healthy_encoder", &[]),
    ("labels_1", &[]),
    (
        "order_none",
        &[("warning order-blind", "blocks.0.attn.proj")],
    ),
    (
        "order_none_declared",
        &[("info order-blind", "blocks.0.attn.proj")],
    ),
    ("order_none_encoder", &[("error order-blind", "Model")]),
    (
        "order_rotary_heads",
        &[("warning order-blind", "blocks.0.attn.proj")],
    ),
    (
        "cache_positions",
        &[
            ("error cache-mismatch", "one token after the other: wpe"),
            ("error cache-mismatch", "two parts: wpe"),
        ],
    ),
    (
        "cache_top_left",
        &[
            ("error cache-mismatch", "blocks.0.attn.proj"),
            ("error cache-mismatch", "blocks.0.attn.proj"),
        ],
    ),
    (
        "length_scale",
        &[
            ("error length-leak", "11 of 12 tokens: blocks.0.attn.proj"),
            ("error length-leak", "6 of 12 tokens: blocks.0.attn.proj"),
        ],
    ),
    (
        "repeat_dropout",
        &[("error not-deterministic", "blocks.0.attn.proj")],
    ),
    ("repeat_state", &[("error not-deterministic", "ln_f")]),
    (
        "unequal_first_rows_mask",
        &[(
            "error padding-leak",
            "in a batch padded on the left to 12: blocks.0.attn.proj",
        )],
    ),
    (
        "labels_0",
        &[("error label-shift", "the token that it stands on")],
    ),
    (
        "labels_2",
        &[("error label-shift", "the token after the next")],
    ),
];

#[test]
fn every_probe_has_exactly_the_findings_it_was_made_for() {
    let n_files = std::fs::read_dir(fixture("captured/probes"))
        .expect("the fixtures")
        .count();
    assert_eq!(n_files, EXPECTED.len());
    for (name, expected) in EXPECTED {
        let said = said(name);
        let findings: Vec<_> = said.findings().collect();
        let places: Vec<String> = findings
            .iter()
            .map(|finding| format!("{} {}", finding.severity.label(), finding.check))
            .collect();
        let wanted: Vec<&str> = expected.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, wanted, "{name}");
        for (finding, (_, words)) in findings.iter().zip(*expected) {
            let evidence = &finding.evidence;
            assert!(evidence.contains(words), "{name}: {evidence}");
        }
    }
}

#[test]
fn a_probe_without_the_newer_tests_says_that_they_were_not_made() {
    let path = fixture("captured/probe_correct.safetensors");
    let said = captured(&path, &Declared::default());
    for (check, words) in [
        ("order-blind", "shuffled no tokens"),
        ("label-shift", "computed no losses"),
        ("cache-mismatch", "did not try it"),
        ("length-leak", "did not try it"),
        ("not-deterministic", "did not try it"),
    ] {
        let why = &said.of(check).why;
        assert!(why.contains(words), "{check}: {why}");
    }
}

#[test]
fn what_depends_on_random_numbers_is_compared_with_nothing_else() {
    let of_other_shape = [
        "padding-leak",
        "batch-leak",
        "length-leak",
        "cache-mismatch",
    ];
    let same_shape = ["future-leak", "order-blind", "label-shift"];
    let all = [&of_other_shape[..], &same_shape[..]].concat();
    // Dropout draws the same numbers from the same random state; what is kept between calls differs in any case.
    for (name, checks) in [
        ("repeat_dropout", &of_other_shape[..]),
        ("repeat_state", &all),
    ] {
        let said = said(name);
        for check in checks {
            let why = &said.of(check).why;
            assert!(
                why.contains("two passes over one prompt differ"),
                "{name}: {check}: {why}"
            );
        }
    }
}

#[test]
fn losses_are_told_for_every_offset() {
    let said = said("labels_1");
    let why = &said.of("label-shift").why;
    assert!(why.contains("over 38 positions"), "{why}");
    assert!(why.contains("against the token itself"), "{why}");
}
