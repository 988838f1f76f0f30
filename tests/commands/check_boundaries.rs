//! Where checks draw their lines: at a measured value, just above it and just below it.

use std::path::Path;

use attnscope_checks::stats::LayerReport;
use attnscope_checks::{Severity, Status, Thresholds};
use attnscope_compute::ops::Cpu;
use attnscope_forward::Input;
use attnscope_run::{Declared, Job, Observer, Options, Progress, Silent};
use attnscope_spec::Model;
use testing::checkpoint_copy::{Stored, Weights, file_of, weights};
use testing::judged::{
    captured_by, fixture, healthy_with, ids, judged_by, reference_request, stories, thresholds,
};
use testing::opening::opened;

/// Which side of a threshold a check speaks on, and whether at it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Speaks {
    Above,
    AtAndAbove,
    Below,
    AtAndBelow,
}

struct Line {
    check: &'static str,
    key: &'static str,
    speaks: Speaks,
    /// Other thresholds, so that only this one matters.
    others: &'static str,
}

fn line(check: &'static str, key: &'static str, speaks: Speaks, others: &'static str) -> Line {
    Line {
        check,
        key,
        speaks,
        others,
    }
}

fn table(check: &str, key: &str, value: f64, others: &str) -> Thresholds {
    let own = format!("{key} = {value:e}\n");
    let heading = format!("[{check}]\n");
    let text = if others.contains(&heading) {
        others.replace(&heading, &format!("{heading}{own}"))
    } else {
        format!("{heading}{own}{others}")
    };
    // TOML wants a point or an exponent sign it knows.
    thresholds(&text)
}

/// The most telling value that a check measures with the threshold wide open, and whether it fires at some threshold.
fn holds(line: &Line, model: &Model, prompts: &[(String, Input)]) {
    let Line {
        check,
        key,
        speaks,
        others,
    } = line;
    let of = |threshold: f64| {
        let said = judged_by(
            model,
            prompts,
            &table(check, key, threshold, others),
            &[check],
        );
        let values: Vec<f64> = said.of(check).findings.iter().map(|f| f.value).collect();
        (said.status(check), values)
    };
    let is_above = matches!(speaks, Speaks::Above | Speaks::AtAndAbove);
    let (mut extreme, mut threshold) = (f64::NAN, if is_above { 1e-12 } else { 1e12 });
    // The value that stays when the line moves towards it.
    for _ in 0..200 {
        let (status, values) = of(threshold);
        if status != Status::Fired {
            break;
        }
        let next = if is_above {
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
        } else {
            values.iter().copied().fold(f64::INFINITY, f64::min)
        };
        if next == extreme {
            break;
        }
        (extreme, threshold) = (next, next);
    }
    assert!(extreme.is_finite(), "{check}.{key} measured nothing");
    let step = 1e-9 * extreme.abs();
    let speaks_at = |threshold: f64| of(threshold).0 == Status::Fired;
    let (below, at, above) = (
        speaks_at(extreme - step),
        speaks_at(extreme),
        speaks_at(extreme + step),
    );
    // A threshold below the value is one that the value exceeds.
    let expected = match speaks {
        Speaks::Above => (true, false, false),
        Speaks::AtAndAbove => (true, true, false),
        Speaks::Below => (false, false, true),
        Speaks::AtAndBelow => (false, true, true),
    };
    assert_eq!((below, at, above), expected, "{check}.{key} = {extreme}");
}

const SPARED: &str = "[entropy-collapse]\nby_design = 2.0\n";

#[test]
fn checks_of_patterns_and_scores_hold_at_their_lines() {
    let model = opened(&fixture("healthy"), &[]);
    let prompts: Vec<_> = stories(&model).into_iter().take(1).collect();
    let wide = "[duplicate-heads]\nrelative_entropy = 2.0\n[entropy-collapse]\nby_design = 2.0\n";
    for line in [
        line(
            "entropy-collapse",
            "relative_entropy",
            Speaks::Below,
            SPARED,
        ),
        line("entropy-uniform", "relative_entropy", Speaks::Above, ""),
        line("score-explosion", "max_abs_score", Speaks::Above, ""),
        line(
            "score-explosion",
            "f16_limit",
            Speaks::Above,
            "[score-explosion]\nmax_abs_score = 1e30\n",
        ),
        line("rank-collapse", "resid_spread", Speaks::Below, ""),
        line("dead-head", "share_of_median", Speaks::Below, ""),
        line("duplicate-heads", "divergence", Speaks::AtAndBelow, wide),
        line("attention-sink", "mass", Speaks::Above, ""),
        line(
            "massive-activation",
            "max_abs",
            Speaks::Above,
            "[massive-activation]\ntimes_median = 0.0\n",
        ),
    ] {
        if line.key == "divergence" {
            // Pairs farther apart than a tenth of a nat are not kept: two heads are made alike.
            continue;
        }
        holds(&line, &model, &prompts);
    }
}

#[test]
fn nearly_equal_heads_hold_at_their_line() {
    let directory = healthy_with(|weights| {
        let name = "transformer.h.0.attn.c_attn.weight";
        let mut values = weights[name].values();
        for row in values.chunks_mut(192) {
            for start in [0, 64] {
                row.copy_within(start + 16..start + 32, start + 48);
                row[start + 48] *= 1.2;
            }
        }
        weights.insert(name.to_owned(), Stored::f32(&[64, 192], &values));
    });
    let model = opened(directory.path(), &[]);
    let prompts: Vec<_> = stories(&model).into_iter().take(1).collect();
    let wide = "[duplicate-heads]\nrelative_entropy = 2.0\n[entropy-collapse]\nby_design = 2.0\n";
    let line = line("duplicate-heads", "divergence", Speaks::AtAndBelow, wide);
    holds(&line, &model, &prompts);
}

#[test]
fn saturated_rows_and_the_guaranteed_entropy_hold_at_their_lines() {
    let case = fixture("oracle/gpt2");
    let model = opened(&case.join("model"), &[]);
    let prompts = testing::judged::prompt_of(&model, &reference_request(&case, false));
    for line in [
        line(
            "softmax-saturation",
            "saturated_rows",
            Speaks::Above,
            SPARED,
        ),
        line("spectral-bound", "guaranteed", Speaks::Below, ""),
    ] {
        holds(&line, &model, &prompts);
    }
}

#[test]
fn a_scale_and_a_spread_hold_at_their_lines() {
    let model = opened(&fixture("healthy"), &["scale=none"]);
    let prompts: Vec<_> = stories(&model).into_iter().take(1).collect();
    let never = "[scale-mismatch]\nvariance_ratio = 1e9\n";
    holds(
        &line(
            "scale-mismatch",
            "times_inv_sqrt_d",
            Speaks::AtAndAbove,
            never,
        ),
        &model,
        &prompts,
    );
}

#[test]
fn a_gain_holds_at_its_margin_and_too_few_positions_decide_nothing() {
    let model = opened(&fixture("degenerate_early"), &[]);
    // With these, one reading is well ahead: the check has no other reason to be silent at the line.
    let prompts: Vec<_> = stories(&model).into_iter().take(2).collect();
    let check = "trained-otherwise";
    holds(
        &line(check, "margin", Speaks::AtAndAbove, ""),
        &model,
        &prompts,
    );
    // Prompts of fewer positions get texts beside them.
    let prompts: Vec<_> = stories(&model).into_iter().take(12).collect();
    // Two tokens after the last position that is compared another must stand.
    let n = prompts
        .iter()
        .map(|(_, input)| input.sequence.len() - 2)
        .sum::<usize>();
    for (fewest, status) in [(n, Status::Fired), (n + 1, Status::Undecidable)] {
        let few = table(check, "fewest_positions", fewest as f64, "");
        let said = judged_by(&model, &prompts, &few, &[check]);
        assert_eq!(said.status(check), status, "{fewest} of {n}");
    }
}

#[test]
fn a_massive_activation_must_exceed_both_its_lines() {
    let model = opened(&fixture("healthy"), &[]);
    let prompts: Vec<_> = stories(&model).into_iter().take(1).collect();
    #[derive(Default)]
    struct Ratios(Vec<f64>);
    impl Observer for Ratios {
        fn progress(&mut self, _: Progress) -> std::ops::ControlFlow<()> {
            std::ops::ControlFlow::Continue(())
        }
        fn layer(&mut self, report: LayerReport) -> std::ops::ControlFlow<()> {
            let peak = report.peak.expect("a residual");
            self.0
                .push(f64::from(peak.value.abs()) / f64::from(peak.median));
            std::ops::ControlFlow::Continue(())
        }
    }
    let mut ratios = Ratios::default();
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    let job = Job {
        input: &prompts[0].1,
        observer: &mut ratios,
        tap: None,
    };
    attnscope_run::run_all(&Cpu, &model, vec![job], options, &|| false).expect("runs");
    let _ = Silent;
    let largest = ratios.0.iter().copied().fold(0.0, f64::max);
    let check = "massive-activation";
    let status = |max_abs: &str, times: f64| {
        let table = thresholds(&format!(
            "[{check}]\nmax_abs = {max_abs}\ntimes_median = {times}\n"
        ));
        judged_by(&model, &prompts, &table, &[check]).status(check)
    };
    assert_eq!(status("0.0", largest * 0.999_999), Status::Fired);
    assert_eq!(status("0.0", largest * 1.000_001), Status::Passed);
    assert_eq!(status("1e9", 0.0), Status::Passed);
}

#[test]
fn a_sink_is_massive_when_more_than_the_stated_share_of_heads_gives_it_almost_all() {
    // Key 0 of every head is made as long as it takes.
    let directory = healthy_with(|_| {});
    let model = opened(directory.path(), &[]);
    let prompts = ids(&model, &[5; 12]);
    for (share, severity) in [(0.0, Severity::Info), (-0.1, Severity::Warning)] {
        let table = thresholds(&format!(
            "[attention-sink]\nmass = 0.01\nmassive_heads = {share:.1}\n"
        ));
        let said = judged_by(&model, &prompts, &table, &["attention-sink"]);
        // No head gives more than 0.95: none of n is not more than a share of 0, and is more than less than that.
        assert_eq!(said.one("attention-sink").severity, severity);
    }
}

// Traces, written by hand.

fn trace(change: impl FnOnce(&mut Weights)) -> tempfile::TempPath {
    let bytes = std::fs::read(fixture("captured/correct.safetensors")).expect("reads");
    let mut all = weights(&bytes);
    change(&mut all);
    let file = tempfile::Builder::new()
        .suffix(".safetensors")
        .tempfile()
        .expect("a file")
        .into_temp_path();
    std::fs::write(&file, file_of(&all)).expect("writes");
    file
}

fn set_cells(weights: &mut Weights, name: &str, change: impl FnOnce(&mut [f32])) {
    let stored = weights.get_mut(name).expect("a tensor");
    let mut values = stored.values();
    change(&mut values);
    stored.bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
}

fn said(path: &Path, declared: &Declared, table: &str) -> testing::judged::Said {
    captured_by(path, declared, &thresholds(table))
}

const CAUSAL: Declared = Declared {
    mask: Some(attnscope_run::DeclaredMask::Causal),
    window: None,
    axis: None,
    attention_mask: None,
    documents: None,
};

#[test]
fn forbidden_mass_is_an_error_above_its_line_and_a_warning_up_to_it() {
    let cases: [(&str, &str, Declared); 4] = [
        ("mask-mass", "captured/dropped_mask.safetensors", CAUSAL),
        (
            "window-width",
            "captured/window_off_by_one.safetensors",
            Declared::default(),
        ),
        (
            "pad-mass",
            "captured/attended_padding.safetensors",
            Declared::default(),
        ),
        (
            "document-leak",
            "captured/correct.safetensors",
            Declared {
                documents: Some(vec![0, 6]),
                ..Declared::default()
            },
        ),
    ];
    for (check, file, declared) in cases {
        let path = fixture(file);
        let first = said(&path, &declared, "");
        let most = first.of(check).findings.iter().map(|f| f.value);
        let most = most.fold(0.0, f64::max);
        let worst = |line: f64| {
            let table = format!("[{check}]\nerror_mass = {line:e}\n");
            said(&path, &declared, &table).fired()[check]
        };
        assert_eq!(worst(most * (1.0 - 1e-9)), Severity::Error, "{check}");
        assert_eq!(worst(most), Severity::Warning, "{check}");
        assert_eq!(worst(most * (1.0 + 1e-9)), Severity::Warning, "{check}");
    }
}

#[test]
fn a_row_may_miss_1_by_what_its_dtype_allows() {
    for (by, status) in [(0.8e-5, Status::Passed), (1.2e-5, Status::Fired)] {
        let file = trace(|weights| {
            set_cells(weights, "blocks.0.attn.pattern", |cells| {
                cells[12 * 5..12 * 6]
                    .iter_mut()
                    .for_each(|p| *p *= 1.0 + by as f32);
            });
        });
        let said = said(&file, &CAUSAL, "");
        assert_eq!(said.status("row-sum"), status, "{by}");
        if status == Status::Fired {
            let finding = said.one("row-sum");
            let place = finding.place;
            assert_eq!(
                (place.layer_idx, place.head_idx, place.query_idx),
                (Some(0), Some(0), Some(5))
            );
            assert_eq!(finding.severity, Severity::Error);
        }
    }
}

#[test]
fn columns_may_miss_1_by_the_stated_tolerance() {
    let bytes = std::fs::read(fixture("captured/wrong_axis.safetensors")).expect("reads");
    for (by, is_axis) in [(0.9e-3, true), (1.1e-3, false)] {
        let mut all = weights(&bytes);
        for layer_idx in 0..2 {
            let name = format!("blocks.{layer_idx}.attn.pattern");
            set_cells(&mut all, &name, |cells| {
                cells.iter_mut().for_each(|p| *p *= 1.0 + by as f32);
            });
        }
        let file = tempfile::Builder::new()
            .suffix(".safetensors")
            .tempfile()
            .expect("a file")
            .into_temp_path();
        std::fs::write(&file, file_of(&all)).expect("writes");
        let said = said(&file, &CAUSAL, "");
        let (axis, rows) = (said.status("wrong-axis"), said.status("row-sum"));
        if is_axis {
            assert_eq!((axis, rows), (Status::Fired, Status::NotApplicable))
        } else {
            assert_eq!((axis, rows), (Status::Passed, Status::Fired))
        }
    }
}

#[test]
fn a_cell_may_differ_from_its_softmax_by_the_stated_tolerance() {
    for (by, status) in [(0.9e-3f32, Status::Passed), (1.1e-3, Status::Fired)] {
        let file = trace(|weights| {
            set_cells(weights, "blocks.1.attn.pattern", |cells| {
                // From one key of query 7 to another: the row's sum stays.
                cells[12 * 7 + 2] += by;
                cells[12 * 7 + 4] -= by;
            });
        });
        let said = said(&file, &CAUSAL, "");
        assert_eq!(said.status("pattern-mismatch"), status, "{by}");
        assert_eq!(said.status("row-sum"), Status::Passed);
    }
}
