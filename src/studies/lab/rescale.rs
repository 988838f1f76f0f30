//! Scores divided by √d and by other divisors: effects on the distribution of weights, their entropy and gradients.

use attnscope_compute::error::Result;
use attnscope_compute::kernels::softmax_row::{SoftmaxRow, softmax_in_place};
use attnscope_compute::kernels::vectors::dot;
use attnscope_compute::sample::{Density, Distribution, Purpose, Random, Shape, ks_distance};
use rayon::prelude::*;

use super::divisor::Divisor;
use super::room::{check_count, check_distribution, check_memory};

/// Most draws of the keys for the distribution of Σ‖k‖; `MOST_COMPONENTS` limits their components in total.
const MOST_DRAWS: usize = 200;
const MOST_COMPONENTS: usize = 4_000_000;
/// Fewest draws, for keys of any size.
const FEWEST_DRAWS: usize = 10;
/// Number of points on a density curve.
const DENSITY_POINTS: usize = 320;

/// One simulation: one set of keys, and queries that all attend to it.
#[derive(Debug, Clone, PartialEq)]
pub struct RescaleSetup {
    /// Width of a query and of a key.
    pub d: usize,
    pub n_keys: usize,
    pub n_queries: usize,
    /// Distribution of the components of queries and keys.
    pub components: Distribution,
    pub divisors: Vec<Divisor>,
    pub seed: u64,
}

/// Result of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Rescaled {
    pub d: usize,
    pub n_keys: usize,
    pub n_queries: usize,
    /// Products with the first key, over the queries, before division.
    pub first_score: Shape,
    pub first_score_density: Option<Density>,
    pub of: Vec<Rescaling>,
    /// Σ‖k‖ over other draws of the keys, since the simulation's own keys are only one draw.
    pub totals: Totals,
}

/// Sums of key norms over several draws of the keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Totals {
    pub n_draws: usize,
    pub mean: f64,
    pub std: f64,
    pub smallest: f64,
    pub largest: f64,
}

/// Effects of one divisor.
#[derive(Debug, Clone, PartialEq)]
pub struct Rescaling {
    pub divisor: Divisor,
    /// Value of the divisor.
    pub value: f64,
    /// Standard deviation of the divided scores over all queries and keys.
    pub score_std: f64,
    /// Distribution of the first key's weight over the queries.
    pub first_weight: Shape,
    pub first_weight_density: Option<Density>,
    /// Kolmogorov–Smirnov distance of the first key's standardised weight to its standardised score.
    pub first_ks: f64,
    /// Mean over the keys of their weights' skewness.
    pub skewness: f64,
    /// Mean of that distance over all keys.
    pub ks: f64,
    /// Mean over the queries of entropy / log n.
    pub relative_entropy: f64,
    pub max_probability: f64,
    /// Mean over the queries of tr(diag(p) − ppᵀ) = Σp(1 − p); at most 1 − 1/n.
    pub jacobian_trace: f64,
    /// The trace divided by the divisor: the share of a gradient that reaches q·k through softmax and division.
    pub product_gradient: f64,
    /// Deviation of the weights from (1 + s − s̄)/n, the linearised softmax around equal scores: root mean square relative
    /// to that of w − 1/n. Near 0, softmax only scales and shifts.
    pub curvature: f64,
}

impl Rescaled {
    /// Results of a divisor, if it was requested.
    pub fn by(&self, divisor: Divisor) -> Option<&Rescaling> {
        self.of.iter().find(|of| of.divisor == divisor)
    }
}

impl RescaleSetup {
    /// Refuses invalid setups.
    ///
    /// # Errors
    /// When a value is out of range, or there is not enough memory.
    pub fn check(&self) -> Result<()> {
        check_count("--d", self.d, 1)?;
        // A single key has all the weight, whatever its score.
        check_count("--keys", self.n_keys, 2)?;
        check_count("--queries", self.n_queries, 2)?;
        check_distribution(&self.components)?;
        let (d, n_keys, n_queries) = (self.d, self.n_keys, self.n_queries);
        // Memory for keys; for scores, weights and their columns; and for one query per thread.
        let cells = n_keys.checked_mul(n_queries).and_then(|n| n.checked_mul(3));
        let keys = n_keys.checked_add(rayon::current_num_threads() + 1);
        let numbers = cells.zip(keys.and_then(|n| n.checked_mul(d)));
        check_memory(
            &format!("--d {d} --keys {n_keys} --queries {n_queries}"),
            numbers.and_then(|(cells, keys)| cells.checked_add(keys)),
        )
    }
}

/// Draws keys and queries, and divides their products by every divisor.
///
/// # Errors
/// As for [`RescaleSetup::check`].
pub fn rescale(setup: &RescaleSetup) -> Result<Rescaled> {
    setup.check()?;
    let keys = vectors(setup, Purpose::Key, setup.n_keys);
    let norms: Vec<f64> = keys
        .chunks(setup.d)
        .map(|key| dot(key, key).sqrt())
        .collect();
    let products = products(setup, &keys);
    let first = column(&products, setup.n_keys, 0);
    let of = setup.divisors.iter().map(|divisor| {
        let value = divisor.value(&norms, setup.d);
        rescaling(setup, &products, *divisor, value)
    });
    Ok(Rescaled {
        d: setup.d,
        n_keys: setup.n_keys,
        n_queries: setup.n_queries,
        first_score: Shape::of(&first),
        first_score_density: Density::of(&first, DENSITY_POINTS),
        of: of.collect(),
        totals: totals(setup),
    })
}

/// Σ‖k‖ over keys drawn with the seeds that follow the simulation's.
fn totals(setup: &RescaleSetup) -> Totals {
    let n_components = setup.d * setup.n_keys;
    let n_draws = (MOST_COMPONENTS / n_components).clamp(FEWEST_DRAWS, MOST_DRAWS);
    let draws = (1..=n_draws).map(|nth| {
        let seed = setup.seed.wrapping_add(nth as u64);
        let drawn = RescaleSetup {
            seed,
            ..setup.clone()
        };
        let keys = vectors(&drawn, Purpose::Key, setup.n_keys);
        let norms = keys.chunks(setup.d).map(|key| dot(key, key).sqrt());
        norms.sum::<f64>()
    });
    let totals: Vec<f64> = draws.collect();
    let shape = Shape::of(&totals);
    Totals {
        n_draws,
        mean: shape.mean,
        std: shape.std,
        smallest: totals.iter().copied().fold(f64::INFINITY, f64::min),
        largest: totals.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

/// Draws consecutive vectors, each from its own random stream. // [vector, component]
fn vectors(setup: &RescaleSetup, purpose: Purpose, n: usize) -> Vec<f64> {
    let mut vectors = vec![0.0; n * setup.d];
    let each = vectors.par_chunks_mut(setup.d).enumerate();
    each.for_each(|(idx, vector)| {
        let mut random = Random::of(setup.seed, purpose, setup.d, idx);
        setup.components.fill(&mut random, vector);
    });
    vectors
}

/// Computes q·k for every query and key, drawing each query when it is needed. // [query, key]
fn products(setup: &RescaleSetup, keys: &[f64]) -> Vec<f64> {
    let mut products = vec![0.0; setup.n_queries * setup.n_keys];
    let rows = products.par_chunks_mut(setup.n_keys).enumerate();
    rows.for_each_init(
        || vec![0.0; setup.d],
        |query, (idx, row)| {
            let mut random = Random::of(setup.seed, Purpose::Query, setup.d, idx);
            setup.components.fill(&mut random, query);
            for (product, key) in row.iter_mut().zip(keys.chunks(setup.d)) {
                *product = dot(query, key);
            }
        },
    );
    products
}

/// Values of one key over all queries.
fn column(cells: &[f64], n_keys: usize, key_idx: usize) -> Vec<f64> {
    cells
        .iter()
        .skip(key_idx)
        .step_by(n_keys)
        .copied()
        .collect()
}

fn rescaling(setup: &RescaleSetup, products: &[f64], divisor: Divisor, value: f64) -> Rescaling {
    let n_keys = setup.n_keys;
    let scale = 1.0 / value;
    let rows: Vec<Option<SoftmaxRow>> = products
        .par_chunks(n_keys)
        .map(|row| SoftmaxRow::of(row, scale))
        .collect();
    let mean_row = |figure: fn(&SoftmaxRow) -> f64| {
        let figures = rows.iter().map(|row| row.as_ref().map_or(f64::NAN, figure));
        figures.sum::<f64>() / rows.len() as f64
    };
    let mut weights = products.to_vec();
    weights
        .par_chunks_mut(n_keys)
        .for_each(|row| softmax_in_place(row, scale));
    let columns: Vec<(Shape, f64)> = (0..n_keys)
        .into_par_iter()
        .map(|key_idx| {
            let score = column(products, n_keys, key_idx);
            let weight = column(&weights, n_keys, key_idx);
            let (score_shape, shape) = (Shape::of(&score), Shape::of(&weight));
            let (score, weight) = (
                score_shape.standardised(&score),
                shape.standardised(&weight),
            );
            (shape, ks_distance(&score, &weight))
        })
        .collect();
    let mean_key =
        |figure: fn(&(Shape, f64)) -> f64| columns.iter().map(figure).sum::<f64>() / n_keys as f64;
    let jacobian_trace = mean_row(|row| row.jacobian_trace);
    let (first_weight, first_ks) = columns[0];
    Rescaling {
        divisor,
        value,
        score_std: Shape::of(products).std * scale,
        first_weight,
        first_weight_density: Density::of(&column(&weights, n_keys, 0), DENSITY_POINTS),
        first_ks,
        skewness: mean_key(|(shape, _)| shape.skewness),
        ks: mean_key(|(_, ks)| *ks),
        relative_entropy: mean_row(|row| row.entropy) / libm::log(n_keys as f64),
        max_probability: mean_row(|row| row.max_probability),
        jacobian_trace,
        product_gradient: jacobian_trace * scale,
        curvature: curvature(products, &weights, n_keys, scale),
    }
}

/// Share of the weights' spread that the linearised softmax around equal scores does not explain.
fn curvature(products: &[f64], weights: &[f64], n_keys: usize, scale: f64) -> f64 {
    let n = n_keys as f64;
    let rows = products.par_chunks(n_keys).zip(weights.par_chunks(n_keys));
    let of_row = |(products, weights): (&[f64], &[f64])| {
        let mean = products.iter().sum::<f64>() / n;
        let cells = products.iter().zip(weights);
        cells.fold((0.0, 0.0), |(off, spread), (product, weight)| {
            let line = (1.0 + (product - mean) * scale) / n;
            let even = weight - 1.0 / n;
            (
                off + (weight - line) * (weight - line),
                spread + even * even,
            )
        })
    };
    let sums: Vec<(f64, f64)> = rows.map(of_row).collect();
    let off: f64 = sums.iter().map(|(off, _)| off).sum();
    let spread: f64 = sums.iter().map(|(_, spread)| spread).sum();
    (off / spread).sqrt()
}
