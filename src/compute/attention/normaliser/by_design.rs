//! Compares each known normaliser with a head's scores; the simplest that explains the pattern is returned.

use super::rows::{Head, HeadRow, Vectors, log_sum, median};
use super::sparse::{entmax15, sparsemax};
use super::{Divided, Explained, Features, Normaliser};

/// Number of cells required before a normaliser with a fitted parameter is accepted.
const FEWEST_CELLS: usize = 6;
const FEWEST_ROWS: usize = 3;
/// Smallest weight of a second softmax that is told from a rounded first one, and smallest difference of the two.
const LEAST_OTHER: f64 = 0.01;
/// Allowed deviation from 1 of the column sums of a Sinkhorn normalisation that stopped early.
const COLUMN: f64 = 0.05;

pub fn explain(head: &Head<'_>, tolerance: f64) -> Option<Explained<Normaliser>> {
    let n_cells = head.n_cells();
    let fixed = [
        (
            Normaliser::Softmax,
            &softmax as &dyn Fn(&HeadRow) -> Vec<f64>,
        ),
        (Normaliser::SoftmaxOne, &|row| with_sink(row, 0.0)),
    ];
    let holds = |by: Normaliser, expected: &dyn Fn(&HeadRow) -> Vec<f64>| {
        let off = head.off(expected);
        (off <= tolerance).then_some(Explained { by, off, n_cells })
    };
    for (by, expected) in fixed {
        if n_cells > 0
            && let Some(found) = holds(by, expected)
        {
            return Some(found);
        }
    }
    if let by @ Some(_) = sinks_of_rows(head, &holds) {
        return by;
    }
    if n_cells < FEWEST_CELLS {
        return None;
    }
    if let by @ Some(_) = positive(head, &holds) {
        return by;
    }
    // Nearly equal scores fit any other normaliser.
    if !has_spread(head) {
        return None;
    }
    if let Some(logit) = sink(head)
        && let by @ Some(_) = holds(Normaliser::LearnedSink { logit }, &|row| {
            with_sink(row, logit)
        })
    {
        return by;
    }
    if let Some(bias) = sigmoid_bias(head)
        && let by @ Some(_) = holds(Normaliser::Sigmoid { bias }, &|row| {
            row.scores.iter().map(|s| sigmoid(s + bias)).collect()
        })
    {
        return by;
    }
    if let by @ Some(_) = linear(head, &holds) {
        return by;
    }
    if let by @ Some(_) = relu(head, &holds) {
        return by;
    }
    let sparse = [
        (
            Normaliser::Sparsemax,
            &(|row: &HeadRow| sparsemax(&row.scores)) as &dyn Fn(&HeadRow) -> Vec<f64>,
        ),
        (Normaliser::Entmax15, &|row| entmax15(&row.scores)),
    ];
    if let Some(found) = sparse
        .into_iter()
        .find_map(|(by, expected)| holds(by, expected))
    {
        return Some(found);
    }
    sinkhorn(head, tolerance)
}

/// Whether scores within rows differ enough to distinguish normalisers.
fn has_spread(head: &Head<'_>) -> bool {
    head.rows.iter().any(|row| {
        let low = row.scores.iter().copied().fold(f64::INFINITY, f64::min);
        let high = row.scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        high - low > 0.05
    })
}

/// One softmax less any multiple of another, where the scores are those of one of both: what is left is a distribution of its own.
pub fn of_two(head: &Head<'_>, tolerance: f64) -> Option<Explained<Normaliser>> {
    let mut sums: Vec<f64> = head.rows.iter().map(HeadRow::sum).collect();
    if head.rows.len() < FEWEST_ROWS || head.n_cells() < FEWEST_CELLS || !has_spread(head) {
        return None;
    }
    let sum = median(&mut sums);
    let size = sum.abs().max(1.0);
    let off = sums.iter().map(|s| (s - sum).abs()).fold(0.0, f64::max) / size;
    if off > tolerance || (sum - 1.0).abs() < LEAST_OTHER {
        return None;
    }
    // The scores belong to the first or to the second.
    let is_made_of = |known: f64, other: f64| {
        let least = -tolerance * (size / other.abs());
        let (mut is_positive, mut farthest) = (true, 0.0f64);
        for row in &head.rows {
            for (found, p) in row.found.iter().zip(softmax(row)) {
                let rest = (found - known * p) / other;
                is_positive &= rest >= least;
                farthest = farthest.max((rest - p).abs());
            }
        }
        // A multiple of one softmax is a fault.
        is_positive && farthest > LEAST_OTHER
    };
    let by = Normaliser::Differential { lambda: 1.0 - sum };
    let n_cells = head.n_cells();
    let other = sum - 1.0;
    (is_made_of(1.0, other) || is_made_of(other, 1.0)).then_some(Explained { by, off, n_cells })
}

pub fn softmax(row: &HeadRow) -> Vec<f64> {
    let largest = row.scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut weights: Vec<f64> = row.scores.iter().map(|s| (s - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
    weights
}

fn with_sink(row: &HeadRow, logit: f64) -> Vec<f64> {
    let log_sum = log_sum(&[row.log_sum(), logit]);
    row.scores.iter().map(|s| (s - log_sum).exp()).collect()
}

/// A largest score this close to 0 means that the row's maximum (sink logit included) was subtracted from the scores.
const SUBTRACTED: f64 = 1e-5;

/// A softmax of which each row keeps its own share. Accepted if sinks are declared or recorded, or if the row maximum was
/// subtracted from the scores: then a row whose largest score is below 0 must have had a sink at 0.
fn sinks_of_rows(head: &Head<'_>, holds: &Holds<'_>) -> Option<Explained<Normaliser>> {
    let largest = |row: &HeadRow| row.scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let is_subtracted = |row: &HeadRow| {
        let kept = 1.0 / (1.0 + (-row.log_sum()).exp());
        largest(row).abs() <= SUBTRACTED || (row.sum() - kept).abs() <= 1e-2 * kept
    };
    let mut rows = head.rows.iter();
    let may = head.has_sinks
        || (head.n_cells() >= FEWEST_CELLS
            && rows.all(|row| largest(row) <= SUBTRACTED && is_subtracted(row)));
    let kept = |row: &HeadRow| row.sum();
    let least = head.rows.iter().map(kept).fold(1.0, f64::min);
    let most = head.rows.iter().map(kept).fold(0.0, f64::max);
    if !may || least <= 0.0 || most > 1.0 + 1e-2 {
        return None;
    }
    holds(Normaliser::SinkOfRows { least }, &|row| {
        let kept = row.sum();
        softmax(row).iter().map(|p| kept * p).collect()
    })
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The logit that takes the missing part of rows, from the row that misses most: rows with large scores miss next to nothing.
fn sink(head: &Head<'_>) -> Option<f64> {
    let mut logits: Vec<(f64, f64)> = head
        .rows
        .iter()
        .map(|row| (row.sum(), row.log_sum()))
        .filter(|(mass, _)| *mass > 0.0 && *mass < 1.0)
        .map(|(mass, log_sum)| ((mass - 0.5).abs(), log_sum + ((1.0 - mass) / mass).ln()))
        .collect();
    logits.sort_by(|a, b| a.0.total_cmp(&b.0));
    logits.first().map(|(_, logit)| *logit)
}

/// The constant added to every score, if it is the same in all cells whose probability has enough digits.
fn sigmoid_bias(head: &Head<'_>) -> Option<f64> {
    let mut biases = Vec::new();
    for row in &head.rows {
        for (score, p) in row.scores.iter().zip(&row.found) {
            if !(0.0..=1.0).contains(p) {
                return None;
            }
            if *p > 1e-4 && *p < 0.99 {
                biases.push((p / (1.0 - p)).ln() - score);
            }
        }
    }
    (biases.len() >= FEWEST_CELLS / 2).then(|| median(&mut biases))
}

type Holds<'a> =
    dyn Fn(Normaliser, &dyn Fn(&HeadRow) -> Vec<f64>) -> Option<Explained<Normaliser>> + 'a;

fn over_sum(values: Vec<f64>) -> Vec<f64> {
    let sum: f64 = values.iter().sum();
    let by = if sum > 0.0 { 1.0 / sum } else { 0.0 };
    values.into_iter().map(|value| value * by).collect()
}

/// Products of positive features, optionally divided by their sum. They are told from a softmax however even they are.
fn positive(head: &Head<'_>, holds: &Holds<'_>) -> Option<Explained<Normaliser>> {
    let mut rows = head.rows.iter();
    if !rows.all(|row| row.scores.iter().all(|s| *s >= 0.0)) {
        return None;
    }
    let by = |features| Normaliser::Linear { features };
    holds(by(Features::Scores), &|row| over_sum(row.scores.clone()))
        .or_else(|| holds(by(Features::Bare), &|row| row.scores.clone()))
}

/// Products of features of queries and keys, divided by their sum; products divided by the number of keys; or any products, where
/// the mask multiplies them (retention): a softmax that was forgotten would meet a mask of −inf.
fn linear(head: &Head<'_>, holds: &Holds<'_>) -> Option<Explained<Normaliser>> {
    if head.hides_by_product
        && let by @ Some(_) = holds(
            Normaliser::Linear {
                features: Features::Bare,
            },
            &|row| row.scores.clone(),
        )
    {
        return by;
    }
    let vectors = head.vectors?;
    if let by @ Some(_) = mean(head, vectors, holds) {
        return by;
    }
    [
        Features::Elu,
        Features::Relu,
        Features::Exp,
        Features::Softmax,
    ]
    .into_iter()
    .find_map(|features| {
        let (q, k) = (
            mapped(vectors, features, true),
            mapped(vectors, features, false),
        );
        holds(Normaliser::Linear { features }, &|row| {
            over_sum(products(row, &q, &k, vectors.d_head))
        })
    })
}

/// Products of queries and keys as they are, over the number of keys or that times √d_head: a non-local block of dot products (Wang
/// et al. 2018, arXiv 1711.07971), which has no softmax by design.
fn mean(head: &Head<'_>, vectors: Vectors<'_>, holds: &Holds<'_>) -> Option<Explained<Normaliser>> {
    if !head.is_full {
        return None;
    }
    let (q, k) = (
        mapped(vectors, Features::Mean, true),
        mapped(vectors, Features::Mean, false),
    );
    let by = Normaliser::Linear {
        features: Features::Mean,
    };
    let d = vectors.d_head;
    [1.0, (d as f64).sqrt()].into_iter().find_map(|scale| {
        holds(by, &|row| {
            let n = row.keys.len() as f64;
            let products = products(row, &q, &k, d);
            products.into_iter().map(|x| x / (n * scale)).collect()
        })
    })
}

/// Products of the query of a row with its keys. // q, k: [position, d]
fn products(row: &HeadRow, q: &[f64], k: &[f64], d: usize) -> Vec<f64> {
    let q = &q[row.query_idx * d..(row.query_idx + 1) * d];
    let product = |key_idx: &usize| -> f64 {
        let k = &k[key_idx * d..(key_idx + 1) * d];
        q.iter().zip(k).map(|(a, b)| a * b).sum()
    };
    row.keys.iter().map(product).collect()
}

/// Features of all queries, or of all keys.
fn mapped(vectors: Vectors<'_>, features: Features, of_queries: bool) -> Vec<f64> {
    let values = if of_queries { vectors.q } else { vectors.k };
    let each = |x: f64| match features {
        Features::Elu if x > 0.0 => x + 1.0,
        Features::Elu | Features::Exp => x.exp(),
        Features::Relu => x.max(0.0),
        Features::Softmax | Features::Scores | Features::Bare | Features::Mean => x,
    };
    let mut out: Vec<f64> = values.iter().map(|x| each(f64::from(*x))).collect();
    if features == Features::Softmax {
        for row in out.chunks_mut(vectors.d_head.max(1)) {
            let log_sum = log_sum(row);
            row.iter_mut().for_each(|x| *x = (*x - log_sum).exp());
        }
    }
    out
}

/// Rectified scores or their squares: times one factor, divided by the number of visible keys, or by the row's sum.
fn relu(head: &Head<'_>, holds: &Holds<'_>) -> Option<Explained<Normaliser>> {
    for power in [1u8, 2] {
        let rectified = |row: &HeadRow| -> Vec<f64> {
            let each = |s: &f64| s.max(0.0).powi(i32::from(power));
            row.scores.iter().map(each).collect()
        };
        let mut ratios = [Vec::new(), Vec::new()];
        for row in &head.rows {
            let most = rectified(row).into_iter().fold(0.0, f64::max);
            for (value, p) in rectified(row).iter().zip(&row.found) {
                // Small cells have few digits.
                if *value > 0.1 * most && *value > 0.0 {
                    ratios[0].push(p / value);
                    ratios[1].push(p / value * row.keys.len() as f64);
                }
            }
        }
        let [factor, of_visible] = ratios.each_mut().map(|all| median(all));
        let ways = [
            (Divided::Factor(factor), factor),
            (Divided::Visible(of_visible), of_visible),
            (Divided::Sum, 1.0),
        ];
        for (divided_by, factor) in ways {
            let is_number = factor > 0.0 && factor.is_finite();
            let found = is_number.then(|| {
                holds(Normaliser::Relu { power, divided_by }, &|row| {
                    let values = rectified(row);
                    let n = row.keys.len() as f64;
                    match divided_by {
                        Divided::Sum => over_sum(values),
                        Divided::Factor(by) => values.iter().map(|v| by * v).collect(),
                        Divided::Visible(by) => values.iter().map(|v| by / n * v).collect(),
                    }
                })
            });
            if let by @ Some(_) = found.flatten() {
                return by;
            }
        }
    }
    None
}

/// log p − score is the sum of a row term and a column term, and rows and columns sum to 1.
fn sinkhorn(head: &Head<'_>, tolerance: f64) -> Option<Explained<Normaliser>> {
    let n_rows = head.rows.len();
    if !head.is_full || n_rows < 3 || n_rows != head.n_keys {
        return None;
    }
    let logs = |row: &HeadRow| -> Vec<f64> {
        let cells = row.found.iter().zip(&row.scores);
        cells.map(|(p, s)| p.ln() - s).collect()
    };
    let all: Vec<Vec<f64>> = head.rows.iter().map(logs).collect();
    let is_whole = all.iter().flatten().all(|value| value.is_finite());
    let mut columns = vec![0.0; head.n_keys];
    let mut sums = vec![0.0; head.n_keys];
    for (row, logs) in head.rows.iter().zip(&all) {
        for (key_idx, value) in logs.iter().enumerate() {
            columns[key_idx] += value / n_rows as f64;
            sums[key_idx] += row.found[key_idx];
        }
    }
    let rows_hold = head
        .rows
        .iter()
        .all(|row| (row.sum() - 1.0).abs() <= COLUMN);
    let columns_hold = sums.iter().all(|sum| (sum - 1.0).abs() <= COLUMN);
    if !is_whole || !rows_hold || !columns_hold {
        return None;
    }
    let mean: f64 = columns.iter().sum::<f64>() / columns.len() as f64;
    let mut of_rows = std::collections::BTreeMap::new();
    for (row, logs) in head.rows.iter().zip(&all) {
        of_rows.insert(row.query_idx, logs.iter().sum::<f64>() / logs.len() as f64);
    }
    let off = head.off(&|row| {
        let of_row = of_rows.get(&row.query_idx).copied().unwrap_or(f64::NAN);
        let cells = row.scores.iter().zip(&columns);
        cells
            .map(|(s, column)| (s + of_row + column - mean).exp())
            .collect()
    });
    (off <= 10.0 * tolerance).then_some(Explained {
        by: Normaliser::Sinkhorn,
        off,
        n_cells: head.n_cells(),
    })
}
