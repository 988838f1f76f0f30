//! Simulations without a checkpoint: shapes, distances and variances against other computations, and NumPy's run of the same.

use attnscope_compute::sample::{Density, Distribution, Family, Shape, ks_distance};
use attnscope_studies::lab::{
    Divisor, RescaleSetup, Rescaled, VarianceSetup, rescale, variance_lab,
};

fn is_near(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!(
        (found - expected).abs() <= tolerance,
        "{what}: expected {expected:e}, found {found:e}"
    );
}

/// A sample with a long tail.
fn sample(n: usize, seed: u64) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| -(1.0 - random.f64()).ln()).collect()
}

#[test]
fn skewness_is_numpys() {
    // ((x - x.mean())**3).mean() / x.std()**3 for x = [0.3, -1.2, 2.7, 0.4, 0.9, -0.1, 5.5].
    let shape = Shape::of(&[0.3, -1.2, 2.7, 0.4, 0.9, -0.1, 5.5]);
    is_near(shape.mean, 1.214_285_714_285_714_2, 1e-14, "mean");
    is_near(shape.std, 2.060810223070092, 1e-14, "deviation");
    is_near(shape.skewness, 1.0498483120467423, 1e-14, "skewness");
    // An exponential has skewness 2; of 200 000 values within a few hundredths.
    is_near(
        Shape::of(&sample(200_000, 1)).skewness,
        2.0,
        0.05,
        "exponential",
    );
}

#[test]
fn the_distance_of_two_samples_is_that_of_their_distribution_functions_everywhere() {
    for (n, m) in [(7, 7), (50, 31), (200, 500)] {
        // Rounded, so that values come several times and in both.
        let round = |values: Vec<f64>| values.iter().map(|v| (v * 8.0).round() / 8.0).collect();
        let (mut a, mut b): (Vec<f64>, Vec<f64>) = (round(sample(n, 3)), round(sample(m, 4)));
        let share =
            |of: &[f64], x: f64| of.iter().filter(|v| **v <= x).count() as f64 / of.len() as f64;
        let everywhere = a
            .iter()
            .chain(&b)
            .map(|x| (share(&a, *x) - share(&b, *x)).abs());
        let largest = everywhere.fold(0.0, f64::max);
        a.sort_by(f64::total_cmp);
        b.sort_by(f64::total_cmp);
        is_near(ks_distance(&a, &b), largest, 1e-15, "distance");
        is_near(ks_distance(&b, &a), largest, 1e-15, "the other way round");
        assert!(largest > 0.0);
    }
}

#[test]
fn a_density_integrates_to_one_and_is_the_sum_of_its_kernels() {
    for (n, n_points) in [(5, 2000), (500, 320), (4000, 800)] {
        let values = sample(n, 9);
        let density = Density::of(&values, n_points).expect("a density");
        let shape = Shape::of(&values);
        let bandwidth = (4.0 / (3.0 * n as f64)).powf(0.2) * shape.std;
        is_near(density.bandwidth, bandwidth, 1e-12, "bandwidth");
        let step = density.points[1].0 - density.points[0].0;
        let total: f64 = density.points.iter().map(|(_, y)| y * step).sum();
        is_near(total, 1.0, 2e-4, "integral");
        for (x, y) in density.points.iter().step_by(n_points / 10) {
            let kernels = values.iter().map(|v| {
                let z = (x - v) / bandwidth;
                (-z * z / 2.0).exp() / (bandwidth * (2.0 * std::f64::consts::PI).sqrt())
            });
            is_near(*y, kernels.sum::<f64>() / n as f64, 1e-12, "density");
        }
    }
    assert!(Density::of(&[2.0; 10], 100).is_none());
    assert!(Density::of(&[1.0, f64::NAN], 100).is_none());
}

fn setup(d: usize, family: Family) -> RescaleSetup {
    RescaleSetup {
        d,
        n_keys: 32,
        n_queries: 500,
        components: Distribution {
            family,
            ..Distribution::STANDARD_NORMAL
        },
        divisors: Divisor::ALL.to_vec(),
        seed: 0,
    }
}

/// For d and a divisor, means of 40 runs of the same simulation by NumPy, each with keys of its own, and their deviations over the
/// runs: divisor, score std, skewness, KS, entropy / log n, largest weight, tr J, tr J / divisor, curvature.
type ByNumpy = (usize, Divisor, [f64; 9], [f64; 9]);

const BY_NUMPY: [ByNumpy; 14] = [
    (
        16,
        Divisor::None,
        [
            1.0, 4.015202, 5.963749, 0.407817, 0.32558, 0.631827, 0.493746, 0.493746, 1.013434,
        ],
        [
            0.0, 0.12649, 0.262542, 0.004739, 0.014051, 0.015524, 0.017819, 0.017819, 0.015549,
        ],
    ),
    (
        16,
        Divisor::SqrtD,
        [
            4.0, 0.996202, 2.754934, 0.185261, 0.871764, 0.162312, 0.926821, 0.231705, 0.593905,
        ],
        [
            0.0, 0.032586, 0.138503, 0.006456, 0.007774, 0.007547, 0.003627, 0.000907, 0.015153,
        ],
    ),
    (
        16,
        Divisor::SumKeyNorms,
        [
            125.483213, 0.031699, 0.086128, 0.0281, 0.99986, 0.033324, 0.96872, 0.00773, 0.022903,
        ],
        [
            4.437604, 0.000282, 0.021343, 0.001863, 3e-06, 4e-05, 1e-06, 0.000278, 0.00065,
        ],
    ),
    (
        16,
        Divisor::MeanKeyNorm,
        [
            3.912328, 1.015709, 2.778531, 0.189169, 0.866634, 0.166804, 0.924376, 0.236468,
            0.601644,
        ],
        [
            0.113226, 0.01198, 0.131801, 0.003624, 0.004859, 0.006897, 0.003488, 0.006794, 0.017328,
        ],
    ),
    (
        16,
        Divisor::RootSumSquares,
        [
            22.595278, 0.176059, 0.459988, 0.049431, 0.995663, 0.044332, 0.967796, 0.042868,
            0.127384,
        ],
        [
            0.65921, 0.001717, 0.016789, 0.001215, 9e-05, 0.000243, 2e-05, 0.001253, 0.003126,
        ],
    ),
    (
        16,
        Divisor::PNorm(3.0),
        [
            12.931726, 0.310459, 0.821883, 0.071433, 0.986581, 0.057024, 0.965698, 0.074744,
            0.222286,
        ],
        [
            0.384803, 0.002958, 0.038317, 0.001566, 0.000309, 0.00067, 8e-05, 0.002249, 0.007069,
        ],
    ),
    (
        16,
        Divisor::NSqrtD,
        [
            128.0, 0.031269, 0.083762, 0.027767, 0.999863, 0.033294, 0.96872, 0.007568, 0.022492,
        ],
        [
            0.0, 0.000817, 0.014794, 0.001971, 7e-06, 6.1e-05, 2e-06, 0.0, 0.000995,
        ],
    ),
    (
        256,
        Divisor::None,
        [
            1.0, 16.026206, 5.573592, 0.51015, 0.066697, 0.908772, 0.129827, 0.129827, 2.794877,
        ],
        [
            0.0, 0.155956, 0.052715, 0.003321, 0.004434, 0.00689, 0.008916, 0.008916, 0.030401,
        ],
    ),
    (
        256,
        Divisor::SqrtD,
        [
            16.0, 0.997704, 3.258112, 0.202872, 0.869928, 0.164077, 0.927242, 0.057953, 0.578585,
        ],
        [
            0.0, 0.010826, 0.1569, 0.003598, 0.002979, 0.00319, 0.001592, 9.9e-05, 0.008048,
        ],
    ),
    (
        256,
        Divisor::SumKeyNorms,
        [
            511.690138, 0.031282, 0.084877, 0.027944, 0.999863, 0.033324, 0.96872, 0.001893,
            0.021442,
        ],
        [
            2.926017, 0.000152, 0.017864, 0.001005, 1e-06, 1.9e-05, 0.0, 1.1e-05, 0.000228,
        ],
    ),
    (
        256,
        Divisor::MeanKeyNorm,
        [
            16.009717, 1.000598, 3.223839, 0.203747, 0.86964, 0.16414, 0.927242, 0.057919, 0.578744,
        ],
        [
            0.093061, 0.005239, 0.139317, 0.002708, 0.002057, 0.003157, 0.001294, 0.000333,
            0.007184,
        ],
    ),
    (
        256,
        Divisor::RootSumSquares,
        [
            90.508018, 0.17683, 0.501011, 0.051756, 0.995636, 0.044534, 0.967791, 0.010694,
            0.120973,
        ],
        [
            0.841486, 0.000878, 0.024402, 0.001184, 4.5e-05, 0.000143, 1e-05, 9.9e-05, 0.001186,
        ],
    ),
    (
        256,
        Divisor::PNorm(3.0),
        [
            50.827576, 0.314471, 0.917715, 0.076589, 0.986243, 0.057688, 0.965632, 0.018999,
            0.213168,
        ],
        [
            0.381682, 0.002345, 0.031438, 0.001376, 0.000205, 0.000331, 4.8e-05, 0.000143, 0.002734,
        ],
    ),
    (
        256,
        Divisor::NSqrtD,
        [
            512.0, 0.031232, 0.091886, 0.027902, 0.999864, 0.033326, 0.96872, 0.001892, 0.02148,
        ],
        [
            0.0, 0.000255, 0.0171, 0.000865, 2e-06, 2.6e-05, 0.0, 0.0, 0.000312,
        ],
    ),
];

#[test]
fn every_figure_of_every_divisor_is_one_that_numpy_could_have_drawn() {
    let cases = [16, 256].map(|d| rescale(&setup(d, Family::Normal)).expect("runs"));
    for (d, divisor, means, deviations) in BY_NUMPY {
        let case = cases.iter().find(|case| case.d == d).expect("a case");
        let of = case.by(divisor).expect("a divisor");
        let found = [
            of.value,
            of.score_std,
            of.skewness,
            of.ks,
            of.relative_entropy,
            of.max_probability,
            of.jacobian_trace,
            of.product_gradient,
            of.curvature,
        ];
        for (nth, found) in found.into_iter().enumerate() {
            // Four deviations, and the digits that are stored.
            let tolerance = 4.0 * deviations[nth] + 2e-6;
            is_near(
                found,
                means[nth],
                tolerance,
                &format!("{d} {divisor:?} {nth}"),
            );
        }
    }
}

#[test]
fn what_the_write_up_claims_and_what_it_does_not_say_both_show() {
    for d in [16, 256] {
        let case = rescale(&setup(d, Family::Normal)).expect("runs");
        let of = |divisor| case.by(divisor).expect("a divisor");
        let (root, total) = (of(Divisor::SqrtD), of(Divisor::SumKeyNorms));
        // Σ‖k‖ keeps the shape, and the softmax is not saturated.
        assert!(total.ks < 0.25 * root.ks && total.skewness.abs() < 0.2 * root.skewness);
        assert!(total.jacobian_trace > root.jacobian_trace);
        // Because nothing is told apart any more; and gradients were divided on the way.
        assert!(total.relative_entropy > 0.999 && total.curvature < 0.03);
        assert!(total.max_probability < 1.1 / 32.0);
        assert!(total.product_gradient < root.product_gradient / 25.0);
    }
}

#[test]
fn a_divisor_beyond_measure_makes_every_row_uniform_and_softmax_a_straight_line() {
    let mut setup = setup(8, Family::Laplace);
    setup.components.std = 1e-4;
    setup.divisors = vec![Divisor::None];
    let case = rescale(&setup).expect("runs");
    let of = &case.of[0];
    is_near(of.relative_entropy, 1.0, 1e-12, "entropy");
    is_near(of.jacobian_trace, 1.0 - 1.0 / 32.0, 1e-12, "trace");
    is_near(of.max_probability, 1.0 / 32.0, 1e-6, "largest");
    assert!(of.curvature < 1e-6, "{}", of.curvature);
}

#[test]
fn the_same_seed_gives_the_same_figures_on_any_number_of_threads() {
    let run = |n_threads: usize, seed: u64| -> (Rescaled, _) {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .build();
        pool.expect("threads").install(|| {
            let setup = RescaleSetup {
                seed,
                ..setup(16, Family::T5)
            };
            let variance = VarianceSetup {
                seed,
                ..variance_setup(&[4, 16], Family::Laplace, 0.0, 1.0)
            };
            (
                rescale(&setup).expect("runs"),
                variance_lab(&variance).expect("runs"),
            )
        })
    };
    let once = run(1, 5);
    assert!(once == run(4, 5));
    let other = run(1, 6);
    assert!(once.0 != other.0 && once.1 != other.1);
}

fn variance_setup(widths: &[usize], family: Family, mean: f64, std: f64) -> VarianceSetup {
    VarianceSetup {
        widths: widths.to_vec(),
        n_pairs: 6000,
        n_keys: 32,
        n_rows: 100,
        components: Distribution { family, mean, std },
        growth: vec![0.5, 1.0, 4.0, 64.0],
        seed: 2,
    }
}

#[test]
fn the_variance_of_products_is_what_independent_components_give() {
    for family in Family::ALL {
        for (mean, std) in [(0.0, 1.0), (0.0, 2.5), (0.7, 0.5), (-1.5, 1.0)] {
            let setup = variance_setup(&[3, 40], family, mean, std);
            let lab = variance_lab(&setup).expect("runs");
            for of in &lab.widths {
                let d = of.d as f64;
                // Var(xy) = E x² E y² − (E x)² (E y)², d times.
                let second = std * std + mean * mean;
                let predicted = d * (second * second - mean.powi(4));
                is_near(
                    of.product.predicted.expect("predicted"),
                    predicted,
                    1e-9 * predicted,
                    "formula",
                );
                let what = format!("{} d {} mean {mean} std {std}", family.id(), of.d);
                // Tails so heavy that a sample does not know its own error have wider room.
                let room = match family {
                    Family::T5 | Family::Lognormal => 0.5 * predicted,
                    _ => 4.5 * of.product.standard_error,
                };
                is_near(of.product.variance, predicted, room, &what);
                let mean_error = (predicted / 6000.0).sqrt();
                is_near(of.product.mean, d * mean * mean, 5.0 * mean_error, &what);
            }
        }
    }
}

#[test]
fn the_standard_error_of_a_normal_product_is_its_closed_form() {
    // For standard normals E(q·k)⁴ = 3d² + 6d, so that the error of the variance is √((2d² + 6d)/n).
    let setup = VarianceSetup {
        n_pairs: 100_000,
        ..variance_setup(&[8], Family::Normal, 0.0, 1.0)
    };
    let of = &variance_lab(&setup).expect("runs").widths[0];
    let expected = ((2.0 * 64.0 + 48.0) / 100_000f64).sqrt();
    is_near(
        of.product.standard_error,
        expected,
        0.05 * expected,
        "error",
    );
}

#[test]
fn qk_norm_gives_variance_one_and_does_not_feel_growth() {
    let small = variance_lab(&variance_setup(&[16], Family::Laplace, 0.0, 0.01)).expect("runs");
    let large = variance_lab(&variance_setup(&[16], Family::Laplace, 0.0, 30.0)).expect("runs");
    let (small, large) = (&small.widths[0], &large.widths[0]);
    is_near(
        small.normed.variance,
        1.0,
        4.5 * small.normed.standard_error,
        "variance",
    );
    assert_eq!(small.normed.predicted, Some(1.0));
    is_near(
        large.with_qk_norm.trace,
        small.with_qk_norm.trace,
        1e-9,
        "trace",
    );
    // What is not normalised is uniform for the small and saturated for the large.
    is_near(small.scaled.trace, 1.0 - 1.0 / 32.0, 1e-6, "uniform");
    assert!(large.scaled.trace < 0.01 && large.scaled.spectral < 0.01);
    // Where components are not symmetric nothing is promised.
    let skewed = variance_lab(&variance_setup(&[16], Family::Lognormal, 0.0, 1.0)).expect("runs");
    assert_eq!(skewed.widths[0].normed.predicted, None);
}

#[test]
fn growth_saturates_the_softmax_and_scale_one_is_the_scaled_row() {
    let lab = variance_lab(&variance_setup(&[4, 64], Family::Normal, 0.0, 1.0)).expect("runs");
    let widest = &lab.widths[1];
    let at = |growth: f64| {
        let point = lab.growth.iter().find(|point| point.growth == growth);
        point.expect("a point")
    };
    assert_eq!(at(1.0).softmax, widest.scaled);
    is_near(at(1.0).score_std, 1.0, 0.05, "deviation of scaled scores");
    is_near(at(4.0).score_std, 4.0 * at(1.0).score_std, 1e-12, "growth");
    let traces: Vec<f64> = lab.growth.iter().map(|point| point.softmax.trace).collect();
    assert!(
        traces.windows(2).all(|pair| pair[1] < pair[0]),
        "{traces:?}"
    );
    assert!(at(64.0).softmax.trace < 0.06 && at(0.5).softmax.trace > 0.95);
    for point in &lab.growth {
        let norms = point.softmax;
        assert!(
            norms.spectral <= 0.5
                && norms.spectral <= norms.frobenius
                && norms.frobenius <= norms.trace
        );
    }
}

#[test]
fn what_cannot_be_simulated_is_refused_before_it_is_drawn() {
    let with = |change: fn(&mut RescaleSetup)| {
        let mut setup = setup(16, Family::Normal);
        change(&mut setup);
        rescale(&setup).expect_err("refused").to_string()
    };
    assert!(with(|setup| setup.d = 0).contains("--d 0"));
    assert!(with(|setup| setup.n_keys = 1).contains("--keys 1"));
    assert!(with(|setup| setup.components.std = 0.0).contains("--std 0"));
    assert!(with(|setup| setup.components.mean = f64::NAN).contains("--mean NaN"));
    assert!(with(|setup| setup.n_keys = 4_000_000_000).contains("of memory"));
    let huge = with(|setup| (setup.n_keys, setup.n_queries) = (4_000_000_000, 4_000_000_000));
    assert!(
        huge.contains("any machine") || huge.contains("of memory"),
        "{huge}"
    );
}
