//! Turns one row of products into scores, pattern and summary: the reference implementation for every faster path.

use super::head_bias::HeadBias;
use super::log_sums::LogSums;
use super::mask::Visibility;
use super::scale::Scale;
use super::seen_keys::SeenKeys;
use super::spec::{AttentionSpec, Bias, NoVisible, SoftmaxAxis};
use super::summary::RowSummary;
use super::top_keys::{KeyRank, keep_largest};
use crate::kernels::simd::{LEAST_SHARED, unit_of};

/// Data shared by all rows of one head.
#[derive(Debug, Clone, Copy)]
pub struct HeadMath<'a> {
    pub spec: &'a AttentionSpec,
    pub head_idx: usize,
    pub visibility: &'a Visibility,
    /// Learned sink logit of this head: a key that takes probability but has no value.
    pub sink: Option<f32>,
    /// ‖k‖ per key of the head's kv head. // [key]
    pub k_norms: &'a [f32],
    /// ‖v W_O‖ per key, if known. // [key]
    pub value_norms: Option<&'a [f32]>,
    /// log Σ of exp(s) that weights are relative to, where the softmax does not run over keys.
    pub log_sums: Option<LogSums<'a>>,
    /// Token positions, if a bias uses them. // [position]
    pub positions: &'a [usize],
    /// The head's learned bias.
    pub learned: &'a HeadBias,
}

impl<'a> HeadMath<'a> {
    /// The first head of an attention without sinks and biases.
    pub fn plain(spec: &'a AttentionSpec, visibility: &'a Visibility, k_norms: &'a [f32]) -> Self {
        Self {
            spec,
            head_idx: 0,
            visibility,
            sink: None,
            k_norms,
            value_norms: None,
            log_sums: None,
            positions: &[],
            learned: &HeadBias::None,
        }
    }
}

impl HeadMath<'_> {
    /// The factor of a row's products.
    pub fn scale(&self, query_idx: usize) -> f32 {
        row_scale(self.spec, self.visibility, self.k_norms, query_idx)
    }

    /// The score of a pair as it enters the softmax, given scale·q·k.
    pub fn score(&self, query_idx: usize, key_idx: usize, scaled: f32) -> f32 {
        match self.spec.bias {
            Bias::None => self.capped(scaled),
            _ => self.score_of(scaled, self.bias(query_idx, key_idx)),
        }
    }

    /// The score of scale·q·k and a position bias.
    pub(super) fn score_of(&self, scaled: f32, bias: f32) -> f32 {
        if self.spec.caps_bias {
            self.capped(scaled + bias)
        } else {
            self.capped(scaled) + bias
        }
    }

    fn capped(&self, score: f32) -> f32 {
        match self.spec.softcap {
            Some(cap) => cap * (score / cap).tanh(),
            None => score,
        }
    }

    /// The score of what takes probability of a row but is no key: a learned sink, or the empty places of the query's window.
    pub(super) fn sink(&self, query_idx: usize) -> Option<f32> {
        match (self.sink, self.learned.beside_keys(query_idx)) {
            (Some(sink), Some(beside)) => {
                let max = sink.max(beside);
                Some(max + ((sink - max).exp() + (beside - max).exp()).ln())
            }
            (sink, beside) => sink.or(beside),
        }
    }

    /// The position bias of a pair.
    pub(super) fn bias(&self, query_idx: usize, key_idx: usize) -> f32 {
        match &self.spec.bias {
            Bias::None => 0.0,
            Bias::Alibi(alibi) => {
                let at = |idx: usize| self.positions.get(idx).copied().unwrap_or(idx);
                let scale = self.spec.scale.of_bias(self.spec.d_head);
                alibi.of(self.head_idx, at(query_idx), at(key_idx), scale)
            }
            Bias::Buckets(_)
            | Bias::Grid(_)
            | Bias::Pairs(_)
            | Bias::Steps(_)
            | Bias::Relative(_)
            | Bias::Profiles(_)
            | Bias::OfValues => {
                let scale = self.spec.scale.of_bias(self.spec.d_head);
                let n_queries = self.visibility.n_queries;
                self.learned.at(query_idx, key_idx, n_queries, scale)
            }
        }
    }

    /// One flag per key: whether a row of sparse attention keeps it; and the row's [recall](RowSummary::recall).
    fn kept_keys(&self, query_idx: usize, products: &[f32]) -> Option<(Vec<bool>, f32)> {
        let top = self.spec.top_keys?;
        let scale = self.scale(query_idx);
        let score = |key_idx: usize| self.score(query_idx, key_idx, products[key_idx] * scale);
        let keys = self.visibility.range(query_idx);
        let visible = keys.filter(|key_idx| self.visibility.is_seen(query_idx, *key_idx));
        let all: Vec<(f32, usize)> = visible.map(|key_idx| (score(key_idx), key_idx)).collect();
        let mut candidates = all.clone();
        match (top.by, self.visibility.picked()) {
            (KeyRank::Scores, _) => keep_largest(&mut candidates, top.n),
            (KeyRank::Indexer(_) | KeyRank::Window(_) | KeyRank::Pools, Some(picked)) => {
                candidates.retain(|(_, key_idx)| picked.has(self.head_idx, query_idx, *key_idx));
            }
            (KeyRank::Indexer(_) | KeyRank::Window(_) | KeyRank::Pools, None) => {}
        }
        let mut kept = vec![false; products.len()];
        for (_, key_idx) in &candidates {
            kept[*key_idx] = true;
        }
        let max = all
            .iter()
            .map(|(s, _)| *s)
            .fold(f32::NEG_INFINITY, f32::max);
        let sum = |keys: &[(f32, usize)]| -> f64 {
            let weights = keys.iter().map(|(s, _)| f64::from(*s - max).exp());
            weights.sum()
        };
        let is_over_keys = self.spec.softmax_axis == SoftmaxAxis::Keys;
        let recall = if candidates.len() < all.len() && is_over_keys {
            (sum(&candidates) / sum(&all)) as f32
        } else {
            f32::NAN
        };
        Some((kept, recall))
    }

    /// Whether positions equal indices.
    pub(super) fn counts_indices(&self) -> bool {
        let positions = self.positions.iter().enumerate();
        positions
            .into_iter()
            .all(|(idx, position)| idx == *position)
    }
}

/// The factor of a row's products, which may depend on the row's keys. // k_norms: [key]
pub fn row_scale(
    spec: &AttentionSpec,
    visibility: &Visibility,
    k_norms: &[f32],
    query_idx: usize,
) -> f32 {
    if !matches!(spec.scale, Scale::OfKeys(_)) {
        return spec.scale.factor(spec.d_head);
    }
    let visible = visibility
        .range(query_idx)
        .filter(|key_idx| visibility.is_seen(query_idx, *key_idx));
    let norms = visible.map(|key_idx| k_norms[key_idx]);
    spec.scale.of_row(spec.d_head, norms)
}

/// Sums of a row, relative to its first value so that a large mean does not cost digits.
#[derive(Debug, Clone, Copy)]
struct Moments {
    origin: f64,
    n: f64,
    sum: f64,
    sum_sq: f64,
    min: f32,
    max: f32,
}

impl Moments {
    fn new() -> Self {
        Self {
            origin: 0.0,
            n: 0.0,
            sum: 0.0,
            sum_sq: 0.0,
            min: f32::INFINITY,
            max: f32::NEG_INFINITY,
        }
    }

    fn add(&mut self, value: f32) {
        if self.n == 0.0 {
            self.origin = f64::from(value);
        }
        let shifted = f64::from(value) - self.origin;
        self.n += 1.0;
        self.sum += shifted;
        self.sum_sq += shifted * shifted;
        // Not `min` and `max`, which would ignore a NaN.
        if value < self.min || value.is_nan() {
            self.min = value;
        }
        if value > self.max || value.is_nan() {
            self.max = value;
        }
    }

    fn mean(&self) -> f64 {
        self.origin + self.sum / self.n
    }

    /// Population variance.
    fn variance(&self) -> f64 {
        let mean = self.sum / self.n;
        let variance = self.sum_sq / self.n - mean * mean;
        if variance < 0.0 { 0.0 } else { variance }
    }
}

/// The scores of a row, with what is summarised of them.
struct ScoredRow<'a> {
    summary: RowSummary,
    seen: SeenKeys<'a>,
    /// Keys that a row of sparse attention keeps; `None` for all that it sees.
    kept: Option<Vec<bool>>,
    /// The largest score, a sink included.
    max: f32,
    /// What a sink adds to Σ exp(s − max).
    of_sink: f64,
}

impl ScoredRow<'_> {
    fn sees(&self, key_idx: usize) -> bool {
        let is_kept = self.kept.as_ref().is_none_or(|kept| kept[key_idx]);
        is_kept && self.seen.has_in_range(key_idx)
    }

    /// Takes Σ exp(s − max) of the row; returns its logarithm.
    fn take_denominator(&mut self, denominator: f64) -> f64 {
        let log_denominator = denominator.ln();
        self.summary.log_sum_exp = (f64::from(self.max) + log_denominator) as f32;
        log_denominator
    }
}

/// Turns a row of q·k into scores (−inf where masked) in place, and summarises them, for a pattern that was computed elsewhere.
pub fn summarise_scores(
    head: &HeadMath<'_>,
    query_idx: usize,
    q_norm: f32,
    products: &mut [f32],
) -> RowSummary {
    let mut row = score_row(head, query_idx, q_norm, products);
    if row.summary.n_visible > 0 {
        let keys = head.visibility.range(query_idx);
        let seen = keys.filter(|key_idx| row.sees(*key_idx));
        let weights = seen.map(|key_idx| f64::from((products[key_idx] - row.max).exp()));
        let denominator = weights.fold(row.of_sink, |sum, weight| sum + weight);
        row.take_denominator(denominator);
    }
    row.summary
}

/// Products → scores.
fn score_row<'a>(
    head: &HeadMath<'a>,
    query_idx: usize,
    q_norm: f32,
    products: &mut [f32],
) -> ScoredRow<'a> {
    let range = head.visibility.range(query_idx);
    let seen = head.visibility.seen_by(query_idx);
    let kept = head.kept_keys(query_idx, products);
    let is_visible = |key_idx: usize| {
        let is_kept = kept.as_ref().is_none_or(|(kept, _)| kept[key_idx]);
        is_kept && seen.has_in_range(key_idx)
    };
    let mut summary = RowSummary {
        q_norm,
        recall: kept.as_ref().map_or(f32::NAN, |(_, recall)| *recall),
        ..RowSummary::empty(head.visibility.is_real_query(query_idx))
    };

    products[..range.start].fill(f32::NEG_INFINITY);
    products[range.end..].fill(f32::NEG_INFINITY);
    let scale = head.scale(query_idx);
    let (mut raw, mut scored) = (Moments::new(), Moments::new());
    let (mut score_sq, mut k_norm_sq_sum, mut cosine_sum) = (0.0f64, 0.0f64, 0.0f64);
    for key_idx in range {
        if !is_visible(key_idx) {
            products[key_idx] = f32::NEG_INFINITY;
            continue;
        }
        let product = products[key_idx];
        let scaled = product * scale;
        let score = head.score(query_idx, key_idx, scaled);
        raw.add(scaled);
        scored.add(score);
        score_sq += f64::from(score) * f64::from(score);
        let k_norm = f64::from(head.k_norms[key_idx]);
        k_norm_sq_sum += k_norm * k_norm;
        cosine_sum += f64::from(product) / k_norm;
        products[key_idx] = score;
    }
    let sink = head.sink(query_idx);
    let max = sink.map_or(scored.max, |sink| scored.max.max(sink));
    let of_sink = sink.map_or(0.0, |sink| f64::from((sink - max).exp()));
    let row = |summary| ScoredRow {
        summary,
        seen: seen.clone(),
        kept: kept.map(|(kept, _)| kept),
        max,
        of_sink,
    };
    let n_visible = scored.n as usize;
    if n_visible == 0 {
        return row(summary);
    }
    summary.n_visible = n_visible as u32;
    summary.score_mean = scored.mean() as f32;
    summary.score_var = scored.variance() as f32;
    (summary.score_min, summary.score_max) = (scored.min, scored.max);
    summary.score_norm = score_sq.sqrt() as f32;
    summary.is_nonfinite = !score_sq.is_finite();
    summary.raw_mean = raw.mean() as f32;
    summary.raw_var = raw.variance() as f32;
    (summary.raw_min, summary.raw_max) = (raw.min, raw.max);
    summary.k_norm_sq_sum = k_norm_sq_sum as f32;
    summary.cosine = (cosine_sum / (f64::from(q_norm) * scored.n)) as f32;
    row(summary)
}

/// Turns a row of q·k into scores (−inf where masked) in place, fills the pattern, and summarises both.
///
/// `products` and `pattern` hold one element per key; `q_norm` is ‖q‖ of the row's query.
pub fn finish_row(
    head: &HeadMath<'_>,
    query_idx: usize,
    q_norm: f32,
    products: &mut [f32],
    pattern: &mut [f32],
) -> RowSummary {
    let range = head.visibility.range(query_idx);
    let mut row = score_row(head, query_idx, q_norm, products);
    let scores: &[f32] = products;
    if row.summary.n_visible == 0 {
        fill_unseen(head.spec.no_visible, pattern, &mut row.summary);
        return row.summary;
    }

    // Scores → pattern, using s − max so that no digits are lost when |s| is large.
    pattern[..range.start].fill(0.0);
    pattern[range.end..].fill(0.0);
    let (max, mut denominator) = (row.max, row.of_sink);
    for key_idx in range.clone() {
        let weight = if row.sees(key_idx) {
            (scores[key_idx] - max).exp()
        } else {
            0.0
        };
        pattern[key_idx] = weight;
        denominator += f64::from(weight);
    }
    let log_denominator = row.take_denominator(denominator);
    let inverse = (1.0 / denominator) as f32;
    let log_sums = head.log_sums.map(|all| all.of_row(query_idx));
    let log_p = |key_idx: usize| match log_sums {
        Some(log_sums) => f64::from(scores[key_idx]) - f64::from(log_sums[key_idx]),
        None => f64::from(scores[key_idx] - max) - log_denominator,
    };

    // Pattern → sums.
    let mut sums = PatternSums::default();
    let (mut carried, mut with_logs) = (0.0f64, 0.0f64);
    for key_idx in range {
        if !row.sees(key_idx) {
            continue;
        }
        let log_p = log_p(key_idx);
        let p = match head.spec.softmax_axis {
            SoftmaxAxis::Keys => pattern[key_idx] * inverse,
            SoftmaxAxis::Queries | SoftmaxAxis::Heads => log_p.exp() as f32,
        };
        pattern[key_idx] = p;
        sums.add(p, log_p, key_idx, query_idx.abs_diff(key_idx));
        let norm = f64::from(head.value_norms.map_or(f32::NAN, |norms| norms[key_idx]));
        let carries = f64::from(p) * norm;
        carried += carries;
        // 0·log 0 is 0; a NaN is not 0 and propagates.
        if carries != 0.0 {
            with_logs += carries * (log_p + norm.ln());
        }
    }
    let mut summary = row.summary;
    sums.write(&mut summary);
    summary.contribution = carried as f32;
    let unit = head.value_norms.map_or(f32::NAN, unit_of);
    let entropy = carried.ln() - with_logs / carried;
    summary.contribution_entropy = if carried < LEAST_SHARED * f64::from(unit) || entropy < 0.0 {
        0.0
    } else {
        entropy as f32
    };
    summarise_places(head.visibility, query_idx, pattern, &mut summary);
    summary
}

/// Fills in the probabilities of the first token, the query's own token, and the one before it.
fn summarise_places(
    visibility: &Visibility,
    query_idx: usize,
    pattern: &[f32],
    summary: &mut RowSummary,
) {
    let at = |key_idx: Option<usize>| {
        let p = key_idx.and_then(|idx| pattern.get(idx));
        p.copied().unwrap_or(f32::NAN)
    };
    summary.first_mass = at(visibility.first_real_key());
    summary.diagonal_mass = at(Some(query_idx));
    summary.previous_mass = at(visibility.previous_real_key(query_idx));
    summary.add_later(pattern.iter().skip(query_idx + 1).copied());
}

/// Summarises a row of a pattern computed elsewhere, whether or not it is correct.
pub fn summarise_pattern(
    visibility: &Visibility,
    query_idx: usize,
    pattern: &[f32],
    summary: &mut RowSummary,
) {
    let mut sums = PatternSums::default();
    // What is 0 adds nothing to any sum, and under a mask half of a pattern is.
    for (key_idx, p) in pattern.iter().enumerate().filter(|(_, p)| **p != 0.0) {
        sums.add(*p, f64::from(*p).ln(), key_idx, query_idx.abs_diff(key_idx));
    }
    sums.write(summary);
    summarise_places(visibility, query_idx, pattern, summary);
}

#[derive(Debug, Default)]
struct PatternSums {
    mass: f64,
    entropy: f64,
    p2: f64,
    p3: f64,
    distance: f64,
    top1: f32,
    top2: f32,
    argmax: usize,
}

impl PatternSums {
    fn add(&mut self, p: f32, log_p: f64, key_idx: usize, distance: usize) {
        let wide = f64::from(p);
        self.mass += wide;
        // 0·log 0 is 0; a NaN is not 0 and propagates.
        if p != 0.0 {
            self.entropy -= wide * log_p;
        }
        self.p2 += wide * wide;
        self.p3 += wide * wide * wide;
        self.distance += wide * distance as f64;
        if p > self.top1 {
            (self.top2, self.top1, self.argmax) = (self.top1, p, key_idx);
        } else if p > self.top2 {
            self.top2 = p;
        }
    }

    fn write(&self, summary: &mut RowSummary) {
        summary.mass = self.mass as f32;
        summary.entropy = self.entropy as f32;
        summary.sum_p2 = self.p2 as f32;
        summary.sum_p3 = self.p3 as f32;
        summary.distance = self.distance as f32;
        let is_nan = self.mass.is_nan();
        summary.top1 = if is_nan { f32::NAN } else { self.top1 };
        summary.top2 = if is_nan { f32::NAN } else { self.top2 };
        summary.argmax = self.argmax as u32;
    }
}

pub(super) fn fill_unseen(rule: NoVisible, pattern: &mut [f32], summary: &mut RowSummary) {
    let (value, mass) = match rule {
        NoVisible::Zero => (0.0, 0.0),
        NoVisible::Uniform => (1.0 / pattern.len() as f32, 1.0),
        NoVisible::Nan => (f32::NAN, f32::NAN),
    };
    pattern.fill(value);
    summary.mass = mass;
}
