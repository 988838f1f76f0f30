//! Generated traces: every way to normalise and every mask shape, healthy and broken, and what the checks make of each.

use attnscope_checks::Severity;
use testing::made_traces::{
    Random, Rows, Sees, Trace, accused, evidence, filled, normalised, softmax, stored, whole,
};

pub(super) const N: usize = 14;
const N_HEADS: usize = 3;

pub(super) fn causal(query_idx: usize, key_idx: usize) -> bool {
    key_idx <= query_idx
}

pub(super) fn both(_: usize, _: usize) -> bool {
    true
}

/// Ways to normalise by design: name, what the finding must say (nothing for a softmax), and the way. What it takes from the head
/// is given as its number.
type Way = (&'static str, &'static str, fn(&[f64], usize) -> Vec<f64>);

fn over_sum(values: &[f64]) -> Vec<f64> {
    let sum: f64 = values.iter().sum();
    values
        .iter()
        .map(|v| if sum > 0.0 { v / sum } else { 0.0 })
        .collect()
}

/// The point of the simplex nearest to the scores, by bisection of its threshold.
fn by_threshold(scores: &[f64], of: &dyn Fn(f64) -> f64) -> Vec<f64> {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (mut low, mut high) = (most - 10.0, most);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        let mass: f64 = scores.iter().map(|s| of((s - middle).max(0.0))).sum();
        if mass > 1.0 {
            low = middle
        } else {
            high = middle
        }
    }
    scores.iter().map(|s| of((s - low).max(0.0))).collect()
}

const WAYS: &[Way] = &[
    ("softmax", "", |s, _| softmax(s)),
    ("softmax1", "1 added to the denominator", |s, _| {
        let sum: f64 = s.iter().map(|s| s.exp()).sum();
        s.iter().map(|s| s.exp() / (1.0 + sum)).collect()
    }),
    ("learned sink", "learned sink", |s, head| {
        let sum: f64 = s.iter().map(|s| s.exp()).sum();
        let sink = (0.7 + head as f64).exp();
        s.iter().map(|s| s.exp() / (sink + sum)).collect()
    }),
    ("sigmoid", "sigmoid", |s, head| {
        let bias = -(N as f64).ln() + 0.1 * head as f64;
        s.iter()
            .map(|s| 1.0 / (1.0 + (-(s + bias)).exp()))
            .collect()
    }),
    ("relu", "ReLU", |s, _| {
        s.iter().map(|s| s.max(0.0)).collect()
    }),
    ("relu by n", "ReLU", |s, _| {
        s.iter().map(|s| s.max(0.0) / N as f64).collect()
    }),
    ("relu by visible", "ReLU", |s, _| {
        s.iter().map(|v| v.max(0.0) / s.len() as f64).collect()
    }),
    ("relu squared", "squared ReLU", |s, _| {
        s.iter().map(|s| s.max(0.0).powi(2)).collect()
    }),
    ("relu squared by n", "squared ReLU", |s, _| {
        s.iter().map(|s| s.max(0.0).powi(2) / N as f64).collect()
    }),
    ("sparsemax", "sparsemax", |s, _| by_threshold(s, &|x| x)),
    ("entmax", "α = 1.5", |s, _| {
        let halves: Vec<f64> = s.iter().map(|s| 0.5 * s).collect();
        by_threshold(&halves, &|x| x * x)
    }),
];

pub(super) fn heads(seed: u64, n_queries: usize, n_keys: usize) -> Vec<Rows> {
    let mut random = Random::new(seed);
    (0..N_HEADS)
        .map(|_| random.rows(n_queries, n_keys, 1.3))
        .collect()
}

pub(super) fn patterns(
    scores: &[Rows],
    sees: Sees<'_>,
    way: fn(&[f64], usize) -> Vec<f64>,
) -> Vec<Rows> {
    let heads = scores.iter().enumerate();
    heads
        .map(|(head_idx, rows)| normalised(rows, sees, &|s| way(s, head_idx)))
        .collect()
}

/// Whether a query sees a key, by their indices alone.
type Shape = fn(usize, usize) -> bool;

/// Mask shapes by design: name, and who sees what.
const SHAPES: &[(&str, Shape)] = &[
    ("causal", causal),
    ("both", both),
    ("window", |i, j| j <= i && i - j < 4),
    ("around", |i, j| i.abs_diff(j) <= 3),
    ("prefix", |i, j| j <= i || j < 5),
    ("documents", |i, j| j <= i && (i < 6) == (j < 6)),
    ("blocks", |i, j| (i < 6) == (j < 6)),
    ("left padding", |i, j| {
        (3..=i).contains(&j) || (i < 3 && j == i)
    }),
    ("right padding", |_, j| j < N - 3),
];

#[test]
fn what_people_normalise_with_on_purpose_is_named_and_not_accused_under_any_mask() {
    for (idx, (way, named, compute)) in WAYS.iter().enumerate() {
        for (shape, sees) in SHAPES {
            let scores = heads(idx as u64 + 1, N, N);
            let pattern = patterns(&scores, sees, *compute);
            for hidden in [f64::NEG_INFINITY, -1e9, f64::from(f32::MIN), -65504.0] {
                let masked: Vec<Rows> = scores
                    .iter()
                    .map(|rows| filled(rows, sees, hidden))
                    .collect();
                let said = Trace::default().layer(0, &pattern, Some(&masked)).said();
                let what = format!("{way}, {shape}, {hidden:e}");
                assert_eq!(
                    accused(&said),
                    [""; 0],
                    "{what}: {:#?}",
                    said.findings().collect::<Vec<_>>()
                );
                let found = evidence(&said, "normaliser");
                assert_eq!(found.is_empty(), named.is_empty(), "{what}: {found}");
                assert!(found.contains(named), "{what}: {found}");
            }
            // Scores that were captured before their mask.
            let said = Trace::default().layer(0, &pattern, Some(&scores)).said();
            let is_plain = ["causal", "both"].contains(shape);
            if is_plain || (way.contains("soft") && !shape.contains("padding")) {
                assert_eq!(accused(&said), [""; 0], "{way}, {shape}, bare");
                assert!(
                    evidence(&said, "normaliser").contains(named),
                    "{way}, {shape}, bare"
                );
            }
            let said = Trace::default().layer(0, &pattern, None).said();
            assert!(
                said.errors().is_empty(),
                "{way}, {shape}, no scores: {:#?}",
                said.findings().collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn linear_sinkhorn_and_differential_attention_are_information() {
    let mut random = Random::new(3);
    // Linear: features of queries and keys, by their products or by the vectors themselves.
    let elu = |x: &f64| if *x > 0.0 { x + 1.0 } else { x.exp() };
    let d = 5;
    let (mut products, mut linear, mut q, mut k) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..N_HEADS {
        let (of_q, of_k) = (random.rows(N, d, 1.0), random.rows(N, d, 1.0));
        let product = |a: &Vec<f64>, b: &Vec<f64>| -> f64 {
            a.iter().zip(b).map(|(a, b)| elu(a) * elu(b)).sum()
        };
        let scores: Rows = of_q
            .iter()
            .map(|a| of_k.iter().map(|b| product(a, b)).collect())
            .collect();
        linear.push(normalised(&scores, &causal, &over_sum));
        products.push(scores);
        q.push(of_q);
        k.push(of_k);
    }
    let said = Trace::default().layer(0, &linear, Some(&products)).said();
    assert_eq!(accused(&said), [""; 0]);
    assert!(evidence(&said, "normaliser").contains("scores divided by their sum"));
    let bare: Vec<Rows> = products
        .iter()
        .map(|rows| normalised(rows, &causal, &<[f64]>::to_vec))
        .collect();
    let said = Trace::default().layer(0, &bare, Some(&products)).said();
    assert_eq!(accused(&said), [""; 0]);
    assert!(evidence(&said, "normaliser").contains("not divided"));
    let dots = |a: &Vec<f64>, b: &Vec<f64>| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let scores: Vec<Rows> = q
        .iter()
        .zip(&k)
        .map(|(q, k)| {
            q.iter()
                .map(|a| k.iter().map(|b| dots(a, b)).collect())
                .collect()
        })
        .collect();
    let said = Trace::default()
        .layer(0, &linear, Some(&scores))
        .array("blocks.0.attn.q", stored(&q))
        .array("blocks.0.attn.k", stored(&k))
        .said();
    assert_eq!(
        accused(&said),
        [""; 0],
        "{:#?}",
        said.findings().collect::<Vec<_>>()
    );
    assert!(evidence(&said, "normaliser").contains("elu"));

    // Features so alike that scores hardly differ within a row, recorded as they weigh the values.
    let alike = |row: &Vec<f64>| row.iter().map(|s| 20.0 + 0.1 * s).collect();
    let even: Vec<Rows> = products
        .iter()
        .map(|rows| {
            normalised(
                &rows.iter().map(alike).collect::<Rows>(),
                &causal,
                &over_sum,
            )
        })
        .collect();
    let said = Trace::default().layer(0, &even, Some(&even)).said();
    assert_eq!(accused(&said), [""; 0]);
    assert!(evidence(&said, "normaliser").contains("scores divided by their sum"));

    // Dot products over the number of keys, which are a softmax forgotten with any other factor.
    let over = |by: f64| {
        let shared = |row: &Vec<f64>| row.iter().map(|s| s / by).collect();
        let weights: Vec<Rows> = scores
            .iter()
            .map(|rows| rows.iter().map(shared).collect())
            .collect();
        Trace::default()
            .layer(0, &weights, Some(&weights))
            .array("blocks.0.attn.q", stored(&q))
            .array("blocks.0.attn.k", stored(&k))
            .said()
    };
    for by in [N as f64, N as f64 * (d as f64).sqrt()] {
        let said = over(by);
        assert_eq!(accused(&said), [""; 0], "{by}");
        assert!(evidence(&said, "normaliser").contains("number of keys"));
    }
    assert!(!over((d as f64).sqrt()).errors().is_empty());

    // Sinkhorn: rows and columns in turn.
    let scores = heads(5, N, N);
    let balanced = |rows: &Rows| {
        let mut p: Rows = rows
            .iter()
            .map(|row| row.iter().map(|s| s.exp()).collect())
            .collect();
        for _ in 0..30 {
            for j in 0..N {
                let sum: f64 = p.iter().map(|row| row[j]).sum();
                p.iter_mut().for_each(|row| row[j] /= sum);
            }
            p.iter_mut().for_each(|row| *row = over_sum(row));
        }
        p
    };
    let pattern: Vec<Rows> = scores.iter().map(balanced).collect();
    for scores in [Some(scores.as_slice()), None] {
        let said = Trace::default().layer(0, &pattern, scores).said();
        assert_eq!(
            accused(&said),
            [""; 0],
            "{:#?}",
            said.findings().collect::<Vec<_>>()
        );
        assert!(
            evidence(&said, "normaliser").contains("Sinkhorn"),
            "{}",
            scores.is_some()
        );
    }

    // Differential: with the scores of one of its softmaxes, or with none.
    for sees in [causal as fn(usize, usize) -> bool, both] {
        let (one, two) = (heads(7, N, N), heads(8, N, N));
        let minus = |a: &Rows, b: &Rows| -> Rows {
            let (a, b) = (
                normalised(a, &sees, &softmax),
                normalised(b, &sees, &softmax),
            );
            let row = |(a, b): (&Vec<f64>, &Vec<f64>)| {
                a.iter().zip(b).map(|(a, b)| a - 0.35 * b).collect()
            };
            a.iter().zip(&b).map(row).collect()
        };
        let pattern: Vec<Rows> = one.iter().zip(&two).map(|(a, b)| minus(a, b)).collect();
        for scores in [Some(one.as_slice()), None] {
            let said = Trace::default().layer(0, &pattern, scores).said();
            assert_eq!(
                accused(&said),
                [""; 0],
                "{:#?}",
                said.findings().collect::<Vec<_>>()
            );
            assert!(evidence(&said, "normaliser").contains("0.350"));
        }
    }
}

/// Scores of a few heads, and what a fault makes of them.
type Fault = (
    &'static str,
    &'static [&'static str],
    &'static str,
    fn(&Rows, Sees<'_>) -> Rows,
);

const FAULTS: &[Fault] = &[
    (
        "twice",
        &["pattern-mismatch"],
        "applied twice",
        |s, sees| normalised(s, sees, &|row| softmax(&softmax(row))),
    ),
    (
        "temperature",
        &["pattern-mismatch"],
        "times 0.3536",
        |s, sees| {
            normalised(s, sees, &|row| {
                softmax(&row.iter().map(|s| s / 8f64.sqrt()).collect::<Vec<_>>())
            })
        },
    ),
    (
        "hidden afterwards",
        &["pattern-mismatch", "row-sum"],
        "set to 0 afterwards",
        |s, sees| {
            let all = normalised(s, &both, &softmax);
            normalised(&all, sees, &<[f64]>::to_vec)
        },
    ),
    (
        "scaled",
        &["pattern-mismatch", "row-sum"],
        "times 1.2500 in every row",
        |s, sees| {
            normalised(s, sees, &|row| {
                softmax(row).iter().map(|p| 1.25 * p).collect()
            })
        },
    ),
    (
        "other sums",
        &["pattern-mismatch", "row-sum"],
        "a factor of its own",
        |s, sees| {
            let all = normalised(s, &|_, j| j < 9, &softmax);
            let once = normalised(s, sees, &softmax);
            let factor = |i: usize| 0.4 + 0.07 * i as f64 + all[i][0];
            once.iter()
                .enumerate()
                .map(|(i, row)| row.iter().map(|p| p * factor(i)).collect())
                .collect()
        },
    ),
    (
        "no sum",
        &["pattern-mismatch", "row-sum"],
        "exp(score)",
        |s, sees| normalised(s, sees, &|row| row.iter().map(|s| s.exp()).collect()),
    ),
    (
        "no softmax",
        &["pattern-mismatch", "row-sum"],
        "the softmax is missing",
        |s, sees| normalised(s, sees, &<[f64]>::to_vec),
    ),
];

#[test]
fn faults_between_scores_and_pattern_are_named() {
    for (name, checks, said_so, fault) in FAULTS {
        for (shape, sees) in [
            ("causal", causal as fn(usize, usize) -> bool),
            ("both", both),
        ] {
            if *name == "hidden afterwards" && shape == "both" {
                continue;
            }
            let scores = heads(11, N, N);
            let pattern: Vec<Rows> = scores.iter().map(|rows| fault(rows, &sees)).collect();
            let said = Trace::default().layer(0, &pattern, Some(&scores)).said();
            let errors: Vec<&str> = said.errors();
            assert_eq!(
                errors,
                *checks,
                "{name}, {shape}: {:#?}",
                said.findings().collect::<Vec<_>>()
            );
            for check in *checks {
                let found = evidence(&said, check);
                assert!(found.contains(said_so), "{name}, {shape}, {check}: {found}");
            }
            assert!(evidence(&said, "normaliser").is_empty(), "{name}, {shape}");
        }
    }
}

#[test]
fn one_nan_is_the_only_finding_and_a_row_without_keys_is_none() {
    let scores = heads(13, N, N);
    let pattern = patterns(&scores, &causal, |s, _| softmax(s));
    let masked: Vec<Rows> = scores
        .iter()
        .map(|rows| filled(rows, &causal, f64::NEG_INFINITY))
        .collect();
    let (mut broken, mut of_nan) = (masked.clone(), pattern.clone());
    broken[1][6][2] = f64::NAN;
    of_nan[1][6].fill(f64::NAN);
    for (name, mask) in [("declared", Some("causal")), ("inferred", None)] {
        let mut trace = Trace::default().layer(0, &of_nan, Some(&broken));
        if let Some(mask) = mask {
            trace = trace.says("mask", mask);
        }
        assert_eq!(accused(&trace.said()), ["nan-or-inf"], "{name}");
    }
    let said = Trace::default().layer(0, &of_nan, None).said();
    assert_eq!(accused(&said), ["nan-or-inf"], "no scores");
    // Left padding that is declared: the rows of padding hold zeros, one number, or NaN.
    let sees = |i: usize, j: usize| (3..=i).contains(&j);
    for fill in [0.0, 1.0 / N as f64, f64::NAN] {
        let mut pattern = patterns(&scores, &sees, |s, _| softmax(s));
        pattern
            .iter_mut()
            .for_each(|head| head[..3].iter_mut().for_each(|row| row.fill(fill)));
        for hidden in [f64::NEG_INFINITY, f64::from(f32::MIN), -1e9] {
            let masked: Vec<Rows> = scores
                .iter()
                .map(|rows| filled(rows, &sees, hidden))
                .collect();
            let real: Vec<i64> = (0..N).map(|idx| i64::from(idx >= 3)).collect();
            let bare = || Trace::default().layer(0, &pattern, Some(&masked));
            let stated = bare().array("attention_mask", whole(&[N], &real));
            for (name, trace) in [("found", bare()), ("stated", stated)] {
                let said = trace.said();
                assert_eq!(
                    accused(&said),
                    [""; 0],
                    "{name} {fill} {hidden:e}: {:#?}",
                    said.findings().collect::<Vec<_>>()
                );
                let about = trace.about();
                assert!(
                    about.contains("causal inferred: 3 of 3"),
                    "{name} {fill}: {about}"
                );
            }
        }
    }
}

#[test]
fn a_pattern_alone_shows_some_faults_and_leaves_others_open() {
    let scores = heads(61, N, N);
    let (all, once) = (softmaxes(&scores, &both), softmaxes(&scores, &causal));
    let masked: Vec<Rows> = all
        .iter()
        .map(|rows| normalised(rows, &causal, &<[f64]>::to_vec))
        .collect();
    let said = Trace::default().layer(0, &masked, None).said();
    assert_eq!(said.errors(), ["row-sum"]);
    assert!(evidence(&said, "row-sum").contains("set to 0 afterwards"));
    let scaled: Vec<Rows> = once
        .iter()
        .map(|rows| normalised(rows, &causal, &|row| row.iter().map(|p| 2.0 * p).collect()))
        .collect();
    let said = Trace::default().layer(0, &scaled, None).said();
    assert_eq!(said.errors(), ["row-sum"]);
    assert!(evidence(&said, "row-sum").contains("times 2.0000"));
    let dropped: Vec<Rows> = once
        .iter()
        .map(|rows| {
            normalised(rows, &causal, &|row| {
                let kept = |p: &f64| if random_below(row, *p) { 0.0 } else { p / 0.8 };
                row.iter().map(kept).collect()
            })
        })
        .collect();
    let said = Trace::default().layer(0, &dropped, None).said();
    let warned = said.of("row-sum").findings.iter();
    assert!(
        warned.clone().all(|f| f.severity == Severity::Warning) && warned.count() == 1,
        "{:?}",
        said.of("row-sum")
    );
}

/// Whether a cell is dropped: by its own digits, so that a trace is always the same.
fn random_below(row: &[f64], p: f64) -> bool {
    let digits = (p * 1e9) as u64 ^ row.len() as u64;
    Random::new(digits).uniform() < 0.2
}

fn softmaxes(scores: &[Rows], sees: Sees<'_>) -> Vec<Rows> {
    patterns(scores, sees, |s, _| softmax(s))
}
