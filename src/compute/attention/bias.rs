//! Position biases: ALiBi's slopes, a learned value per distance bucket, or learned vectors per distance.

use half::bf16;

/// slope · (key − query) per head (Press et al. 2021, arXiv 2108.12409).
#[derive(Debug, Clone, PartialEq)]
pub struct Alibi {
    /// [head]
    pub slopes: Vec<f32>,
    /// The bias is added before the scale is applied, so the scale multiplies it too (Falcon).
    pub is_scaled: bool,
    /// Slope and product are rounded to bf16, and the product uses the key's position instead of its distance from the query
    /// (Falcon).
    pub rounds_to_bf16: bool,
    /// Symmetric: −slope · |key − query|, so that later keys are penalised too, as in encoders.
    pub is_both_ways: bool,
}

impl Alibi {
    /// The usual slopes: 2^(−8i/p) for the largest power of two p ≤ n_heads, then the odd-numbered slopes of 2p heads.
    pub fn new(n_heads: usize, max_bias: f64) -> Self {
        let p = 1usize << n_heads.max(1).ilog2();
        let slope = |i: usize, of: usize| (-max_bias * i as f64 / of as f64).exp2() as f32;
        let first = (1..=p).map(|i| slope(i, p));
        let rest = (0..n_heads - p).map(|i| slope(2 * i + 1, 2 * p));
        Self {
            slopes: first.chain(rest).collect(),
            is_scaled: false,
            rounds_to_bf16: false,
            is_both_ways: false,
        }
    }

    /// The bias added to the scaled score of a pair.
    pub fn of(
        &self,
        head_idx: usize,
        query_position: usize,
        key_position: usize,
        scale: f32,
    ) -> f32 {
        let slope = self.slopes[head_idx];
        let bias = if self.rounds_to_bf16 {
            // The model was trained with this rounding, so it is reproduced.
            let product = bf16::from_f32(slope).to_f32() * key_position as f32;
            bf16::from_f32(product).to_f32()
        } else {
            let distance = key_position as f32 - query_position as f32;
            slope
                * if self.is_both_ways {
                    -distance.abs()
                } else {
                    distance
                }
        };
        if self.is_scaled { bias * scale } else { bias }
    }
}

/// Distances that have a bucket each: its number is the distance plus that of the query's own position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EachDistance {
    /// The bucket of a query with its own position.
    pub own: usize,
    /// Counts query − key; key − query otherwise.
    pub counts_back: bool,
}

/// A learned value per head and bucket of key − query: exact for short distances, logarithmic beyond
/// (Raffel et al. 2020, arXiv 1910.10683).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buckets {
    pub n_buckets: usize,
    /// Distances from this one on share the last bucket.
    pub max_distance: usize,
    /// Half of the buckets are used for keys after the query.
    pub is_bidirectional: bool,
    /// Set if every distance has a bucket of its own, and those beyond the first or the last bucket share it. The two fields above
    /// then say nothing.
    pub each: Option<EachDistance>,
    /// The bias is added before the scale is applied, so the scale multiplies it too.
    pub is_scaled: bool,
    /// The learned table has a row per head, not per bucket.
    pub is_by_head: bool,
    /// Pairs that have buckets of their own, whatever the distance.
    pub across: Option<Across>,
}

/// Pairs of one of the first positions and one behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Across {
    pub n_firsts: usize,
    /// The bucket of a query among the first ones with a key behind them.
    pub from_first: usize,
    /// That of a query behind the first ones with a key among them.
    pub to_first: usize,
}

impl Buckets {
    /// Buckets to both sides or to one, whose values are added to scaled scores.
    pub const fn plain(n_buckets: usize, max_distance: usize, is_bidirectional: bool) -> Self {
        Self {
            n_buckets,
            max_distance,
            is_bidirectional,
            each: None,
            is_scaled: false,
            is_by_head: false,
            across: None,
        }
    }

    /// The bucket of a pair.
    pub fn of_pair(self, query_idx: usize, key_idx: usize) -> usize {
        let is_first = |across: &Across, idx: usize| idx < across.n_firsts;
        match self.across {
            Some(across) if is_first(&across, query_idx) != is_first(&across, key_idx) => {
                if is_first(&across, query_idx) {
                    across.from_first
                } else {
                    across.to_first
                }
            }
            _ => self.of(key_idx as isize - query_idx as isize),
        }
    }

    /// The bucket of a distance key − query.
    pub fn of(self, relative: isize) -> usize {
        if let Some(each) = self.each {
            let distance = if each.counts_back {
                -relative
            } else {
                relative
            };
            let bucket = usize::try_from(each.own as isize + distance).unwrap_or(0);
            return bucket.min(self.n_buckets.saturating_sub(1));
        }
        let (first, n) = if self.is_bidirectional {
            let n = self.n_buckets / 2;
            (if relative > 0 { n } else { 0 }, n)
        } else {
            (0, self.n_buckets)
        };
        let distance = if self.is_bidirectional {
            relative.unsigned_abs()
        } else {
            (-relative).max(0) as usize
        };
        let n_exact = n / 2;
        if distance < n_exact {
            return first + distance;
        }
        // In f32, as in training: at bucket borders the last bit decides.
        let ratio = (distance as f32 / n_exact as f32).ln()
            / ((self.max_distance as f64 / n_exact as f64).ln() as f32);
        let bucket = n_exact + (ratio * (n - n_exact) as f32) as usize;
        first + bucket.min(n - 1)
    }

    /// The bias of one head for every distance −(n_queries − 1) … n_keys − 1, in this order.
    ///
    /// `values` is the learned table, [bucket, head] or [head, bucket]; `scale` is the factor of scores.
    pub fn by_distance(
        self,
        values: &[f32],
        (n_heads, scale): (usize, f32),
        head_idx: usize,
        n_queries: usize,
        n_keys: usize,
    ) -> Vec<f32> {
        let first = 1 - n_queries as isize;
        let value = self.values_of(values, (n_heads, scale), head_idx);
        (first..n_keys as isize)
            .map(|relative| value(self.of(relative)))
            .collect()
    }

    /// The bias of one head for every pair, where some pairs have buckets of their own. // [query, key]
    pub fn by_pair(
        self,
        values: &[f32],
        heads: (usize, f32),
        head_idx: usize,
        [n_queries, n_keys]: [usize; 2],
    ) -> Vec<f32> {
        let value = self.values_of(values, heads, head_idx);
        let pair = |nth: usize| value(self.of_pair(nth / n_keys.max(1), nth % n_keys.max(1)));
        (0..n_queries * n_keys).map(pair).collect()
    }

    /// The bias of a bucket for one head.
    fn values_of(
        self,
        values: &[f32],
        (n_heads, scale): (usize, f32),
        head_idx: usize,
    ) -> impl Fn(usize) -> f32 {
        let factor = if self.is_scaled { scale } else { 1.0 };
        move |bucket| {
            let at = if self.is_by_head {
                head_idx * self.n_buckets + bucket
            } else {
                bucket * n_heads + head_idx
            };
            factor * values[at]
        }
    }

    /// The bias of one head where every query has values of its own. // values: [query, bucket · n_heads] → [query, key]
    pub fn by_query(
        self,
        (values, n_heads, head_idx): (&[f32], usize, usize),
        [n_queries, n_keys]: [usize; 2],
    ) -> Vec<f32> {
        let row = |query_idx: usize| {
            let own = &values[query_idx * self.n_buckets * n_heads..];
            let relative = move |key_idx: usize| key_idx as isize - query_idx as isize;
            (0..n_keys).map(move |key_idx| own[self.of(relative(key_idx)) * n_heads + head_idx])
        };
        (0..n_queries).flat_map(row).collect()
    }
}

/// A learned value per head, query and key, for the first positions of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pairs {
    /// The number of positions that have values.
    pub n_positions: usize,
    /// All heads have the same values.
    pub is_shared: bool,
}

impl Pairs {
    /// The bias of one head for all pairs of positions. // values: [head, query, key] → [query, key]
    pub fn of_head(
        self,
        values: &[f32],
        head_idx: usize,
        [queries, keys]: [&[usize]; 2],
    ) -> Vec<f32> {
        let n = self.n_positions;
        let first = if self.is_shared { 0 } else { head_idx * n * n };
        // Longer texts are refused; the last values stand for what a simulation runs beyond them.
        let last = n.saturating_sub(1);
        let at = |query: usize, key: usize| values[first + query.min(last) * n + key.min(last)];
        let rows = queries.iter();
        rows.flat_map(|query| keys.iter().map(move |key| at(*query, *key)))
            .collect()
    }
}

/// Maps a distance query − key to its row in a table of learned vectors (He et al. 2020, arXiv 2006.03654).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relative {
    /// Number of rows on either side; larger distances share the last one.
    pub span: usize,
    /// Set if distances beyond half the span share rows logarithmically: the distance that the last row stands for.
    pub log_until: Option<usize>,
}

impl Relative {
    pub fn n_rows(self) -> usize {
        2 * self.span
    }

    /// The row of a distance query − key.
    pub fn row(self, relative: isize) -> usize {
        let distance = match self.log_until {
            Some(until) => self.shared(relative, until),
            None => relative,
        };
        let last = 2 * self.span as isize - 1;
        (distance + self.span as isize).clamp(0, last) as usize
    }

    /// The compressed distance, if long distances share rows.
    fn shared(self, relative: isize, until: usize) -> isize {
        let middle = self.span / 2;
        let distance = relative.unsigned_abs();
        if distance <= middle {
            return relative;
        }
        // In f32, as in training: at row borders the last bit decides.
        let ratio =
            (distance as f32 / middle as f32).ln() / ((until as f32 - 1.0) / middle as f32).ln();
        let row = (ratio * (middle as f32 - 1.0)).ceil() as isize + middle as isize;
        row * relative.signum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symmetric_bias_decreases_on_both_sides() {
        let causal = Alibi::new(2, 8.0);
        let both = Alibi {
            is_both_ways: true,
            ..causal.clone()
        };
        let of = |alibi: &Alibi, key: usize| alibi.of(0, 3, key, 1.0) / causal.slopes[0];
        assert_eq!([of(&causal, 1), of(&causal, 5)], [-2.0, 2.0]);
        assert_eq!([of(&both, 1), of(&both, 5)], [-2.0, -2.0]);
    }

    #[test]
    fn slopes_of_a_power_of_two_halve_and_other_head_counts_interpolate() {
        let of_eight = Alibi::new(8, 8.0).slopes;
        assert_eq!(of_eight[..3], [0.5, 0.25, 0.125]);
        let of_six = Alibi::new(6, 8.0).slopes;
        assert_eq!(of_six[..4], [0.25, 0.0625, 0.015625, 0.00390625]);
        assert_eq!(of_six[4..], [0.5, 0.125]);
    }

    #[test]
    fn short_distances_have_their_own_buckets_and_long_ones_share() {
        let decoder = Buckets::plain(32, 128, false);
        assert_eq!(
            (0..16).map(|d| decoder.of(-d)).collect::<Vec<_>>(),
            (0..16).collect::<Vec<_>>()
        );
        assert_eq!(decoder.of(3), 0, "later keys are not distance");
        assert_eq!(
            (decoder.of(-16), decoder.of(-127), decoder.of(-5000)),
            (16, 31, 31)
        );
        let encoder = Buckets {
            is_bidirectional: true,
            ..decoder
        };
        assert_eq!((encoder.of(-3), encoder.of(3)), (3, 19));
        assert_eq!(encoder.of(200), 31);
    }

    #[test]
    fn pairs_across_the_end_of_the_first_positions_may_have_buckets_of_their_own() {
        let across = Across {
            n_firsts: 1,
            from_first: 4,
            to_first: 5,
        };
        let buckets = Buckets {
            across: Some(across),
            ..Buckets::plain(4, 4, true)
        };
        let values: Vec<f32> = (0..6).map(|bucket| bucket as f32).collect();
        let made = buckets.by_pair(&values, (1, 1.0), 0, [3, 3]);
        assert_eq!(made, [0.0, 4.0, 4.0, 5.0, 0.0, 3.0, 5.0, 1.0, 0.0]);
    }

    #[test]
    fn every_query_may_have_values_of_its_own() {
        // Two queries, two buckets, two heads, of which the second is asked for.
        let values = [9.0, 1.0, 9.0, 2.0, 9.0, 3.0, 9.0, 4.0];
        let buckets = Buckets::plain(2, 4, false);
        let made = buckets.by_query((&values, 2, 1), [2, 2]);
        assert_eq!(made, [1.0, 1.0, 4.0, 3.0]);
    }

    #[test]
    fn every_distance_may_have_its_own_bucket() {
        let each = |own, counts_back| Buckets {
            each: Some(EachDistance { own, counts_back }),
            ..Buckets::plain(5, 0, true)
        };
        let rows = |buckets: Buckets| (-4..=4).map(|d| buckets.of(d)).collect::<Vec<_>>();
        assert_eq!(rows(each(2, false)), [0, 0, 0, 1, 2, 3, 4, 4, 4]);
        assert_eq!(rows(each(0, true)), [4, 3, 2, 1, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn relative_rows_lie_on_both_sides_of_the_middle_and_long_distances_share_rows() {
        let plain = Relative {
            span: 4,
            log_until: None,
        };
        let rows: Vec<usize> = (-6..=6).map(|d| plain.row(d)).collect();
        assert_eq!(rows, [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7]);
        let shared = Relative {
            span: 8,
            log_until: Some(64),
        };
        let row = |d| shared.row(d);
        assert_eq!((row(0), row(3), row(-3), row(4)), (8, 11, 5, 12));
        assert_eq!((row(5), row(63), row(-63), row(500)), (13, 15, 1, 15));
        assert!((0..64).all(|d| row(d) <= row(d + 1)));
    }
}
