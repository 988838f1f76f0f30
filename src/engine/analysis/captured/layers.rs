//! Arrays of one attention → a layer report: statistics, summaries, and an audit of every head's pattern.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::arrays::{
    BF16_TOLERANCE, F16_TOLERANCE, F32_TOLERANCE, Heads, Parts, first_nonfinite,
    head_axis_deviation, heads_of, infer_mask, tolerance_of,
};
use super::declared::{Declared, Stated};
use super::names::{Layer, Name, Part, has_positions_first, parse};
use super::summary::{Context, HeadArrays};
use super::{ArrayNames, Trace};
use crate::analysis::layer::{alike, head_report};
use crate::analysis::residual::shape_of;
use crate::attention::{AttentionSpec, Audit, HeadSummary, Repeats, Visibility};
use crate::checkpoint::Dtype;
use crate::checkpoint::captured::{Array, Captured};
use crate::checks::Place;
use crate::error::Result;
use crate::model::Stack;
use crate::stats::{self, HeadReport, LayerEvidence, LayerReport, ResidualShape, Values};

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
    if stated.causal.is_none() {
        infer_mask(captured, &all, &mut stated)?;
    }
    let tokens = captured.whole_numbers("tokens")?.unwrap_or_default();
    let ids: Vec<u32> = tokens.iter().map(|id| *id as u32).collect();
    let mut trace = Trace {
        layers: Vec::new(),
        arrays: Vec::new(),
        decoder_tokens: captured
            .whole_numbers("decoder_tokens")?
            .unwrap_or_default(),
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
        .report(at, &mut trace)?;
        if found.is_some() {
            trace.arrays.push(ArrayNames {
                pattern: parts.get(&Part::Pattern).cloned(),
                scores: parts.get(&Part::Scores).cloned(),
            });
        }
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
        BF16_TOLERANCE
    } else if any(Dtype::F16, "float16") {
        F16_TOLERANCE
    } else {
        F32_TOLERANCE
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

/// One attention of the file.
struct Captive<'a> {
    captured: &'a Captured,
    stated: &'a Stated,
    ids: &'a [u32],
    parts: &'a Parts,
}

impl Captive<'_> {
    fn part(&self, part: Part) -> Result<Option<Heads>> {
        let Some(name) = self.parts.get(&part) else {
            return Ok(None);
        };
        let (dims, values) = heads_of(self.captured, name, self.captured.array(name)?)?;
        let heads = Heads { dims, values };
        let by_position = has_positions_first(name) && part.is_vectors();
        Ok(Some(if by_position { heads.swapped() } else { heads }))
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

    fn report(&self, at: At, trace: &mut Trace) -> Result<Option<LayerReport>> {
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
        if is_square {
            spec.mask = self.stated.mask_of(at.stack);
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
        if let Some(beyond) = self
            .stated
            .documents
            .iter()
            .find(|start| is_square && **start >= n_keys)
        {
            let problem =
                format!("a document begins at position {beyond}, the pattern has {n_keys} keys");
            return Err(self.captured.at("attnscope.documents", &problem));
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
        if let Some(pattern) = &pattern {
            let by_values = tolerance_of(&pattern.values);
            trace.row_tolerance = trace.row_tolerance.max(by_values);
        }
        let nonfinite = &mut trace.first_nonfinite;
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
            .map(|(summary, audit)| head_report(&spec, summary, (&[], &[]), audit))
            .collect();
        let (mut residual, mut peak) = (ResidualShape::NONE, None);
        if let Some(name) = self.parts.get(&Part::ResidPost) {
            let Array { shape, mut values } = self.captured.array(name)?;
            if let Some(width) = shape.last().copied().filter(|width| *width > 0) {
                // The first of a batch, as everywhere.
                if let [_, n_positions, _] = *shape.as_slice() {
                    values.truncate(n_positions * width);
                }
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
