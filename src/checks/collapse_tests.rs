//! Sharp heads: which have collapsed, which are so by design, and why scores spread.

use std::sync::Arc;

use attnscope_compute::attention::{AttentionSpec, Scale};

use super::Thresholds;
use super::collapse::{Cause, by_design, cause, has_rows};
use crate as checks;
use crate::made::{layer, preferring};
use crate::stats::{HeadType, LayerReport, Stat};
use crate::{Evidence, Probes, Severity, Status, Subject, Verdict};

const N: usize = 24;

fn spec(n_heads: usize) -> AttentionSpec {
    AttentionSpec::plain(n_heads, n_heads, 16, true)
}

/// The verdict of a check on one layer.
fn said(check: &str, layer: LayerReport) -> Verdict {
    let layers = [Arc::new(layer)];
    let probes = Probes::none("not run");
    let evidence = Evidence::of_layers(Subject::Checkpoint, &layers, &probes, 1e-5);
    let check = checks::find(check).expect("a check");
    (check.judge)(&evidence, &Thresholds::default())
}

fn design(layer: &LayerReport, is_delimiter: &dyn Fn(usize) -> bool) -> Option<String> {
    let design = by_design(layer, &layer.heads[0], is_delimiter, &Thresholds::default());
    design.map(|design| design.what)
}

#[test]
fn one_key_is_excused_only_if_most_of_the_layer_looks_there_or_it_is_a_delimiter() {
    let to_five = || preferring(N, 40.0, |query| query.min(5));
    let elsewhere = || preferring(N, 0.5, |query| query * 7 % N);
    // One of four heads looks at key 5, the others elsewhere.
    let alone = layer(
        spec(4),
        &[to_five(), elsewhere(), elsewhere(), elsewhere()],
        4.0,
    );
    assert_eq!(design(&alone, &|_| false), None);
    let delimited = design(&alone, &|key_idx| key_idx == 5);
    assert_eq!(delimited.as_deref(), Some("key 5, a delimiter"));
    let finding = &said("entropy-collapse", alone).findings;
    assert_eq!(finding.len(), 1, "{finding:?}");
    let shared = layer(
        spec(4),
        &[to_five(), to_five(), to_five(), elsewhere()],
        4.0,
    );
    let what = design(&shared, &|_| false).expect("a sink");
    assert!(what.contains("most queries of the layer"), "{what}");
    let first = layer(spec(2), &[preferring(N, 40.0, |_| 0), elsewhere()], 4.0);
    assert_eq!(
        design(&first, &|_| false).as_deref(),
        Some("the first token")
    );
    // The excuse is listed with its reason.
    let verdict = said("entropy-collapse", first);
    assert_eq!(verdict.status, Status::Passed);
    assert!(
        verdict.why.contains("L0H0") && verdict.why.contains("the first token"),
        "{}",
        verdict.why
    );
}

#[test]
fn only_a_positional_head_with_one_distance_is_excused() {
    let back = layer(
        spec(1),
        &[preferring(N, 40.0, |query| query.saturating_sub(3))],
        40.0,
    );
    assert_eq!(back.heads[0].kind, Some(HeadType::Positional));
    assert_eq!(
        design(&back, &|_| false).as_deref(),
        Some("the token 3 back")
    );
    for check in ["entropy-collapse", "softmax-saturation"] {
        let verdict = said(check, back.clone());
        assert_eq!(verdict.status, Status::Passed, "{verdict:?}");
    }
    let why = said("entropy-collapse", back).why;
    assert!(why.contains("to the token 3 back"), "{why}");
    let anywhere = layer(
        spec(1),
        &[preferring(N, 40.0, |query| query * 5 % (query + 1))],
        40.0,
    );
    assert_eq!(design(&anywhere, &|_| false), None);
    assert_eq!(said("entropy-collapse", anywhere).findings.len(), 1);
}

#[test]
fn a_layer_of_one_head_excuses_no_key() {
    let alone = layer(spec(1), &[preferring(N, 40.0, |query| query.min(5))], 4.0);
    assert_eq!(design(&alone, &|_| false), None);
}

#[test]
fn a_large_share_of_saturated_rows_is_reported_as_it_is() {
    for (n_saturated, percent) in [(17, "71 %"), (21, "88 %")] {
        // Some rows prefer a key of their own, the others none.
        let mut rows = preferring(N + 1, 40.0, |query| query * 5 % (query + 1).max(1));
        for row in &mut rows[n_saturated + 1..] {
            row.fill(0.0);
        }
        let verdict = said("softmax-saturation", layer(spec(1), &[rows], 4.0));
        assert_eq!(verdict.status, Status::Passed, "{verdict:?}");
        assert!(verdict.why.contains(percent), "{}", verdict.why);
        assert!(!verdict.why.contains("still pass gradients"));
    }
}

#[test]
fn a_spread_that_norms_do_not_predict_is_not_reported_as_predicted() {
    let rows = || preferring(N, 3.0, |query| query * 5 % N);
    let probe = layer(spec(1), &[rows()], 1.0);
    let observed = probe.heads[0].stats.of(Stat::ScoreVarObserved);
    // ‖q‖ = ‖k‖ = n with a scale of 1/√16 predicts a variance of n⁴/16/16.
    let norm = (observed / 12.8 * 256.0).sqrt().sqrt() as f32;
    let verdict = said("scale-mismatch", layer(spec(1), &[rows()], norm));
    assert_eq!(verdict.status, Status::Passed, "{verdict:?}");
    assert!(verdict.why.contains("12.80 times"), "{}", verdict.why);
    assert!(!verdict.why.contains("as their norms predict"));
}

#[test]
fn sharp_cross_attention_is_info_for_word_alignments_and_a_warning_otherwise() {
    let cross = AttentionSpec {
        is_cross: true,
        mask: attnscope_compute::attention::Mask {
            causal: false,
            window: None,
            streaming: None,
            pools: None,
        },
        ..spec(2)
    };
    let even = || preferring(N, 0.0, |_| 0);
    let aligned = preferring(N, 12.0, |query| query * 5 % N);
    let verdict = said(
        "entropy-collapse",
        layer(cross.clone(), &[aligned, even()], 4.0),
    );
    let [finding] = verdict.findings.as_slice() else {
        panic!("{verdict:?}");
    };
    assert_eq!(finding.severity, Severity::Info);
    let saturated = |heads: &[Vec<Vec<f32>>], norm: f32| {
        let verdict = said("softmax-saturation", layer(cross.clone(), heads, norm));
        verdict
            .findings
            .iter()
            .map(|f| f.severity)
            .collect::<Vec<_>>()
    };
    let aligned = preferring(N, 12.0, |query| query * 5 % N);
    assert_eq!(saturated(&[aligned, even()], 4.0), [Severity::Info]);
    let wide = preferring(N, 60.0, |query| query * 5 % N);
    assert_eq!(
        saturated(&[wide.clone(), wide], 40.0),
        [Severity::Warning; 2]
    );
    // As sharp, with longer queries and keys than a trained alignment needs.
    let wide = preferring(N, 60.0, |query| query * 5 % N);
    let verdict = said(
        "entropy-collapse",
        layer(cross.clone(), &[wide.clone(), wide.clone()], 40.0),
    );
    let severities = verdict.findings.iter().map(|finding| finding.severity);
    assert_eq!(severities.collect::<Vec<_>>(), [Severity::Warning; 2]);
    assert!(verdict.findings[0].advice.contains("too long"));
    // One of several heads learned to align.
    let verdict = said(
        "entropy-collapse",
        layer(cross.clone(), &[wide, even()], 40.0),
    );
    let [finding] = verdict.findings.as_slice() else {
        panic!("{verdict:?}");
    };
    assert_eq!(finding.severity, Severity::Info);
    let one = preferring(N, 40.0, |_| 7);
    let verdict = said("entropy-collapse", layer(cross, &[one, even()], 4.0));
    let [finding] = verdict.findings.as_slice() else {
        panic!("{verdict:?}");
    };
    assert_eq!(finding.severity, Severity::Warning);
}

#[test]
fn causes_of_spread_are_distinguished_and_nan_gives_none() {
    let stretched = |spec: AttentionSpec, norm: f32| {
        let layer = layer(
            spec,
            &[preferring(N, 60.0, |query| query * 5 % (query + 1))],
            norm,
        );
        cause(&layer.spec, &layer.heads[0].stats)
    };
    let unscaled = AttentionSpec {
        scale: Scale::One,
        ..spec(1)
    };
    // Lengths of 4 in 16 dimensions predict a deviation of 1 with a scale, and of 4 without.
    assert_eq!(stretched(unscaled, 4.0), Cause::Scale);
    assert_eq!(stretched(spec(1), 4.0), Cause::Angles);
    assert_eq!(stretched(spec(1), 40.0), Cause::Norms);
    assert_eq!(stretched(spec(1), f32::NAN), Cause::NotMeasured);
    assert!(!Cause::NotMeasured.advice().contains("ordinary"));
}

#[test]
fn a_step_of_one_row_is_no_collapse() {
    let sharp = |n: usize| {
        let rows = preferring(n, 40.0, |query| query * 5 % (query + 1));
        layer(spec(1), &[rows], 4.0)
    };
    // The first row sees one key.
    assert!(has_rows(&sharp(5).heads[0]));
    let few = sharp(4);
    assert!(!has_rows(&few.heads[0]));
    for check in ["entropy-collapse", "softmax-saturation", "entropy-uniform"] {
        assert_eq!(
            said(check, few.clone()).status,
            Status::NotApplicable,
            "{check}"
        );
    }
}
