//! Arrays of one attention → a layer report: statistics, summaries, and an audit of every head's pattern.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Trace;
use super::declared::{Declared, Stated, masked};
use super::names::{Layer, Name, Part, parse};
use crate::analysis::layer::alike;
use crate::analysis::residual::shape_of;
use crate::attention::{
    AttentionSpec, Audit, HeadMath, HeadSummary, Pooled, Repeats, RowSummary, Scale, SoftmaxAxis,
    Visibility, finish_row, sampled_queries, summarise_pattern,
};
use crate::checkpoint::Dtype;
use crate::checkpoint::captured::{Array, Captured};
use crate::checks::Place;
use crate::error::Result;
use crate::kernels::{Matrix, MatrixMut, Threads, product, sum_of_squares};
use crate::model::Stack;
use crate::stats::{
    self, HeadEvidence, HeadReport, LayerEvidence, LayerReport, ResidualShape, Values,
};

/// Arrays of one attention, by what they are: the names under which they stand.
type Parts = BTreeMap<Part, String>;

pub(super) fn layer_reports(captured: &Captured, declared: &Declared) -> Result<Trace> {
    let mut all: BTreeMap<(Stack, Layer), Parts> = BTreeMap::new();
    for stored in captured.names() {
        if let Some(Name { stack, layer, part }) = parse(stored) {
            all.entry((stack, layer))
                .or_default()
                .insert(part, stored.to_owned());
        }
    }
    let mut stated = Stated::read(captured, declared)?;
    if stated.mask.is_none() {
        infer_mask(captured, &all, &mut stated)?;
    }
    let tokens = captured.whole_numbers("tokens")?.unwrap_or_default();
    let ids: Vec<u32> = tokens.iter().map(|id| *id as u32).collect();
    let mut trace = Trace {
        layers: Vec::new(),
        tokens,
        mask_origin: stated.origin.clone(),
        source: ["attnscope.source", "source"]
            .iter()
            .find_map(|key| captured.metadata.get(*key).cloned()),
        first_nonfinite: None,
        row_tolerance: row_tolerance(captured, &all),
        lacks: lacks(&all),
    };
    let mut n_modules = 0;
    for ((stack, layer), parts) in &all {
        if !parts.keys().any(|part| *part != Part::ResidPost) {
            continue;
        }
        let layer_idx = match layer {
            Layer::Numbered(number) => *number,
            Layer::Module(_) => {
                n_modules += 1;
                n_modules - 1
            }
        };
        let at = At {
            stack: *stack,
            layer_idx,
            name: layer.module(),
        };
        let found = Captive {
            captured,
            stated: &stated,
            ids: &ids,
            parts,
        }
        .report(at, &mut trace.first_nonfinite)?;
        trace.layers.extend(found.map(Arc::new));
    }
    if trace.layers.is_empty() {
        return Err(captured.at(
            "blocks.0.attn.pattern",
            "missing: the file holds no pattern, scores or queries with keys",
        ));
    }
    Ok(trace)
}

struct At {
    stack: Stack,
    layer_idx: usize,
    name: Option<String>,
}

/// Causal where most heads have exactly 0 above the diagonal.
fn infer_mask(
    captured: &Captured,
    all: &BTreeMap<(Stack, Layer), Parts>,
    stated: &mut Stated,
) -> Result<()> {
    let (mut n_heads, mut n_causal) = (0, 0);
    for ((stack, _), parts) in all {
        let Some(name) = parts.get(&Part::Pattern).filter(|_| *stack != Stack::Cross) else {
            continue;
        };
        let (dims, values) = heads_of(captured, name, captured.array(name)?)?;
        let [_, n_queries, n_keys] = dims;
        if n_queries != n_keys || n_queries < 2 {
            continue;
        }
        for head in values.chunks(n_queries * n_keys) {
            n_heads += 1;
            let mut rows = head.chunks(n_keys).enumerate();
            n_causal += usize::from(
                rows.all(|(query_idx, row)| row[query_idx + 1..].iter().all(|p| *p == 0.0)),
            );
        }
    }
    let causal = 2 * n_causal > n_heads;
    stated.mask = Some(masked(causal, stated.window));
    stated.origin = match causal {
        true => format!(
            "causal inferred: {n_causal} of {n_heads} heads have exactly 0 above the diagonal (--mask says otherwise)"
        ),
        false => format!(
            "bidirectional inferred: {n_causal} of {n_heads} heads have exactly 0 above the diagonal (--mask says otherwise)"
        ),
    };
    Ok(())
}

/// By the coarsest dtype that the pattern was stored or computed in.
fn row_tolerance(captured: &Captured, all: &BTreeMap<(Stack, Layer), Parts>) -> f64 {
    let computed = captured
        .metadata
        .get("attnscope.dtype")
        .map_or("", String::as_str);
    let patterns = all.values().filter_map(|parts| parts.get(&Part::Pattern));
    let stored: Vec<Option<Dtype>> = patterns.map(|name| captured.dtype(name)).collect();
    let any = |dtype: Dtype, word: &str| {
        stored.contains(&Some(dtype)) || computed.split(',').any(|name| name.trim() == word)
    };
    if any(Dtype::Bf16, "bfloat16") {
        2e-2
    } else if any(Dtype::F16, "float16") {
        5e-3
    } else {
        1e-5
    }
}

/// What a trace without scores, or without queries and keys, cannot say.
fn lacks(all: &BTreeMap<(Stack, Layer), Parts>) -> Option<String> {
    let has = |part: Part| all.values().any(|parts| parts.contains_key(&part));
    let mut missing = Vec::new();
    if !has(Part::Pattern) {
        missing.push("pattern");
    }
    if !has(Part::Scores) {
        missing.push("scores");
    }
    if !has(Part::Q) && !has(Part::RotQ) {
        missing.push("q and k");
    }
    (!missing.is_empty()).then(|| format!("not captured: {}", missing.join(", ")))
}

/// Head, query and key axes of an array, the first of a batch; and its values.
fn heads_of(captured: &Captured, name: &str, array: Array) -> Result<([usize; 3], Vec<f32>)> {
    let Array { shape, mut values } = array;
    let dims = match *shape.as_slice() {
        [n_queries, n_keys] => [1, n_queries, n_keys],
        [n_heads, n_queries, n_keys] => [n_heads, n_queries, n_keys],
        [n_batch, n_heads, n_queries, n_keys] if n_batch > 0 => [n_heads, n_queries, n_keys],
        _ => {
            let problem = format!(
                "expected [head, query, key] or [batch, head, query, key], found shape {shape:?}"
            );
            return Err(captured.at(name, &problem));
        }
    };
    let n: usize = dims.iter().product();
    if n == 0 {
        return Err(captured.at(
            name,
            &format!("expected at least one head, query and key, found shape {shape:?}"),
        ));
    }
    values.truncate(n);
    Ok((dims, values))
}

/// One attention of the file.
struct Captive<'a> {
    captured: &'a Captured,
    stated: &'a Stated,
    ids: &'a [u32],
    parts: &'a Parts,
}

/// An array by heads.
struct Heads {
    dims: [usize; 3],
    values: Vec<f32>,
}

impl Heads {
    fn head(&self, head_idx: usize) -> &[f32] {
        let n = self.dims[1] * self.dims[2];
        &self.values[head_idx * n..(head_idx + 1) * n]
    }
}

impl Captive<'_> {
    fn part(&self, part: Part) -> Result<Option<Heads>> {
        let Some(name) = self.parts.get(&part) else {
            return Ok(None);
        };
        let (dims, values) = heads_of(self.captured, name, self.captured.array(name)?)?;
        Ok(Some(Heads { dims, values }))
    }

    /// Refuses arrays of one attention whose shapes differ.
    fn fits(&self, part: Part, found: &[usize], expected: &[usize]) -> Result<()> {
        if found == expected {
            return Ok(());
        }
        let name = self.parts.get(&part).map_or("", String::as_str);
        let problem =
            format!("expected shape {expected:?} like the arrays beside it, found {found:?}");
        Err(self.captured.at(name, &problem))
    }

    fn report(
        &self,
        at: At,
        nonfinite: &mut Option<(Place, String)>,
    ) -> Result<Option<LayerReport>> {
        let pattern = self.part(Part::Pattern)?;
        let scores = self.part(Part::Scores)?;
        let q = match self.part(Part::RotQ)? {
            None => self.part(Part::Q)?,
            some => some,
        };
        let k = match self.part(Part::RotK)? {
            None => self.part(Part::K)?,
            some => some,
        };
        let [n_heads, n_queries, n_keys] = match (&pattern, &scores, &q, &k) {
            (Some(one), ..) | (None, Some(one), ..) => one.dims,
            (None, None, Some(q), Some(k)) => [q.dims[0], q.dims[1], k.dims[1]],
            _ => return Ok(None),
        };
        if let Some(scores) = &scores {
            self.fits(Part::Scores, &scores.dims, &[n_heads, n_queries, n_keys])?;
        }
        let (mut d_head, mut n_kv_heads) = (1, n_heads);
        if let (Some(q), Some(k)) = (&q, &k) {
            d_head = q.dims[2];
            n_kv_heads = k.dims[0];
            self.fits(Part::Q, &q.dims, &[n_heads, n_queries, d_head])?;
            self.fits(Part::K, &k.dims, &[n_kv_heads, n_keys, d_head])?;
            if !n_heads.is_multiple_of(n_kv_heads) {
                self.fits(Part::K, &[n_kv_heads], &[n_heads])?;
            }
        }
        let is_cross = at.stack == Stack::Cross;
        let mut spec = AttentionSpec::plain(n_heads, n_kv_heads, d_head, false);
        spec.is_cross = is_cross;
        spec.softmax_axis = self.stated.axis;
        let is_square = n_queries == n_keys && !is_cross;
        if let Some(mask) = self.stated.mask.filter(|_| is_square) {
            // The encoder of a model of two stacks sees both ways whatever its decoder does.
            spec.mask = masked(
                mask.causal && at.stack != Stack::Encoder,
                self.stated.window,
            );
        }
        let real = |n: usize| self.stated.real.as_deref().filter(|real| real.len() == n);
        let visibility = match is_square && at.stack != Stack::Decoder {
            true => Visibility::of_self(spec.mask, n_queries, real(n_queries)),
            false if is_square => Visibility::of_self(spec.mask, n_queries, None),
            false => Visibility::of_cross(spec.mask, (n_queries, None), (n_keys, real(n_keys))),
        };
        if at.stack == Stack::Only
            && is_square
            && let Some(real) = &self.stated.real
            && real.len() != n_keys
        {
            let problem = format!(
                "the attention mask has {} values, the pattern {n_keys} keys",
                real.len()
            );
            return Err(self.captured.at("attention_mask", &problem));
        }
        let documents = if is_square {
            self.stated.document_of(n_keys)
        } else {
            Vec::new()
        };
        let is_tokens = is_square && self.ids.len() == n_keys && at.stack != Stack::Decoder;
        let repeats = is_tokens.then(|| Repeats::of(self.ids));
        let context = Context {
            spec: &spec,
            visibility: &visibility,
            repeats: repeats.as_ref(),
        };
        let mut heads = Vec::new();
        for head_idx in 0..n_heads {
            let head = HeadArrays {
                pattern: pattern.as_ref().map(|all| all.head(head_idx)),
                scores: scores.as_ref().map(|all| all.head(head_idx)),
                q: q.as_ref()
                    .filter(|_| k.is_some())
                    .map(|all| all.head(head_idx)),
                k: k.as_ref()
                    .filter(|_| q.is_some())
                    .map(|all| all.head(spec.kv_head_of(head_idx))),
            };
            let summary = context.summary(&head, head_idx);
            let audit = head.pattern.map(|pattern| {
                let audit = Audit::of(
                    &visibility,
                    spec.softmax_axis,
                    &documents,
                    pattern,
                    head.scores,
                );
                Box::new(audit)
            });
            heads.push((summary, audit));
        }
        if let (Some(pattern), Some((_, Some(first)))) = (&pattern, heads.first_mut()) {
            first.head_axis_deviation = head_axis_deviation(&visibility, pattern);
        }
        let place = Place::layer(at.stack, at.layer_idx);
        let what = at.name.clone().unwrap_or_else(|| place.to_string());
        if nonfinite.is_none() {
            *nonfinite =
                first_nonfinite(place, &what, &visibility, scores.as_ref(), pattern.as_ref());
        }
        self.finish(at, spec, heads).map(Some)
    }

    /// Statistics of the heads and of the layer.
    fn finish(
        &self,
        at: At,
        spec: AttentionSpec,
        heads: Vec<(HeadSummary, Option<Box<Audit>>)>,
    ) -> Result<LayerReport> {
        let (mut summaries, audits): (Vec<_>, Vec<_>) = heads.into_iter().unzip();
        let alike = alike(&mut summaries);
        let heads: Vec<HeadReport> = summaries
            .into_iter()
            .zip(audits)
            .map(|(summary, audit)| {
                let evidence = HeadEvidence {
                    summary: &summary,
                    output_norms: &[],
                    resid_norms: &[],
                    scale: spec.scale.factor(spec.d_head),
                    d_head: spec.d_head,
                    is_cross: spec.is_cross,
                };
                HeadReport {
                    stats: stats::of_head(&evidence),
                    summary,
                    audit,
                }
            })
            .collect();
        let (mut residual, mut peak) = (ResidualShape::NONE, None);
        if let Some(name) = self.parts.get(&Part::ResidPost) {
            let Array { shape, values } = self.captured.array(name)?;
            if let Some(width) = shape.last().copied().filter(|width| *width > 0) {
                (residual, peak) = shape_of(&values, width, &|idx| {
                    self.stated
                        .real
                        .as_ref()
                        .is_none_or(|real| real.get(idx).copied().unwrap_or(true))
                });
            }
        }
        let evidence = LayerEvidence {
            resid_pre: &[],
            attn_out: &[],
            mlp_out: &[],
            resid_post: &[],
            residual,
        };
        let of_heads: Vec<Values> = heads.iter().map(|head| head.stats.clone()).collect();
        Ok(LayerReport {
            stack: at.stack,
            layer_idx: at.layer_idx,
            name: at.name,
            has_sinks: self.stated.has_sinks,
            stats: stats::of_layer(&of_heads, &evidence),
            spec,
            heads,
            alike,
            peak,
        })
    }
}

/// One head's arrays.
struct HeadArrays<'a> {
    /// [query, key]
    pattern: Option<&'a [f32]>,
    scores: Option<&'a [f32]>,
    /// [position, d_head]
    q: Option<&'a [f32]>,
    k: Option<&'a [f32]>,
}

/// What all heads of an attention share.
struct Context<'a> {
    spec: &'a AttentionSpec,
    visibility: &'a Visibility,
    repeats: Option<&'a Repeats>,
}

impl Context<'_> {
    fn summary(&self, head: &HeadArrays<'_>, head_idx: usize) -> HeadSummary {
        let (n_queries, n_keys) = (self.visibility.n_queries, self.visibility.n_keys);
        let d_head = self.spec.d_head;
        let norms = |values: Option<&[f32]>, n: usize| match values {
            Some(values) => values
                .chunks(d_head)
                .map(|row| sum_of_squares(row).sqrt() as f32)
                .collect(),
            None => vec![f32::NAN; n],
        };
        let (q_norms, k_norms): (Vec<f32>, Vec<f32>) =
            (norms(head.q, n_queries), norms(head.k, n_keys));
        // Captured scores are what enters the softmax: scale, bias and softcap are in them.
        let as_they_are = AttentionSpec {
            scale: Scale::One,
            softmax_axis: SoftmaxAxis::Keys,
            ..self.spec.clone()
        };
        let scaled = AttentionSpec {
            softmax_axis: SoftmaxAxis::Keys,
            ..self.spec.clone()
        };
        let math = HeadMath {
            spec: if head.scores.is_some() {
                &as_they_are
            } else {
                &scaled
            },
            head_idx,
            visibility: self.visibility,
            sink: None,
            k_norms: &k_norms,
            column_log_sum_exp: None,
            positions: &[],
            bias_by_distance: &[],
        };
        let products = match (head.scores, head.q, head.k) {
            (Some(scores), ..) => Some(scores.to_vec()),
            (None, Some(q), Some(k)) => {
                let mut products = vec![0.0; n_queries * n_keys];
                let mut out = MatrixMut::new(&mut products, n_queries, n_keys, n_keys);
                let k = Matrix::row_major(k, n_keys, d_head);
                product(
                    &mut out,
                    Matrix::row_major(q, n_queries, d_head),
                    k.transposed(),
                    false,
                    Threads::One,
                );
                Some(products)
            }
            _ => None,
        };
        let mut products = products;
        let mut ours = vec![0.0; n_keys];
        let (mut rows, mut column_sums) = (Vec::with_capacity(n_queries), vec![0.0f64; n_keys]);
        let mut pooled = Pooled::new(n_queries, n_keys);
        let sampled = sampled_queries(n_queries, n_keys);
        let mut samples = Vec::new();
        for query_idx in 0..n_queries {
            let span = query_idx * n_keys..(query_idx + 1) * n_keys;
            let mut summary = match &mut products {
                Some(products) => {
                    let row = &mut products[span.clone()];
                    finish_row(&math, query_idx, q_norms[query_idx], row, &mut ours)
                }
                None => RowSummary {
                    n_visible: self.visibility.n_visible(query_idx) as u32,
                    ..RowSummary::empty(self.visibility.is_real_query(query_idx))
                },
            };
            let row: &[f32] = match head.pattern {
                Some(pattern) => &pattern[span],
                None => &ours,
            };
            if head.pattern.is_some() {
                summarise_pattern(query_idx, row, &mut summary);
                summary.is_nonfinite |= row.iter().any(|p| !p.is_finite());
            }
            if head.k.is_none() {
                (summary.cosine, summary.k_norm_sq_sum, summary.q_norm) =
                    (f32::NAN, f32::NAN, f32::NAN);
            }
            if let Some(repeats) = self.repeats
                && repeats.before(query_idx).next().is_some()
            {
                (summary.duplicate_mass, summary.induction_mass) = repeats.masses(query_idx, row);
            }
            if summary.is_real {
                column_sums
                    .iter_mut()
                    .zip(row)
                    .for_each(|(sum, p)| *sum += f64::from(*p));
                pooled.add_row(query_idx, row);
            }
            if sampled.contains(&query_idx) {
                match summary.is_real {
                    true => samples.extend_from_slice(row),
                    false => samples.resize(samples.len() + n_keys, 0.0),
                }
            }
            rows.push(summary);
        }
        HeadSummary {
            rows,
            column_sums: column_sums.into_iter().map(|sum| sum as f32).collect(),
            k_norms,
            real_keys: self.visibility.real_keys().map(<[bool]>::to_vec),
            pooled,
            samples,
        }
    }
}

/// Largest |Σ over heads − 1| of a visible cell; `None` for one head.
fn head_axis_deviation(visibility: &Visibility, pattern: &Heads) -> Option<f64> {
    let [n_heads, n_queries, n_keys] = pattern.dims;
    if n_heads < 2 {
        return None;
    }
    let mut worst = 0.0f64;
    for query_idx in (0..n_queries).filter(|idx| visibility.is_real_query(*idx)) {
        for key_idx in (0..n_keys).filter(|key_idx| visibility.sees(query_idx, *key_idx)) {
            let at = query_idx * n_keys + key_idx;
            let sum: f64 = (0..n_heads)
                .map(|head_idx| f64::from(pattern.head(head_idx)[at]))
                .sum();
            worst = worst.max((sum - 1.0).abs());
        }
    }
    Some(worst)
}

/// The first NaN or infinity, scores before pattern; −inf at a masked score is none.
fn first_nonfinite(
    place: Place,
    what: &str,
    visibility: &Visibility,
    scores: Option<&Heads>,
    pattern: Option<&Heads>,
) -> Option<(Place, String)> {
    let found = |kind: &str, heads: &Heads, is_wrong: &dyn Fn(f32) -> bool| {
        let [_, n_queries, n_keys] = heads.dims;
        let is_found = |(at, value): &(usize, &f32)| {
            is_wrong(**value) && visibility.is_real_query(at / n_keys % n_queries)
        };
        let (at, value) = heads.values.iter().enumerate().find(is_found)?;
        let (head_idx, query_idx, key_idx) = (
            at / (n_queries * n_keys),
            at / n_keys % n_queries,
            at % n_keys,
        );
        let place = place.head(head_idx).query(query_idx).key(key_idx);
        let text = format!(
            "{what} head {head_idx}: the {kind} of query {query_idx}, key {key_idx} is {value}"
        );
        Some((place, text))
    };
    let in_scores =
        scores.and_then(|heads| found("score", heads, &|v| v.is_nan() || v == f32::INFINITY));
    in_scores.or_else(|| pattern.and_then(|heads| found("pattern", heads, &|v| !v.is_finite())))
}
