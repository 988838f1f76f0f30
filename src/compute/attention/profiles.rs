//! A position bias made of learned profiles over distances, which every query mixes by what its position holds.

use std::ops::Range;

use crate::kernels::{Matrix, MatrixMut, Threads, product};

/// Learned profiles: a value for each distance query − key from 0 on. Keys beyond them and keys after a query get nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profiles {
    pub n: usize,
    pub n_distances: usize,
}

/// The bias of the queries of one head.
#[derive(Debug, Clone)]
pub struct ProfileBias {
    first_query: usize,
    n_distances: usize,
    /// [query, distance]
    values: Vec<f32>,
}

impl ProfileBias {
    /// Mixes the profiles for each query of a head. // profiles: [profile, distance]; factors: [query, n_heads · profile]
    pub fn new(
        profiles: Profiles,
        values: &[f32],
        (factors, n_heads, head_idx): (&[f32], usize, usize),
        queries: Range<usize>,
    ) -> Self {
        let Profiles { n, n_distances } = profiles;
        let (n_queries, width) = (queries.len(), n_heads * n);
        let mut mixed = vec![0.0; n_queries * n_distances];
        let of_head = &factors[queries.start * width + head_idx * n..];
        let from = Matrix::new(of_head, n_queries, n, width, 1);
        let by = Matrix::new(values, n, n_distances, n_distances, 1);
        let mut to = MatrixMut::new(&mut mixed, n_queries, n_distances, n_distances);
        product(&mut to, from, by, false, Threads::One);
        Self {
            first_query: queries.start,
            n_distances,
            values: mixed,
        }
    }

    /// The bias added to the scaled score of a pair.
    pub fn of(&self, query_idx: usize, key_idx: usize) -> f32 {
        match query_idx.checked_sub(key_idx) {
            Some(distance) if distance < self.n_distances => {
                self.values[(query_idx - self.first_query) * self.n_distances + distance]
            }
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_mixes_profiles_and_far_or_later_keys_get_nothing() {
        let profiles = Profiles {
            n: 2,
            n_distances: 2,
        };
        // Two heads; the second is asked for, from the second query on.
        let factors = [0.0, 0.0, 9.0, 9.0, 5.0, 5.0, 1.0, 2.0, 5.0, 5.0, 0.5, 0.0];
        let bias = ProfileBias::new(profiles, &[10.0, 20.0, 1.0, 3.0], (&factors, 2, 1), 1..3);
        let at = |query, key| bias.of(query, key);
        assert_eq!([at(1, 1), at(1, 0), at(1, 2)], [12.0, 26.0, 0.0]);
        assert_eq!([at(2, 2), at(2, 1), at(2, 0)], [5.0, 10.0, 0.0]);
    }
}
