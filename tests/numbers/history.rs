//! Findings of histories: collapses of every shape are found where they begin, healthy trainings stay silent, and noise is taken for
//! a change no more often than is stated.

use attnscope_checks::Severity;
use attnscope_history::{Finding, History, Judge, change_of, change_point};
use testing::effort::tries;
use testing::made_logs::{Head, Made, judged, normal};

/// What a shape must lead to.
struct Shape {
    name: &'static str,
    /// The record at which the fault is beyond its threshold.
    onset: usize,
    check: &'static str,
    head: fn(usize, usize, usize, &mut Head),
    loss: fn(usize, f64) -> Option<f64>,
}

fn same(_: usize, loss: f64) -> Option<f64> {
    Some(loss)
}

fn none(_: usize, _: f64) -> Option<f64> {
    None
}

/// From 0 to 1 over some records.
fn part(nth: usize, begin: usize, end: usize) -> f64 {
    (nth.saturating_sub(begin) as f64 / (end - begin) as f64).min(1.0)
}

/// Moves a positive value to another one evenly in its logarithm.
fn towards(value: &mut f64, goal: f64, part: f64) {
    *value = (value.ln() * (1.0 - part) + goal.ln() * part).exp();
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "a whole layer at once, and the loss with it",
        onset: 30,
        check: "entropy-collapse",
        head: |nth, layer, _, head| {
            if nth >= 30 && layer == 0 {
                (head.entropy, head.scores, head.saturated) = (0.03, 90.0, 0.8);
            }
        },
        loss: |nth, loss| Some(if nth >= 30 { loss + 1.5 } else { loss }),
    },
    Shape {
        name: "one head at once, while the loss goes on as it did",
        onset: 30,
        check: "entropy-collapse",
        head: |nth, layer, head_idx, head| {
            if nth >= 30 && (layer, head_idx) == (1, 2) {
                (head.entropy, head.scores, head.saturated) = (0.03, 70.0, 0.85);
            }
        },
        loss: same,
    },
    Shape {
        name: "one head of a training that reports no loss",
        onset: 30,
        check: "entropy-collapse",
        head: |nth, layer, head_idx, head| {
            if nth >= 30 && (layer, head_idx) == (1, 2) {
                (head.entropy, head.scores, head.saturated) = (0.03, 70.0, 0.85);
            }
        },
        loss: none,
    },
    Shape {
        name: "a whole layer, slowly",
        onset: 35,
        check: "entropy-collapse",
        head: |nth, layer, _, head| {
            if layer == 0 {
                let part = part(nth, 20, 40);
                towards(&mut head.entropy, 0.02, part);
                head.scores *= (2.5 * part).exp();
                head.saturated = (part - 0.4).max(0.0) * 1.6;
            }
        },
        loss: same,
    },
    Shape {
        name: "scores that grow without end",
        onset: 36,
        check: "score-explosion",
        head: |nth, layer, head_idx, head| {
            if (layer, head_idx) == (1, 1) {
                head.scores *= (0.1 * nth.saturating_sub(15) as f64).exp();
            }
        },
        loss: same,
    },
    Shape {
        name: "rows that saturate in a whole layer",
        onset: 40,
        check: "softmax-saturation",
        head: |nth, layer, _, head| {
            if layer == 1 && nth >= 25 {
                head.saturated = 0.97 * (1.0 - (-(nth as f64 - 25.0) / 6.0).exp());
            }
        },
        loss: same,
    },
    Shape {
        name: "a layer that falls back to the first key",
        onset: 41,
        check: "attention-sink",
        head: |nth, layer, _, head| {
            if layer == 1 {
                head.first_key = 0.15 + 0.84 * part(nth, 25, 42);
                head.entropy *= 1.05 - head.first_key;
            }
        },
        loss: same,
    },
    Shape {
        name: "a loss that is no number any more",
        onset: 50,
        check: "nan-or-inf",
        head: |_, _, _, _| (),
        loss: |nth, loss| Some(if nth >= 50 { f64::NAN } else { loss }),
    },
];

fn made<'a>(shape: &'a Shape, seed: u64) -> Made<'a> {
    Made {
        seed,
        head: &shape.head,
        loss: &shape.loss,
        ..Made::default()
    }
}

fn errors(judge: &Judge) -> Vec<&Finding> {
    let findings = judge.findings().iter();
    findings
        .filter(|finding| finding.severity == Severity::Error)
        .collect()
}

#[test]
fn collapses_of_every_shape_are_errors_where_they_begin() {
    for shape in SHAPES {
        for seed in 1..=10 {
            let (_, judge) = judged(&made(shape, seed).log());
            let errors = errors(&judge);
            let first = errors.iter().find(|finding| finding.check == shape.check);
            let first = first
                .unwrap_or_else(|| panic!("{}, seed {seed}: {:#?}", shape.name, judge.findings()));
            let distance = first.begin.abs_diff(shape.onset);
            assert!(
                distance <= 2,
                "{}, seed {seed}: begins at {}, expected {}",
                shape.name,
                first.begin,
                shape.onset
            );
            assert!(first.end.is_none(), "{}", shape.name);
        }
    }
}

#[test]
fn a_slow_collapse_is_warned_of_before_it_begins() {
    for name in ["a whole layer, slowly", "scores that grow without end"] {
        let shape = SHAPES
            .iter()
            .find(|shape| shape.name == name)
            .expect("a shape");
        for seed in 1..=10 {
            let (_, judge) = judged(&made(shape, seed).log());
            let warned = judge.findings().iter().filter_map(|finding| finding.warned);
            let first = warned.map(|(at, _)| at).min().expect("a warning");
            assert!(
                first < shape.onset && first + 25 > shape.onset,
                "{name}: at {first}"
            );
            // Seen at that time, the trend says about when.
            let lines = made(shape, seed).lines();
            let log = made(shape, seed).header() + &lines[..=first].concat();
            let (_, judge) = judged(&log);
            let trend = judge.trends().first().expect("a trend");
            let onset = (10 * shape.onset) as f64;
            assert!(
                trend.crosses > 10.0 * first as f64
                    && trend.between.0 <= trend.crosses
                    && trend.crosses <= trend.between.1,
                "{trend:?}"
            );
            assert!(
                (trend.crosses - onset).abs() < 100.0,
                "{name}: {trend:?}, began at {onset}"
            );
        }
    }
}

#[test]
fn healthy_trainings_have_no_errors_and_no_trends_at_their_end() {
    type Change = (
        &'static str,
        fn(usize, usize, usize, &mut Head),
        fn(usize, f64) -> Option<f64>,
    );
    let healthy: [Change; 7] = [
        ("as it is", |_, _, _, _| (), same),
        ("without a loss", |_, _, _, _| (), none),
        (
            "with a loss that strays",
            |_, _, _, _| (),
            |nth, loss| Some(loss + 0.3 * ((nth * 7919 % 13) as f64 / 6.0 - 1.0)),
        ),
        (
            "with another learning rate from the middle on",
            |nth, _, _, head| {
                if nth > 30 {
                    head.entropy -= 0.15;
                    head.scores *= 1.6;
                }
            },
            |nth, loss| Some(if nth > 30 { loss - 0.4 } else { loss }),
        ),
        (
            "with a warm-up that sharpens far",
            |nth, _, _, head| head.entropy = 0.25 + 0.7 * (-(nth as f64) / 8.0).exp(),
            same,
        ),
        (
            "with a head that learns to look at the previous token",
            |nth, layer, head_idx, head| {
                if (layer, head_idx) == (0, 1) {
                    let part = 1.0 / (1.0 + (-(nth as f64 - 20.0) / 2.0).exp());
                    head.previous = 0.1 + 0.88 * part;
                    head.entropy *= 1.0 - 0.95 * part;
                    head.saturated = 0.95 * part;
                    head.scores += 50.0 * part;
                }
            },
            same,
        ),
        (
            "with a spike of the loss that passes",
            |_, _, _, _| (),
            |nth, loss| {
                Some(if nth == 40 || nth == 41 {
                    3.0 * loss
                } else {
                    loss
                })
            },
        ),
    ];
    for (name, head, loss) in healthy {
        for seed in 1..=10 {
            let made = Made {
                seed,
                noise: 0.02,
                head: &head,
                loss: &loss,
                ..Made::default()
            };
            let (_, judge) = judged(&made.log());
            assert_eq!(
                errors(&judge),
                Vec::<&Finding>::new(),
                "{name}, seed {seed}"
            );
            assert_eq!(judge.trends(), [], "{name}, seed {seed}");
        }
    }
}

#[test]
fn a_sharp_head_that_helps_is_no_error_although_the_log_does_not_say_where_it_looks() {
    let head = |nth: usize, layer: usize, head_idx: usize, head: &mut Head| {
        head.previous = f64::NAN;
        if (layer, head_idx) == (0, 1) {
            let part = 1.0 / (1.0 + (-(nth as f64 - 20.0) / 2.0).exp());
            head.entropy *= 1.0 - 0.95 * part;
            head.saturated = 0.4 * part;
            head.scores += 15.0 * part;
        }
    };
    let loss =
        |nth: usize, loss: f64| Some(loss - 0.5 / (1.0 + (-(nth as f64 - 20.0) / 2.0).exp()));
    let made = Made {
        head: &head,
        loss: &loss,
        ..Made::default()
    };
    let log = made.log().replace("NaN", "null");
    let (_, judge) = judged(&log);
    assert!(errors(&judge).is_empty(), "{:#?}", judge.findings());
}

#[test]
fn a_finding_ends_when_the_training_recovers_and_a_record_that_strays_is_none() {
    let head = |nth: usize, layer: usize, head_idx: usize, head: &mut Head| {
        let is_low = (30..45).contains(&nth) && layer == 0;
        let strays = nth == 20 && (layer, head_idx) == (1, 0);
        if is_low || strays {
            head.entropy = 0.03;
        }
    };
    let made = Made {
        head: &head,
        ..Made::default()
    };
    let (history, judge) = judged(&made.log());
    let of = |layer: usize| {
        let findings = judge.findings().iter();
        let of = findings.filter(move |finding| finding.place.layer_idx == Some(layer));
        of.map(|finding| (finding.check, finding.begin, finding.end))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(0), vec![("entropy-collapse", 30, Some(45)); 4]);
    assert_eq!(of(1), []);
    let text = attnscope_history::told(&history, judge.findings(), judge.trends());
    assert!(
        text.contains("begin at step 300") && text.contains("ends at step 450"),
        "{text}"
    );
}

#[test]
fn what_is_found_record_by_record_is_what_is_found_at_once() {
    for shape in SHAPES {
        let made = made(shape, 9);
        let (history, at_once) = judged(&made.log());
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("made.jsonl");
        std::fs::write(&path, made.header()).expect("writes");
        let mut reader = attnscope_history::log::LogReader::new(&path);
        let mut grown = History::new("made".to_owned(), attnscope_history::Origin::Log);
        let mut judge = Judge::new(at_once.thresholds().clone());
        for line in made.lines() {
            let mut file = std::fs::File::options()
                .append(true)
                .open(&path)
                .expect("opens");
            std::io::Write::write_all(&mut file, line.as_bytes()).expect("writes");
            grown.apply(attnscope_history::Update::Log(
                reader.poll().expect("a log"),
            ));
            judge.look(&grown);
        }
        // As text: a NaN is what it was, and equals nothing.
        let text = |history: &History, judge: &Judge| {
            let (findings, trends) = (judge.findings(), judge.trends());
            format!("{:?} {findings:?} {trends:?}", history.records())
        };
        assert_eq!(
            text(&grown, &judge),
            text(&history, &at_once),
            "{}",
            shape.name
        );
    }
}

/// Noise whose neighbours correlate, and whose tails may be heavy.
fn noise(n: usize, correlation: f64, is_heavy: bool, random: &mut fastrand::Rng) -> Vec<f64> {
    let mut value = 0.0;
    let mut draw = || {
        let normal_value = normal(random);
        // A ratio of normals is Cauchy's: it has no mean.
        let shock = if is_heavy {
            normal_value / normal(random)
        } else {
            normal_value
        };
        value = correlation * value + shock;
        value
    };
    for _ in 0..40 {
        draw();
    }
    (0..n).map(|_| draw()).collect()
}

#[test]
fn noise_is_taken_for_a_change_in_no_more_than_one_series_of_a_hundred() {
    let n_series = tries(1000, 3);
    let mut random = fastrand::Rng::with_seed(11);
    for correlation in [0.0, 0.4, 0.8] {
        for is_heavy in [false, true] {
            for n in [20, 32, 64] {
                let found = (0..n_series).filter(|_| {
                    change_point(&noise(n, correlation, is_heavy, &mut random)).is_some()
                });
                let rate = found.count() as f64 / f64::from(n_series);
                // Three standard deviations of a count whose mean is one in a hundred.
                let most = 0.01 + 3.0 * (0.01 * 0.99 / f64::from(n_series)).sqrt();
                assert!(
                    rate <= most,
                    "{correlation}, heavy {is_heavy}, {n} values: {rate}"
                );
            }
        }
    }
}

#[test]
fn a_step_beyond_the_noise_is_found_where_it_is() {
    let mut random = fastrand::Rng::with_seed(5);
    let mut n_found = 0;
    for _ in 0..100 {
        let mut values = noise(64, 0.0, false, &mut random);
        values[32..].iter_mut().for_each(|value| *value += 6.0);
        if let Some(found) = change_point(&values) {
            n_found += 1;
            assert!(found.at.abs_diff(32) <= 2, "{}", found.at);
        }
    }
    assert!(n_found >= 80, "{n_found} of 100");
    let (history, judge) = judged(
        &Made {
            n_records: 120,
            head: &|nth, layer, head_idx, head| {
                // A level that does not drift before it falls.
                head.entropy = if nth >= 80 && (layer, head_idx) == (0, 0) {
                    0.03
                } else {
                    0.7
                };
                head.saturated = if head.entropy < 0.1 { 0.9 } else { 0.0 };
            },
            ..Made::default()
        }
        .log(),
    );
    let finding = judge.findings().first().expect("a finding");
    let change = change_of(&history, finding).expect("a change");
    assert!(
        change.at.abs_diff(80) <= 1 && change.false_alarms <= 0.01,
        "{change:?}"
    );
}
