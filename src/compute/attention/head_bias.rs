//! A head's learned bias: by distance alone, or by distance and content.

use super::bias::Relative;
use super::grid_steps::StepBias;
use super::head::{Head, HeadInput};
use super::profiles::ProfileBias;
use super::relative_tables::RelativeTables;
use super::run::Run;
use super::spec::Bias;
use crate::kernels::{Matrix, MatrixMut, Threads, product};

/// The learned bias of one head.
#[derive(Debug, Clone)]
pub enum HeadBias {
    None,
    /// One value for every distance from −(n_queries − 1) to n_keys − 1.
    ByDistance(Vec<f32>),
    /// One value for every query and key. // [query, key]
    ByCell(Vec<f32>),
    /// One value for every key.
    ByKey(Vec<f32>),
    ByPair(PairBias),
    BySteps(StepBias),
    ByProfile(ProfileBias),
    /// Any of the others, with log Σ exp(score) of what each row sees besides keys. // [query]
    Beside(Box<HeadBias>, Vec<f32>),
}

/// A bias that depends on the query, the key, and the distance between them.
#[derive(Debug, Clone)]
pub struct PairBias {
    relative: Relative,
    first_query: usize,
    /// Product of each query that runs with each row of the table. // [query, row]
    of_queries: Option<Vec<f32>>,
    /// Product of each key with each row of the table. // [key, row]
    of_keys: Option<Vec<f32>>,
    /// What each row of the table adds to every pair. // [row]
    of_rows: Option<Vec<f32>>,
}

impl PairBias {
    /// The bias added to the product of a pair, before the scale.
    fn of(&self, query_idx: usize, key_idx: usize) -> f32 {
        let n_rows = self.relative.n_rows();
        let row = self.relative.row(query_idx as isize - key_idx as isize);
        let at = |values: &Option<Vec<f32>>, idx: usize| {
            values.as_ref().map_or(0.0, |all| all[idx * n_rows + row])
        };
        at(&self.of_queries, query_idx - self.first_query)
            + at(&self.of_keys, key_idx)
            + at(&self.of_rows, 0)
    }
}

/// The bias by distance, times the factor of each query. // [query, key]
fn multiplied(
    by_distance: &[f32],
    (factors, n_heads, head_idx): (&[f32], usize, usize),
    [n_queries, n_keys]: [usize; 2],
) -> Vec<f32> {
    let row = |query_idx: usize| {
        let factor = factors[query_idx * n_heads + head_idx];
        let values = &by_distance[n_queries - 1 - query_idx..][..n_keys];
        values.iter().map(move |value| factor * value)
    };
    (0..n_queries).flat_map(row).collect()
}

impl HeadBias {
    /// The bias of one head of a run, with what its rows see besides keys.
    pub fn of(run: &Run<'_>, input: HeadInput<'_>, head_idx: usize) -> Self {
        let of_keys = Self::added(run, input, head_idx);
        match run.beside {
            Some(beside) => {
                let rows = beside.chunks(run.spec.n_heads.max(1));
                let of_head = rows.map(|row| row[head_idx]).collect();
                Self::Beside(Box::new(of_keys), of_head)
            }
            None => of_keys,
        }
    }

    /// What is added to the scores of one head of a run.
    fn added(run: &Run<'_>, input: HeadInput<'_>, head_idx: usize) -> Self {
        let spec = run.spec;
        let (n_queries, n_keys) = (run.visibility.n_queries, run.visibility.n_keys);
        match &spec.bias {
            Bias::Buckets(buckets) => match run.bucket_values {
                Some(values) => {
                    let heads = (spec.n_heads, spec.scale.of_bias(spec.d_head));
                    if buckets.across.is_some() {
                        let of = [n_queries, n_keys];
                        return Self::ByCell(buckets.by_pair(values, heads, head_idx, of));
                    }
                    let values = buckets.by_distance(values, heads, head_idx, n_queries, n_keys);
                    match run.bias_factors {
                        None => Self::ByDistance(values),
                        Some(factors) => {
                            let factors = (factors, spec.n_heads, head_idx);
                            Self::ByCell(multiplied(&values, factors, [n_queries, n_keys]))
                        }
                    }
                }
                None => match run.bias_factors {
                    Some(values) => {
                        let of = (values, spec.n_heads, head_idx);
                        Self::ByCell(buckets.by_query(of, [n_queries, n_keys]))
                    }
                    None => Self::None,
                },
            },
            Bias::Grid(distances) => match run.bucket_values {
                Some(values) => {
                    let heads = (spec.n_heads, head_idx);
                    let keys = &run.positions[..n_keys.min(run.positions.len())];
                    let of = (values, run.grid);
                    Self::ByCell(distances.of_head(of, heads, [run.positions, keys]))
                }
                None => Self::None,
            },
            Bias::Pairs(pairs) => match run.bucket_values {
                Some(values) => {
                    let keys = &run.positions[..n_keys.min(run.positions.len())];
                    Self::ByCell(pairs.of_head(values, head_idx, [run.positions, keys]))
                }
                None => Self::None,
            },
            Bias::Relative(relative) => match run.relative {
                Some(tables) => Self::by_pair(run, input, head_idx, *relative, tables),
                None => Self::None,
            },
            Bias::Steps(steps) => match run.relative {
                Some(tables) => {
                    let first_query = run.visibility.first_query();
                    let head = Head::new(spec, input, head_idx).with_first_query(first_query);
                    let of = (&head, head_idx);
                    let queries = first_query..n_queries;
                    let steps = steps.of_picture(n_keys, run.visibility.picked());
                    Self::BySteps(StepBias::new(spec, steps, &tables.steps, of, queries))
                }
                None => Self::None,
            },
            Bias::Profiles(profiles) => match (run.bucket_values, run.bias_factors) {
                (Some(values), Some(factors)) => {
                    let queries = run.visibility.first_query()..n_queries;
                    let of = (factors, spec.n_heads, head_idx);
                    Self::ByProfile(ProfileBias::new(*profiles, values, of, queries))
                }
                _ => Self::None,
            },
            Bias::OfValues => match run.relative.and_then(|tables| tables.of_values.as_ref()) {
                Some(made) => Self::ByKey(made.of_keys(input.v, spec.kv_head_of(head_idx))),
                None => Self::None,
            },
            Bias::None | Bias::Alibi(_) => Self::None,
        }
    }

    fn by_pair(
        run: &Run<'_>,
        input: HeadInput<'_>,
        head_idx: usize,
        relative: Relative,
        tables: &RelativeTables,
    ) -> Self {
        let spec = run.spec;
        let first_query = run.visibility.first_query();
        let head = Head::new(spec, input, head_idx).with_first_query(first_query);
        let n_rows = relative.n_rows();
        let width = spec.n_heads * spec.d_head;
        let products = |(from, stride): (&[f32], usize), n: usize, table: &Vec<f32>| {
            let mut values = vec![0.0; n * n_rows];
            let from = Matrix::new(from, n, spec.d_head, stride, 1);
            let table = &table[head_idx * spec.d_head..];
            let table = Matrix::new(table, n_rows, spec.d_head, width, 1);
            let mut to = MatrixMut::new(&mut values, n, n_rows, n_rows);
            product(&mut to, from, table.transposed(), false, Threads::One);
            values
        };
        let (n_queries, n_keys) = (run.visibility.n_queries_to_run(), run.visibility.n_keys);
        let of_queries = tables.keys.as_ref();
        let of_keys = tables.queries.as_ref();
        Self::ByPair(PairBias {
            relative,
            first_query,
            of_queries: of_queries
                .map(|table| products(head.queries_from(first_query), n_queries, table)),
            of_keys: of_keys.map(|table| products(head.keys_from(), n_keys, table)),
            of_rows: tables.of_rows.as_ref().map(|of_rows| {
                let of_head = head_idx * n_rows..(head_idx + 1) * n_rows;
                of_rows[of_head].to_vec()
            }),
        })
    }

    /// The bias added to the scaled score of a pair.
    pub fn at(&self, query_idx: usize, key_idx: usize, n_queries: usize, scale: f32) -> f32 {
        match self {
            Self::None => 0.0,
            Self::ByDistance(values) => values[n_queries - 1 - query_idx + key_idx],
            Self::ByCell(values) => values[values.len() / n_queries.max(1) * query_idx + key_idx],
            Self::ByKey(values) => values[key_idx],
            Self::ByPair(pairs) => scale * pairs.of(query_idx, key_idx),
            Self::BySteps(steps) => steps.of(query_idx, key_idx),
            Self::ByProfile(profiles) => profiles.of(query_idx, key_idx),
            Self::Beside(of_keys, _) => of_keys.at(query_idx, key_idx, n_queries, scale),
        }
    }

    /// What is added to scores, without what rows see besides keys.
    pub(super) fn of_keys(&self) -> &Self {
        match self {
            Self::Beside(of_keys, _) => of_keys,
            _ => self,
        }
    }

    /// log Σ exp(score) of what a query sees besides keys: the empty places of its window, or the other keys of its softmax.
    pub fn beside_keys(&self, query_idx: usize) -> Option<f32> {
        match self {
            Self::BySteps(steps) => steps.empty(query_idx),
            Self::Beside(_, rows) => rows.get(query_idx).copied(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_multiply_the_rows_of_their_queries() {
        // Distances −1, 0 and 1; two heads, of which the second is asked for.
        let made = multiplied(&[1.0, 2.0, 3.0], (&[9.0, 10.0, 9.0, 100.0], 2, 1), [2, 2]);
        assert_eq!(made, [20.0, 30.0, 100.0, 200.0]);
    }
}
