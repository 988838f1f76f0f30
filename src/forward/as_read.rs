//! Runs a block under several readings (supposed ways in which it was trained) and texts at once; returns only residuals.

use std::ops::Range;

use attnscope_compute::attention::{
    AttentionSpec, HeadInput, Run, Visibility, attend_with_override,
};
use attnscope_compute::error::Result;
use attnscope_compute::ops::{OnHost, Ops};
use attnscope_spec::{BlockSpec, FeedForward, NormSource, ProjectionSpec};
use rayon::prelude::*;

use super::block_weights::{AttentionWeights, MlpWeights};
use super::context::{BlockContext, Memory};
use super::deviation::{Cut, Deviation, DroppedResiduals};
use super::difference::{difference_of, read_difference};
use super::feed_forward::feed_forward;
use super::grouped::{groups, in_groups};
use super::growth::grow_rows;
use super::head_order::{from_heads_first, to_heads_first, transposed_rows};
use super::kv_cache::{round_keys, round_values};
use super::norm_gate::{NormGate, open_norm};
use super::project::project_only;
use super::recurrent::FinalStates;
use super::scratch::Scratch;
use super::sequence::Sequence;
use super::steps::{norm_heads_of, normed_in_place, scaled};
use super::sums::{weigh_added, weigh_resid};
use super::token_branch::end_block;
use super::turn_as_read::turn;

/// One text under one reading: a range of rows in a residual shared by many segments.
pub struct Segment<'a> {
    pub rows: Range<usize>,
    pub sequence: &'a Sequence,
    pub spec: &'a BlockSpec,
    pub deviation: &'a Deviation,
    pub dropped: DroppedResiduals,
    /// The encoder's output and its tokens. // [source position, d_model]
    pub source: Option<(&'a [f32], &'a Sequence)>,
}

/// Runs one layer in place on a residual of several segments. Each step runs once for all segments that share its weights.
///
/// # Errors
/// When the pace stops it, a tensor differs from its spec, or the device fails.
pub fn run_layer_as_read<O: Ops>(
    context: &BlockContext<'_, O>,
    segments: &[Segment<'_>],
    resid: &mut O::Buffer,
    s: &mut Scratch<O>,
) -> Result<()> {
    let (ops, shelf) = (context.ops, context.shelf());
    context.tensors.unchanged()?;
    let rows: Vec<Range<usize>> = segments.iter().map(|one| one.rows.clone()).collect();
    let normed = normed_by(context, segments, &rows, resid, |one| &one.spec.attn_pre)?;
    let z = attend(context, segments, &rows, &normed, Whose::Own, s)?;
    let out = projected(context, segments, &rows, &z, Whose::Own)?;
    let by_branch = groups(segments, |one| {
        let spec = one.spec;
        (&spec.attn_out, spec.branch_scales[0], &spec.sums[0])
    });
    let out = in_groups(ops, &rows, by_branch, [&out], |key, [out], to| {
        let (norm, scale, sum) = key;
        ops.copy(out, to)?;
        let norm = norm.as_ref().map(|norm| shelf.norm(norm)).transpose()?;
        normed_in_place(ops, norm.as_ref(), to, &mut s.spare)?;
        scaled(ops, scale, to)?;
        weigh_added(context, sum, to)
    })?;
    let by_sum = groups(segments, |one| {
        let spec = one.spec;
        let drops = one.dropped.before_attention;
        (
            (spec.adds_to_normed, spec.resid_factors[0], &spec.sums[0]),
            spec.is_parallel,
            drops,
            &spec.attn_post,
        )
    });
    let from = [&*resid, &out, &normed];
    let added = in_groups(ops, &rows, by_sum, from, |key, [resid, out, normed], to| {
        let ((adds_to_normed, factor, sum), is_parallel, drops, post) = key;
        ops.copy(if adds_to_normed { normed } else { resid }, to)?;
        scaled(ops, factor, to)?;
        weigh_resid(context, sum, to)?;
        if is_parallel {
            return Ok(());
        }
        if drops {
            ops.scale(to, 0.0)?;
        }
        ops.add(to, out)?;
        let post = post.as_ref().map(|norm| shelf.norm(norm)).transpose()?;
        normed_in_place(ops, post.as_ref(), to, &mut s.spare)
    })?;
    let added = attend_across(context, segments, &rows, added, s)?;

    let mlp_in = normed_by(context, segments, &rows, &added, |one| &one.spec.mlp_pre)?;
    let by_mlp = groups(segments, |one| &one.spec.feed_forward);
    let mlp_out = in_groups(
        ops,
        &rows,
        by_mlp,
        [&mlp_in, &added],
        |spec, [from, resid], to| {
            let weights = match spec {
                FeedForward::Dense(mlp) => Some(MlpWeights::read(shelf, mlp)?),
                FeedForward::Experts(_) | FeedForward::None => None,
            };
            let from = (from, resid);
            feed_forward(context, spec, weights.as_ref(), from, &mut s.mlp, to)
        },
    )?; // [row, d_model]
    let by_end = groups(segments, |one| {
        let spec = one.spec;
        let adds_to_normed = spec.adds_to_normed && spec.mlp_pre.is_some();
        let branch = (&spec.mlp_out, spec.branch_scales[1], spec.is_parallel);
        (
            branch,
            (adds_to_normed, spec.resid_factors[1], &spec.sums[1]),
            one.dropped.before_mlp,
            &spec.mlp_post,
        )
    });
    let from = [&added, &mlp_out, &out, &mlp_in];
    *resid = in_groups(
        ops,
        &rows,
        by_end,
        from,
        |key, [resid, mlp, out, normed], to| {
            let ((norm, scale, is_parallel), (adds_to_normed, factor, sum), drops, post) = key;
            let mut branch = O::Buffer::default();
            ops.copy(mlp, &mut branch)?;
            let norm = norm.as_ref().map(|norm| shelf.norm(norm)).transpose()?;
            normed_in_place(ops, norm.as_ref(), &mut branch, &mut s.spare)?;
            scaled(ops, scale, &mut branch)?;
            weigh_added(context, sum, &mut branch)?;
            ops.copy(if adds_to_normed { normed } else { resid }, to)?;
            scaled(ops, factor, to)?;
            weigh_resid(context, sum, to)?;
            if drops {
                ops.scale(to, 0.0)?;
            }
            if is_parallel {
                ops.add(to, out)?;
            }
            ops.add(to, &branch)?;
            let post = post.as_ref().map(|norm| shelf.norm(norm)).transpose()?;
            normed_in_place(ops, post.as_ref(), to, &mut s.spare)
        },
    )?;
    end_as_read(context, segments, &rows, resid)
}

/// Applies the per-token branch and the residual scale at the end of blocks that have them.
fn end_as_read<O: Ops>(
    context: &BlockContext<'_, O>,
    segments: &[Segment<'_>],
    rows: &[Range<usize>],
    resid: &mut O::Buffer,
) -> Result<()> {
    let ends = |one: &Segment<'_>| one.spec.by_token.is_some() || one.spec.resid_scale.is_some();
    if !segments.iter().any(ends) {
        return Ok(());
    }
    let ops = context.ops;
    // Each segment is its own group, because its rows belong to its own tokens.
    let alone = segments
        .iter()
        .enumerate()
        .map(|(idx, one)| (one, vec![idx]));
    let alone = alone.collect();
    *resid = in_groups(
        ops,
        rows,
        alone,
        [&*resid],
        |one: &Segment<'_>, [from], to| {
            ops.copy(from, to)?;
            let end = (one.spec.by_token.as_deref(), one.spec.resid_scale.as_ref());
            end_block(context, end, &one.sequence.tokens, to)
        },
    )?;
    Ok(())
}

/// Applies each segment's norm to its rows; copies rows whose segment has none.
fn normed_by<'s, O: Ops>(
    context: &BlockContext<'_, O>,
    segments: &'s [Segment<'s>],
    rows: &[Range<usize>],
    from: &O::Buffer,
    norm: impl Fn(&'s Segment<'s>) -> &'s Option<NormSource>,
) -> Result<O::Buffer> {
    let all: Vec<&'s Segment<'s>> = segments.iter().collect();
    let by_norm = groups(&all, |one| norm(one));
    let ops = context.ops;
    in_groups(ops, rows, by_norm, [from], |norm, [from], to| match norm {
        Some(one) => {
            let shelf = context.shelf();
            ops.norm(from, &shelf.norm(one)?, to)?;
            open_norm(context, NormGate::read(shelf, norm)?.as_ref(), to)
        }
        None => ops.copy(from, to),
    })
}

/// Selects a block's self-attention or its cross-attention.
#[derive(Clone, Copy, PartialEq)]
enum Whose {
    Own,
    Cross,
}

impl Whose {
    fn of<'a>(self, segment: &Segment<'a>) -> Option<(&'a AttentionSpec, &'a ProjectionSpec)> {
        match self {
            Self::Own => {
                let own = segment.spec.own()?;
                Some((&own.attention, &own.projections))
            }
            Self::Cross => {
                let cross = segment.spec.cross.as_ref()?;
                Some((&cross.attention, &cross.projections))
            }
        }
    }
}

/// Applies the output projection to all heads. // [row, n_heads · d_value] → [row, d_model]
fn projected<O: Ops>(
    context: &BlockContext<'_, O>,
    segments: &[Segment<'_>],
    rows: &[Range<usize>],
    z: &O::Buffer,
    whose: Whose,
) -> Result<O::Buffer> {
    let by_weights = groups(segments, |one| {
        let found = whose.of(one);
        found.map(|(attention, spec)| {
            let together = (&spec.difference, spec.norm_of_all_z(), attention.n_heads);
            (&spec.o, together)
        })
    });
    let ops = context.ops;
    in_groups(ops, rows, by_weights, [z], |of, [z], to| match of {
        Some((o, (difference, norm, n_heads))) => {
            let o = context.shelf().linear(o)?;
            if difference.is_none() && norm.is_none() {
                return ops.linear(z, &o, to, context.pace);
            }
            let (mut together, mut spare) = (O::Buffer::default(), O::Buffer::default());
            ops.copy(z, &mut together)?;
            if let Some(difference) = difference {
                let difference = read_difference(difference, context.tensors)?;
                difference_of(ops, Some(difference), n_heads, &mut together)?;
            }
            let norm = context.shelf().optional_norm(norm)?;
            normed_in_place(ops, norm.as_ref(), &mut together, &mut spare)?;
            ops.linear(&together, &o, to, context.pace)
        }
        None => Ok(()),
    })
}

/// Σ p·v of all heads. // [row, d_model] → [row, n_heads · d_value]
fn attend<O: Ops>(
    context: &BlockContext<'_, O>,
    segments: &[Segment<'_>],
    rows: &[Range<usize>],
    normed: &O::Buffer,
    whose: Whose,
    s: &mut Scratch<O>,
) -> Result<O::Buffer> {
    let ops = context.ops;
    // A group shares projections, gates and sinks; each segment has its own query and key norms.
    let by_weights = groups(segments, |one| {
        whose.of(one).map(|(_, spec)| {
            let maps = (&spec.q, &spec.k, &spec.v, &spec.latent);
            (maps, spec.clip, &spec.sinks, &spec.gate)
        })
    });
    // `in_groups` passes only the group's key to the closure, so the members are iterated separately.
    let members: Vec<Vec<usize>> = by_weights.iter().map(|(_, all)| all.clone()).collect();
    let mut members = members.into_iter();
    in_groups(ops, rows, by_weights, [normed], |_, [from], to| {
        let group: Vec<&Segment<'_>> = members
            .next()
            .unwrap_or_default()
            .into_iter()
            .map(|idx| &segments[idx])
            .collect();
        let Some((attention, projections)) = group.first().and_then(|one| whose.of(one)) else {
            return Ok(());
        };
        attend_group(
            context,
            (attention, projections),
            &group,
            from,
            whose,
            s,
            to,
        )
    })
}

/// Fills `to` with Σ p·v of segments that share query, key and value projections.
fn attend_group<O: Ops>(
    context: &BlockContext<'_, O>,
    (attention, projections): (&AttentionSpec, &ProjectionSpec),
    group: &[&Segment<'_>],
    normed: &O::Buffer,
    whose: Whose,
    s: &mut Scratch<O>,
    to: &mut O::Buffer,
) -> Result<()> {
    let ops = context.ops;
    let (s, shelf) = (&mut s.attention, context.shelf());
    let weights = AttentionWeights::read(shelf, &None, projections, attention.n_heads)?;
    let (hidden, none) = (sources_of(ops, group, whose)?, Sequence::default());
    let ends = FinalStates::default();
    let shared = context.bucket_values.as_deref();
    let memory = hidden.as_ref().map(|hidden| Memory {
        hidden,
        sequence: &none,
        ends: &ends,
    });
    let of_group = BlockContext::plain(ops, context.tensors, &none, memory, context.pace);
    project_only(&of_group, attention, projections, &weights, normed, s)?;
    let (q, k, v) = (ops.get(&s.q)?, ops.get(&s.k)?, ops.get(&s.v)?);
    let gate = projections.gate.as_ref().map(|_| ops.get(&s.gate));
    let gate = gate.transpose()?;
    let (mut query_rows, mut key_rows) = (0, 0);
    let places: Vec<(&Segment<'_>, [Range<usize>; 2])> = group
        .iter()
        .map(|one| {
            let (n_queries, n_keys) = (one.rows.len(), one.n_keys(whose));
            let at = [
                query_rows..query_rows + n_queries,
                key_rows..key_rows + n_keys,
            ];
            (query_rows, key_rows) = (at[0].end, at[1].end);
            (*one, at)
        })
        .collect();
    let z = |(segment, [queries, keys]): &(&Segment<'_>, [Range<usize>; 2])| -> Result<Vec<f32>> {
        let (attention, projections) = whose.of(segment).unwrap_or((attention, projections));
        let is_spared = whose == Whose::Cross && segment.deviation.spares_cross;
        let deviation = if is_spared {
            &Deviation::NONE
        } else {
            segment.deviation
        };
        let parts = [(&q, queries), (&k, keys), (&v, keys)];
        let mut parts = parts.map(|(values, rows)| rows_of(values, rows));
        let n_heads = [
            attention.n_heads,
            attention.n_kv_heads,
            attention.n_kv_heads,
        ];
        for ((part, values), n_heads) in parts.iter_mut().zip([&q, &k, &v]).zip(n_heads) {
            let d_head = values.width / n_heads.max(1);
            match deviation.cut {
                Cut::Columns => {}
                Cut::AsTheyLie => *part = from_heads_first(part, n_heads, d_head),
                Cut::ByChannel => *part = transposed_rows(part, d_head, n_heads),
            }
        }
        if projections.norms_after_rope {
            turn(attention, segment, &mut parts);
        }
        let norms = [
            (&projections.q_norm, &q),
            (&projections.k_norm, &k),
            (&projections.v_norm, &v),
        ];
        for ((norm, values), part) in norms.into_iter().zip(&mut parts) {
            if let Some(norm) = norm {
                norm_heads_of(ops, &shelf.norm(norm)?, (values.width, norm.width), part)?;
            }
        }
        if !projections.norms_after_rope {
            turn(attention, segment, &mut parts);
        }
        let of = segment.sequence;
        grow_rows((attention, &weights), &of.positions, q.width, &mut parts[0]);
        round_keys(attention, projections, &mut parts[1]);
        round_values(attention, projections, &mut parts[2]);
        let [q, k, v] = &parts;
        let visibility = match (whose, segment.source) {
            (Whose::Cross, Some((_, source))) => {
                let keys = (keys.len(), source.real.as_deref());
                Visibility::of_cross(attention.mask, (queries.len(), of.real.as_deref()), keys)
            }
            _ => Visibility::of_self(attention.mask, queries.len(), of.real.as_deref()),
        };
        let run = Run {
            spec: attention,
            repeats: None,
            value_norms: None,
            visibility: &visibility,
            heads: 0..attention.n_heads,
            sinks: weights.sinks.as_deref(),
            beside: None,
            bucket_values: weights.bucket_values.as_deref().or(shared),
            bias_factors: None,
            relative: weights.relative.as_ref(),
            positions: &of.positions,
            grid: of.grid(),
            globals: None,
            sink: None,
            kept: None,
            pace: context.pace,
        };
        let mut odd = deviation.attention;
        if whose == Whose::Cross {
            // A mask override is defined over the target's own tokens, so it does not apply to source keys.
            odd.sight = None;
        }
        let z = attend_with_override(&run, HeadInput { q, k, v }, &odd);
        let mut z = match deviation.joined {
            Cut::Columns => z,
            Cut::AsTheyLie => to_heads_first(&z, attention.n_heads, attention.d_value),
            Cut::ByChannel => transposed_rows(&z, attention.n_heads, attention.d_value),
        };
        if let Some(norm) = &weights.each_z_norm {
            let width = attention.d_value;
            norm_heads_of(ops, norm, (attention.n_heads * width, width), &mut z)?;
        }
        if let Some(gate) = &gate {
            let pairs = z.iter_mut().zip(rows_of(gate, queries));
            pairs.for_each(|(z, gate)| *z *= gate);
        }
        Ok(z)
    };
    let parts = places
        .par_iter()
        .map(z)
        .collect::<Result<Vec<Vec<f32>>>>()?;
    let width = attention.n_heads * attention.d_value;
    drop((q, k, v, gate));
    ops.put_own(parts.concat(), width, to) // [row, n_heads · d_value]
}

impl Segment<'_> {
    fn n_keys(&self, whose: Whose) -> usize {
        match (whose, self.source) {
            (Whose::Cross, Some((_, source))) => source.len(),
            (Whose::Cross, None) => 0,
            (Whose::Own, _) => self.rows.len(),
        }
    }
}

/// Concatenates the source hidden states of all segments, for cross-attention. // [source row, d_model]
fn sources_of<O: Ops>(ops: &O, group: &[&Segment<'_>], whose: Whose) -> Result<Option<O::Buffer>> {
    let Some((first, sequence)) = group.first().and_then(|one| one.source) else {
        return Ok(None);
    };
    if whose == Whose::Own {
        return Ok(None);
    }
    let width = first.len() / sequence.len().max(1);
    let all = group.iter().filter_map(|one| one.source);
    let all: Vec<&[f32]> = all.map(|(values, _)| values).collect();
    let together = all.concat();
    let mut hidden = O::Buffer::default();
    ops.put_own(together, width, &mut hidden)?;
    Ok(Some(hidden))
}

fn rows_of(values: &OnHost<'_>, rows: &Range<usize>) -> Vec<f32> {
    values.values[rows.start * values.width..rows.end * values.width].to_vec()
}

/// Adds the output of cross-attention, in blocks that have it.
fn attend_across<O: Ops>(
    context: &BlockContext<'_, O>,
    segments: &[Segment<'_>],
    rows: &[Range<usize>],
    resid: O::Buffer,
    s: &mut Scratch<O>,
) -> Result<O::Buffer> {
    let has_cross = |one: &Segment<'_>| one.spec.cross.is_some() && one.source.is_some();
    if !segments.iter().all(has_cross) {
        return Ok(resid);
    }
    const NO_NORM: &Option<NormSource> = &None;
    let ops = context.ops;
    let normed = normed_by(context, segments, rows, &resid, |one| {
        one.spec.cross.as_ref().map_or(NO_NORM, |cross| &cross.pre)
    })?;
    let z = attend(context, segments, rows, &normed, Whose::Cross, s)?;
    let out = projected(context, segments, rows, &z, Whose::Cross)?;
    let by_post = groups(segments, |one| {
        let cross = one.spec.cross.as_ref();
        cross.map(|cross| (&cross.out, &cross.post))
    });
    in_groups(
        ops,
        rows,
        by_post,
        [&resid, &out],
        |post, [resid, out], to| {
            let shelved =
                |norm: Option<&NormSource>| norm.map(|norm| context.shelf().norm(norm)).transpose();
            let on_output = shelved(post.and_then(|(out, _)| out.as_ref()))?;
            let mut added = O::Buffer::default();
            ops.copy(out, &mut added)?;
            normed_in_place(ops, on_output.as_ref(), &mut added, &mut s.spare)?;
            ops.copy(resid, to)?;
            ops.add(to, &added)?;
            let post = shelved(post.and_then(|(_, post)| post.as_ref()))?;
            normed_in_place(ops, post.as_ref(), to, &mut s.spare)
        },
    )
}
