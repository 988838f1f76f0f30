//! Shows why scores are scaled, and why attention is soft: variance of q·k against width, and softmax gradients against
//! growing scores.

use attnscope_compute::error::Result;
use attnscope_compute::kernels::softmax_row::{SoftmaxRow, softmax_in_place, spectral_norm};
use attnscope_compute::kernels::vectors::dot;
use attnscope_compute::sample::{Distribution, Purpose, Random};
use rayon::prelude::*;

use super::room::{check_count, check_distribution, check_memory};

/// One simulation: pairs of vectors for the variance, rows of scores for the gradients.
#[derive(Debug, Clone, PartialEq)]
pub struct VarianceSetup {
    /// Widths of queries and keys.
    pub widths: Vec<usize>,
    /// Number of query-key pairs for each width.
    pub n_pairs: usize,
    /// Number of keys in each row of scores.
    pub n_keys: usize,
    /// Number of rows for each width.
    pub n_rows: usize,
    /// Distribution of the components of queries and keys.
    pub components: Distribution,
    /// Factors on q·k besides the scale, as if norms had grown in training.
    pub growth: Vec<f64>,
    pub seed: u64,
}

/// q·k over the pairs of one width.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProductVariance {
    pub mean: f64,
    pub variance: f64,
    /// Standard error of the variance: √((m₄ − m₂²)/n).
    pub standard_error: f64,
    /// Expected variance for independent components, if known.
    pub predicted: Option<f64>,
}

/// Norms of J = diag(p) − ppᵀ, the derivative of a row's weights with respect to its scores, averaged over rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jacobians {
    pub trace: f64,
    pub frobenius: f64,
    /// At most ½ for any row.
    pub spectral: f64,
    pub max_probability: f64,
}

/// Results for one width.
#[derive(Debug, Clone, PartialEq)]
pub struct Saturation {
    pub d: usize,
    /// q·k; divided by √d, it has 1/d of this variance.
    pub product: ProductVariance,
    /// q̂·k̂/√d, with q and k first normalised to norm √d (QK-norm without a learned gain).
    pub normed: ProductVariance,
    /// Softmax over unscaled q·k, over q·k/√d, and over q̂·k̂/√d.
    pub unscaled: Jacobians,
    pub scaled: Jacobians,
    pub with_qk_norm: Jacobians,
}

/// Rows of the largest width, with q·k/√d multiplied by a growth factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GrowthPoint {
    pub growth: f64,
    /// Root mean square deviation of the multiplied scores from their rows' means.
    pub score_std: f64,
    pub softmax: Jacobians,
}

/// Result of the simulation. Growth has no effect with QK-norm, so its figures are only given by width.
#[derive(Debug, Clone, PartialEq)]
pub struct VarianceLab {
    pub widths: Vec<Saturation>,
    pub growth: Vec<GrowthPoint>,
}

impl VarianceSetup {
    /// Expected variance for independent components: Var(q·k) = d·((σ² + μ²)² − μ⁴) = d·(σ⁴ + 2σ²μ²).
    pub fn predicted_variance(&self, d: usize) -> f64 {
        let Distribution { mean, std, .. } = self.components;
        let (mean, variance) = (mean * mean, std * std);
        d as f64 * variance * (variance + 2.0 * mean)
    }

    /// Expected mean for independent components: d·μ².
    pub fn predicted_mean(&self, d: usize) -> f64 {
        d as f64 * self.components.mean * self.components.mean
    }

    /// Refuses invalid setups.
    ///
    /// # Errors
    /// When a value is out of range, or there is not enough memory.
    pub fn check(&self) -> Result<()> {
        for d in &self.widths {
            check_count("--d", *d, 1)?;
        }
        check_count("--samples", self.n_pairs, FEWEST_PAIRS)?;
        check_count("--keys", self.n_keys, 2)?;
        check_count("--rows", self.n_rows, 1)?;
        check_distribution(&self.components)?;
        let widest = self.widths.iter().copied().max().unwrap_or(1);
        let n_vectors = 2 * rayon::current_num_threads();
        // Memory for products with and without norms, rows of scores of both kinds, and one softmax.
        let pairs = self.n_pairs.checked_mul(2);
        let rows = self.n_keys.checked_mul(self.n_rows);
        let rows = rows.and_then(|n| n.checked_mul(3));
        let sum = pairs.zip(rows).and_then(|(a, b)| a.checked_add(b));
        let numbers = sum
            .zip(widest.checked_mul(n_vectors))
            .and_then(|(a, b)| a.checked_add(b));
        let asked = format!(
            "--d {widest} --samples {} --keys {} --rows {}",
            self.n_pairs, self.n_keys, self.n_rows
        );
        check_memory(&asked, numbers)
    }
}

/// Fewer pairs give no useful error of the variance.
const FEWEST_PAIRS: usize = 10;

/// Runs the simulation.
///
/// # Errors
/// As for [`VarianceSetup::check`].
pub fn variance_lab(setup: &VarianceSetup) -> Result<VarianceLab> {
    setup.check()?;
    let widths = setup.widths.iter().map(|d| saturation(setup, *d));
    let widest = setup.widths.iter().copied().max();
    let growth = widest.map_or(Vec::new(), |d| growth(setup, d));
    Ok(VarianceLab {
        widths: widths.collect(),
        growth,
    })
}

/// Normalises a vector to norm √d, as RMSNorm without gain.
fn normalise(vector: &mut [f64]) {
    let norm = dot(vector, vector).sqrt();
    let factor = (vector.len() as f64).sqrt() / norm;
    for component in vector {
        *component *= factor;
    }
}

fn saturation(setup: &VarianceSetup, d: usize) -> Saturation {
    let (products, normed) = pairs(setup, d);
    let by_root = (d as f64).sqrt();
    let scaled: Vec<f64> = normed.iter().map(|product| product / by_root).collect();
    // Signs of q̂ are then independent of its squares, whose mean is 1: E(q̂·k̂)² = Σ E q̂ᵢ² E k̂ᵢ² = d.
    let is_even = setup.components.mean == 0.0 && setup.components.family.is_symmetric();
    let (rows, normed_rows) = rows(setup, d);
    Saturation {
        d,
        product: product_variance(&products, Some(setup.predicted_variance(d))),
        normed: product_variance(&scaled, is_even.then_some(1.0)),
        unscaled: jacobians(&rows, setup.n_keys, 1.0),
        scaled: jacobians(&rows, setup.n_keys, 1.0 / by_root),
        with_qk_norm: jacobians(&normed_rows, setup.n_keys, 1.0 / by_root),
    }
}

/// q·k of independent pairs, without and with QK-norm.
fn pairs(setup: &VarianceSetup, d: usize) -> (Vec<f64>, Vec<f64>) {
    let indices = (0..setup.n_pairs).into_par_iter();
    let pair = |(q, k): &mut (Vec<f64>, Vec<f64>), idx| {
        let mut random = Random::of(setup.seed, Purpose::Pair, d, idx);
        setup.components.fill(&mut random, q);
        setup.components.fill(&mut random, k);
        let product = dot(q, k);
        normalise(q);
        normalise(k);
        (product, dot(q, k))
    };
    indices
        .map_init(|| (vec![0.0; d], vec![0.0; d]), pair)
        .unzip()
}

/// Rows of q·k, each with its own query and keys, without and with QK-norm. // [row, key]
fn rows(setup: &VarianceSetup, d: usize) -> (Vec<f64>, Vec<f64>) {
    let cells = setup.n_rows * setup.n_keys;
    let (mut plain, mut normed) = (vec![0.0; cells], vec![0.0; cells]);
    let rows = plain
        .par_chunks_mut(setup.n_keys)
        .zip(normed.par_chunks_mut(setup.n_keys))
        .enumerate();
    rows.for_each_init(
        || (vec![0.0; d], vec![0.0; d]),
        |(q, k), (row_idx, (plain, normed))| {
            let mut random = Random::of(setup.seed, Purpose::Row, d, row_idx);
            setup.components.fill(&mut random, q);
            let q_factor = (d as f64).sqrt() / dot(q, q).sqrt();
            for (plain, normed) in plain.iter_mut().zip(normed) {
                setup.components.fill(&mut random, k);
                *plain = dot(q, k);
                normalise(k);
                *normed = q_factor * dot(q, k);
            }
        },
    );
    (plain, normed)
}

fn product_variance(products: &[f64], predicted: Option<f64>) -> ProductVariance {
    let n = products.len() as f64;
    let mean = products.iter().sum::<f64>() / n;
    let (mut second, mut fourth) = (0.0, 0.0);
    for product in products {
        let square = (product - mean) * (product - mean);
        second += square;
        fourth += square * square;
    }
    let variance = second / n;
    ProductVariance {
        mean,
        variance,
        standard_error: ((fourth / n - variance * variance).max(0.0) / n).sqrt(),
        predicted,
    }
}

/// Means over rows of scores that are multiplied by a scale.
fn jacobians(rows: &[f64], n_keys: usize, scale: f64) -> Jacobians {
    let figures: Vec<[f64; 4]> = rows
        .par_chunks(n_keys)
        .map(|row| {
            let mut weights = row.to_vec();
            softmax_in_place(&mut weights, scale);
            match SoftmaxRow::of(row, scale) {
                Some(figures) => [
                    figures.jacobian_trace,
                    figures.jacobian_frobenius,
                    spectral_norm(&weights),
                    figures.max_probability,
                ],
                None => [f64::NAN; 4],
            }
        })
        .collect();
    let mean = |nth: usize| figures.iter().map(|f| f[nth]).sum::<f64>() / figures.len() as f64;
    Jacobians {
        trace: mean(0),
        frobenius: mean(1),
        spectral: mean(2),
        max_probability: mean(3),
    }
}

fn growth(setup: &VarianceSetup, d: usize) -> Vec<GrowthPoint> {
    let (rows, _) = rows(setup, d);
    let by_root = 1.0 / (d as f64).sqrt();
    let deviations = rows.chunks(setup.n_keys).map(|row| {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        row.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>()
    });
    let std = (deviations.sum::<f64>() / rows.len() as f64).sqrt() * by_root;
    let point = |growth: &f64| GrowthPoint {
        growth: *growth,
        score_std: std * growth,
        softmax: jacobians(&rows, setup.n_keys, growth * by_root),
    };
    setup.growth.iter().map(point).collect()
}
