//! A softmax against the scale of its scores: figures against closed forms, NumPy and whole matrices; rows drawn as asked.

use attnscope_compute::kernels::softmax_row::{SoftmaxRow, softmax_in_place, spectral_norm};
use attnscope_compute::sample::Family;
use attnscope_run::{Sweep, SweepPoint, round_scales, sweep_scales};
use attnscope_studies::lab::{Drawn, Wanted, sweep_drawn};

const LOGITS: [f64; 4] = [1.0, 0.8, 0.3, -0.2];

fn is_near(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!(
        (found - expected).abs() <= tolerance,
        "{what}: expected {expected:e}, found {found:e}"
    );
}

fn row(logits: &[f64], scale: f64) -> SoftmaxRow {
    SoftmaxRow::of(logits, scale).expect("a softmax")
}

/// Scale, largest probability, entropy, trace, Frobenius and spectral norm of diag(p) − ppᵀ, by NumPy (`linalg.norm(J, 2)`).
const BY_NUMPY: [[f64; 6]; 5] = [
    [
        0.1,
        0.263_191_629_675_138_37,
        1.385_221_965_550_483,
        0.749_466_559_281_859_9,
        0.433_017_287_083_667_16,
        0.260_873_355_335_037_64,
    ],
    [
        1.0,
        0.382_188_448_457_976_34,
        1.295_411_313_682_719_4,
        0.706_748_755_838_757,
        0.435_428_574_900_708_13,
        0.347_036_110_829_945_07,
    ],
    [
        5.0,
        0.714_002_369_192_604_7,
        0.685_618_312_159_815_6,
        0.420_738_763_687_142_1,
        0.388_000_052_143_557_87,
        0.386_695_136_411_943_7,
    ],
    [
        10.0,
        0.880_085_445_485_102_1,
        0.371_632_132_659_226_95,
        0.211_262_579_285_973_47,
        0.210_056_424_470_744_96,
        0.210_052_982_990_866_72,
    ],
    [
        50.0,
        0.999_954_602_131_296_9,
        0.000_499_377_586_263_897_4,
        9.079_161_547_313_007e-5,
        9.079_161_547_220_141e-5,
        9.079_161_547_220_14e-5,
    ],
];

#[test]
fn the_scores_of_the_write_up_give_its_figures_and_numpys() {
    for [scale, largest, entropy, trace, frobenius, spectral] in BY_NUMPY {
        let found = row(&LOGITS, scale);
        is_near(found.max_probability, largest, 1e-12, "largest");
        is_near(found.entropy, entropy, 1e-12, "entropy");
        is_near(found.perplexity(), entropy.exp(), 1e-12, "perplexity");
        is_near(found.jacobian_trace, trace, 1e-12, "trace");
        is_near(found.jacobian_frobenius, frobenius, 1e-12, "Frobenius");
        let mut p = LOGITS;
        softmax_in_place(&mut p, scale);
        is_near(spectral_norm(&p), spectral, 1e-12, "spectral");
    }
    assert_eq!(format!("{:.3}", row(&LOGITS, 5.0).max_probability), "0.714");
    assert_eq!(
        format!("{:.3}", row(&LOGITS, 10.0).max_probability),
        "0.880"
    );
}

#[test]
fn two_keys_have_the_closed_form_of_the_logistic_function() {
    for (gap, scale) in [(0.0, 1.0), (0.3, 2.0), (1.5, 7.0), (2.0, 40.0)] {
        let found = row(&[5.0, 5.0 - gap], scale);
        let small = 1.0 / (1.0 + (gap * scale).exp());
        let large = 1.0 / (1.0 + (-gap * scale).exp());
        is_near(found.max_probability, large, 1e-15, "largest");
        // 1 − Σp² = 2·p·(1 − p), every digit of it where p is almost 1; J is p(1 − p)·[[1, −1], [−1, 1]].
        let exact = 2.0 * small * large;
        is_near(found.jacobian_trace, exact, 1e-13 * exact, "trace");
        is_near(found.jacobian_frobenius, exact, 1e-13 * exact, "Frobenius");
        is_near(spectral_norm(&[large, small]), exact, 1e-13, "spectral");
        let entropy = -small * small.ln() + large * (-gap * scale).exp().ln_1p();
        is_near(found.entropy, entropy, 1e-13 * entropy, "entropy");
    }
}

/// Rows of scores that are not special in any way.
fn rows(n: usize, n_keys: usize, size: f64) -> Vec<Vec<f64>> {
    let mut random = fastrand::Rng::with_seed(11);
    let mut row = || (0..n_keys).map(|_| size * (random.f64() - 0.5)).collect();
    (0..n).map(|_| row()).collect()
}

#[test]
fn the_jacobian_is_diag_p_less_ppt_and_its_largest_eigenvalue_at_most_a_half() {
    for (n_keys, n_rows) in [(2, 20), (3, 20), (7, 20), (40, 3)] {
        for scores in rows(n_rows, n_keys, 12.0) {
            let mut p = scores.clone();
            softmax_in_place(&mut p, 1.0);
            let jacobian: Vec<Vec<f64>> = (0..n_keys)
                .map(|i| {
                    let off = (0..n_keys).map(|j| -p[i] * p[j]);
                    let mut row: Vec<f64> = off.collect();
                    row[i] += p[i];
                    row
                })
                .collect();
            for row in &jacobian {
                is_near(row.iter().sum(), 0.0, 1e-15, "a row sums to 0");
            }
            let found = row(&scores, 1.0);
            let trace: f64 = (0..n_keys).map(|i| jacobian[i][i]).sum();
            is_near(found.jacobian_trace, trace, 1e-14, "trace");
            let squares: f64 = p.iter().map(|p| p * p).sum();
            is_near(found.jacobian_trace, 1.0 - squares, 1e-14, "1 − Σp²");
            let cells = jacobian.iter().flatten();
            let frobenius = cells.map(|v| v * v).sum::<f64>().sqrt();
            is_near(found.jacobian_frobenius, frobenius, 1e-14, "Frobenius");
            // The largest column of a high power of J is its first eigenvector: J is symmetric and has no negative eigenvalue.
            let mut power = jacobian.clone();
            for _ in 0..20 {
                let largest = power.iter().flatten().fold(0.0, |a: f64, b| a.max(b.abs()));
                let times = |i: usize, j: usize| -> f64 {
                    (0..n_keys).map(|k| power[i][k] * power[k][j]).sum()
                };
                let square = |i: usize| (0..n_keys).map(move |j| times(i, j) / (largest * largest));
                power = (0..n_keys).map(|i| square(i).collect()).collect();
            }
            let norm = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
            let columns = power.iter().max_by(|a, b| norm(a).total_cmp(&norm(b)));
            let v = columns.expect("a column");
            let image: Vec<f64> = jacobian
                .iter()
                .map(|row| row.iter().zip(v).map(|(a, b)| a * b).sum())
                .collect();
            let eigenvalue = norm(&image) / norm(v);
            let spectral = spectral_norm(&p);
            is_near(spectral, eigenvalue, 1e-9, "spectral");
            // For two keys all three are the same number.
            let slack = 1.0 + 1e-12;
            assert!(spectral <= 0.5 && spectral <= slack * frobenius && frobenius <= slack * trace);
        }
    }
    is_near(
        spectral_norm(&[0.5, 0.5, 0.0]),
        0.5,
        1e-15,
        "two equal keys",
    );
    is_near(spectral_norm(&[0.2; 5]), 0.2, 1e-15, "uniform");
    is_near(spectral_norm(&[1.0, 0.0]), 0.0, 1e-15, "one key");
}

#[test]
fn the_jacobian_is_what_small_changes_of_the_scores_do() {
    let scores = [0.7, -0.4, 1.9, 0.2];
    let of = |scores: &[f64]| {
        let mut p = scores.to_vec();
        softmax_in_place(&mut p, 1.0);
        p
    };
    let (mut trace, mut squares) = (0.0, 0.0);
    for j in 0..scores.len() {
        let (mut up, mut down) = (scores, scores);
        up[j] += 1e-5;
        down[j] -= 1e-5;
        for (i, (up, down)) in of(&up).into_iter().zip(of(&down)).enumerate() {
            let slope = (up - down) / 2e-5;
            squares += slope * slope;
            trace += if i == j { slope } else { 0.0 };
        }
    }
    let found = row(&scores, 1.0);
    is_near(found.jacobian_trace, trace, 1e-9, "trace");
    is_near(found.jacobian_frobenius, squares.sqrt(), 1e-9, "Frobenius");
}

#[test]
fn entropy_goes_from_log_n_to_0_and_never_back() {
    let scales = sweep_scales(1e-9, 1e9, 200, &[]).expect("scales");
    let mut sweep = Sweep::new(&scales);
    sweep.add_row(&LOGITS);
    let points = sweep.points();
    let (first, last) = (points[0], points[points.len() - 1]);
    is_near(first.entropy.mean, 4f64.ln(), 1e-12, "uniform");
    is_near(first.relative_entropy.mean, 1.0, 1e-12, "uniform");
    is_near(first.perplexity.mean, 4.0, 1e-12, "uniform");
    is_near(first.jacobian_trace.mean, 0.75, 1e-9, "uniform");
    assert_eq!((last.entropy.mean, last.max_probability.mean), (0.0, 1.0));
    assert_eq!((last.perplexity.mean, last.jacobian_trace.mean), (1.0, 0.0));
    for pair in points.windows(2) {
        assert!(pair[1].entropy.mean <= pair[0].entropy.mean + 1e-15);
        assert!(pair[1].max_probability.mean >= pair[0].max_probability.mean - 1e-15);
    }
}

#[test]
fn masked_keys_are_not_there_and_rows_that_cannot_count_are_counted_apart() {
    let scales = [0.5, 1.0, 3.0];
    let mut masked = Sweep::new(&scales);
    masked.add_row(&[1.0, f64::NEG_INFINITY, 0.8, 0.3, f64::NEG_INFINITY, -0.2]);
    let mut plain = Sweep::new(&scales);
    plain.add_row(&LOGITS);
    assert_eq!(masked, plain);
    for row in [&[2.0f64][..], &[], &[f64::NEG_INFINITY; 3]] {
        plain.add_row(row);
    }
    plain.add_row(&[1.0, f64::NAN]);
    plain.add_row(&[1.0, f64::INFINITY, 0.0]);
    assert_eq!(
        (plain.n_rows(), plain.n_single(), plain.n_not_finite()),
        (1, 3, 2)
    );
    assert_eq!(masked.points(), plain.points());
    let nothing = Sweep::new(&scales).points();
    assert!(nothing.iter().all(|point| point.entropy.mean.is_nan()));
}

#[test]
fn rows_are_averaged_whatever_way_they_come_and_on_any_number_of_threads() {
    let n_keys = 9;
    let rows = rows(203, n_keys, 6.0);
    let scales = [0.25, 1.0, 4.0];
    let cells: Vec<f32> = rows.iter().flatten().map(|s| *s as f32).collect();
    let all = |n_threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .build();
        pool.expect("threads").install(|| {
            let mut sweep = Sweep::new(&scales);
            sweep.add_rows(&cells, n_keys);
            sweep
        })
    };
    let sweep = all(1);
    assert_eq!(sweep, all(3));
    assert_eq!(sweep.n_rows(), 203);
    let mut one_by_one = Sweep::new(&scales);
    let mut parts = [Sweep::new(&scales), Sweep::new(&scales)];
    for (nth, row) in cells.chunks(n_keys).enumerate() {
        one_by_one.add_row(row);
        parts[nth % 2].add_row(row);
    }
    let [mut joined, other] = parts;
    joined.join(&other);
    for (idx, scale) in scales.iter().enumerate() {
        // In two passes over rows computed with the standard library.
        let largest = cells.chunks(n_keys).map(|row| {
            let e: Vec<f64> = row.iter().map(|s| (f64::from(*s) * scale).exp()).collect();
            e.iter().copied().fold(0.0, f64::max) / e.iter().sum::<f64>()
        });
        let largest: Vec<f64> = largest.collect();
        let mean = largest.iter().sum::<f64>() / 203.0;
        let variance = largest.iter().map(|p| (p - mean) * (p - mean)).sum::<f64>() / 203.0;
        for (sweep, way) in [
            (&sweep, "blocks"),
            (&one_by_one, "rows"),
            (&joined, "parts"),
        ] {
            let SweepPoint {
                max_probability, ..
            } = sweep.points()[idx];
            is_near(max_probability.mean, mean, 1e-13, way);
            is_near(max_probability.std, variance.sqrt(), 1e-12, way);
        }
    }
}

#[test]
fn scales_hold_their_ends_round_numbers_and_marks_once() {
    let scales = sweep_scales(0.1, 50.0, 61, &[0.25, 1.0]).expect("scales");
    assert_eq!((scales[0], scales[scales.len() - 1]), (0.1, 50.0));
    assert!(
        scales
            .windows(2)
            .all(|pair| pair[1] > pair[0] * (1.0 + 1e-9))
    );
    for round in [0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0] {
        assert_eq!(scales.iter().filter(|s| **s == round).count(), 1, "{round}");
    }
    assert_eq!(scales.len(), 61 + 7 + 1);
    assert_eq!(round_scales(0.2, 4.9), [0.2, 0.5, 1.0, 2.0]);
    // A step that falls on a round number up to rounding does not stand beside it.
    assert_eq!(sweep_scales(0.1, 10.0, 3, &[]).expect("scales").len(), 7);
}

#[test]
fn drawn_rows_have_the_norm_the_mean_and_the_deviation_that_were_asked_for() {
    let (norm, mean, std) = (100.0, 20.0, 10.0);
    for family in Family::ALL {
        // 100² = n·(20² + 10²): 20 keys.
        let wanted = Wanted {
            norm: Some(norm),
            mean: Some(mean),
            std: Some(std),
            n_keys: None,
        };
        let drawn = Drawn::of(wanted, family).expect("fits");
        assert_eq!((drawn.n_keys, drawn.asked_norm), (20, None));
        for idx in 0..50 {
            let row = drawn.row(3, idx);
            assert_eq!(row.len(), 20);
            let found_mean = row.iter().sum::<f64>() / 20.0;
            let squares = row.iter().map(|s| s * s).sum::<f64>();
            is_near(found_mean, mean, 1e-12 * norm, family.id());
            is_near(squares.sqrt(), norm, 1e-12 * norm, family.id());
            is_near(
                (squares / 20.0 - mean * mean).sqrt(),
                std,
                1e-11 * norm,
                family.id(),
            );
        }
        assert_ne!(drawn.row(3, 0), drawn.row(3, 1));
        assert_ne!(drawn.row(3, 0), drawn.row(4, 0));
    }
}

#[test]
fn what_is_not_asked_for_follows_from_the_rest() {
    let drawn = |norm, mean, std, n_keys| {
        let wanted = Wanted {
            norm,
            mean,
            std,
            n_keys,
        };
        Drawn::of(wanted, Family::Normal)
    };
    let of = |norm, mean, std, n_keys| {
        let drawn = drawn(norm, mean, std, n_keys).expect("fits");
        [drawn.norm, drawn.mean, drawn.std, drawn.n_keys as f64]
    };
    assert_eq!(of(None, None, None, None), [32f64.sqrt(), 0.0, 1.0, 32.0]);
    assert_eq!(
        of(None, Some(3.0), Some(4.0), Some(4)),
        [10.0, 3.0, 4.0, 4.0]
    );
    assert_eq!(
        of(Some(10.0), Some(3.0), None, Some(4)),
        [10.0, 3.0, 4.0, 4.0]
    );
    assert_eq!(
        of(Some(10.0), None, Some(4.0), Some(4)),
        [10.0, 3.0, 4.0, 4.0]
    );
    assert_eq!(of(Some(10.0), None, None, Some(25)), [10.0, 0.0, 2.0, 25.0]);
    // 60² / (12² + 9²) = 16; 62² gives 17.08 keys, which is 17 and another norm.
    assert_eq!(
        of(Some(60.0), Some(12.0), Some(9.0), None),
        [60.0, 12.0, 9.0, 16.0]
    );
    let rounded = drawn(Some(62.0), Some(12.0), Some(9.0), None).expect("fits");
    assert_eq!((rounded.n_keys, rounded.asked_norm), (17, Some(62.0)));
    is_near(
        rounded.norm,
        (17.0f64 * 225.0).sqrt(),
        1e-12,
        "the norm of 17 keys",
    );
    for (norm, mean, std, n_keys, said) in [
        (
            Some(1.0),
            Some(3.0),
            None,
            Some(4),
            "the mean alone has norm 6",
        ),
        (
            Some(1.0),
            None,
            Some(3.0),
            Some(4),
            "the deviation alone has norm 6",
        ),
        (
            Some(20.0),
            Some(3.0),
            Some(4.0),
            Some(4),
            "the last three give norm 10",
        ),
        (Some(5.0), Some(12.0), Some(9.0), None, "0.111 keys"),
        (None, None, Some(-1.0), None, "--std -1"),
        (None, None, Some(0.0), None, "--std 0"),
        (Some(f64::NAN), None, None, None, "--norm NaN"),
        (None, None, None, Some(1), "--keys 1"),
    ] {
        let error = drawn(norm, mean, std, n_keys).expect_err("contradicts itself");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn long_rows_that_spread_as_much_as_in_the_collapsed_model_give_one_key_everything() {
    // The write-up's scores spread by 6 to 14 before scaling, by about 1 after.
    let largest = |std: f64| {
        let wanted = Wanted {
            std: Some(std),
            n_keys: Some(20),
            ..Wanted::default()
        };
        let drawn = Drawn::of(wanted, Family::Normal).expect("fits");
        let sweep = sweep_drawn(&drawn, 400, 0, &[1.0]).expect("draws");
        assert_eq!(sweep.n_rows(), 400);
        sweep.points()[0].max_probability.mean
    };
    assert!(largest(10.0) > 0.85 && largest(1.0) < 0.35);
    // A row of deviation 10 is a row of deviation 1 at scale 10.
    let wanted = Wanted {
        std: Some(1.0),
        n_keys: Some(20),
        ..Wanted::default()
    };
    let drawn = Drawn::of(wanted, Family::Normal).expect("fits");
    let sweep = sweep_drawn(&drawn, 400, 0, &[10.0]).expect("draws");
    is_near(
        sweep.points()[0].max_probability.mean,
        largest(10.0),
        1e-12,
        "scaled",
    );
}
