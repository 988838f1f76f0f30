//! What lookups send back to queries and keys, against finite differences of a loss written from its definition.

use attnscope_compute::sample::{Distribution, Family};
use attnscope_studies::lab::{Lookup, Match, MatchSetup, Similarity, match_lab};

fn is_near(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!(
        (found - expected).abs() <= tolerance,
        "{what}: expected {expected:e}, found {found:e}"
    );
}

/// The loss of a lookup, written from its definition.
fn lookup_loss(of: &Lookup<'_>, q: &[f64], keys: &[Vec<f64>]) -> f64 {
    let d = q.len() as f64;
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let score = |k: &Vec<f64>| match of.similarity {
        Similarity::Dot => dot(q, k) / d.sqrt(),
        Similarity::Rbf => {
            let apart: Vec<f64> = q.iter().zip(k).map(|(q, k)| q - k).collect();
            -dot(&apart, &apart) / (2.0 * d.sqrt())
        }
        Similarity::Cosine => d.sqrt() * dot(q, k) / dot(q, q).sqrt() / dot(k, k).sqrt(),
    };
    let scores: Vec<f64> = keys.iter().map(score).collect();
    let best = (0..scores.len())
        .max_by(|a, b| scores[*a].total_cmp(&scores[*b]))
        .expect("a key");
    match of.matching {
        Match::Argmax => of.along[best],
        Match::Max => scores[best] * of.along[best],
        Match::Soft => {
            let weights: Vec<f64> = scores.iter().map(|s| (s / of.temperature).exp()).collect();
            dot(&weights, of.along) / weights.iter().sum::<f64>()
        }
    }
}

#[test]
fn gradients_of_lookups_are_those_of_finite_differences() {
    let mut random = fastrand::Rng::with_seed(4);
    let mut drawn = |n: usize| -> Vec<f64> { (0..n).map(|_| 2.0 * random.f64() - 1.0).collect() };
    let (d, n_keys, step) = (6, 5, 1e-5);
    for similarity in Similarity::ALL {
        for (matching, temperature) in [
            (Match::Argmax, 1.0),
            (Match::Max, 1.0),
            (Match::Soft, 0.2),
            (Match::Soft, 1.0),
            (Match::Soft, 7.0),
        ] {
            let (q, along) = (drawn(d), drawn(n_keys));
            let keys: Vec<Vec<f64>> = (0..n_keys).map(|_| drawn(d)).collect();
            let lookup = Lookup {
                similarity,
                matching,
                temperature,
                q: &q,
                keys: &keys,
                along: &along,
            };
            let found = lookup.gradients();
            let slope = |at: &dyn Fn(f64) -> f64| (at(step) - at(-step)) / (2.0 * step);
            let place = format!("{similarity:?} {matching:?} {temperature}");
            for i in 0..d {
                let by_query = slope(&|by| {
                    let mut moved = q.clone();
                    moved[i] += by;
                    lookup_loss(&lookup, &moved, &keys)
                });
                is_near(found.of_query[i], by_query, 1e-8, &place);
                for j in 0..n_keys {
                    let by_key = slope(&|by| {
                        let mut moved = keys.clone();
                        moved[j][i] += by;
                        lookup_loss(&lookup, &q, &moved)
                    });
                    is_near(found.of_keys[j][i], by_key, 1e-8, &place);
                }
            }
            let learns = |j: &usize| found.of_keys[*j].iter().any(|g| *g != 0.0);
            let learning: Vec<usize> = (0..n_keys).filter(learns).collect();
            match matching {
                Match::Argmax => assert!(learning.is_empty()),
                Match::Max => assert_eq!(learning, [found.order[0]]),
                Match::Soft => assert_eq!(learning.len(), n_keys),
            }
        }
    }
}

#[test]
fn a_colder_softmax_teaches_fewer_keys_and_a_hard_match_one_or_none() {
    let temperatures = [0.01, 0.1, 1.0, 10.0];
    let soft = temperatures.map(|temperature| (Match::Soft, temperature));
    let setup = MatchSetup {
        d: 32,
        n_keys: 16,
        n_rows: 200,
        components: Distribution {
            family: Family::Normal,
            mean: 0.0,
            std: 1.0,
        },
        similarity: Similarity::Dot,
        matches: [(Match::Argmax, 0.0), (Match::Max, 0.0)]
            .into_iter()
            .chain(soft)
            .collect(),
        seed: 0,
    };
    let found = match_lab(&setup).expect("runs");
    assert_eq!((found[0].of_query, found[0].keys_reached), (0.0, 0.0));
    assert_eq!(found[1].keys_reached, 1.0);
    assert!(found[1].by_rank[0] > 0.0 && found[1].by_rank[1..].iter().all(|g| *g == 0.0));
    for pair in found[2..].windows(2) {
        assert!(pair[0].keys_reached < pair[1].keys_reached);
        assert!(pair[0].max_probability > pair[1].max_probability);
    }
    // Nearly hard: half of the lookups teach next to nothing, as an argmax.
    assert!(
        found[2].of_query_median < 1e-3 * found[4].of_query_median,
        "{found:?}"
    );
}
