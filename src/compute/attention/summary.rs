//! Statistics of one row of scores and pattern, computed in one pass. All other statistics derive from these.

use std::ops::Range;

use super::pooled::Pooled;
use super::spec::Mask;

/// Statistics of one query of one head. Sums run over the visible keys.
///
/// Fields that are undefined for the row (no visible key) are NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowSummary {
    /// Number of visible keys.
    pub n_visible: u32,
    /// The query is a token, not padding.
    pub is_real: bool,
    /// Some visible score is NaN or infinite.
    pub is_nonfinite: bool,
    /// The key with the largest probability.
    pub argmax: u32,

    /// Statistics of the scores as they enter the softmax.
    pub score_mean: f32,
    /// Population variance.
    pub score_var: f32,
    pub score_min: f32,
    pub score_max: f32,
    /// √Σ s².
    pub score_norm: f32,

    /// Statistics of scale·q·k, before softcap and bias: mean, population variance, extremes.
    pub raw_mean: f32,
    pub raw_var: f32,
    pub raw_min: f32,
    pub raw_max: f32,

    /// log Σ exp(s); includes the learned sink.
    pub log_sum_exp: f32,
    /// −Σ p log p, in nats.
    pub entropy: f32,
    /// Σ p: 1 for a softmax over keys, less with a learned sink, any value for a softmax over queries.
    pub mass: f32,
    /// Sparse attention: the share of the probability that full attention would give to all visible keys, on those that are
    /// kept. Then all other fields are those of the kept keys. NaN if no key is dropped, and for a softmax over queries.
    pub recall: f32,
    /// Largest and second largest probability.
    pub top1: f32,
    pub top2: f32,
    /// Σ p² and Σ p³.
    pub sum_p2: f32,
    pub sum_p3: f32,
    /// Probability of the first token, of the query's own, and of the one before it; padding does not count as a token.
    pub first_mass: f32,
    pub diagonal_mass: f32,
    pub previous_mass: f32,
    /// Probability of earlier keys with the query's own token, and of the keys that follow them; NaN if there are none.
    pub duplicate_mass: f32,
    pub induction_mass: f32,
    /// Probability of keys after the query's own place.
    pub later_mass: f32,
    /// Σ p·|query − key|.
    pub distance: f32,
    /// Σ p·‖v W_O‖, and the entropy of each key's share of it, in nats; NaN if value norms are not known. The entropy is 0 if the
    /// sum is below 1e-30 of the head's largest norm.
    pub contribution: f32,
    pub contribution_entropy: f32,

    /// ‖q‖.
    pub q_norm: f32,
    /// Σ ‖k‖² over visible keys.
    pub k_norm_sq_sum: f32,
    /// Mean cosine of the query with its visible keys.
    pub cosine: f32,
}

impl RowSummary {
    /// A row that sees nothing, or whose query is unknown.
    pub fn empty(is_real: bool) -> Self {
        Self {
            n_visible: 0,
            is_real,
            is_nonfinite: false,
            argmax: 0,
            score_mean: f32::NAN,
            score_var: f32::NAN,
            score_min: f32::NAN,
            score_max: f32::NAN,
            score_norm: f32::NAN,
            raw_mean: f32::NAN,
            raw_var: f32::NAN,
            raw_min: f32::NAN,
            raw_max: f32::NAN,
            log_sum_exp: f32::NEG_INFINITY,
            entropy: f32::NAN,
            mass: 0.0,
            recall: f32::NAN,
            top1: f32::NAN,
            top2: f32::NAN,
            sum_p2: f32::NAN,
            sum_p3: f32::NAN,
            first_mass: f32::NAN,
            diagonal_mass: f32::NAN,
            previous_mass: f32::NAN,
            duplicate_mass: f32::NAN,
            induction_mass: f32::NAN,
            later_mass: f32::NAN,
            distance: f32::NAN,
            contribution: f32::NAN,
            contribution_entropy: f32::NAN,
            q_norm: f32::NAN,
            k_norm_sq_sum: 0.0,
            cosine: f32::NAN,
        }
    }
}

impl RowSummary {
    /// Sums the probabilities of keys after the query's own place; of a row that is not finite nothing is known.
    pub(crate) fn add_later(&mut self, later: impl Iterator<Item = f32>) {
        self.later_mass = if self.mass.is_nan() {
            f32::NAN
        } else {
            later.map(f64::from).sum::<f64>() as f32
        };
    }
}

/// Statistics of one head of one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadSummary {
    /// One per query.
    pub rows: Vec<RowSummary>,
    /// Σ over real queries of the probability each key receives. // [key]
    pub column_sums: Vec<f32>,
    /// ‖k‖ per key. // [key]
    pub k_norms: Vec<f32>,
    /// ‖v W_O‖ per key: the length of what the head writes from it; empty if not known. // [key]
    pub value_norms: Vec<f32>,
    /// Flags of keys that are not padding; `None` if no key is padding. // [key]
    pub real_keys: Option<Vec<bool>>,
    /// Tokens that see all others and are seen by all others.
    pub global_tokens: Vec<usize>,
    pub pooled: Pooled,
    /// Whole rows of a few queries; held only while the layer's heads are compared. // [sample, key]
    pub samples: Vec<f32>,
}

impl HeadSummary {
    /// The queries that a mask lets see a key, ignoring padding, as non-overlapping ranges.
    pub fn queries_seeing(&self, mask: Mask, key_idx: usize) -> impl Iterator<Item = Range<usize>> {
        let n = self.rows.len();
        let is_global = self.global_tokens.contains(&key_idx);
        let first = if mask.causal { key_idx.min(n) } else { 0 };
        let near = if is_global {
            first..n
        } else {
            mask.queries_seeing(key_idx, n)
        };
        let apart = |idx: &&usize| **idx >= first && !near.contains(*idx);
        let apart: Vec<usize> = self.global_tokens.iter().filter(apart).copied().collect();
        std::iter::once(near).chain(apart.into_iter().map(|idx| idx..idx + 1))
    }

    /// Number of queries that a mask lets see a key, ignoring padding.
    pub fn n_queries_seeing(&self, mask: Mask, key_idx: usize) -> usize {
        let ranges = self.queries_seeing(mask, key_idx);
        ranges.map(|range| range.len()).sum()
    }
}
