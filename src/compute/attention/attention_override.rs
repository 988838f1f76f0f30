//! Attention variants that no checkpoint declares, for weights trained with a bug. Computes whole score matrices, so texts must
//! be short. An attention whose keys an indexer picks is not run here.

use rayon::prelude::*;

use super::head::{Head, HeadInput};
use super::head_bias::HeadBias;
use super::row::HeadMath;
use super::run::Run;
use super::spec::{AttentionSpec, Bias, SoftmaxAxis};
use super::top_keys::{KeyRank, TopKeys, keep_largest};
use crate::kernels::simd::{Level, softmax_assign};
use crate::kernels::sum_of_squares;

/// How scores become weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SoftmaxOverride {
    OverKeys,
    OverQueries,
    /// Over heads. With `leaks`, masked scores are finite and equal in all heads, so hidden keys get 1/n_heads.
    OverHeads {
        leaks: bool,
    },
    /// A softmax of the softmax. With `leaks`, the second one is not masked, so hidden keys enter it as zeros.
    Twice {
        leaks: bool,
    },
    /// Adds 1 to the denominator.
    PlusOne,
    /// Over all keys; hidden ones are set to zero afterwards, without renormalising.
    MaskedAfter,
}

/// Which keys a query sees, instead of those the declared mask allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MaskOverride {
    /// Keys up to the query's own position plus this many; minus, if negative.
    Shifted(isize),
    /// Only the keys that a causal mask hides.
    Inverted,
    /// All keys; this value is added to the scores of those the declared mask hides.
    Soft(f32),
    /// The declared keys, and this many first keys.
    Prefix(usize),
    /// This many keys, up to the query's own position.
    Window(usize),
    Causal,
    All,
}

/// How an attention deviates from the declared one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionOverride {
    /// `None` keeps the declared softmax.
    pub softmax: Option<SoftmaxOverride>,
    pub sight: Option<MaskOverride>,
    /// Multiplies the declared scale.
    pub scale: f32,
    /// Multiplies the position bias.
    pub bias: f32,
    /// Exchanges query and key in the position bias.
    pub transposes_bias: bool,
    /// Repeats the kv heads as a whole (0 1 0 1) instead of each in turn (0 0 1 1).
    pub tiles_keys: bool,
    /// The only head that deviates; `None` for all heads.
    pub head_idx: Option<usize>,
}

impl AttentionOverride {
    /// No deviation.
    pub const NONE: Self = Self {
        softmax: None,
        sight: None,
        scale: 1.0,
        bias: 1.0,
        transposes_bias: false,
        tiles_keys: false,
        head_idx: None,
    };

    /// Both deviations at once; `None` if they change the same thing.
    pub fn and(&self, other: &Self) -> Option<Self> {
        Some(Self {
            softmax: only_change(self.softmax, other.softmax, None)?,
            sight: only_change(self.sight, other.sight, None)?,
            scale: only_change(self.scale, other.scale, 1.0)?,
            bias: only_change(self.bias, other.bias, 1.0)?,
            transposes_bias: self.transposes_bias | other.transposes_bias,
            tiles_keys: self.tiles_keys | other.tiles_keys,
            head_idx: only_change(self.head_idx, other.head_idx, None)?,
        })
    }

    fn of_head(&self, head_idx: usize) -> Self {
        if self.head_idx.is_none_or(|only| only == head_idx) {
            *self
        } else {
            Self::NONE
        }
    }

    /// The value added to the score of a pair, or `None` if the key is hidden from the query or is padding.
    fn sees(&self, run: &Run<'_>, query_idx: usize, key_idx: usize) -> Option<f32> {
        let visibility = run.visibility;
        if !visibility.is_real_key(key_idx) {
            return None;
        }
        let declared = || visibility.sees(query_idx, key_idx);
        let seen = match self.sight {
            None => declared(),
            // A bug in a causal mask changes nothing in a layer without one.
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

/// Whichever of two values differs from the usual one; `None` if both do.
pub fn only_change<T: PartialEq>(a: T, b: T, usual: T) -> Option<T> {
    if a == usual {
        Some(b)
    } else {
        (b == usual).then_some(a)
    }
}

/// Runs all heads of an attention that deviates, and returns Σ p·v. // [query, n_heads · d_value]
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
            if over_heads_leaking(spec, &odd).is_none() {
                normalise(run, head_idx, &odd, &mut cells);
            }
            cells
        })
        .collect(); // [head][query, key]
    if let Some(leaks) = over_heads_leaking(spec, odd) {
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

/// For a softmax over heads, whether hidden keys get their share too.
fn over_heads_leaking(spec: &AttentionSpec, odd: &AttentionOverride) -> Option<bool> {
    match (odd.softmax, spec.softmax_axis) {
        (Some(SoftmaxOverride::OverHeads { leaks }), _) => Some(leaks),
        (None, SoftmaxAxis::Heads) => Some(false),
        _ => None,
    }
}

/// A head, possibly served by another kv head than its own.
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

/// Scores of all pairs; −inf where the key is hidden. // [query, key]
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
        log_sums: None,
    };
    let mut cells = vec![0.0; n_queries * n_keys];
    head.products(&(0..n_queries), n_keys, &mut cells);
    let is_plain = matches!(spec.bias, Bias::None) && spec.softcap.is_none();
    if is_plain && odd.sight.is_none() && odd.softmax != Some(SoftmaxOverride::MaskedAfter) {
        score_plainly(run, &math, odd.scale, &mut cells);
        drop_small(spec.top_keys, n_keys, &mut cells);
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
            let (from, to) = if odd.transposes_bias {
                (key_idx.min(n_queries - 1), query_idx.min(n_keys - 1))
            } else {
                (query_idx, key_idx)
            };
            let bias = odd.bias * math.bias(from, to);
            *cell = math.score_of(*cell * scale, bias) + seen.unwrap_or(0.0);
        }
    }
    drop_small(spec.top_keys, n_keys, &mut cells);
    cells
}

/// Hides all but the largest scores of each row, if only these are kept. // cells: [query, key]
fn drop_small(top: Option<TopKeys>, n_keys: usize, cells: &mut [f32]) {
    let Some(TopKeys {
        n,
        by: KeyRank::Scores,
    }) = top
    else {
        return;
    };
    for row in cells.chunks_mut(n_keys.max(1)) {
        let mut kept: Vec<(f32, usize)> = row.iter().copied().zip(0..).collect();
        kept.retain(|(score, _)| *score != f32::NEG_INFINITY);
        keep_largest(&mut kept, n);
        row.fill(f32::NEG_INFINITY);
        kept.iter()
            .for_each(|(score, key_idx)| row[*key_idx] = *score);
    }
}

/// Products → scores, if there is nothing but a scale and the declared mask between them. // cells: [query, key]
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
        row[run.visibility.hole(query_idx)].fill(f32::NEG_INFINITY);
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
        // Normalised with all heads beside it.
        SoftmaxAxis::Heads => return,
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
            // If every key is hidden, a finite mask value hides none: the weights are uniform.
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

/// Softmax over the heads, for each pair. // patterns: [head][query, key]
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
