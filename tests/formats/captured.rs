//! Captured attention: every fixture's verdict, foreign names and shapes, what is declared and what is inferred.

use std::path::Path;

use attnscope_checks::{Severity, Status};
use attnscope_run::{Declared, DeclaredMask};
use serde_json::json;
use testing::checkpoint_copy::{Stored, Weights, attnscope, text};
use testing::judged::{Said, captured, fixture};
use testing::trace_files::{Written, arrays, npz};

/// Check, severity, then stack, layer, head, query and key as far as they apply.
fn places(said: &Said) -> Vec<String> {
    let line = |finding: &attnscope_checks::Finding| {
        format!(
            "{} {} {}",
            finding.severity.label(),
            finding.check,
            finding.place
        )
    };
    let mut lines: Vec<String> = said
        .findings()
        .map(|finding| line(finding).trim_end().to_owned())
        .collect();
    lines.sort();
    lines
}

/// What fires on every file of the folder, and nothing else.
const EXPECTED: &[(&str, &[&str])] = &[
    (
        "attended_padding.safetensors",
        &[
            "error pad-mass L0H1 query 15 key 0",
            "error pad-mass L1H1 query 5 key 0",
        ],
    ),
    (
        "bidirectional.safetensors",
        &["info attention-sink L0H1 key 1"],
    ),
    ("correct.safetensors", &["info attention-sink L1H1 key 0"]),
    (
        "double_softmax.safetensors",
        &[
            "error pattern-mismatch L0H1 query 5 key 1",
            "error pattern-mismatch L1H1 query 7 key 1",
            "info entropy-uniform L0H0",
            "warning entropy-uniform L1H0",
            "warning entropy-uniform L1H1",
        ],
    ),
    (
        "dropout_left_on.safetensors",
        &[
            "warning row-sum L0H1 query 5",
            "warning row-sum L1H0 query 0",
        ],
    ),
    (
        "dropped_mask.safetensors",
        &[
            "error mask-mass L1H1 query 4 key 5",
            "info attention-sink L0H1 key 1",
        ],
    ),
    (
        "encoder_decoder.safetensors",
        &["info attention-sink decoder.L0H1 key 0"],
    ),
    (
        "masked_padding.safetensors",
        &["info attention-sink L0H1 key 5"],
    ),
    ("pattern_only.npz", &["info attention-sink L1H1 key 0"]),
    (
        "probe_attended_padding.safetensors",
        &["error padding-leak", "error padding-leak"],
    ),
    ("probe_batch_leak.safetensors", &["error batch-leak"]),
    ("probe_bidirectional.safetensors", &[]),
    ("probe_correct.safetensors", &[]),
    (
        "probe_dropped_mask.safetensors",
        &["error future-leak query 3 key 5"],
    ),
    (
        "probe_wrong_axis.safetensors",
        &["error future-leak query 6 key 8", "error padding-leak"],
    ),
    ("sdpa.safetensors", &["info attention-sink L1H1 key 0"]),
    (
        "soft_mask.safetensors",
        &[
            "error mask-mass L0H0 query 0 key 1",
            "error mask-mass L1H1 query 0 key 1",
            "info attention-sink L1H1 key 0",
        ],
    ),
    (
        "soft_mask_faint.safetensors",
        &[
            "info attention-sink L1H1 key 0",
            "warning mask-mass L0H0 query 0 key 1",
            "warning mask-mass L1H1 query 0 key 1",
        ],
    ),
    ("window.safetensors", &[]),
    (
        "window_off_by_one.safetensors",
        &[
            "error window-width L0H1 query 5 key 1",
            "error window-width L1H1 query 6 key 2",
        ],
    ),
    (
        "wrong_axis.safetensors",
        &["error wrong-axis L0", "error wrong-axis L1"],
    ),
    (
        "wrong_axis_heads.safetensors",
        &[
            "error mask-mass L0H1 query 0 key 1",
            "error mask-mass L1H1 query 0 key 1",
            "error wrong-axis L0",
            "error wrong-axis L1",
        ],
    ),
];

#[test]
fn every_captured_file_has_exactly_the_findings_it_was_made_for() {
    let mut n_files = 0;
    for entry in std::fs::read_dir(fixture("captured")).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        if !attnscope_run::is_captured(&path) {
            continue;
        }
        n_files += 1;
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let expected = EXPECTED.iter().find(|(file, _)| *file == name);
        let (_, expected) = expected.unwrap_or_else(|| panic!("{name} is not expected"));
        let said = captured(&path, &Declared::default());
        assert_eq!(places(&said), *expected, "{name}");
        let undecided = said
            .0
            .iter()
            .filter(|(_, v)| v.status == Status::Undecidable);
        assert_eq!(undecided.count(), 0, "{name}");
    }
    assert_eq!(n_files, EXPECTED.len());
}

#[test]
fn a_wrong_axis_names_the_axis_and_dropout_its_p() {
    let evidence = |file: &str, check: &str| {
        let said = captured(&fixture("captured").join(file), &Declared::default());
        let findings = said.of(check).findings.clone();
        findings
            .iter()
            .map(|f| f.evidence.clone())
            .collect::<String>()
    };
    assert!(evidence("wrong_axis.safetensors", "wrong-axis").contains("ran over queries"));
    assert!(evidence("wrong_axis_heads.safetensors", "wrong-axis").contains("ran over heads"));
    assert!(evidence("dropout_left_on.safetensors", "row-sum").contains("p = 0.100"));
    assert!(evidence("probe_wrong_axis.safetensors", "future-leak").contains("blocks.0.attn.proj"));
    assert!(
        evidence("probe_dropped_mask.safetensors", "future-leak").contains("blocks.1.attn.proj")
    );
    assert!(evidence("probe_batch_leak.safetensors", "batch-leak").contains("blocks.1.mix"));
}

// Arrays under other names, in other shapes.

fn renamed(arrays: &Weights, name: impl Fn(&str) -> Option<String>) -> Weights {
    let named = arrays.iter();
    named
        .filter_map(|(old, stored)| Some((name(old)?, stored.clone())))
        .collect()
}

#[test]
fn an_npz_is_judged_as_the_safetensors_file_of_the_same_arrays() {
    for name in [
        "correct",
        "wrong_axis",
        "dropped_mask",
        "attended_padding",
        "soft_mask",
    ] {
        let arrays = arrays(&format!("{name}.safetensors"));
        let bare = Written::bare(&arrays).said();
        let zipped = Written::bytes("trace.npz", &npz(&arrays)).said();
        assert_eq!(places(&bare), places(&zipped), "{name}");
        let statuses =
            |said: &Said| -> Vec<Status> { said.0.iter().map(|(_, v)| v.status).collect() };
        assert_eq!(statuses(&bare), statuses(&zipped), "{name}");
    }
    let said = captured(&fixture("captured/pattern_only.npz"), &Declared::default());
    assert_eq!(said.status("pattern-mismatch"), Status::NotApplicable);
    assert_eq!(said.status("score-explosion"), Status::NotApplicable);
}

#[test]
fn foreign_names_and_a_batch_axis_are_read() {
    let own = arrays("wrong_axis.safetensors");
    let expected = ["error wrong-axis L0", "error wrong-axis L1"];
    let errors = |arrays: &Weights| -> Vec<String> {
        let said = Written::bare(arrays).said();
        places(&said)
            .into_iter()
            .filter(|l| l.starts_with("error"))
            .collect()
    };
    let part = |name: &str, last: &str| name.ends_with(&format!(".{last}"));
    let digit = |name: &str| name.chars().find(char::is_ascii_digit).expect("a layer");
    let tuple = renamed(&own, |name| {
        part(name, "pattern").then(|| format!("attentions.{}", digit(name)))
    });
    let numbered = renamed(&own, |name| {
        part(name, "pattern").then(|| format!("arr_{}", digit(name)))
    });
    let hooks = renamed(&own, |name| match name {
        "tokens" => None,
        _ if part(name, "pattern") => Some(format!("blocks.{}.attn.hook_pattern", digit(name))),
        _ => Some(format!("blocks.{}.attn.hook_attn_scores", digit(name))),
    });
    for named in [&tuple, &numbered, &hooks] {
        assert_eq!(errors(named), expected, "{:?}", named.keys());
        let mut batched = named.clone();
        for stored in batched.values_mut() {
            stored.shape.insert(0, 1);
        }
        assert_eq!(errors(&batched), expected, "{:?}", batched.keys());
    }
    let modules = renamed(&own, |name| {
        part(name, "pattern").then(|| {
            format!(
                "net.{}.self_attention#0.pattern",
                9 + digit(name) as u32 - 48
            )
        })
    });
    let said = Written::bare(&modules).said();
    assert_eq!(said.errors(), ["wrong-axis"]);
    let findings = &said.of("wrong-axis").findings;
    assert!(
        findings[0].evidence.starts_with("net.9.self_attention#0: "),
        "{findings:?}"
    );
    assert!(
        findings[1]
            .evidence
            .starts_with("net.10.self_attention#0: "),
        "{findings:?}"
    );
}

/// Queries and keys of two heads over 12 positions, by heads first.
fn vectors() -> (Vec<f32>, Vec<f32>) {
    let value = |seed: usize| ((seed * 7919 + 13) % 101) as f32 / 50.0 - 1.0;
    let of = |start: usize| (0..2 * 12 * 8).map(|at| value(start + at)).collect();
    (of(0), of(5000))
}

#[test]
fn queries_and_keys_alone_give_scores_and_say_what_is_missing() {
    let (q, k) = vectors();
    let arrays = Weights::from([
        ("blocks.0.attn.q".to_owned(), Stored::f32(&[2, 12, 8], &q)),
        ("blocks.0.attn.k".to_owned(), Stored::f32(&[2, 12, 8], &k)),
    ]);
    let said = Written::bare(&arrays).said();
    assert!(said.errors().is_empty());
    assert_eq!(said.status("score-explosion"), Status::Passed);
    assert_eq!(said.status("scale-mismatch"), Status::Passed);
    assert_eq!(said.status("pattern-mismatch"), Status::NotApplicable);
    assert_eq!(said.status("mask-mass"), Status::NotApplicable);
    // Half of the keys' heads: two query heads share one.
    let grouped = Weights::from([
        ("blocks.0.attn.q".to_owned(), Stored::f32(&[2, 12, 8], &q)),
        (
            "blocks.0.attn.k".to_owned(),
            Stored::f32(&[1, 12, 8], &k[..96]),
        ),
    ]);
    assert!(Written::bare(&grouped).said().errors().is_empty());
}

#[test]
fn transformer_lens_keeps_positions_before_heads() {
    let (q, k) = vectors();
    let swapped = |values: &[f32]| -> Vec<f32> {
        let at = |at: usize| {
            let (position_idx, head_idx, idx) = (at / 16, at / 8 % 2, at % 8);
            values[(head_idx * 12 + position_idx) * 8 + idx]
        };
        (0..values.len()).map(at).collect()
    };
    let own = Weights::from([
        ("blocks.0.attn.q".to_owned(), Stored::f32(&[2, 12, 8], &q)),
        ("blocks.0.attn.k".to_owned(), Stored::f32(&[2, 12, 8], &k)),
    ]);
    let hooks = Weights::from([
        (
            "blocks.0.attn.hook_q".to_owned(),
            Stored::f32(&[1, 12, 2, 8], &swapped(&q)),
        ),
        (
            "blocks.0.attn.hook_k".to_owned(),
            Stored::f32(&[1, 12, 2, 8], &swapped(&k)),
        ),
    ]);
    let of = |arrays: &Weights| -> Vec<f64> {
        let table = testing::judged::thresholds("[score-explosion]\nmax_abs_score = 1e-9\n");
        let file = Written::bare(arrays);
        let said = testing::judged::captured_by(&file.1, &Declared::default(), &table);
        said.of("score-explosion")
            .findings
            .iter()
            .map(|f| f.value)
            .collect()
    };
    assert_eq!(of(&own).len(), 2);
    assert_eq!(of(&own), of(&hooks));
}

// What is declared.

fn about(path: &Path, declared: &Declared) -> String {
    let said = attnscope_run::judge_captured(path, declared, &Default::default(), &|_| true);
    said.expect("reads").1
}

#[test]
fn a_mask_is_inferred_where_nobody_states_it_and_said_to_be() {
    let bare = Written::bare(&arrays("dropped_mask.safetensors"));
    // Half of the heads are causal, which is not most of them.
    assert!(about(&bare.1, &Declared::default()).contains("bidirectional inferred: 2 of 4 heads"));
    let causal = Declared {
        mask: Some(DeclaredMask::Causal),
        ..Declared::default()
    };
    assert_eq!(captured(&bare.1, &causal).errors(), ["mask-mass"]);
    assert!(about(&bare.1, &causal).contains("command line"));
    let bare = Written::bare(&arrays("correct.safetensors"));
    assert!(about(&bare.1, &Declared::default()).contains("causal inferred: 4 of 4 heads"));
    let file = fixture("captured/correct.safetensors");
    assert!(about(&file, &Declared::default()).contains("as the file says"));
}

#[test]
fn flags_go_before_what_the_file_says() {
    let correct = fixture("captured/correct.safetensors");
    let none = Declared::default();
    let errors = |path: &Path, declared: Declared| captured(path, &declared).errors();
    let narrow = Declared {
        window: Some(3),
        ..none.clone()
    };
    assert_eq!(errors(&correct, narrow), ["window-width"]);
    let both_ways = Declared {
        mask: Some(DeclaredMask::Bidirectional),
        ..none.clone()
    };
    assert!(errors(&fixture("captured/dropped_mask.safetensors"), both_ways).is_empty());
    let packed = Declared {
        documents: Some(vec![0, 5]),
        ..none.clone()
    };
    let said = captured(&correct, &packed);
    assert_eq!(said.errors(), ["document-leak"]);
    let place = said.of("document-leak").findings[0].place;
    assert!(
        place.query_idx >= Some(5) && place.key_idx < Some(5),
        "{place:?}"
    );
    let mut real = vec![true; 12];
    real[..3].fill(false);
    let padded = Declared {
        attention_mask: Some(real),
        ..none.clone()
    };
    assert_eq!(errors(&correct, padded), ["pad-mass"]);
    let wide = Declared {
        window: Some(5),
        ..none
    };
    assert!(errors(&fixture("captured/window_off_by_one.safetensors"), wide).is_empty());
}

#[test]
fn a_window_that_no_head_uses_is_information() {
    let declared = Declared {
        window: Some(8),
        ..Declared::default()
    };
    let said = captured(&fixture("captured/window.safetensors"), &declared);
    assert_eq!(said.fired().get("window-width"), Some(&Severity::Info));
    // A text that is not longer than the window cannot show it.
    let declared = Declared {
        window: Some(12),
        ..Declared::default()
    };
    let said = captured(&fixture("captured/window.safetensors"), &declared);
    assert_eq!(said.status("window-width"), Status::Passed);
}

#[test]
fn a_wrong_axis_is_found_in_a_padded_trace_too() {
    let n = 6;
    let score = |i: usize, j: usize| ((i * 7 + j * 13) % 5) as f64 * 0.4;
    // Bidirectional, two left pads: padded keys are hidden, padded queries take part of each column.
    let mut cells = vec![0.0f32; n * n];
    for j in 2..n {
        let sum: f64 = (0..n).map(|i| score(i, j).exp()).sum();
        (0..n).for_each(|i| cells[i * n + j] = (score(i, j).exp() / sum) as f32);
    }
    let arrays = Weights::from([(
        "blocks.0.attn.pattern".to_owned(),
        Stored::f32(&[1, n, n], &cells),
    )]);
    let file = Written::with_metadata(&arrays, &json!({"attnscope.mask": "bidirectional"}));
    let declared = Declared {
        attention_mask: Some(vec![false, false, true, true, true, true]),
        ..Declared::default()
    };
    let said = captured(&file.1, &declared);
    assert_eq!(said.errors(), ["wrong-axis"], "{:?}", said.fired());
}

#[test]
fn half_precision_that_was_widened_is_judged_as_half_precision() {
    for (narrow, most) in [
        (
            &(|v: f32| half::bf16::from_f32(v).to_f32()) as &dyn Fn(f32) -> f32,
            2e-2,
        ),
        (&|v: f32| half::f16::from_f32(v).to_f32(), 5e-3),
    ] {
        let mut arrays = arrays("correct.safetensors");
        for stored in arrays.values_mut().filter(|stored| stored.dtype == "F32") {
            let values: Vec<f32> = stored.values().into_iter().map(narrow).collect();
            *stored = Stored::f32(&stored.shape, &values);
        }
        let said = Written::bare(&arrays).said();
        assert!(said.errors().is_empty(), "{most}: {:?}", said.fired());
        assert_eq!(said.status("row-sum"), Status::Passed);
    }
}

#[test]
fn a_trace_that_the_program_writes_itself_is_healthy() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, hooks) in [
        ("healthy", "pattern,scores,q,k,rot_q,rot_k,resid_post"),
        (
            "oracle/llama/model",
            "pattern,scores,q,k,rot_q,rot_k,resid_post",
        ),
        ("oracle/gpt_oss/model", "pattern,scores"),
        ("oracle/bart_b/model", "pattern,scores"),
        ("oracle/bert/model", "pattern"),
    ] {
        let target = directory.path().join("trace.safetensors");
        let model = fixture(name);
        let (model, to) = (
            model.to_str().expect("a path"),
            target.to_str().expect("a path"),
        );
        let tokens = "5,9,2,5,9,2,20,7,7,31,5,9";
        let output = attnscope(&[
            "trace", model, "--tokens", tokens, "--output", to, "--hooks", hooks,
        ]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let said = captured(&target, &Declared::default());
        assert!(
            said.errors().is_empty(),
            "{name}: {:#?}",
            said.findings().collect::<Vec<_>>()
        );
        assert!(!said.fired().contains_key("row-sum"), "{name}");
        std::fs::remove_file(&target).expect("removes");
    }
}
