//! Turns the arrays of one attention into a layer report: statistics, summaries and an audit of every head's pattern.

use std::collections::BTreeMap;
use std::sync::Arc;

use attnscope_checkpoint::Dtype;
use attnscope_checkpoint::captured::{Array, Captured};
use attnscope_checks::stats::{HeadReport, LayerEvidence, LayerReport, Values};
use attnscope_compute::attention::{
    AttentionSpec, Audit, AuditReference, HeadSummary, LayerAudit, Repeats, Scale, ScoreScale,
    Vectors, Visibility,
};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::residual::{Peak, ResidualShape, shape_of};
use attnscope_compute::pace::Pace;
use attnscope_forward::Hook;
use attnscope_spec::{Place, Stack};
use rayon::prelude::*;

use super::arrays::{
    F32_TOLERANCE, Parts, coarsest_dtype, first_nonfinite, head_axis_deviation, heads_of,
    hide_masked, tolerance_of,
};
use super::calls::{discarded, nothing_recorded};
use super::declared::{Declared, Stated, token_ids};
use super::dialects::{about, is_judged};
use super::heads::Heads;
use super::layout::Axes;
use super::mask_lengths::MaskLengths;
use super::names::{Layer, Name};
use super::own_names;
use super::scales::Scaled;
use super::shapes::{Kept, observe};
use super::summary::{Context, HeadArrays};
use super::unaudited::{At, Audits, Gathered, Known, Unaudited};
use super::{ArrayNames, Trace, attention_name};
use crate::layer::{alike, found_sink, head_report};

/// Reads every layer. Audits are made at once, or left to [`Unaudited::audited`].
pub(super) fn read(captured: &Captured, declared: &Declared, audits: Audits) -> Result<Unaudited> {
    let mut all: BTreeMap<(Stack, Layer), Parts> = BTreeMap::new();
    for stored in captured.names() {
        let name = attention_name(stored).filter(|name| is_judged(captured, name.hook));
        if let Some(Name { stack, layer, hook }) = name {
            all.entry((stack, layer))
                .or_default()
                .insert(hook, stored.to_owned());
        }
    }
    if all.is_empty() {
        own_names::read(captured, &mut all)?;
    }
    let mut stated = Stated::read(captured, declared)?;
    let seen = observe(captured, &all, &mut stated)?;
    let mut trace = Trace {
        layers: Vec::new(),
        arrays: Vec::new(),
        tokens: token_ids(captured, "tokens")?.unwrap_or_default(),
        decoder_tokens: token_ids(captured, "decoder_tokens")?.unwrap_or_default(),
        mask_origin: std::iter::once(&stated.origin)
            .chain(&seen.notes)
            .filter(|text| !text.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join("; "),
        source: ["attnscope.source", "source"]
            .iter()
            .find_map(|key| captured.metadata.get(*key).cloned()),
        first_nonfinite: None,
        untrained: captured.metadata.get("attnscope.untrained").cloned(),
        discarded: discarded(captured),
        absent_masks: seen.absent_masks.clone(),
        row_tolerance: row_tolerance(captured, &all),
        lacks: lacks(&all),
    };
    let mut lengths = MaskLengths::default();
    let gathered = Gathered {
        all,
        stated,
        seen,
        tokens: trace.tokens.clone(),
        row_tolerance: trace.row_tolerance,
    };
    let places = gathered.places(captured).into_par_iter();
    let found = places.map(|(at, attention)| {
        let found = attention.report(at, audits, None, &|| false)?;
        Ok(found.map(|found| (found, attention.array_names())))
    });
    let found: Vec<_> = found.collect::<Result<_>>()?;
    let mut known = Vec::new();
    for found in found {
        let Some((found, arrays)) = found else {
            known.push(None);
            continue;
        };
        let real = gathered.stated.real.as_deref();
        lengths.add(real, found.n_keys, found.may_be_masked);
        trace.row_tolerance = trace.row_tolerance.max(found.row_tolerance);
        trace.first_nonfinite = trace.first_nonfinite.or(found.first_nonfinite);
        trace.arrays.push(arrays);
        trace.layers.push(Arc::new(found.report));
        known.push(found.known);
    }
    if trace.layers.is_empty() {
        if let Some(dump) = about(captured) {
            let problem = format!(
                "{dump}, and no pattern that could be judged: compare it with its checkpoint, attnscope diff CHECKPOINT DUMP"
            );
            return Err(Error::file(&captured.path, problem));
        }
        return Err(nothing_recorded(captured).unwrap_or_else(|| {
            captured.at(
                "blocks.0.attn.pattern",
                "missing: the file holds no pattern, scores or queries with keys",
            )
        }));
    }
    if let Some(note) = lengths.note(captured, &gathered.stated)? {
        trace.mask_origin = format!("{}; {note}", trace.mask_origin);
    }
    Ok(Unaudited {
        trace,
        gathered,
        known,
    })
}

/// Tolerance of row sums, by the coarsest dtype that the pattern was stored or computed in.
fn row_tolerance(captured: &Captured, all: &BTreeMap<(Stack, Layer), Parts>) -> f64 {
    let computed = captured.metadata.get("attnscope.dtype");
    let computed = computed.map_or("", String::as_str).split(',');
    let computed = computed.filter_map(|name| match name.trim() {
        "bfloat16" => Some(Dtype::Bf16),
        "float16" => Some(Dtype::F16),
        _ => None,
    });
    let patterns = all.values().filter_map(|parts| parts.get(&Hook::Pattern));
    let stored = patterns.filter_map(|name| captured.dtype(name));
    computed
        .chain(stored)
        .map(tolerance_of)
        .fold(F32_TOLERANCE, f64::max)
}

/// Names the arrays that the trace does not have.
fn lacks(all: &BTreeMap<(Stack, Layer), Parts>) -> Option<String> {
    let has = |hook: Hook| all.values().any(|parts| parts.contains_key(&hook));
    let mut missing = Vec::new();
    if !has(Hook::Pattern) {
        missing.push("pattern");
    }
    if !has(Hook::Scores) {
        missing.push("scores");
    }
    if !has(Hook::Q) && !has(Hook::RotQ) {
        missing.push("q and k");
    }
    (!missing.is_empty()).then(|| format!("not captured: {}", missing.join(", ")))
}

/// The report of one attention, and what it says of the whole trace.
pub(super) struct Found {
    pub report: LayerReport,
    /// What its audits take over, if they are made later.
    known: Option<Known>,
    row_tolerance: f64,
    first_nonfinite: Option<(Place, String)>,
    n_keys: usize,
    /// Whether the attention mask may be meant for it.
    may_be_masked: bool,
}

/// One attention of the file, with what is known about it.
pub(super) struct CapturedAttention<'a> {
    pub captured: &'a Captured,
    pub stated: &'a Stated,
    pub tokens: &'a [u32],
    pub row_tolerance: f64, // as far as dtypes tell
    pub parts: &'a Parts,
    pub axes: Axes,
    pub seen: Option<&'a LayerAudit>,
    pub kept: Option<&'a Kept>,
}

impl CapturedAttention<'_> {
    fn array_names(&self) -> ArrayNames {
        ArrayNames {
            pattern: self.parts.get(&Hook::Pattern).cloned(),
            scores: self.parts.get(&Hook::Scores).cloned(),
            axes: self.axes,
        }
    }

    fn part(&self, hook: Hook) -> Result<Option<Heads>> {
        let Some(name) = self.parts.get(&hook) else {
            return Ok(None);
        };
        let axes = match hook {
            Hook::Scores | Hook::Pattern => self.axes,
            _ => Axes::of_vectors(name),
        };
        heads_of(self.captured, name, axes).map(Some)
    }

    /// What was added to the pattern behind its softmax, if that was recorded in its shape.
    fn added(&self, pattern: Option<&Heads>) -> Result<Option<Heads>> {
        let name = self.parts.get(&Hook::Pattern);
        let name = name.and_then(|name| Some(format!("{}.added", name.strip_suffix(".pattern")?)));
        let Some(name) = name.filter(|name| self.captured.shape(name).is_some()) else {
            return Ok(None);
        };
        let found = heads_of(self.captured, &name, self.axes)?;
        Ok(Some(found).filter(|found| pattern.is_some_and(|pattern| pattern.dims == found.dims)))
    }

    /// Refuses arrays of one attention whose shapes disagree.
    fn fits(&self, hook: Hook, found: &[usize], expected: &[usize]) -> Result<()> {
        if found == expected {
            return Ok(());
        }
        let name = self.parts.get(&hook).map_or("", String::as_str);
        let problem =
            format!("expected shape {expected:?} like the arrays beside it, found {found:?}");
        Err(self.captured.at(name, &problem))
    }

    /// Whether a learned sink takes part of each row, as declared or as recorded.
    fn has_sinks(&self) -> bool {
        let recorded = self.seen.and_then(|seen| seen.recorded.sink_columns);
        self.stated.has_sinks || recorded.is_some()
    }

    /// Which keys the layer's queries see, as declared or else as inferred.
    fn visibility(
        &self,
        at: &At,
        spec: &mut AttentionSpec,
        [n_queries, n_keys]: [usize; 2],
    ) -> Visibility {
        let stated = self.stated;
        let kind = self.seen.map_or("", |seen| seen.kind.as_str());
        let real = |n: usize| stated.real.as_deref().filter(|real| real.len() == n);
        let of_target = stated.real_of_target.as_deref();
        let of_target = of_target.filter(|real| real.len() == n_queries);
        if at.stack == Stack::Cross {
            return Visibility::of_cross(spec.mask, (n_queries, of_target), (n_keys, real(n_keys)));
        }
        let mask = stated.mask_of(at.stack, kind);
        if n_queries == n_keys {
            spec.mask = mask;
            let real = match at.stack {
                Stack::Decoder => of_target,
                _ => real(n_queries),
            };
            let visibility = Visibility::of_self(mask, n_queries, real);
            let prefix = stated.prefix_of(at.stack, kind).filter(|_| mask.causal);
            return match prefix {
                Some(prefix) => {
                    let seen = |idx: usize| visibility.range(idx).start..(idx + 1).max(prefix);
                    let ranges = (0..n_queries).map(seen).collect();
                    visibility.with_ranges(ranges)
                }
                None => visibility,
            };
        }
        // The queries may be the newest tokens of a KV cache. An unrecognised cross-attention also has more keys than queries,
        // so it counts as causal only if the pattern already is.
        let shape = self.seen.and_then(|seen| seen.shape.as_ref());
        let base = n_keys.saturating_sub(n_queries);
        // No cache has fewer keys than queries, and none is kept where tokens see later ones: such keys are of another sequence.
        spec.is_cross = n_keys < n_queries || stated.causal == Some(false);
        let is_causal = n_queries < n_keys
            && stated.causal != Some(false)
            && shape.is_some_and(|shape| shape.never_ahead && shape.is_tight && !shape.is_top_left);
        let real_queries = real(n_keys).filter(|_| is_causal).map(|real| &real[base..]);
        let visibility =
            Visibility::of_cross(spec.mask, (n_queries, real_queries), (n_keys, real(n_keys)));
        if is_causal && n_queries > 1 {
            let ranges = (0..n_queries).map(|idx| 0..idx + base + 1).collect();
            return visibility.with_ranges(ranges);
        }
        visibility
    }

    /// Statistics of all heads, or those that are `known`; and audits, unless they are made later.
    pub fn report(
        &self,
        at: At,
        audits: Audits,
        known: Option<&Known>,
        pace: &dyn Pace,
    ) -> Result<Option<Found>> {
        let read;
        let (pattern, scores) = match self.kept {
            Some(kept) => (Some(&kept.pattern), kept.scores.as_ref()),
            None => {
                let pattern = self.part(Hook::Pattern)?;
                let mut scores = self.part(Hook::Scores)?;
                if let Some(scores) = &mut scores {
                    let pattern = pattern
                        .as_ref()
                        .filter(|pattern| pattern.dims == scores.dims);
                    hide_masked(scores, pattern);
                }
                read = (pattern, scores);
                (read.0.as_ref(), read.1.as_ref())
            }
        };
        let added = self.added(pattern)?;
        let q = match self.part(Hook::RotQ)? {
            None => self.part(Hook::Q)?,
            some => some,
        };
        let k = match self.part(Hook::RotK)? {
            None => self.part(Hook::K)?,
            some => some,
        };
        let [n_heads, n_queries, n_keys] = match (&pattern, &scores, &q, &k) {
            (Some(one), ..) | (None, Some(one), ..) => one.dims,
            (None, None, Some(q), Some(k)) => [q.dims[0], q.dims[1], k.dims[1]],
            _ => return Ok(None),
        };
        if let Some(scores) = scores {
            self.fits(Hook::Scores, &scores.dims, &[n_heads, n_queries, n_keys])?;
        }
        let (mut d_head, mut n_kv_heads) = (1, n_heads);
        if let (Some(q), Some(k)) = (&q, &k) {
            d_head = q.dims[2];
            n_kv_heads = k.dims[0];
            self.fits(Hook::Q, &q.dims, &[n_heads, n_queries, d_head])?;
            self.fits(Hook::K, &k.dims, &[n_kv_heads, n_keys, d_head])?;
            if !n_heads.is_multiple_of(n_kv_heads) {
                self.fits(Hook::K, &[n_kv_heads], &[n_heads])?;
            }
        }
        let is_cross = at.stack == Stack::Cross;
        let mut spec = AttentionSpec::plain(n_heads, n_kv_heads, d_head, false);
        spec.is_cross = is_cross;
        spec.softmax_axis = self.stated.axis;
        let is_square = n_queries == n_keys && !is_cross;
        let visibility = self.visibility(&at, &mut spec, [n_queries, n_keys]);
        let may_be_masked = at.stack == Stack::Only && is_square;
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
        let by_values = pattern.map_or(F32_TOLERANCE, |all| {
            tolerance_of(coarsest_dtype(&all.values))
        });
        let row_tolerance = self.row_tolerance.max(by_values);
        let is_tokens = is_square && self.tokens.len() == n_keys && at.stack != Stack::Decoder;
        let repeats = is_tokens.then(|| Repeats::of_real(self.tokens, visibility.real_keys()));
        let scale = match (scores, self.seen) {
            _ if let Some(known) = known => known.scale,
            (Some(scores), Some(seen)) => {
                let v = self.part(Hook::V)?;
                let of_resid = self.parts.get(&Hook::ResidPost);
                let shape = of_resid.and_then(|name| self.captured.shape(name));
                let recorded = Scaled {
                    scores,
                    vectors: [q.as_ref(), k.as_ref(), v.as_ref()],
                    d_model: shape.and_then(|shape| shape.last().copied()),
                    call: &seen.recorded,
                };
                recorded.scale(&spec, &visibility, row_tolerance)
            }
            _ => None,
        };
        // What norms predict, and what a cause is, follows from the factor that the code has.
        if let Some(factor) = scale.as_ref().and_then(ScoreScale::unusual) {
            spec.scale = Scale::Factor(factor as f32);
        }
        let context = Context {
            spec: &spec,
            visibility: &visibility,
            repeats: repeats.as_ref(),
        };
        let of_head = |head_idx: usize| {
            if pace.stops() {
                return Err(Error::Cancelled);
            }
            let head = HeadArrays {
                pattern: pattern.map(|all| all.head(head_idx)),
                scores: scores.map(|all| all.head(head_idx)),
                q: q.as_ref()
                    .filter(|_| k.is_some())
                    .map(|all| all.head(head_idx)),
                k: k.as_ref()
                    .filter(|_| q.is_some())
                    .map(|all| all.head(spec.kv_head_of(head_idx))),
            };
            let summary = match known {
                Some(known) => known.summaries[head_idx].clone(),
                None => context.summary(&head, head_idx),
            };
            if audits == Audits::Later {
                return Ok((summary, None));
            }
            let vectors = match (head.q, head.k) {
                (Some(q), Some(k)) => Some(Vectors { q, k, d_head }),
                _ => None,
            };
            let against = AuditReference {
                visibility: &visibility,
                axis: spec.softmax_axis,
                documents: &documents,
                tolerance: row_tolerance,
                vectors,
                added: added.as_ref().map(|all| all.head(head_idx)),
                shape: self.seen.and_then(|seen| seen.shape.as_ref()),
                has_sinks: self.has_sinks(),
                is_mixed: self.seen.is_some_and(|seen| seen.recorded.is_mixed),
                has_own_zeros: self.seen.is_none_or(|seen| seen.has_own_zeros),
            };
            let audit = head
                .pattern
                .map(|pattern| Box::new(Audit::of(&against, pattern, head.scores)));
            Ok((summary, audit))
        };
        let heads = (0..n_heads).into_par_iter().map(of_head);
        let mut heads: Vec<(HeadSummary, Option<Box<Audit>>)> = heads.collect::<Result<_>>()?;
        if let (Some(pattern), Some((_, Some(first)))) = (pattern, heads.first_mut()) {
            first.head_axis_deviation = head_axis_deviation(&visibility, pattern);
            first.of_layer = self.seen.cloned().map(Box::new);
            if let Some(of_layer) = &mut first.of_layer {
                of_layer.score_scale = scale;
            }
        }
        let place = Place::layer(at.stack, at.layer_idx);
        let what = at.name.clone().unwrap_or_else(|| place.to_string());
        let first_nonfinite = match known {
            Some(_) => None,
            None => first_nonfinite(place, &what, &visibility, scores, pattern),
        };
        let residual = match known {
            Some(known) => known.residual,
            None => self.residual(at.stack)?,
        };
        let known = (audits == Audits::Later).then(|| Known {
            summaries: heads.iter().map(|(summary, _)| summary.clone()).collect(),
            scale,
            residual,
        });
        Ok(Some(Found {
            report: self.finish(at, spec, heads, residual),
            known,
            row_tolerance,
            first_nonfinite,
            n_keys,
            may_be_masked,
        }))
    }

    /// Builds the report from the statistics of the heads and of the layer.
    fn finish(
        &self,
        at: At,
        spec: AttentionSpec,
        heads: Vec<(HeadSummary, Option<Box<Audit>>)>,
        residual: Option<(ResidualShape, Peak)>,
    ) -> LayerReport {
        let (mut summaries, audits): (Vec<_>, Vec<_>) = heads.into_iter().unzip();
        let has_sinks = self.stated.has_sinks;
        let has_sink = |idx: usize| has_sinks || found_sink(audits[idx].as_deref());
        let alike = alike(&mut summaries, &has_sink);
        let heads: Vec<HeadReport> = summaries
            .into_iter()
            .zip(audits)
            .map(|(summary, audit)| head_report(&spec, summary, (&[], &[]), has_sinks, audit))
            .collect();
        let evidence = LayerEvidence {
            residual: residual.map(|(shape, _)| shape),
            ..LayerEvidence::default()
        };
        let of_heads: Vec<Values> = heads.iter().map(|head| head.stats.clone()).collect();
        LayerReport {
            stack: at.stack,
            layer_idx: at.layer_idx,
            name: at.name,
            has_sinks: self.has_sinks(),
            stats: attnscope_checks::stats::of_layer(&of_heads, &evidence),
            spec,
            heads,
            alike,
            peak: residual.map(|(_, peak)| peak),
        }
        .with_absent()
    }

    /// Shape and peak of the residual after the layer, if it was recorded.
    fn residual(&self, stack: Stack) -> Result<Option<(ResidualShape, Peak)>> {
        let Some(name) = self.parts.get(&Hook::ResidPost) else {
            return Ok(None);
        };
        let Array { shape, mut values } = self.captured.array(name)?;
        let Some(width) = shape.last().copied().filter(|width| *width > 0) else {
            return Ok(None);
        };
        // Only the first sequence of a batch is used.
        if let [_, n_positions, _] = *shape.as_slice() {
            values.truncate(n_positions * width);
        }
        let n_positions = values.len() / width;
        let real = self.stated.real.as_deref();
        let real = real.filter(|real| real.len() == n_positions && stack != Stack::Decoder);
        let is_real = |idx: usize| real.is_none_or(|real| real[idx]);
        Ok(shape_of(&values, width, &is_real))
    }
}
