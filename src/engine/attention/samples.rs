//! A few whole rows of a pattern, so that heads of a layer can be compared while they are all at hand.

/// Rows at most.
const MOST_ROWS: usize = 8;
/// Values of one head at most.
const MOST_VALUES: usize = 1 << 16;

/// The queries whose rows are sampled: evenly spread, the last among them.
pub fn sampled_queries(n_queries: usize, n_keys: usize) -> Vec<usize> {
    let n = MOST_ROWS
        .min(MOST_VALUES / n_keys.max(1))
        .clamp(1, n_queries.max(1));
    (1..=n)
        .map(|nth| (nth * n_queries).div_ceil(n) - 1)
        .collect()
}

/// Sampled rows of one head, ready to be compared.
#[derive(Debug, Clone)]
pub struct Sampled {
    n_keys: usize,
    /// [sample, key]
    rows: Vec<f32>,
    /// Σ p ln p of each row.
    terms: Vec<f64>,
}

impl Sampled {
    pub fn new(rows: Vec<f32>, n_keys: usize) -> Self {
        let n_keys = n_keys.max(1);
        let terms = rows
            .chunks(n_keys)
            .map(|row| row.iter().map(|p| term(f64::from(*p))).sum());
        Self {
            terms: terms.collect(),
            n_keys,
            rows,
        }
    }

    /// How far two heads' rows lie apart: the mean over rows of the Jensen–Shannon divergence, in nats, from 0 to ln 2; `None`
    /// where it is more than `most`, which is seen before all rows are.
    ///
    /// Rows that are all zero in both, which padded queries and queries without a visible key have, count nowhere.
    pub fn divergence(&self, other: &Self, most: f64) -> Option<f64> {
        let n_rows = self.terms.len();
        let (mut n, mut sum) = (0u32, 0.0);
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
        let mean = sum / f64::from(n);
        (mean <= most).then_some(mean)
    }
}

/// p ln p, 0 at 0.
fn term(p: f64) -> f64 {
    if p == 0.0 { 0.0 } else { p * p.ln() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_spread_evenly_and_end_at_the_last() {
        assert_eq!(sampled_queries(8, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(sampled_queries(3, 3), [0, 1, 2]);
        let long = sampled_queries(16384, 16384);
        assert_eq!((long.len(), long[3]), (4, 16383));
    }

    #[test]
    fn equal_rows_do_not_diverge_and_disjoint_ones_do_by_ln_2() {
        let (p, q) = ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]);
        let of = |p: &[f32], q: &[f32], most: f64| {
            Sampled::new(p.to_vec(), 4).divergence(&Sampled::new(q.to_vec(), 4), most)
        };
        assert_eq!(of(&p, &p, 1.0), Some(0.0));
        let apart = of(&p, &q, 1.0).expect("within reach");
        assert!((apart - std::f64::consts::LN_2).abs() < 1e-12);
        assert_eq!(of(&p, &q, 0.5), None);
        // A row that nobody has counts nowhere.
        let zeros = [0.0; 4];
        assert_eq!(
            of(&[p, zeros].concat(), &[q, zeros].concat(), 1.0),
            Some(apart)
        );
    }
}
