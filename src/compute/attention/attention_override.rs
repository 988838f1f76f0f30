//! Attention as no checkpoint declares it: whole score matrices of a short text, for weights that were trained by a mistake.

use rayon::prelude::*;

use super::head::{Head, HeadInput};
use super::head_bias::HeadBias;
use super::row::HeadMath;
use super::run::Run;
use super::spec::{AttentionSpec, Bias, SoftmaxAxis};
use crate::kernels::simd::{Level, softmax_assign};
use crate::kernels::sum_of_squares;

/// What turns scores into weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SoftmaxOverride {
    OverKeys,
    OverQueries,
    /// Over heads; with a finite mask value all heads share what is hidden, so that hidden keys get 1/n_heads.
    OverHeads {
        leaks: bool,
    },
    /// A softmax of the softmax; hidden keys enter the second one as zeros where the mask is not applied again.
    Twice {
        leaks: bool,
    },
    /// One more in the denominator.
    PlusOne,
    /// Over all keys, hidden ones set to zero afterwards, nothing divided again.
    MaskedAfter,
}

/// Which keys a query sees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MaskOverride {
    /// Keys up to the query's own place and so many further; fewer where it is negative.
    Shifted(isize),
    /// Only what a causal mask hides.
    Inverted,
    /// Everything, what is declared hidden with this added to its score.
    Soft(f32),
    /// What is declared, and the first keys.
    Prefix(usize),
    /// The last so many keys up to the query's own place.
    Window(usize),
    Causal,
    All,
}

/// How an attention deviates from what is declared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionOverride {
    /// `None` for what is declared.
    pub softmax: Option<SoftmaxOverride>,
    pub sight: Option<MaskOverride>,
    /// Multiplies the declared scale.
    pub scale: f32,
    /// Multiplies what position adds to scores.
    pub bias: f32,
    /// Position adds what it would add with query and key exchanged.
    pub transposes_bias: bool,
    /// Heads of keys are repeated as a whole instead of each for itself.
    pub tiles_keys: bool,
    /// The only head that deviates; all do where it is `None`.
    pub head_idx: Option<usize>,
}

impl AttentionOverride {
    /// What is declared.
    pub const NONE: Self = Self {
        softmax: None,
        sight: None,
        scale: 1.0,
        bias: 1.0,
        transposes_bias: false,
        tiles_keys: false,
        head_idx: None,
    };

    fn of_head(&self, head_idx: usize) -> Self {
        if self.head_idx.is_none_or(|only| only == head_idx) {
            *self
        } else {
            Self::NONE
        }
    }

    /// What a query may see of the keys that are no padding: each with what is added to its score, or nothing.
    fn sees(&self, run: &Run<'_>, query_idx: usize, key_idx: usize) -> Option<f32> {
        let visibility = run.visibility;
        if !visibility.is_real_key(key_idx) {
            return None;
        }
        let declared = || visibility.sees(query_idx, key_idx);
        let seen = match self.sight {
            None => declared(),
            // What is a mistake in a causal mask is none in a layer that has no such mask.
            Some(
                MaskOverride::Shifted(_)
                | MaskOverride::Inverted
                | MaskOverride::Prefix(_)
                | MaskOverride::Window(_),
            ) if !run.spec.mask.causal => declared(),
            Some(MaskOverride::All) => true,
            Some(MaskOverride::Causal) => key_idx <= query_idx,
            Some(MaskOverride::Inverted) => key_idx > query_idx,
            Some(MaskOverride::Shifted(by)) => key_idx as isize <= query_idx as isize + by,
            Some(MaskOverride::Prefix(n)) => key_idx < n || declared(),
            Some(MaskOverride::Window(width)) => {
                key_idx <= query_idx && query_idx - key_idx < width
            }
            Some(MaskOverride::Soft(added)) => return Some(if declared() { 0.0 } else { added }),
        };
        seen.then_some(0.0)
    }
}

/// Runs all heads of an attention that deviates, and gives Σ p·v. // [query, n_heads · d_value]
pub fn attend_with_override(
    run: &Run<'_>,
    input: HeadInput<'_>,
    odd: &AttentionOverride,
) -> Vec<f32> {
    let spec = run.spec;
    let (n_queries, n_keys) = (run.visibility.n_queries, run.visibility.n_keys);
    let heads = (0..spec.n_heads).into_par_iter();
    let mut patterns: Vec<Vec<f32>> = heads
        .map(|head_idx| {
            let odd = odd.of_head(head_idx);
            let mut cells = scores(run, input, head_idx, &odd);
            if !matches!(odd.softmax, Some(SoftmaxOverride::OverHeads { .. })) {
                normalise(run, head_idx, &odd, &mut cells);
            }
            cells
        })
        .collect(); // [head][query, key]
    if let Some(SoftmaxOverride::OverHeads { leaks }) = odd.softmax {
        over_heads(&mut patterns, leaks);
    }
    let parts: Vec<Vec<f32>> = patterns
        .par_iter()
        .enumerate()
        .map(|(head_idx, pattern)| {
            let mut z = vec![0.0; n_queries * spec.d_value];
            head_of(spec, input, head_idx, odd).values(pattern, n_keys, &mut z); // [query, d_value]
            z
        })
        .collect();
    let width = spec.n_heads * spec.d_value;
    let mut together = vec![0.0; n_queries * width];
    for (query_idx, row) in together.chunks_mut(width.max(1)).enumerate() {
        for (to, part) in row.chunks_mut(spec.d_value).zip(&parts) {
            to.copy_from_slice(&part[query_idx * spec.d_value..][..spec.d_value]);
        }
    }
    together
}

/// A head, whose keys may be another kv head's.
fn head_of<'a>(
    spec: &AttentionSpec,
    input: HeadInput<'a>,
    head_idx: usize,
    odd: &AttentionOverride,
) -> Head<'a> {
    if odd.tiles_keys {
        Head::with_kv_head(spec, input, head_idx, head_idx % spec.n_kv_heads)
    } else {
        Head::new(spec, input, head_idx)
    }
}

/// Scores of all pairs, −inf where a query does not see a key. // [query, key]
fn scores(
    run: &Run<'_>,
    input: HeadInput<'_>,
    head_idx: usize,
    odd: &AttentionOverride,
) -> Vec<f32> {
    let spec = run.spec;
    let (n_queries, n_keys) = (run.visibility.n_queries, run.visibility.n_keys);
    let head = head_of(spec, input, head_idx, odd);
    let k_norms: Vec<f32> = (0..n_keys)
        .map(|key_idx| sum_of_squares(head.key(key_idx)).sqrt() as f32)
        .collect();
    let learned = HeadBias::of(run, input, head_idx);
    let math = HeadMath {
        spec,
        head_idx,
        positions: run.positions,
        learned: &learned,
        visibility: run.visibility,
        sink: run.sinks.map(|sinks| sinks[head_idx]),
        k_norms: &k_norms,
        value_norms: None,
        column_log_sum_exp: None,
    };
    let mut cells = vec![0.0; n_queries * n_keys];
    head.products(&(0..n_queries), n_keys, &mut cells);
    let is_plain = matches!(spec.bias, Bias::None) && spec.softcap.is_none();
    if is_plain && odd.sight.is_none() && odd.softmax != Some(SoftmaxOverride::MaskedAfter) {
        score_plainly(run, &math, odd.scale, &mut cells);
        return cells;
    }
    let sees_hidden = matches!(odd.softmax, Some(SoftmaxOverride::MaskedAfter));
    for (query_idx, row) in cells.chunks_mut(n_keys.max(1)).enumerate() {
        let scale = math.scale(query_idx) * odd.scale;
        for (key_idx, cell) in row.iter_mut().enumerate() {
            let seen = odd.sees(run, query_idx, key_idx);
            let is_scored = seen.is_some() || (sees_hidden && run.visibility.is_real_key(key_idx));
            if !is_scored {
                *cell = f32::NEG_INFINITY;
                continue;
            }
            if is_plain {
                *cell = *cell * scale + seen.unwrap_or(0.0);
                continue;
            }
            let capped = math.score(query_idx, key_idx, *cell * scale);
            let position = math.bias(query_idx, key_idx);
            let (from, to) = if odd.transposes_bias {
                (key_idx.min(n_queries - 1), query_idx.min(n_keys - 1))
            } else {
                (query_idx, key_idx)
            };
            let moved = odd.bias * math.bias(from, to) - position;
            *cell = capped + moved + seen.unwrap_or(0.0);
        }
    }
    cells
}

/// Products → scores where nothing but a scale and the declared mask is between them. // cells: [query, key]
fn score_plainly(run: &Run<'_>, math: &HeadMath<'_>, times: f32, cells: &mut [f32]) {
    let real = run.visibility.real_keys();
    for (query_idx, row) in cells.chunks_mut(run.visibility.n_keys.max(1)).enumerate() {
        let seen = run.visibility.range(query_idx);
        let scale = math.scale(query_idx) * times;
        row[..seen.start].fill(f32::NEG_INFINITY);
        row[seen.end..].fill(f32::NEG_INFINITY);
        row[seen.clone()].iter_mut().for_each(|cell| *cell *= scale);
        for key_idx in seen.filter(|key_idx| real.is_some_and(|real| !real[*key_idx])) {
            row[key_idx] = f32::NEG_INFINITY;
        }
    }
}

/// Scores → pattern, in place. // cells: [query, key]
fn normalise(run: &Run<'_>, head_idx: usize, odd: &AttentionOverride, cells: &mut [f32]) {
    let level = Level::current();
    let n_keys = run.visibility.n_keys.max(1);
    let sink = run.sinks.map(|sinks| sinks[head_idx]);
    let declared = match run.spec.softmax_axis {
        SoftmaxAxis::Keys => SoftmaxOverride::OverKeys,
        SoftmaxAxis::Queries => SoftmaxOverride::OverQueries,
    };
    let softmax = odd.softmax.unwrap_or(declared);
    if softmax == SoftmaxOverride::OverQueries {
        return over_queries(cells, n_keys);
    }
    for (query_idx, row) in cells.chunks_mut(n_keys).enumerate() {
        let extra = if softmax == SoftmaxOverride::PlusOne {
            Some(0.0)
        } else {
            sink
        };
        if !softmax_assign(level, row, extra) {
            // A finite mask value hides nothing where it hides everything.
            let real = |key_idx: &usize| run.visibility.is_real_key(*key_idx);
            let n_real = (0..n_keys).filter(real).count();
            (0..n_keys).for_each(|key_idx| {
                row[key_idx] = if real(&key_idx) {
                    1.0 / n_real as f32
                } else {
                    0.0
                };
            });
        }
        match softmax {
            SoftmaxOverride::Twice { leaks } => {
                for (key_idx, p) in row.iter_mut().enumerate() {
                    let stays = if leaks {
                        run.visibility.is_real_key(key_idx)
                    } else {
                        odd.sees(run, query_idx, key_idx).is_some()
                    };
                    if !stays {
                        *p = f32::NEG_INFINITY;
                    }
                }
                softmax_assign(level, row, None);
            }
            SoftmaxOverride::MaskedAfter => {
                for (key_idx, p) in row.iter_mut().enumerate() {
                    if odd.sees(run, query_idx, key_idx).is_none() {
                        *p = 0.0;
                    }
                }
            }
            _ => {}
        }
    }
}

fn over_queries(cells: &mut [f32], n_keys: usize) {
    let mut max = vec![f32::NEG_INFINITY; n_keys];
    for row in cells.chunks(n_keys) {
        max.iter_mut()
            .zip(row)
            .for_each(|(max, s)| *max = max.max(*s));
    }
    let mut sums = vec![0.0f64; n_keys];
    for row in cells.chunks_mut(n_keys) {
        for ((score, max), sum) in row.iter_mut().zip(&max).zip(&mut sums) {
            *score = if *score == f32::NEG_INFINITY {
                0.0
            } else {
                (*score - max).exp()
            };
            *sum += f64::from(*score);
        }
    }
    for row in cells.chunks_mut(n_keys) {
        for (p, sum) in row.iter_mut().zip(&sums).filter(|(_, sum)| **sum > 0.0) {
            *p = (f64::from(*p) / sum) as f32;
        }
    }
}

/// A softmax over the heads of each pair. // patterns: [head][query, key]
fn over_heads(patterns: &mut [Vec<f32>], leaks: bool) {
    let n_heads = patterns.len();
    let n_cells = patterns.first().map_or(0, Vec::len);
    for cell_idx in 0..n_cells {
        let scores = patterns.iter().map(|cells| cells[cell_idx]);
        let max = scores.clone().fold(f32::NEG_INFINITY, f32::max);
        if max == f32::NEG_INFINITY {
            let share = if leaks { 1.0 / n_heads as f32 } else { 0.0 };
            patterns
                .iter_mut()
                .for_each(|cells| cells[cell_idx] = share);
            continue;
        }
        let sum: f32 = scores.map(|s| (s - max).exp()).sum();
        for cells in patterns.iter_mut() {
            cells[cell_idx] = (cells[cell_idx] - max).exp() / sum;
        }
    }
}
