//! The factor between the products of queries with keys and the scores made of them.

use super::mask::Visibility;

/// What a layer's scores were scaled by: score = factor · q·k, up to a constant of each row, which a softmax does not see.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreScale {
    pub factor: f64,
    pub d_head: usize,
    pub n_heads: usize,
    /// Width of the residual; `n_heads · d_head` if it was not recorded.
    pub d_model: usize,
    /// Root mean squares of the lengths of queries and of keys, if they were recorded.
    pub norms: Option<Norms>,
    /// Whether it was fitted to the scores, so that nothing else is in them. It was stated by the call otherwise.
    pub is_fitted: bool,
}

/// Lengths of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Norms {
    pub q: f64,
    pub k: f64,
    /// All queries have one length, and all keys: they were normalised.
    pub is_even: bool,
    /// Queries or keys are as short beside the others as a scale would make them: they were scaled before the product.
    pub is_scaled: bool,
}

/// One head's scores with the vectors that they may be made of.
#[derive(Debug, Clone, Copy)]
pub struct ScaledHead<'a> {
    /// [query, key]
    pub scores: &'a [f32],
    /// [query, d_head]
    pub q: &'a [f32],
    /// [key, d_head]
    pub k: &'a [f32],
    /// [key, d_value], if recorded.
    pub v: Option<&'a [f32]>,
}

/// Queries of a head that are looked at.
const MOST_ROWS: usize = 64;
/// With fewer cells, any scores are a factor times the products.
const FEWEST_CELLS: usize = 8;
/// Heads of one layer have one factor if theirs differ by less than this share.
const ONE_FACTOR: f64 = 0.02;
/// Vectors have one length if the spread of their lengths is below this share of the mean.
const ONE_LENGTH: f64 = 0.02;

/// Sums over cells, each less the mean of its row.
#[derive(Default, Clone, Copy)]
struct Sums {
    score_squares: f64,
    product_squares: f64,
    mixed: f64,
    n_cells: usize,
}

impl Sums {
    fn factor(&self) -> f64 {
        self.mixed / self.product_squares
    }

    /// What one factor leaves of the scores, as a share of them.
    fn rest(&self) -> f64 {
        let rest = self.score_squares - self.factor() * self.mixed;
        (rest.max(0.0) / self.score_squares).sqrt()
    }
}

impl ScoreScale {
    /// Fits one factor to all heads of a layer. `None` if it leaves more than `tolerance` of the scores, or if heads have factors
    /// of their own: then a bias, a cap or a norm comes between.
    pub fn of(
        heads: &[ScaledHead<'_>],
        visibility: &Visibility,
        d_head: usize,
        d_model: Option<usize>,
        tolerance: f64,
    ) -> Option<Self> {
        let mut all = Sums::default();
        let mut factors: Vec<f64> = Vec::new();
        for head in heads {
            let sums = sums(head, visibility, d_head);
            // Scores that are all alike say nothing about their factor.
            if sums.n_cells < FEWEST_CELLS
                || sums.product_squares == 0.0
                || sums.score_squares == 0.0
            {
                continue;
            }
            // Written this way round so that a NaN does not fit.
            let fits = sums.rest() <= tolerance;
            if !fits {
                return None;
            }
            factors.push(sums.factor());
            all.score_squares += sums.score_squares;
            all.product_squares += sums.product_squares;
            all.mixed += sums.mixed;
        }
        if factors.is_empty() {
            return None;
        }
        let factor = all.factor();
        let is_one = |own: &f64| (own - factor).abs() <= ONE_FACTOR * factor.abs();
        let is_alike = factors.iter().all(is_one);
        is_alike.then(|| Self {
            is_fitted: true,
            ..Self::stated(factor, heads, visibility, d_head, d_model)
        })
    }

    /// A factor that is known otherwise.
    pub fn stated(
        factor: f64,
        heads: &[ScaledHead<'_>],
        visibility: &Visibility,
        d_head: usize,
        d_model: Option<usize>,
    ) -> Self {
        Self {
            factor,
            d_head,
            n_heads: heads.len(),
            d_model: d_model.unwrap_or(heads.len() * d_head),
            norms: norms(heads, visibility, d_head),
            is_fitted: false,
        }
    }

    /// 1/√d_head.
    pub fn usual(&self) -> f64 {
        (self.d_head as f64).sqrt().recip()
    }

    /// Whether the factor is this one, up to a share of it.
    pub fn is(&self, factor: f64, near: f64) -> bool {
        (self.factor / factor - 1.0).abs() <= near
    }

    /// Whether queries and keys carry their scale themselves: normalised ones go with any factor, and those that were scaled before
    /// the product have none left.
    pub fn is_theirs(&self, near: f64) -> bool {
        let norms = self.norms;
        norms.is_some_and(|norms| norms.is_even || norms.is_scaled && self.is(1.0, near))
    }

    /// The factor where it is neither the usual one nor made up for by queries and keys.
    pub fn unusual(&self) -> Option<f64> {
        let is_unusual = !self.is(self.usual(), ONE_FACTOR) && !self.is_theirs(ONE_FACTOR);
        is_unusual.then_some(self.factor)
    }
}

fn sums(head: &ScaledHead<'_>, visibility: &Visibility, d_head: usize) -> Sums {
    let n_keys = visibility.n_keys;
    let queries = (0..visibility.n_queries).filter(|idx| visibility.is_real_query(*idx));
    let step = visibility.n_queries.div_ceil(MOST_ROWS).max(1);
    let mut sums = Sums::default();
    // The last row sees most keys.
    for query_idx in queries.rev().step_by(step) {
        let q = &head.q[query_idx * d_head..(query_idx + 1) * d_head];
        let seen = visibility.seen_by(query_idx);
        let cells: Vec<(f64, f64)> = (0..n_keys)
            .filter(|key_idx| seen.has(*key_idx))
            .map(|key_idx| (key_idx, head.scores[query_idx * n_keys + key_idx]))
            .filter(|(_, score)| score.is_finite())
            .map(|(key_idx, score)| {
                let k = &head.k[key_idx * d_head..(key_idx + 1) * d_head];
                (f64::from(score), dot(q, k))
            })
            .collect();
        let n = cells.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| cells.iter().map(of).sum::<f64>() / n;
        let means = (mean(|cell| cell.0), mean(|cell| cell.1));
        for (score, product) in &cells {
            let (score, product) = (score - means.0, product - means.1);
            sums.score_squares += score * score;
            sums.product_squares += product * product;
            sums.mixed += score * product;
        }
        sums.n_cells += if cells.len() > 1 { cells.len() } else { 0 };
    }
    sums
}

/// q·k in f64: eight sums side by side, since each addition to one sum waits for the one before.
fn dot(q: &[f32], k: &[f32]) -> f64 {
    const SIDE_BY_SIDE: usize = 8;
    let mut sums = [0.0f64; SIDE_BY_SIDE];
    for (q, k) in q.chunks(SIDE_BY_SIDE).zip(k.chunks(SIDE_BY_SIDE)) {
        for (sum, (q, k)) in sums.iter_mut().zip(q.iter().zip(k)) {
            *sum += f64::from(*q) * f64::from(*k);
        }
    }
    sums.iter().sum()
}

/// Mean square and relative spread of the lengths of vectors.
fn lengths<'a>(rows: impl Iterator<Item = &'a [f32]>) -> Option<(f64, f64)> {
    let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for row in rows {
        let square: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
        (n, sum, squares) = (n + 1.0, sum + square.sqrt(), squares + square);
    }
    let mean = sum / n;
    let spread = (squares / n - mean * mean).max(0.0).sqrt() / mean;
    (n > 0.0 && spread.is_finite()).then_some((squares / n, spread))
}

fn norms(heads: &[ScaledHead<'_>], visibility: &Visibility, d_head: usize) -> Option<Norms> {
    let queries = heads
        .iter()
        .flat_map(|head| head.q.chunks(d_head).enumerate());
    let queries = queries.filter(|(idx, _)| visibility.is_real_query(*idx));
    let (q, q_spread) = lengths(queries.map(|(_, row)| row))?;
    let keys = heads
        .iter()
        .flat_map(|head| head.k.chunks(d_head).enumerate());
    let keys = keys.filter(|(idx, _)| visibility.is_real_key(*idx));
    let (k, k_spread) = lengths(keys.map(|(_, row)| row))?;
    let values = heads.iter().filter_map(|head| head.v);
    let values = values.flat_map(|v| v.chunks(d_head).enumerate());
    let values = values.filter(|(idx, _)| visibility.is_real_key(*idx));
    let v = lengths(values.map(|(_, row)| row)).map(|(v, _)| v);
    // Halfway, in logarithms, between no scale and 1/√d_head.
    let halfway = (d_head as f64).powf(-0.25);
    let is_scaled = (q / k).sqrt() < halfway
        || (k / q).sqrt() < halfway
        || v.is_some_and(|v| (q * k).sqrt() < halfway * v);
    Some(Norms {
        q: q.sqrt(),
        k: k.sqrt(),
        is_even: q_spread <= ONE_LENGTH && k_spread <= ONE_LENGTH,
        is_scaled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::Mask;

    const N: usize = 12;
    const D_HEAD: usize = 16;

    fn normal(seed: u64, n: usize, size: f32) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut one = || (0..12).map(|_| random.f32()).sum::<f32>() - 6.0;
        (0..n).map(|_| size * one()).collect()
    }

    /// Two heads' scores, q, k and v; scores are `of(q·k, head)`, and −inf after the query.
    fn heads(sizes: [f32; 2], of: &dyn Fn(f32, usize, usize) -> f32) -> Vec<[Vec<f32>; 4]> {
        let head = |idx: usize| {
            let seed = 10 * idx as u64;
            let q = normal(seed, N * D_HEAD, sizes[0]);
            let k = normal(seed + 1, N * D_HEAD, sizes[1]);
            let cell = |at: usize| {
                let rows = (q.chunks(D_HEAD).nth(at / N), k.chunks(D_HEAD).nth(at % N));
                let (q, k) = (rows.0.expect("a query"), rows.1.expect("a key"));
                let product: f32 = q.iter().zip(k).map(|(q, k)| q * k).sum();
                if at % N > at / N {
                    f32::NEG_INFINITY
                } else {
                    of(product, idx, at)
                }
            };
            let scores = (0..N * N).map(cell).collect();
            [scores, q, k, normal(seed + 2, N * D_HEAD, 1.0)]
        };
        (0..2).map(head).collect()
    }

    fn found(sizes: [f32; 2], of: &dyn Fn(f32, usize, usize) -> f32) -> Option<ScoreScale> {
        let visibility = Visibility::of_self(Mask::with_width(true, None), N, None);
        let heads = heads(sizes, of);
        let heads: Vec<ScaledHead<'_>> = heads
            .iter()
            .map(|[scores, q, k, v]| ScaledHead {
                scores,
                q,
                k,
                v: Some(v),
            })
            .collect();
        ScoreScale::of(&heads, &visibility, D_HEAD, None, 1e-3)
    }

    #[test]
    fn one_factor_is_found_whatever_is_added_to_a_row() {
        for factor in [0.25, 1.0, 4.0] {
            let scale = found([1.0, 1.0], &|s, _, at| factor * s + (at / N) as f32).expect("one");
            assert!(
                (scale.factor / f64::from(factor) - 1.0).abs() < 1e-4,
                "{scale:?}"
            );
            assert_eq!((scale.d_head, scale.n_heads, scale.d_model), (16, 2, 32));
            let norms = scale.norms.expect("norms");
            assert!(!norms.is_even && !norms.is_scaled, "{norms:?}");
        }
    }

    #[test]
    fn a_bias_a_cap_and_a_factor_for_each_head_are_no_factor_of_the_layer() {
        assert_eq!(
            found([1.0, 1.0], &|s, _, at| 0.25 * s + (at % 5) as f32),
            None
        );
        assert_eq!(
            found([1.0, 1.0], &|s, _, _| 2.0 * (0.25 * s / 2.0).tanh()),
            None
        );
        assert_eq!(
            found([1.0, 1.0], &|s, head, _| (1.0 + head as f32) * s),
            None
        );
    }

    #[test]
    fn queries_that_were_scaled_before_the_product_are_noticed() {
        for sizes in [[0.25, 1.0], [0.5, 0.5], [1.0, 0.25]] {
            let norms = found(sizes, &|s, _, _| s)
                .expect("one")
                .norms
                .expect("norms");
            assert!(norms.is_scaled, "{sizes:?}: {norms:?}");
        }
    }
}
