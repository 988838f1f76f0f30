//! Runs a head in row blocks, and compares every number it gives with the f64 reference.

use std::sync::Mutex;

use attnscope::attention::{
    AttentionSpec, BlockSink, HeadInput, HeadRun, NoVisible, POOLED_CELLS, RowSummary, Run,
    Visibility, run_head, stream_heads,
};
use attnscope::kernels::simd::Level;

use super::{Case, Expected};

/// A score is a sum of f32 products: it may be off by a few units in its last place, and so may a log-sum-exp.
const RELATIVE_TO_SCORES: f64 = 1e-6;
/// Of log-sum-exp and entropy, times the largest |score|.
const LOG_TOLERANCE: f64 = 1e-5;
/// Of a probability. Beyond scores of 32 it grows with them: e^s turns an absolute error of s into a relative one of p.
const PATTERN_TOLERANCE: f64 = 1e-5;
const SCORES_OF_TOLERANCE: f64 = 32.0;
/// Of an output, relative to Σ p·|v|; grows with the scores as for the pattern, and sooner, being relative.
const OUTPUT_TOLERANCE: f64 = 1e-5;
const SCORES_OF_OUTPUT: f64 = 16.0;
/// Of sums of squares of f32 numbers in f64.
const NORM_TOLERANCE: f64 = 1e-6;

/// What one head gave, blocks put together.
pub struct Found {
    pub run: HeadRun,
    /// [query, key]
    scores: Vec<f32>,
    /// [query, key]
    pub pattern: Vec<f32>,
}

struct Collect {
    n: usize,
    /// scores and pattern, and how often each row came. // [query, key], [query]
    held: Mutex<(Vec<f32>, Vec<f32>, Vec<usize>)>,
}

impl BlockSink for Collect {
    fn block(&self, _: usize, first_query: usize, scores: &[f32], pattern: &[f32]) {
        let mut held = self.held.lock().expect("a lock");
        let at = first_query * self.n;
        held.0[at..at + scores.len()].copy_from_slice(scores);
        held.1[at..at + pattern.len()].copy_from_slice(pattern);
        for query_idx in first_query..first_query + scores.len() / self.n {
            held.2[query_idx] += 1;
        }
    }
}

/// What runs a head: the definition, or the kernels of one level of instructions.
#[derive(Debug, Clone, Copy)]
pub enum Path {
    Definition,
    Kernels(Level),
}

/// The definition, and every level that this processor has.
pub fn paths() -> Vec<Path> {
    let levels = Level::ALL.into_iter().filter(|level| level.is_available());
    std::iter::once(Path::Definition)
        .chain(levels.map(Path::Kernels))
        .collect()
}

pub fn run(case: &Case, head_idx: usize, path: Path) -> Found {
    let n = case.n;
    let collect = Collect {
        n,
        held: Mutex::new((vec![7.0; n * n], vec![7.0; n * n], vec![0; n])),
    };
    let visibility = Visibility::of_self(case.spec.mask, n, case.real.as_deref());
    let run = Run {
        repeats: None,
        spec: &case.spec,
        visibility: &visibility,
        heads: 0..case.spec.n_heads,
        sinks: case.sinks.as_deref(),
        bucket_values: case.bucket_values.as_deref(),
        positions: &case.positions,
        sink: Some(&collect),
        pace: &|| false,
    };
    let input = HeadInput {
        q: &case.q,
        k: &case.k,
        v: &case.v,
    };
    for query_idx in 0..n {
        let seen = (0..n).filter(|key_idx| visibility.sees(query_idx, *key_idx));
        let expected = (0..n).filter(|key_idx| case.sees(query_idx, *key_idx));
        assert!(seen.eq(expected), "query {query_idx}: visible keys");
    }
    let run = match path {
        Path::Definition => run_head(&run, input, head_idx),
        Path::Kernels(level) => {
            let run = Run {
                heads: head_idx..head_idx + 1,
                ..run
            };
            let (d_value, n_heads) = (case.spec.d_value, case.spec.n_heads);
            let mut all = vec![0.0; n * n_heads * d_value];
            let heads = stream_heads(&run, input, level, &mut all);
            heads
                .and_then(|mut heads| heads.pop())
                .map(|summary| HeadRun {
                    z: all
                        .chunks(n_heads * d_value)
                        .flat_map(|row| row[head_idx * d_value..][..d_value].to_vec())
                        .collect(),
                    summary,
                })
        }
    };
    let run = run.expect("nobody stops it");
    let (scores, pattern, n_times) = collect.held.into_inner().expect("a lock");
    assert!(n_times.iter().all(|n| *n == 1), "every row comes once");
    Found {
        run,
        scores,
        pattern,
    }
}

/// Uniform numbers from −1 to 1 that depend on the seed alone.
pub fn noise(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Queries, keys and values of `spec` from a seed; `size` multiplies queries and keys.
pub fn filled(spec: AttentionSpec, n: usize, seed: u64, size: f32) -> Case {
    let sized = |values: Vec<f32>| values.iter().map(|v| v * size).collect();
    Case {
        q: sized(noise(3 * seed + 1, n * spec.n_heads * spec.d_head)),
        k: sized(noise(3 * seed + 2, n * spec.n_kv_heads * spec.d_head)),
        v: noise(3 * seed + 3, n * spec.n_kv_heads * spec.d_value),
        n,
        spec,
        real: None,
        sinks: None,
        bucket_values: None,
        positions: Vec::new(),
    }
}

/// Compares everything a head gives with the reference.
pub fn compare(case: &Case, head_idx: usize) {
    let expected = case.head(head_idx);
    for path in paths() {
        compare_path(case, head_idx, path, &expected);
    }
}

fn compare_path(case: &Case, head_idx: usize, path: Path, expected: &Expected) {
    let found = run(case, head_idx, path);
    let n = case.n;
    let summary = &found.run.summary;
    assert_eq!(summary.rows.len(), n);
    let check = Tolerances::of(expected);
    let mut column_sums = vec![0.0; n];
    for query_idx in 0..n {
        let place = |what: &str| format!("{path:?}: query {query_idx} of {n}: {what}");
        let row = query_idx * n..(query_idx + 1) * n;
        let (scores, pattern) = (&found.scores[row.clone()], &found.pattern[row]);
        for key_idx in 0..n {
            let p = expected.pattern[query_idx][key_idx];
            near(pattern[key_idx], p, check.pattern, || {
                place(&format!("pattern of key {key_idx}"))
            });
            if case.sees(query_idx, key_idx) {
                let score = expected.scores[query_idx][key_idx];
                near(scores[key_idx], score, check.score, || {
                    place(&format!("score of key {key_idx}"))
                });
            } else {
                assert_eq!(scores[key_idx], f32::NEG_INFINITY, "{}", place("masked"));
                if !expected.visible[query_idx].is_empty() {
                    assert_eq!(pattern[key_idx], 0.0, "{}", place("masked"));
                }
            }
            if case.is_real(query_idx) {
                column_sums[key_idx] += p;
            }
        }
        compare_row(case, expected, query_idx, &summary.rows[query_idx], pattern);
        let d_value = case.spec.d_value;
        for value_idx in 0..d_value {
            let tolerance = check.output * expected.z_size[query_idx][value_idx] + 1e-30;
            let z = expected.z[query_idx][value_idx];
            near(
                found.run.z[query_idx * d_value + value_idx],
                z,
                tolerance,
                || place(&format!("output {value_idx}")),
            );
        }
    }
    for (key_idx, (sum, norm)) in column_sums
        .iter()
        .copied()
        .zip(expected.k_norms.iter().copied())
        .enumerate()
    {
        near(
            summary.column_sums[key_idx],
            sum,
            check.pattern * (1.0 + sum),
            || format!("column sum of key {key_idx}"),
        );
        near(
            summary.k_norms[key_idx],
            norm,
            NORM_TOLERANCE * norm,
            || format!("norm of key {key_idx}"),
        );
    }
    compare_pooled(case, expected, &found, check.pattern);
}

/// How far numbers of one head may be off.
#[derive(Debug, Clone, Copy)]
struct Tolerances {
    score: f64,
    log: f64,
    pattern: f64,
    output: f64,
}

impl Tolerances {
    fn of(expected: &Expected) -> Self {
        let beyond = |scores: f64| (expected.largest / scores).max(1.0);
        Self {
            score: RELATIVE_TO_SCORES * expected.largest,
            log: LOG_TOLERANCE * expected.largest,
            pattern: PATTERN_TOLERANCE * beyond(SCORES_OF_TOLERANCE),
            output: OUTPUT_TOLERANCE * beyond(SCORES_OF_OUTPUT),
        }
    }
}

/// Every field of a row, each from its own definition.
fn compare_row(
    case: &Case,
    expected: &Expected,
    query_idx: usize,
    found: &RowSummary,
    found_pattern: &[f32],
) {
    let check = Tolerances::of(expected);
    let visible = &expected.visible[query_idx];
    let at = |field: &str| format!("query {query_idx} of {}: {field}", case.n);
    assert_eq!(
        found.n_visible as usize,
        visible.len(),
        "{}",
        at("n_visible")
    );
    assert_eq!(found.is_real, case.is_real(query_idx), "{}", at("is_real"));
    let q_norm = expected.q_norms[query_idx];
    near(found.q_norm, q_norm, NORM_TOLERANCE * q_norm, || {
        at("q_norm")
    });
    if visible.is_empty() {
        compare_unseeing(case, found, &at);
        return;
    }
    let of = |matrix: &[Vec<f64>]| -> Vec<f64> {
        visible.iter().map(|j| matrix[query_idx][*j]).collect()
    };
    let (scores, raw, p) = (
        of(&expected.scores),
        of(&expected.raw),
        of(&expected.pattern),
    );
    assert!(!found.is_nonfinite, "{}", at("is_nonfinite"));

    let n = scores.len() as f64;
    let largest = expected.largest;
    let moments = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / n;
        let var = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        [mean, var, min, max]
    };
    // A variance changes by twice the deviation times the error of a score.
    let var_tolerance = 2.0 * check.score * largest;
    let [mean, var, min, max] = moments(&scores);
    near(found.score_mean, mean, check.score, || at("score_mean"));
    near(found.score_var, var, var_tolerance, || at("score_var"));
    near(found.score_min, min, check.score, || at("score_min"));
    near(found.score_max, max, check.score, || at("score_max"));
    let [mean, var, min, max] = moments(&raw);
    near(found.raw_mean, mean, check.score, || at("raw_mean"));
    near(found.raw_var, var, var_tolerance, || at("raw_var"));
    near(found.raw_min, min, check.score, || at("raw_min"));
    near(found.raw_max, max, check.score, || at("raw_max"));
    let norm = scores.iter().map(|s| s * s).sum::<f64>().sqrt();
    near(found.score_norm, norm, check.score * n.sqrt(), || {
        at("score_norm")
    });

    let log_sum_exp = expected.log_sum_exp[query_idx];
    near(found.log_sum_exp, log_sum_exp, check.log, || {
        at("log_sum_exp")
    });
    let mass: f64 = p.iter().sum();
    // 0·log 0 is 0.
    let entropy: f64 = p.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
    near(found.entropy, entropy, check.log * mass.max(1.0), || {
        at("entropy")
    });
    let sum_tolerance = check.pattern * mass.max(1.0);
    near(found.mass, mass, sum_tolerance, || at("mass"));
    let power = |e: i32| p.iter().map(|p| p.powi(e)).sum::<f64>();
    near(found.sum_p2, power(2), 2.0 * sum_tolerance, || at("sum_p2"));
    near(found.sum_p3, power(3), 3.0 * sum_tolerance, || at("sum_p3"));
    let mut sorted = p.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    near(found.top1, sorted[0], check.pattern, || at("top1"));
    let second = sorted.get(1).copied().unwrap_or(0.0);
    near(found.top2, second, check.pattern, || at("top2"));
    // Near ties may fall either way in f32: the key must hold the largest probability that was given out.
    let largest_given = found_pattern.iter().copied().fold(0.0, f32::max);
    let given = found_pattern[found.argmax as usize];
    assert_eq!(given, largest_given, "{}", at("argmax"));
    let whole = &expected.pattern[query_idx];
    near(found.first_mass, whole[0], check.pattern, || {
        at("first_mass")
    });
    near(found.diagonal_mass, whole[query_idx], check.pattern, || {
        at("diagonal_mass")
    });
    match query_idx.checked_sub(1) {
        Some(before) => near(found.previous_mass, whole[before], check.pattern, || {
            at("previous_mass")
        }),
        None => assert!(found.previous_mass.is_nan(), "{}", at("previous_mass")),
    }
    let distance: f64 = visible
        .iter()
        .zip(&p)
        .map(|(j, p)| p * (*j as f64 - query_idx as f64).abs())
        .sum();
    near(
        found.distance,
        distance,
        check.pattern * (1.0 + distance),
        || at("distance"),
    );

    let k_norms = visible.iter().map(|j| expected.k_norms[*j]);
    let k_norm_sq_sum: f64 = k_norms.map(|norm| norm * norm).sum();
    near(
        found.k_norm_sq_sum,
        k_norm_sq_sum,
        2.0 * NORM_TOLERANCE * k_norm_sq_sum,
        || at("k_norm_sq_sum"),
    );
    let cosines = visible.iter().zip(&raw);
    let cosine: f64 = cosines
        .map(|(j, raw)| raw / expected.scales[query_idx] / (q_norm * expected.k_norms[*j]))
        .sum();
    near(found.cosine, cosine / n, RELATIVE_TO_SCORES, || {
        at("cosine")
    });
}

/// A row that sees nothing: what the rule says, and NaN for all that has no meaning.
fn compare_unseeing(case: &Case, found: &RowSummary, at: &dyn Fn(&str) -> String) {
    let mass = match case.spec.no_visible {
        NoVisible::Zero => 0.0,
        NoVisible::Uniform => 1.0,
        NoVisible::Nan => f64::NAN,
    };
    near(found.mass, mass, 0.0, || at("mass"));
    assert!(!found.is_nonfinite, "{}", at("is_nonfinite"));
    if case.sinks.is_none() {
        assert_eq!(
            found.log_sum_exp,
            f32::NEG_INFINITY,
            "{}",
            at("log_sum_exp")
        );
    }
    assert_eq!(found.k_norm_sq_sum, 0.0, "{}", at("k_norm_sq_sum"));
    let without_meaning = [
        found.score_mean,
        found.score_var,
        found.score_min,
        found.score_max,
        found.score_norm,
        found.raw_mean,
        found.raw_var,
        found.raw_min,
        found.raw_max,
        found.entropy,
        found.top1,
        found.top2,
        found.sum_p2,
        found.sum_p3,
        found.first_mass,
        found.diagonal_mass,
        found.previous_mass,
        found.distance,
        found.cosine,
    ];
    for (idx, value) in without_meaning.iter().enumerate() {
        assert!(value.is_nan(), "{}", at(&format!("field {idx} is {value}")));
    }
}

/// The pooled map: the maximum of each tile over real queries, in at most 64 × 64 cells.
fn compare_pooled(case: &Case, expected: &Expected, found: &Found, tolerance: f64) {
    let pooled = &found.run.summary.pooled;
    let per_cell = case.n.div_ceil(POOLED_CELLS);
    let side = case.n.div_ceil(per_cell);
    assert_eq!((pooled.n_rows, pooled.n_cols), (side, side));
    assert_eq!(
        (pooled.queries_per_cell, pooled.keys_per_cell),
        (per_cell, per_cell)
    );
    for (cell_idx, cell) in pooled.cells.iter().enumerate() {
        let (row_idx, col_idx) = (cell_idx / side, cell_idx % side);
        let tile = |idx: usize| idx * per_cell..((idx + 1) * per_cell).min(case.n);
        let real = tile(row_idx).filter(|query_idx| case.is_real(*query_idx));
        let values = real.flat_map(|query_idx| &expected.pattern[query_idx][tile(col_idx)]);
        let max = values.fold(
            0.0,
            |max: f64, p| if *p > max || p.is_nan() { *p } else { max },
        );
        near(*cell, max, tolerance, || {
            format!("pooled cell {row_idx}, {col_idx}")
        });
    }
}

/// Both NaN, both the same infinity, or no further apart than the tolerance.
fn near(found: f32, expected: f64, tolerance: f64, place: impl Fn() -> String) {
    let found = f64::from(found);
    let is_same = (found.is_nan() && expected.is_nan())
        || found == expected
        || (found - expected).abs() <= tolerance;
    assert!(
        is_same,
        "{}: expected {expected}, found {found}, {tolerance:e} allowed",
        place()
    );
}
