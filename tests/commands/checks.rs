//! Checks on checkpoints: twins trained with and without a bug, and a healthy model broken in one way at a time.

use attnscope::bundles::{BUNDLES, DEMO_PROMPT};
use attnscope_checks::{Severity, Status, Thresholds};
use attnscope_prompt::Request;
use attnscope_spec::Model;
use testing::checkpoint_copy::Weights;
use testing::effort::some_of;
use testing::judged::{
    Said, fixture, healthy_with, ids, judged, judged_by, prompt_of, stories, text, thresholds,
};
use testing::opening::opened;

const D_MODEL: usize = 64;
const D_HEAD: usize = 16;

fn judged_on_stories(name: &str, set: &[&str]) -> Said {
    let model = opened(&fixture(name), set);
    let prompts: Vec<_> = some_of(stories(&model), 3).collect();
    judged(&model, &prompts)
}

#[test]
fn a_model_trained_with_a_softmax_over_queries_is_exposed_though_its_config_says_nothing() {
    for (name, least_gain) in [("degenerate", 7.0), ("degenerate_early", 0.5)] {
        let said = judged_on_stories(name, &[]);
        assert_eq!(said.errors(), ["trained-otherwise"], "{name}");
        assert!(said.with(Severity::Warning).is_empty(), "{name}");
        let finding = said.one("trained-otherwise");
        assert!(
            finding
                .evidence
                .contains("with a softmax over queries in every layer"),
            "{name}: {}",
            finding.evidence
        );
        assert!(!finding.evidence.contains("scale"), "{}", finding.evidence);
        assert!(!finding.evidence.contains("mask"), "{}", finding.evidence);
        assert!(finding.value > least_gain, "{name}: {}", finding.value);
        assert!(finding.advice.contains("--set softmax_axis=queries"));
    }
}

#[test]
fn read_with_the_axis_it_was_trained_with_the_axis_and_the_leak_are_named_from_the_first_layer() {
    for name in ["degenerate", "degenerate_early"] {
        let said = judged_on_stories(name, &["softmax_axis=queries"]);
        // Padded queries take part of each column too.
        assert_eq!(
            said.errors(),
            ["future-leak", "padding-leak", "wrong-axis"],
            "{name}"
        );
        let axis: Vec<Option<usize>> = said.places("wrong-axis").iter().map(|p| p.0).collect();
        assert_eq!(axis, [Some(0), Some(1)], "{name}");
        let leak = said.one("future-leak");
        assert_eq!(leak.place.layer_idx, Some(0), "{name}: {leak:?}");
        assert!(leak.place.query_idx < leak.place.key_idx, "{leak:?}");
        assert!(leak.evidence.contains("first pattern: L0H0"), "{leak:?}");
        assert!(leak.evidence.contains("first residual: L0"), "{leak:?}");
        // An entropy of rows that do not sum to 1 is not a number.
        for check in [
            "row-sum",
            "entropy-collapse",
            "entropy-uniform",
            "softmax-saturation",
            "duplicate-heads",
            "attention-sink",
            "spectral-bound",
        ] {
            assert_eq!(
                said.status(check),
                Status::NotApplicable,
                "{name}: {check}: {}",
                said.of(check).why
            );
        }
    }
}

#[test]
fn the_healthy_twin_is_neither_accused_nor_warned_of_and_statuses_say_whose_work_it_is() {
    let said = judged_on_stories("healthy", &[]);
    assert!(said.errors().is_empty() && said.with(Severity::Warning).is_empty());
    for check in [
        "wrong-axis",
        "row-sum",
        "mask-mass",
        "uniform-row",
        "future-leak",
        "padding-leak",
    ] {
        assert_eq!(said.status(check), Status::NotTested, "{check}");
    }
    for check in [
        "window-width",
        "pad-mass",
        "pattern-mismatch",
        "batch-leak",
        "document-leak",
    ] {
        assert_eq!(said.status(check), Status::NotApplicable, "{check}");
        assert!(!said.of(check).why.is_empty());
    }
    for check in [
        "trained-otherwise",
        "nan-or-inf",
        "dead-head",
        "duplicate-heads",
    ] {
        assert_eq!(said.status(check), Status::Passed, "{check}");
    }
    assert_eq!(said.of("future-leak").findings.len(), 0);
}

#[test]
fn a_model_trained_without_a_scale_is_exposed_and_no_other_factor_is_named() {
    let said = judged_on_stories("unscaled", &[]);
    assert_eq!(said.errors(), ["trained-otherwise"]);
    let finding = said.one("trained-otherwise");
    let evidence = &finding.evidence;
    assert!(
        evidence.contains("with no scale in every layer"),
        "{evidence}"
    );
    assert!(!finding.evidence.contains("softmax over"), "{finding:?}");
    assert!(finding.advice.contains("--set scale=none"), "{finding:?}");
}

#[test]
fn no_single_story_accuses_the_healthy_twin() {
    let model = opened(&fixture("healthy"), &[]);
    let all = stories(&model);
    assert_eq!(all.len(), 24);
    // The race of readings is what may go wrong on little text; it takes many stories, the other checks every eighth.
    for (nth, one) in some_of(all.into_iter().enumerate(), 2) {
        let race: &[&str] = &["trained-otherwise"];
        let asked = if nth % 8 == 0 { &[] } else { race };
        let one = std::slice::from_ref(&one);
        let said = judged_by(&model, one, &Thresholds::default(), asked);
        assert!(said.errors().is_empty(), "{}: {:?}", one[0].0, said.fired());
    }
}

#[test]
fn a_single_story_is_enough_to_expose_the_degenerate_twin() {
    let model = opened(&fixture("degenerate"), &[]);
    let stories: Vec<_> = some_of(stories(&model), 4).collect();
    let (mut n_accused, n_stories) = (0, stories.len());
    for one in stories {
        let said = judged_by(
            &model,
            &[one],
            &Thresholds::default(),
            &["trained-otherwise"],
        );
        n_accused += usize::from(said.status("trained-otherwise") == Status::Fired);
    }
    assert_eq!(n_accused, n_stories);
}

fn demo() -> Model {
    let checkpoint = BUNDLES[0].open().expect("opens");
    attnscope_families::read(checkpoint).expect("reads")
}

#[test]
fn the_induction_demo_is_not_accused_on_repeated_text_nor_on_text_it_does_not_know() {
    let model = demo();
    let built_in = "The old clock in the hall stopped at noon. Nobody in the house noticed, because nobody in the house \
                    was awake.";
    let sets = [
        text(&model, DEMO_PROMPT),
        text(&model, built_in),
        some_of(stories(&model), 3).collect(),
    ];
    for prompts in sets {
        let said = judged(&model, &prompts);
        assert!(said.errors().is_empty(), "{:?}", said.fired());
    }
}

#[test]
fn one_token_and_one_token_repeated_are_judged_without_a_finding() {
    let model = opened(&fixture("healthy"), &[]);
    for tokens in [vec![7], vec![7; 30]] {
        let said = judged(&model, &ids(&model, &tokens));
        assert!(said.errors().is_empty(), "{tokens:?}: {:?}", said.fired());
    }
    let said = judged(&model, &ids(&model, &[7]));
    assert_eq!(said.status("future-leak"), Status::NotApplicable);
    assert_eq!(said.status("entropy-uniform"), Status::NotApplicable);
    // Judged by the texts beside the checkpoint.
    assert_eq!(said.status("trained-otherwise"), Status::Passed);
}

#[test]
fn a_prompt_that_is_padding_but_for_one_token_is_judged_without_a_panic() {
    let model = opened(&fixture("healthy"), &[]);
    let request = Request {
        attention_mask: Some(vec![false, false, true, false, false, false]),
        ..Request::ids(vec![3, 4, 5, 6, 7, 8])
    };
    let said = judged(&model, &prompt_of(&model, &request));
    assert!(said.errors().is_empty(), "{:?}", said.fired());
}

#[test]
fn left_pads_do_not_make_a_sink_of_a_key() {
    // The same story with and without pads before it: the same share of the same key.
    let model = opened(&fixture("healthy"), &[]);
    let low = thresholds("[attention-sink]\nmass = 0.01\n");
    let story = stories(&model)[0].1.sequence.tokens.clone();
    let sink = |n_pads: usize| {
        let mut tokens = vec![story[0]; n_pads];
        tokens.extend(&story);
        let mut real = vec![false; n_pads];
        real.resize(tokens.len(), true);
        let request = Request {
            attention_mask: Some(real),
            positions: attnscope_prompt::Positions::Mask,
            ..Request::ids(tokens)
        };
        let prompts = prompt_of(&model, &request);
        let said = judged_by(&model, &prompts, &low, &["attention-sink"]);
        let finding = said.one("attention-sink").clone();
        (
            finding.value,
            finding.place.key_idx.expect("a key") - n_pads,
        )
    };
    let (alone, padded) = (sink(0), sink(12));
    assert!((alone.0 - padded.0).abs() < 1e-4, "{alone:?} {padded:?}");
    assert_eq!(alone.1, padded.1);
}

// A healthy model, broken in one way.

/// Columns of a head's queries (0), keys (1) or values (2) in c_attn, of weights and biases.
fn columns(part: usize, head_idx: usize) -> std::ops::Range<usize> {
    let start = part * D_MODEL + head_idx * D_HEAD;
    start..start + D_HEAD
}

fn change(weights: &mut Weights, name: &str, change: impl FnOnce(&mut [f32])) {
    let stored = weights.get_mut(name).unwrap_or_else(|| panic!("no {name}"));
    let mut values = stored.values();
    change(&mut values);
    stored.bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
}

/// Changes a head's slice of c_attn: each row of the weight, then the bias.
fn change_projection(weights: &mut Weights, layer_idx: usize, mut each: impl FnMut(&mut [f32])) {
    for (name, width) in [("weight", 3 * D_MODEL), ("bias", 3 * D_MODEL)] {
        let name = format!("transformer.h.{layer_idx}.attn.c_attn.{name}");
        change(weights, &name, |values| {
            values.chunks_mut(width).for_each(&mut each);
        });
    }
}

fn broken(change: impl FnOnce(&mut Weights)) -> Said {
    let copy = healthy_with(change);
    judged_on(&opened(copy.path(), &[]))
}

/// Some stories: enough for each statistic, quick enough for many tests.
fn judged_on(model: &Model) -> Said {
    let prompts: Vec<_> = stories(model).into_iter().take(6).collect();
    judged(model, &prompts)
}

/// Whether a check is silent on the healthy model as it is.
fn is_silent_on_the_twin(check: &str) -> bool {
    judged_on(&opened(&fixture("healthy"), &[])).status(check) != Status::Fired
}

#[test]
fn a_nan_weight_is_named_with_its_place_and_nothing_else_is_an_error() {
    let name = "transformer.h.1.mlp.c_fc.weight";
    let said = broken(|weights| change(weights, name, |values| values[70] = f32::NAN));
    assert_eq!(said.errors(), ["nan-or-inf"], "{:#?}", said.fired());
    let finding = said.one("nan-or-inf");
    assert_eq!(finding.place.layer_idx, Some(1));
    assert!(
        finding.evidence.contains("blocks.1.")
            && finding.evidence.contains("position 0")
            && finding
                .evidence
                .contains(&format!("{name} holds one at element 70")),
        "{}",
        finding.evidence
    );
    assert_eq!(said.status("trained-otherwise"), Status::Undecidable);
    assert!(is_silent_on_the_twin("nan-or-inf"));
}

#[test]
fn a_nan_that_only_a_later_token_brings_is_no_leak_of_the_future() {
    let row = 9;
    let copy = healthy_with(|weights| {
        change(weights, "transformer.wte.weight", |values| {
            values[row * D_MODEL + 3] = f32::NAN;
        });
    });
    let model = opened(copy.path(), &[]);
    let said = judged_by(
        &model,
        &ids(&model, &[3, 4, 5, 6, 7, 8, 10, 11, 12, 9]),
        &Thresholds::default(),
        &["nan-or-inf", "future-leak", "padding-leak"],
    );
    assert_eq!(said.errors(), ["nan-or-inf"], "{:#?}", said.0);
    let finding = said.one("nan-or-inf");
    assert!(finding.evidence.contains("position 9"), "{finding:?}");
}

#[test]
fn infinities_everywhere_are_judged_without_a_panic() {
    for value in [f32::NAN, f32::INFINITY, 3e38] {
        let said = broken(|weights| {
            for name in weights.clone().keys() {
                change(weights, name, |values| values.fill(value));
            }
        });
        assert_eq!(
            said.errors(),
            ["nan-or-inf"],
            "{value}: {:#?}",
            said.fired()
        );
    }
}

#[test]
fn a_head_that_writes_nothing_is_dead_and_its_neighbours_are_not() {
    let silence = |weights: &mut Weights, heads: &[usize]| {
        change(weights, "transformer.h.1.attn.c_proj.weight", |values| {
            for head_idx in heads {
                let rows = head_idx * D_HEAD * D_MODEL..(head_idx + 1) * D_HEAD * D_MODEL;
                values[rows].fill(0.0);
            }
        });
    };
    for heads in [&[2][..], &[0, 3], &[0, 1, 3]] {
        let said = broken(|weights| silence(weights, heads));
        assert!(said.errors().is_empty(), "{:?}", said.fired());
        let expected: Vec<_> = heads.iter().map(|head| (Some(1), Some(*head))).collect();
        assert_eq!(said.places("dead-head"), expected);
    }
    assert!(is_silent_on_the_twin("dead-head"));
}

#[test]
fn heads_with_the_same_queries_and_keys_are_duplicates() {
    let said = broken(|weights| {
        change_projection(weights, 0, |row| {
            for part in [0, 1] {
                row.copy_within(columns(part, 1), columns(part, 3).start);
            }
        });
    });
    assert!(said.errors().is_empty(), "{:?}", said.fired());
    assert_eq!(said.places("duplicate-heads"), [(Some(0), Some(3))]);
    assert!(
        said.one("duplicate-heads")
            .evidence
            .contains("heads 1 and 3")
    );
    assert!(is_silent_on_the_twin("duplicate-heads"));
}

#[test]
fn a_score_is_exploded_from_just_above_the_limit_on() {
    let (layer_idx, head_idx) = (1, 2);
    let model = opened(&fixture("healthy"), &[]);
    let prompts: Vec<_> = stories(&model).into_iter().take(6).collect();
    let all = thresholds("[score-explosion]\nmax_abs_score = 1e-9\n");
    let said = judged_by(&model, &prompts, &all, &["score-explosion"]);
    let findings = said.of("score-explosion").findings.iter();
    let is_it = |f: &&attnscope_checks::Finding| {
        (f.place.layer_idx, f.place.head_idx) == (Some(layer_idx), Some(head_idx))
    };
    let largest = findings.filter(is_it).map(|f| f.value).fold(0.0, f64::max);
    // Scores grow as their queries do.
    let scaled = |limit: f64| {
        let by = (limit / largest) as f32;
        broken(|weights| {
            change_projection(weights, layer_idx, |row| {
                row[columns(0, head_idx)].iter_mut().for_each(|v| *v *= by);
            });
        })
    };
    let above = scaled(100.01);
    assert!(above.errors().is_empty(), "{:?}", above.fired());
    assert_eq!(
        above.places("score-explosion"),
        [(Some(layer_idx), Some(head_idx))]
    );
    assert!((above.one("score-explosion").value - 100.01).abs() < 1e-3);
    assert_eq!(scaled(99.99).status("score-explosion"), Status::Passed);
    assert!(is_silent_on_the_twin("score-explosion"));
}

#[test]
fn a_collapsed_head_is_named_with_its_causes_and_what_would_help() {
    let stretched = |factor: f32| {
        healthy_with(|weights: &mut Weights| {
            change_projection(weights, 1, |row| {
                row[columns(0, 3)].iter_mut().for_each(|v| *v *= factor);
            });
        })
    };
    let copy = stretched(300.0);
    // Whatever the head looks at by design, so that each collapse is told.
    let table = thresholds("[entropy-collapse]\nby_design = 2.0\n");
    let judged_on = |directory: &std::path::Path, set: &[&str]| {
        let model = opened(directory, set);
        let prompts: Vec<_> = stories(&model).into_iter().take(1).collect();
        let only = ["entropy-collapse", "softmax-saturation"];
        judged_by(&model, &prompts, &table, &only)
    };
    let judged_with = |set: &[&str]| judged_on(copy.path(), set);
    let said = judged_with(&[]);
    for check in ["entropy-collapse", "softmax-saturation"] {
        assert_eq!(said.places(check), [(Some(1), Some(3))], "{check}");
    }
    let finding = said.one("entropy-collapse");
    for part in ["‖q‖", "cos", "score std", "rows saturated"] {
        assert!(finding.evidence.contains(part), "{finding:?}");
    }
    // The scale is 1/√d already: that is not a remedy.
    assert!(!finding.advice.contains("with 1/√d"), "{finding:?}");
    let share = |remedy: &str| -> f64 {
        let (before, _) = finding
            .advice
            .split_once(&format!(" % with {remedy}"))
            .expect(remedy);
        let number = before.rsplit(' ').next().expect("a number");
        number.parse().expect("a number")
    };
    let now = 100.0 * finding.value;
    assert!(share("QK-norm") > 10.0 + now, "{finding:?}");
    // Half of so much is still too much: it is not said, and the first that is enough is.
    assert!(
        !finding.advice.contains("with temperature 2,"),
        "{finding:?}"
    );
    assert!(share("temperature") >= 5.0, "{finding:?}");
    // So long a query is not mended by a scale, and that is not said; a milder one is.
    let without = judged_with(&["scale=none"]);
    let finding = without.one("entropy-collapse");
    assert!(!finding.advice.contains("with 1/√d"), "{finding:?}");
    let milder = stretched(4.0);
    let without = judged_on(milder.path(), &["scale=none"]);
    let finding = without.one("entropy-collapse");
    assert!(finding.advice.contains("with 1/√d"), "{finding:?}");
}

#[test]
fn a_head_without_keys_attends_to_everything_alike() {
    let said = broken(|weights| {
        change_projection(weights, 0, |row| row[columns(1, 1)].fill(0.0));
    });
    assert!(said.errors().is_empty(), "{:?}", said.fired());
    assert_eq!(said.places("entropy-uniform"), [(Some(0), Some(1))]);
    assert!((said.one("entropy-uniform").value - 1.0).abs() < 1e-5);
    assert!(is_silent_on_the_twin("entropy-uniform"));
}

#[test]
fn tokens_that_share_one_large_vector_are_a_collapse_of_rank() {
    let said = broken(|weights| {
        change(weights, "transformer.wpe.weight", |values| {
            for (idx, value) in values.iter_mut().enumerate() {
                *value += if idx % 2 == 0 { 80.0 } else { -80.0 };
            }
        });
    });
    // Without its positions the model is what it was, or nearly.
    assert_eq!(said.errors(), ["trained-otherwise"]);
    let evidence = &said.one("trained-otherwise").evidence;
    assert!(evidence.contains("with no positions"), "{evidence}");
    assert_eq!(said.places("rank-collapse"), [(Some(0), None)]);
    assert!(is_silent_on_the_twin("rank-collapse"));
}

#[test]
fn one_huge_value_of_the_residual_is_a_massive_activation_where_it_stands() {
    let said = broken(|weights| {
        change(weights, "transformer.wpe.weight", |values| {
            values[2 * D_MODEL + 5] = 5000.0;
        });
    });
    assert!(
        ["trained-otherwise"].starts_with(&said.errors()),
        "{:?}",
        said.fired()
    );
    let finding = said.one("massive-activation");
    assert_eq!(
        (finding.place.layer_idx, finding.place.query_idx),
        (Some(0), Some(2))
    );
    assert!(finding.evidence.contains("channel 5"), "{finding:?}");
    assert!(finding.evidence.contains("layers 0 to 1"), "{finding:?}");
    assert!(is_silent_on_the_twin("massive-activation"));
}

#[test]
fn a_scale_left_out_is_named_for_information() {
    let model = opened(&fixture("healthy"), &["scale=none"]);
    let said = judged_on(&model);
    assert!(said.errors().is_empty(), "{:?}", said.fired());
    assert_eq!(said.status("scale-mismatch"), Status::Fired);
    let finding = &said.of("scale-mismatch").findings[0];
    assert_eq!(finding.severity, Severity::Info);
    assert_eq!(finding.value, 4.0, "1/√16 is a quarter");
    assert!(is_silent_on_the_twin("scale-mismatch"));
}
