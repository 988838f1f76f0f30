//! Shows why attention is soft: the gradients that a lookup sends to its query and to each key, in hard and soft matching.
//!
//! A query q looks up values v_j by keys k_j. The loss is L = g·o, with g a random direction of length 1 and o the output of
//! the lookup.

use attnscope_compute::error::Result;
use attnscope_compute::kernels::softmax_row::softmax_in_place;
use attnscope_compute::kernels::vectors::dot;
use attnscope_compute::sample::{Distribution, Purpose, Random};
use rayon::prelude::*;

use super::room::{check_count, check_distribution, check_memory, refused};

/// Similarity of a query and a key. Each is scaled so that independent standard normal components give scores with a standard
/// deviation near 1, whatever the width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Similarity {
    /// q·k/√d.
    Dot,
    /// −‖q − k‖²/(2√d): the logarithm of a Gaussian kernel.
    Rbf,
    /// √d·cos(q, k).
    Cosine,
}

/// How a lookup computes its output from the scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// The value of the best key: o = v_w.
    Argmax,
    /// The value of the best key, times its score: o = s_w·v_w.
    Max,
    /// Σ softmax(s/T)_j v_j.
    Soft,
}

impl Similarity {
    pub const ALL: [Self; 3] = [Self::Dot, Self::Rbf, Self::Cosine];

    pub fn id(self) -> &'static str {
        match self {
            Self::Dot => "dot",
            Self::Rbf => "rbf",
            Self::Cosine => "cosine",
        }
    }

    /// Formula shown in tables.
    pub fn formula(self) -> &'static str {
        match self {
            Self::Dot => "q·k/√d",
            Self::Rbf => "-|q-k|²/(2√d)",
            Self::Cosine => "√d·cos(q,k)",
        }
    }

    fn score(self, q: &[f64], k: &[f64]) -> f64 {
        let root = (q.len() as f64).sqrt();
        match self {
            Self::Dot => dot(q, k) / root,
            Self::Rbf => {
                let square: f64 = q.iter().zip(k).map(|(q, k)| (q - k) * (q - k)).sum();
                -square / (2.0 * root)
            }
            Self::Cosine => root * dot(q, k) / (dot(q, q) * dot(k, k)).sqrt(),
        }
    }

    /// Derivatives of a score with respect to its query and its key.
    fn gradients(self, q: &[f64], k: &[f64]) -> [Vec<f64>; 2] {
        let root = (q.len() as f64).sqrt();
        let pairs = || q.iter().zip(k);
        match self {
            Self::Dot => [
                k.iter().map(|k| k / root).collect(),
                q.iter().map(|q| q / root).collect(),
            ],
            Self::Rbf => [
                pairs().map(|(q, k)| (k - q) / root).collect(),
                pairs().map(|(q, k)| (q - k) / root).collect(),
            ],
            Self::Cosine => {
                let (qq, kk, qk) = (dot(q, q), dot(k, k), dot(q, k));
                let factor = root / (qq * kk).sqrt();
                [
                    pairs().map(|(q, k)| factor * (k - q * qk / qq)).collect(),
                    pairs().map(|(q, k)| factor * (q - k * qk / kk)).collect(),
                ]
            }
        }
    }
}

/// One lookup.
#[derive(Debug, Clone, Copy)]
pub struct Lookup<'a> {
    pub similarity: Similarity,
    pub matching: Match,
    /// Divisor of the scores in a soft match.
    pub temperature: f64,
    pub q: &'a [f64],
    pub keys: &'a [Vec<f64>],
    /// g·v of each key. // [key]
    pub along: &'a [f64],
}

/// Derivatives of the loss.
#[derive(Debug, Clone, PartialEq)]
pub struct LookupGradients {
    pub of_query: Vec<f64>,
    /// [key, d]
    pub of_keys: Vec<Vec<f64>>,
    /// Keys by falling score.
    pub order: Vec<usize>,
    pub max_probability: f64,
}

impl Lookup<'_> {
    /// Computes the gradients. A hard match is constant except where the best key changes, so its gradients are 0.
    pub fn gradients(&self) -> LookupGradients {
        let scores: Vec<f64> = self
            .keys
            .iter()
            .map(|k| self.similarity.score(self.q, k))
            .collect();
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        let best = order.first().copied().unwrap_or(0);
        let mut max_probability = 1.0;
        // ∂L/∂s of each key.
        let of_scores: Vec<f64> = match self.matching {
            Match::Argmax => vec![0.0; scores.len()],
            Match::Max => {
                let of_key = |key_idx| {
                    if key_idx == best {
                        self.along[best]
                    } else {
                        0.0
                    }
                };
                (0..scores.len()).map(of_key).collect()
            }
            Match::Soft => {
                let mut weights = scores;
                softmax_in_place(&mut weights, 1.0 / self.temperature);
                max_probability = weights[best];
                let mean = dot(&weights, self.along);
                let pairs = weights.iter().zip(self.along);
                pairs
                    .map(|(p, along)| p * (along - mean) / self.temperature)
                    .collect()
            }
        };
        let mut of_query = vec![0.0; self.q.len()];
        let of_keys = self.keys.iter().zip(&of_scores).map(|(k, of_score)| {
            let [by_query, by_key] = self.similarity.gradients(self.q, k);
            let pairs = of_query.iter_mut().zip(by_query);
            pairs.for_each(|(sum, by)| *sum += of_score * by);
            by_key.into_iter().map(|by| of_score * by).collect()
        });
        let of_keys = of_keys.collect();
        LookupGradients {
            of_query,
            of_keys,
            order,
            max_probability,
        }
    }
}

/// Lookups to simulate.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchSetup {
    pub d: usize,
    pub n_keys: usize,
    /// Number of lookups, each with its own query, keys and values.
    pub n_rows: usize,
    /// Distribution of the components of queries and keys; components of values are standard normal.
    pub components: Distribution,
    pub similarity: Similarity,
    /// Matches, each with its temperature if it is soft.
    pub matches: Vec<(Match, f64)>,
    pub seed: u64,
}

/// Gradients of one kind of match: means over all lookups.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchPoint {
    pub matching: Match,
    pub temperature: f64,
    pub max_probability: f64,
    /// ‖∂L/∂q‖.
    pub of_query: f64,
    /// Median of ‖∂L/∂q‖ over the lookups: in a cold softmax, a few steep near-ties dominate the mean.
    pub of_query_median: f64,
    /// ‖∂L/∂k‖ of the best key, of the second best, and so on. // [rank]
    pub by_rank: Vec<f64>,
    /// exp of the entropy of the keys' shares of Σ‖∂L/∂k‖: the effective number of keys that learn; 0 if none does.
    pub keys_reached: f64,
}

impl MatchSetup {
    /// Refuses invalid setups.
    ///
    /// # Errors
    /// When a value is out of range, or there is not enough memory.
    pub fn check(&self) -> Result<()> {
        check_count("--d", self.d, 1)?;
        check_count("--keys", self.n_keys, 2)?;
        check_count("--rows", self.n_rows, 1)?;
        check_distribution(&self.components)?;
        for (matching, temperature) in &self.matches {
            let is_one = *temperature > 0.0 && temperature.is_finite();
            if *matching == Match::Soft && !is_one {
                return Err(refused(format!(
                    "--temperature {temperature}: expected a number above 0"
                )));
            }
        }
        let asked = format!(
            "--d {} --keys {} --rows {}",
            self.d, self.n_keys, self.n_rows
        );
        let per_lookup = self
            .d
            .checked_mul(self.n_keys)
            .and_then(|n| n.checked_mul(4));
        let at_once = per_lookup.and_then(|n| n.checked_mul(rayon::current_num_threads()));
        let kept = self.n_rows.checked_mul(self.n_keys + 4);
        check_memory(
            &asked,
            at_once.zip(kept).and_then(|(a, b)| a.checked_add(b)),
        )
    }
}

/// Runs the simulation.
///
/// # Errors
/// As for [`MatchSetup::check`].
pub fn match_lab(setup: &MatchSetup) -> Result<Vec<MatchPoint>> {
    setup.check()?;
    Ok(setup.matches.iter().map(|of| point(setup, *of)).collect())
}

/// Results of one lookup: ‖∂L/∂q‖, the largest weight, the keys reached, and ‖∂L/∂k‖ by rank.
type Row = (f64, f64, f64, Vec<f64>);

fn point(setup: &MatchSetup, (matching, temperature): (Match, f64)) -> MatchPoint {
    let values = Distribution {
        family: attnscope_compute::sample::Family::Normal,
        mean: 0.0,
        std: 1.0,
    };
    let rows = (0..setup.n_rows).into_par_iter().map(|row_idx| {
        let mut random = Random::of(setup.seed, Purpose::Lookup, setup.d, row_idx);
        let mut drawn = |distribution: &Distribution, n: usize| {
            let mut vector = vec![0.0; n];
            distribution.fill(&mut random, &mut vector);
            vector
        };
        let q = drawn(&setup.components, setup.d);
        let keys: Vec<Vec<f64>> = (0..setup.n_keys)
            .map(|_| drawn(&setup.components, setup.d))
            .collect();
        // The component of a standard normal vector along a unit direction is standard normal.
        let along = drawn(&values, setup.n_keys);
        let found = Lookup {
            similarity: setup.similarity,
            matching,
            temperature,
            q: &q,
            keys: &keys,
            along: &along,
        }
        .gradients();
        let norm = |vector: &[f64]| dot(vector, vector).sqrt();
        let by_rank: Vec<f64> = found
            .order
            .iter()
            .map(|key_idx| norm(&found.of_keys[*key_idx]))
            .collect();
        let sum: f64 = by_rank.iter().sum();
        let shares = by_rank
            .iter()
            .map(|of_key| of_key / sum)
            .filter(|share| *share > 0.0);
        let reached = if sum > 0.0 {
            libm::exp(shares.map(|share| -share * libm::log(share)).sum())
        } else {
            0.0
        };
        (
            norm(&found.of_query),
            found.max_probability,
            reached,
            by_rank,
        )
    });
    let rows: Vec<Row> = rows.collect();
    let n = rows.len() as f64;
    let mean = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>() / n;
    let of_rank = |rank: usize| rows.iter().map(|(.., by_rank)| by_rank[rank]).sum::<f64>() / n;
    let mut of_queries: Vec<f64> = rows.iter().map(|row| row.0).collect();
    of_queries.sort_by(f64::total_cmp);
    MatchPoint {
        matching,
        temperature,
        of_query_median: of_queries[of_queries.len() / 2],
        of_query: mean(|row| row.0),
        max_probability: mean(|row| row.1),
        keys_reached: mean(|row| row.2),
        by_rank: (0..setup.n_keys).map(of_rank).collect(),
    }
}
