//! Generated traces whose hidden keys get a share, and patterns that are made of two softmaxes.

use testing::made_traces::{Rows, Trace, accused, evidence, filled, normalised, softmax};

use super::judged_traces::{N, both, causal, heads, patterns};

#[test]
fn a_second_softmax_gives_hidden_keys_a_share_and_is_named() {
    let scores = heads(11, N, N);
    let hidden: Vec<Rows> = scores
        .iter()
        .map(|rows| filled(rows, &causal, f64::NEG_INFINITY))
        .collect();
    let twice = |rows: &Rows| -> Rows {
        let once = normalised(rows, &causal, &softmax);
        once.iter().map(|row| softmax(row)).collect()
    };
    let pattern: Vec<Rows> = scores.iter().map(twice).collect();
    let trace = Trace::default().layer(0, &pattern, Some(&hidden));
    let said = trace.says("mask", "causal").said();
    assert!(evidence(&said, "pattern-mismatch").contains("applied twice"));
    let advised = |finding: &&attnscope_checks::Finding| finding.advice.contains("second softmax");
    let leak = said.findings().find(|finding| finding.check == "mask-mass");
    assert!(leak.filter(advised).is_some(), "{leak:?}");
}

#[test]
fn a_number_near_0_that_a_mask_writes_to_scores_is_named() {
    for (written, words) in [(1e-9, "1e-9"), (0.0, "0e0")] {
        let scores: Vec<Rows> = heads(11, N, N)
            .iter()
            .map(|rows| filled(rows, &causal, written))
            .collect();
        let pattern = patterns(&scores, &both, |s, _| softmax(s));
        let trace = Trace::default().layer(0, &pattern, Some(&scores));
        let said = trace.says("mask", "causal").said();
        let found = evidence(&said, "mask-mass");
        assert!(
            found.contains(&format!("writes {words} to every hidden score")),
            "{found}"
        );
    }
    // A layer without a mask writes nothing.
    let scores = heads(11, N, N);
    let pattern = patterns(&scores, &both, |s, _| softmax(s));
    let trace = Trace::default().layer(0, &pattern, Some(&scores));
    let said = trace.says("mask", "causal").said();
    assert!(!evidence(&said, "mask-mass").contains("writes"));
}

#[test]
fn a_second_softmax_of_any_weight_is_information() {
    for weight in [-240.0, -0.5, 3.0] {
        let (one, two) = (heads(7, N, N), heads(8, N, N));
        let of_both = |(a, b): (&Rows, &Rows)| -> Rows {
            let (a, b) = (
                normalised(a, &causal, &softmax),
                normalised(b, &causal, &softmax),
            );
            let row = |(a, b): (&Vec<f64>, &Vec<f64>)| {
                a.iter().zip(b).map(|(a, b)| a - weight * b).collect()
            };
            a.iter().zip(&b).map(row).collect()
        };
        let pattern: Vec<Rows> = one.iter().zip(&two).map(of_both).collect();
        for scores in [&one, &two] {
            let said = Trace::default().layer(0, &pattern, Some(scores)).said();
            assert_eq!(accused(&said), [""; 0], "{weight}");
            assert!(evidence(&said, "normaliser").contains("differential"));
        }
    }
}

#[test]
fn products_that_a_mask_multiplies_need_no_softmax() {
    let decay = |rows: &Rows| -> Rows {
        let cell = |i: usize, (j, s): (usize, &f64)| {
            if causal(i, j) {
                s * 0.9f64.powi((i - j) as i32)
            } else {
                0.0
            }
        };
        let rows = rows.iter().enumerate();
        rows.map(|(i, row)| row.iter().enumerate().map(|one| cell(i, one)).collect())
            .collect()
    };
    let pattern: Vec<Rows> = heads(7, N, N).iter().map(decay).collect();
    let said = Trace::default().layer(0, &pattern, Some(&pattern)).said();
    assert_eq!(accused(&said), [""; 0]);
    assert!(evidence(&said, "normaliser").contains("retention"));
}
