//! A few whole rows of a pattern, used to compare the heads of a layer.

use super::mask::Visibility;

/// Number of rows sampled per head; with fewer, heads are not compared.
pub const N_SAMPLED: usize = 8;

/// The queries whose rows are sampled: evenly spread over real tokens, including the last.
pub fn sampled_queries(visibility: &Visibility) -> Vec<usize> {
    let all = 0..visibility.n_queries;
    let real: Vec<usize> = all.filter(|idx| visibility.is_real_query(*idx)).collect();
    let n = N_SAMPLED.min(real.len());
    (1..=n)
        .map(|nth| real[(nth * real.len()).div_ceil(n) - 1])
        .collect()
}

/// Sampled rows of one head, prepared for comparison.
#[derive(Debug, Clone)]
pub struct Sampled {
    n_keys: usize,
    /// [sample, key]
    rows: Vec<f32>,
    /// Σ p ln p of each row.
    terms: Vec<f64>,
}

impl Sampled {
    /// `is_whole`: rows sum to 1. Otherwise (a learned sink) rows are renormalised before they are compared.
    pub fn new(mut rows: Vec<f32>, n_keys: usize, is_whole: bool) -> Self {
        let n_keys = n_keys.max(1);
        if !is_whole {
            for row in rows.chunks_mut(n_keys) {
                let mass: f64 = row.iter().map(|p| f64::from(*p)).sum();
                if mass > 0.0 {
                    row.iter_mut()
                        .for_each(|p| *p = (f64::from(*p) / mass) as f32);
                }
            }
        }
        let terms = rows
            .chunks(n_keys)
            .map(|row| row.iter().map(|p| term(f64::from(*p))).sum());
        Self {
            terms: terms.collect(),
            n_keys,
            rows,
        }
    }

    /// The mean over rows of the Jensen–Shannon divergence of two heads' rows, in nats, from 0 to ln 2. `None` if it exceeds
    /// `most`, which is noticed before all rows are read, or if fewer than 8 rows can be compared.
    ///
    /// Rows that are zero in both heads (queries without a visible key) are ignored.
    pub fn divergence(&self, other: &Self, most: f64) -> Option<f64> {
        let n_rows = self.terms.len();
        let (mut n, mut sum) = (0usize, 0.0);
        let rows = self
            .rows
            .chunks(self.n_keys)
            .zip(other.rows.chunks(self.n_keys));
        let terms = self.terms.iter().zip(&other.terms);
        for ((p, q), (of_p, of_q)) in rows.zip(terms) {
            if p.iter().chain(q).all(|value| *value == 0.0) {
                continue;
            }
            n += 1;
            let mixed = p
                .iter()
                .zip(q)
                .map(|(p, q)| term(0.5 * (f64::from(*p) + f64::from(*q))));
            // H((p + q)/2) − (H(p) + H(q))/2.
            sum += 0.5 * (of_p + of_q) - mixed.sum::<f64>();
            if sum > most * n_rows as f64 {
                return None;
            }
        }
        let mean = sum / n as f64;
        (n >= N_SAMPLED && mean <= most).then_some(mean)
    }
}

/// p ln p, 0 at 0.
fn term(p: f64) -> f64 {
    if p == 0.0 { 0.0 } else { p * p.ln() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::Mask;

    const OPEN: Mask = Mask {
        causal: false,
        window: None,
        streaming: None,
        pools: None,
    };

    fn sampled(n: usize, real: Option<&[bool]>) -> Vec<usize> {
        sampled_queries(&Visibility::of_self(OPEN, n, real))
    }

    #[test]
    fn sampled_rows_are_spread_evenly_over_tokens_and_include_the_last() {
        assert_eq!(sampled(8, None), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(sampled(3, None), [0, 1, 2]);
        let long = sampled(16384, None);
        assert_eq!((long.len(), long[3], long[7]), (8, 8191, 16383));
        let left: Vec<bool> = (0..40).map(|idx| idx >= 30).collect();
        assert_eq!(sampled(40, Some(&left)), [31, 32, 33, 34, 36, 37, 38, 39]);
    }

    /// Two heads of eight rows each.
    fn divergence(p: &[f32], q: &[f32], most: f64, is_whole: bool) -> Option<f64> {
        let of = |row: &[f32]| Sampled::new(row.repeat(N_SAMPLED), row.len(), is_whole);
        of(p).divergence(&of(q), most)
    }

    #[test]
    fn equal_rows_do_not_diverge_and_disjoint_ones_do_by_ln_2() {
        let (p, q) = ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]);
        assert_eq!(divergence(&p, &p, 1.0, true), Some(0.0));
        let apart = divergence(&p, &q, 1.0, true).expect("within reach");
        assert!((apart - std::f64::consts::LN_2).abs() < 1e-12);
        assert_eq!(divergence(&p, &q, 0.5, true), None);
    }

    #[test]
    fn rows_with_a_sink_are_compared_after_renormalising() {
        let (p, q) = ([0.005, 0.0, 0.0, 0.005], [0.0, 0.008, 0.002, 0.0]);
        let faint = divergence(&p, &q, 1.0, true).expect("within reach");
        assert!(faint < 0.01, "{faint}");
        let apart = divergence(&p, &q, 1.0, false).expect("within reach");
        assert!((apart - std::f64::consts::LN_2).abs() < 1e-6, "{apart}");
        // The shares of the remainder are compared, so a copy with a different sink is still a copy.
        let half = p.map(|p| 0.5 * p);
        assert!(divergence(&p, &half, 1.0, false).is_some_and(|apart| apart < 1e-6));
    }

    #[test]
    fn fewer_than_eight_rows_are_not_compared() {
        let row = [0.5f32, 0.5];
        let zeros = [0.0f32; 2];
        for (n_rows, n_empty, is_compared) in
            [(8, 0, true), (7, 0, false), (7, 1, false), (8, 3, true)]
        {
            let rows = [row.repeat(n_rows), zeros.repeat(n_empty)].concat();
            let head = Sampled::new(rows, 2, true);
            let divergence = head.divergence(&head, 1.0);
            assert_eq!(divergence.is_some(), is_compared, "{n_rows} and {n_empty}");
        }
    }
}
