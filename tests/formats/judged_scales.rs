//! Scales of recorded scores: what is said of them, and what follows from them.

use attnscope_checks::stats::{Stat, Values};
use attnscope_checks::{Severity, Status};
use attnscope_run::Declared;
use serde_json::{Value, json};
use testing::checkpoint_copy::Stored;
use testing::made_traces::{Random, Rows, Trace, filled, normalised, softmax};

use super::judged_recordings::{N, causal, causal_heads};

/// Positions × components of a head, as [head, position, d_head].
fn vectors(random: &mut Random, n_heads: usize, d_head: usize, size: f64) -> Vec<Rows> {
    (0..n_heads).map(|_| random.rows(N, d_head, size)).collect()
}

fn unit(heads: &[Rows]) -> Vec<Rows> {
    let of_row = |row: &Vec<f64>| {
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter().map(|x| x / norm).collect()
    };
    heads
        .iter()
        .map(|rows| rows.iter().map(of_row).collect())
        .collect()
}

/// A causal layer of four heads whose scores are `of(q·k, head, cell)`.
fn scaled(
    trace: Trace,
    layer_idx: usize,
    [q, k]: [&[Rows]; 2],
    of: &dyn Fn(f64, usize, usize) -> f64,
) -> Trace {
    let n_heads = q.len();
    let scores: Vec<Rows> = (0..n_heads)
        .map(|head_idx| {
            let row = |i: usize| {
                let cell = |j: usize| {
                    let pairs = q[head_idx][i]
                        .iter()
                        .zip(&k[head_idx * k.len() / n_heads][j]);
                    of(pairs.map(|(q, k)| q * k).sum(), head_idx, i * N + j)
                };
                (0..N).map(cell).collect()
            };
            (0..N).map(row).collect()
        })
        .collect();
    let patterns: Vec<Rows> = scores
        .iter()
        .map(|rows| normalised(rows, &causal, &softmax))
        .collect();
    let hidden: Vec<Rows> = scores
        .iter()
        .map(|rows| filled(rows, &causal, f64::NEG_INFINITY))
        .collect();
    let name = |what: &str| format!("blocks.{layer_idx}.attn.{what}");
    trace
        .layer(layer_idx, &patterns, Some(&hidden))
        .array(&name("rot_q"), testing::made_traces::stored(q))
        .array(&name("rot_k"), testing::made_traces::stored(k))
}

#[test]
fn a_scale_other_than_the_root_of_the_heads_width_is_information_and_named() {
    let (n_heads, d_head) = (3usize, 16);
    let mut random = Random::new(17);
    let q = vectors(&mut random, n_heads, d_head, 0.7);
    let k = vectors(&mut random, n_heads, d_head, 0.7);
    let of = |factor: f64| {
        let trace = scaled(Trace::default(), 0, [&q, &k], &|s, _, _| factor * s);
        scaled(trace, 1, [&q, &k], &|s, _, _| factor * s).said()
    };
    let right = of(0.25);
    assert_eq!(right.status("score-scale"), Status::Passed);
    assert_eq!(of(0.2475).status("score-scale"), Status::Passed);
    for (factor, words) in [
        (1.0, "no scale follows the product"),
        (1.0 / 16.0, "1/d_head, without the root"),
        (1.0 / 48f64.sqrt(), "1/√d_model"),
        (1.0 / 3f64.sqrt(), "1/√n_heads"),
        (4.0, "multiplied instead of divided"),
        (0.5, "the root was taken twice"),
        (0.3, "0.3000 times q·k, 1/√d_head is 0.2500 (d_head 16)"),
    ] {
        let said = of(factor);
        let finding = said.one("score-scale");
        assert_eq!(finding.severity, Severity::Info);
        assert!((finding.value / factor - 1.0).abs() < 1e-4, "{finding:?}");
        assert!(finding.evidence.contains(words), "{}", finding.evidence);
        assert!(
            finding.evidence.starts_with("all 2 layers"),
            "{}",
            finding.evidence
        );
        assert!(finding.advice.contains("scale=inv_sqrt_d"));
    }
    // The width of the residual where it is recorded, and one finding for each factor with its layers.
    let trace = scaled(Trace::default(), 0, [&q, &k], &|s, _, _| s * 0.1);
    let trace = scaled(trace, 1, [&q, &k], &|s, _, _| s * 0.25);
    let trace = scaled(trace, 2, [&q, &k], &|s, _, _| s * 0.1).array(
        "blocks.0.resid_post",
        Stored::f32(&[N, 100], &vec![0.5; N * 100]),
    );
    let said = trace.said();
    let finding = said.one("score-scale");
    assert!(
        finding.evidence.starts_with("L0, L2: "),
        "{}",
        finding.evidence
    );
    assert!(
        finding.evidence.contains("1/√d_model"),
        "{}",
        finding.evidence
    );
}

#[test]
fn a_scale_that_is_free_or_not_one_factor_is_not_told() {
    let (n_heads, d_head) = (4, 16);
    let mut random = Random::new(19);
    let q = vectors(&mut random, n_heads, d_head, 1.0);
    let k = vectors(&mut random, 2, d_head, 1.0);
    let status = |trace: Trace| {
        let said = trace.said();
        let verdict = said.of("score-scale");
        (verdict.status, verdict.why.clone())
    };
    let layer = |q: &[Rows], k: &[Rows], of: &dyn Fn(f64, usize, usize) -> f64| {
        status(scaled(Trace::default(), 0, [q, k], of))
    };
    let bias = layer(&q, &k, &|s, _, at| 0.3 * s + (at % 7) as f64);
    assert_eq!(bias.0, Status::NotApplicable, "{bias:?}");
    let cap = layer(&q, &k, &|s, _, _| 5.0 * (s / 5.0).tanh());
    assert_eq!(cap.0, Status::NotApplicable, "{cap:?}");
    let temperatures = layer(&q, &k, &|s, head_idx, _| (1.0 + head_idx as f64) * s);
    assert_eq!(temperatures.0, Status::NotApplicable, "{temperatures:?}");
    // Queries and keys of one length each.
    let (even_q, even_k) = (unit(&q), unit(&k));
    let cosine = layer(&even_q, &even_k, &|s, _, _| 10.0 * s);
    assert_eq!(cosine.0, Status::Passed);
    assert!(cosine.1.contains("normalised"), "{cosine:?}");
    // Queries that were scaled before the product.
    let before = vectors(&mut random, n_heads, d_head, 0.25);
    let before = layer(&before, &k, &|s, _, _| s);
    assert_eq!(before.0, Status::Passed);
    // Neither queries nor keys, nor what the call stated.
    let (pattern, scores) = causal_heads(23, 2, N, 1.0);
    let bare = || Trace::default().layer(0, &pattern, Some(&scores));
    assert_eq!(status(bare()).0, Status::NotApplicable);
    let calls = |call: Value| {
        let calls = json!([call]).to_string();
        bare().says("calls", &calls).said()
    };
    let called = calls(json!({"name": "blocks.0.attn", "scale": 0.125, "d_head": 16}));
    assert!(
        called
            .one("score-scale")
            .evidence
            .contains("0.1250 times q·k")
    );
    let called = calls(json!({"name": "blocks.0.attn", "scale": 0.25, "d_head": 16}));
    assert_eq!(called.status("score-scale"), Status::Passed);
    let called = calls(json!({"name": "blocks.0.attn", "scale": 0.125}));
    assert_eq!(called.status("score-scale"), Status::NotApplicable);
    // A bias comes between, and the call stated the scale.
    let calls = json!([{"name": "blocks.0.attn", "scale": 0.125}]).to_string();
    let trace = Trace::default().says("calls", &calls);
    let biased = scaled(trace, 0, [&q, &k], &|s, _, at| 0.125 * s + (at % 7) as f64).said();
    assert!(
        biased
            .one("score-scale")
            .evidence
            .contains("0.1250 times q·k")
    );
}

/// Cosines, and the variance of scores that lengths predict, of one head: by their definitions over the visible pairs.
fn by_definition(q: &Rows, k: &Rows, factor: f64) -> [f64; 3] {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let pairs = || (0..N).flat_map(|i| (0..=i).map(move |j| (i, j)));
    let n = pairs().count() as f64;
    let mean = |of: &dyn Fn(&[f64], &[f64]) -> f64| {
        pairs().map(|(i, j)| of(&q[i], &k[j])).sum::<f64>() / n
    };
    let norms = |q: &[f64], k: &[f64]| (dot(q, q) * dot(k, k)).sqrt();
    let cosine = mean(&|q, k| dot(q, k) / norms(q, k));
    let score = mean(&|q, k| factor * dot(q, k));
    let observed = mean(&|q, k| (factor * dot(q, k) - score).powi(2));
    let predicted = factor * factor * mean(&|q, k| norms(q, k).powi(2)) / q[0].len() as f64;
    [cosine, observed, predicted]
}

fn of_heads(trace: &Trace) -> Vec<Values> {
    let written = trace.written();
    let captured = attnscope_run::open_trace(&written.1).expect("opens");
    let trace = attnscope_run::read_trace(&captured, &Declared::default()).expect("reads");
    let heads = trace.layers[0].heads.iter();
    heads.map(|head| head.stats.clone()).collect()
}

#[test]
fn statistics_of_a_recording_follow_from_its_own_scale() {
    let mut random = Random::new(29);
    let q = vectors(&mut random, 2, 16, 0.7);
    // Keys that lean towards queries, so that the mean cosine is not 0.
    let k: Vec<Rows> = q
        .iter()
        .map(|rows| {
            let mut key =
                |q: &Vec<f64>| q.iter().map(|x| 0.4 * x + 0.5 * random.normal()).collect();
            rows.iter().map(&mut key).collect()
        })
        .collect();
    for factor in [0.25, 1.0, 4.0] {
        let found = of_heads(&scaled(Trace::default(), 0, [&q, &k], &|s, _, _| {
            factor * s
        }));
        for (head_idx, stats) in found.iter().enumerate() {
            let expected = by_definition(&q[head_idx], &k[head_idx], factor);
            let of = [
                Stat::QkCosine,
                Stat::ScoreVarObserved,
                Stat::ScoreVarPredicted,
            ];
            for (stat, expected) in of.into_iter().zip(expected) {
                let found = stats.of(stat);
                let is_same = (found / expected - 1.0).abs() < 1e-3;
                assert!(is_same, "{factor} {stat:?}: {found} {expected}");
            }
        }
    }
    // A bias is in the scores, and in no angle.
    let biased = scaled(Trace::default(), 0, [&q, &k], &|s, _, at| {
        0.25 * s + (at % 7) as f64
    });
    let expected = by_definition(&q[0], &k[0], 0.25)[0];
    let found = of_heads(&biased)[0].of(Stat::QkCosine);
    assert!((found - expected).abs() < 1e-4, "{found} {expected}");
}

#[test]
fn a_collapse_by_a_scale_names_the_scale() {
    let mut random = Random::new(31);
    let q = vectors(&mut random, 4, 64, 0.8);
    let k = vectors(&mut random, 4, 64, 0.8);
    let trace = |factor: f64| scaled(Trace::default(), 0, [&q, &k], &|s, _, _| factor * s).said();
    let multiplied = trace(8.0);
    for check in ["entropy-collapse", "score-explosion"] {
        let findings = &multiplied.of(check).findings;
        assert!(!findings.is_empty(), "{check}");
        for finding in findings {
            assert!(finding.advice.contains("divide by √d"), "{finding:?}");
        }
    }
    let of_scores = &multiplied.of("score-explosion").findings[0].evidence;
    assert!(of_scores.contains("with 1/√d"), "{of_scores}");
    assert!(
        trace(0.125).fired().is_empty(),
        "{:?}",
        trace(0.125).fired()
    );
}
