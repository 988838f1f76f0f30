//! Accumulates finished rows of one head, query after query, on the reference path.

use super::mask::Visibility;
use super::pooled::Pooled;
use super::repeats::Repeats;
use super::samples::sampled_queries;
use super::summary::{HeadSummary, RowSummary};

/// Statistics of the rows of one head so far.
pub struct Tally<'a> {
    repeats: Option<&'a Repeats>,
    first_query: usize,
    rows: Vec<RowSummary>,
    column_sums: Vec<f64>,
    pooled: Pooled,
    sampled: Vec<usize>,
    samples: Vec<f32>,
}

impl<'a> Tally<'a> {
    /// `repeats`: repeated tokens, if queries and keys are the same tokens.
    pub fn new(visibility: &Visibility, repeats: Option<&'a Repeats>) -> Self {
        let (n_queries, n_keys) = (visibility.n_queries, visibility.n_keys);
        let sampled = sampled_queries(visibility);
        Self {
            repeats,
            first_query: visibility.first_query(),
            rows: Vec::with_capacity(visibility.n_queries_to_run()),
            column_sums: vec![0.0; n_keys],
            pooled: Pooled::new(n_queries, n_keys),
            samples: Vec::with_capacity(sampled.len() * n_keys),
            sampled,
        }
    }

    /// Adds the next query's row. // pattern: [key]
    pub fn add(&mut self, mut summary: RowSummary, pattern: &[f32]) {
        let query_idx = self.first_query + self.rows.len();
        if let Some(repeats) = self.repeats
            && repeats.before(query_idx).next().is_some()
        {
            (summary.duplicate_mass, summary.induction_mass) =
                repeats.masses(query_idx, |key_idx| pattern[key_idx]);
        }
        if self.sampled.contains(&query_idx) {
            self.samples.extend_from_slice(pattern);
        }
        // Padded queries are ignored.
        if summary.is_real {
            for (sum, p) in self.column_sums.iter_mut().zip(pattern) {
                *sum += f64::from(*p);
            }
            self.pooled.add_row(query_idx, pattern);
        }
        self.rows.push(summary);
    }

    /// Returns the head's summary, once all rows were added.
    pub fn finish(self, k_norms: Vec<f32>, visibility: &Visibility) -> HeadSummary {
        HeadSummary {
            rows: self.rows,
            column_sums: self.column_sums.iter().map(|sum| *sum as f32).collect(),
            k_norms,
            value_norms: Vec::new(),
            real_keys: visibility.real_keys().map(<[bool]>::to_vec),
            global_tokens: visibility.global_tokens(),
            pooled: self.pooled,
            samples: self.samples,
        }
    }
}
