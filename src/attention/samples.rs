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

/// How far two heads' rows lie apart: the mean over rows of the Jensen–Shannon divergence, in nats; from 0 to ln 2.
///
/// Rows that are all zero in both, which padded queries and queries without a visible key have, count nowhere.
pub fn divergence(first: &[f32], second: &[f32], n_keys: usize) -> f64 {
    let (mut n, mut sum) = (0u32, 0.0);
    for (p, q) in first.chunks(n_keys).zip(second.chunks(n_keys)) {
        if p.iter().chain(q).all(|value| *value == 0.0) {
            continue;
        }
        n += 1;
        sum += of_rows(p, q);
    }
    sum / f64::from(n)
}

/// H((p + q)/2) − (H(p) + H(q))/2.
fn of_rows(p: &[f32], q: &[f32]) -> f64 {
    let term = |value: f64| {
        if value == 0.0 {
            0.0
        } else {
            value * value.ln()
        }
    };
    let pairs = p.iter().zip(q);
    pairs
        .map(|(p, q)| {
            let (p, q) = (f64::from(*p), f64::from(*q));
            0.5 * (term(p) + term(q)) - term(0.5 * (p + q))
        })
        .sum()
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
        assert_eq!(divergence(&p, &p, 4), 0.0);
        assert!((divergence(&p, &q, 4) - std::f64::consts::LN_2).abs() < 1e-12);
        // A row that nobody has counts nowhere.
        let zeros = [0.0; 4];
        let with_zeros = [&p[..], &zeros].concat();
        assert_eq!(
            divergence(&with_zeros, &[&q[..], &zeros].concat(), 4),
            divergence(&p, &q, 4)
        );
    }
}
