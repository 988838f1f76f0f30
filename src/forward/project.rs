//! Projects the input of an attention to queries, keys and values.

use attnscope_compute::attention::{AttentionSpec, RopeTable};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{PlaceRows, ProjectionSpec};

use super::added_convolution::add_convolved;
use super::added_places::at_places;
use super::bias_factors::bias_factors;
use super::block_weights::AttentionWeights;
use super::bottleneck::narrowed;
use super::context::BlockContext;
use super::difference::pair_values;
use super::emit::emit;
use super::gates::open_gates;
use super::global_tokens::project_globals;
use super::grid_maps::{convolve_input, keep_largest};
use super::group_norm::in_groups;
use super::growth::grow_rows;
use super::head_experts::{choose_heads, for_all_groups};
use super::hook::{Hook, Hooks};
use super::indexer::{finish_index, index_keys, index_queries};
use super::kv_cache::{store_keys, store_latents, store_values};
use super::latents::{LatentBuffers, fill_latent};
use super::norm_gate::{norm_firsts, open_norm};
use super::own_values::{add_rows, sum_with_kept};
use super::pools::join_pools;
use super::scratch::AttentionScratch;
use super::shared_keys::{reuse_keys, share_keys};
use super::side_stream::join_side;

/// Fills q, k and v from the attention's input, with positions applied.
pub(super) fn project<O: Ops>(
    context: &BlockContext<'_, O>,
    attention: &AttentionSpec,
    spec: &ProjectionSpec,
    weights: &AttentionWeights<'_, O>,
    resid: &O::Buffer,
    s: &mut AttentionScratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<()> {
    project_only(context, attention, spec, weights, resid, s)?;
    project_globals(context, attention, weights, resid, s)?;
    finish_index(context, spec, weights.indexer.as_ref(), s)?;
    let ops = context.ops;
    let has_keys = !s.past.as_ref().is_some_and(|past| past.is_whole);
    if !spec.norms_after_rope {
        norm_queries_and_keys(ops, spec, weights, s)?;
    }
    share_keys(context, (attention, spec), s)?;
    emit(ops, hooks, Hook::Q, &s.q)?;
    if has_keys {
        // The hook of values has what patterns weigh.
        if let Some(rope) = attention.rope.as_ref().filter(|rope| rope.turns_values) {
            let table = RopeTable::new(&context.sequence.turning(rope), &context.positions());
            ops.rope(&mut s.v, &table, attention.d_value)?;
        }
        if !spec.norms_after_rope {
            store_values(ops, attention, spec, &mut s.v)?;
        }
        emit(ops, hooks, Hook::K, &s.k)?;
        emit(ops, hooks, Hook::V, &s.v)?;
    }
    if let Some(rope) = &attention.rope {
        let table = RopeTable::new(&context.sequence.turning(rope), &context.positions());
        ops.rope(&mut s.q, &table, attention.d_head)?;
        if has_keys && !rope.leaves_keys {
            ops.rope(&mut s.k, &table, attention.d_head)?;
        }
    }
    if spec.norms_after_rope {
        norm_queries_and_keys(ops, spec, weights, s)?;
        if has_keys {
            store_values(ops, attention, spec, &mut s.v)?;
        }
    }
    if has_keys {
        store_keys(ops, attention, spec, &mut s.k)?;
    }
    if let Some(pooled) = spec.pooled_keys() {
        join_pools(context, pooled, attention.rope.as_ref(), s)?;
    }
    let grows = attention.growth.is_some() || weights.q_growth.is_some();
    if grows || weights.head_scales.is_some() {
        let host = ops.get(&s.q)?;
        let (width, mut values) = (host.width, host.values.into_owned());
        let of = (attention, weights);
        grow_rows(of, &context.positions(), width, &mut values);
        ops.put(&values, width, &mut s.q)?;
    }
    emit(ops, hooks, Hook::RotQ, &s.q)?;
    let whole = if has_keys { &s.k } else { return Ok(()) };
    emit(ops, hooks, Hook::RotK, whole)
}

/// Fills q, k and v from the attention's input, before norms and positions.
pub(super) fn project_only<O: Ops>(
    context: &BlockContext<'_, O>,
    attention: &AttentionSpec,
    spec: &ProjectionSpec,
    weights: &AttentionWeights<'_, O>,
    resid: &O::Buffer,
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    let ops = context.ops;
    let summed = match &spec.sum_with_kept {
        Some(name) => Some(sum_with_kept(context, name, resid, &s.kept)?),
        None if spec.reads_kept => {
            let mut kept = O::Buffer::default();
            ops.put(&s.kept, spec.q.n_in, &mut kept)?;
            Some(kept)
        }
        None => None,
    };
    let resid = summed.as_ref().unwrap_or(resid);
    let pooling = spec.query_pooling();
    let attn_in = match (&weights.pre, &context.memory) {
        // Queries are pooled of the keys' patches, which are normed.
        (_, Some(memory)) if pooling.is_some() => memory.hidden,
        (Some(norm), _) => {
            let grouped = in_groups(context, weights.pre_groups, resid)?;
            ops.norm(grouped.as_ref().unwrap_or(resid), norm, &mut s.normed)?;
            open_norm(context, weights.pre_gate.as_ref(), &mut s.normed)?;
            norm_firsts(context, weights.pre_firsts.as_ref(), resid, &mut s.normed)?;
            &s.normed
        }
        (None, _) => resid,
    };
    // Only cross-attention takes keys from other tokens than its queries.
    let mut normed_source = O::Buffer::default();
    let keys_in = match (&context.memory, spec.source_norm.as_deref()) {
        (Some(memory), Some(norm)) if attention.is_cross => {
            let norm = context.shelf().norm(norm)?;
            ops.norm(memory.hidden, &norm, &mut normed_source)?;
            &normed_source
        }
        (Some(memory), None) if attention.is_cross => memory.hidden,
        _ => attn_in,
    };
    let placed = match &spec.places {
        Some(places) => {
            let positions = context.positions();
            let own = (attn_in, context.sequence, &positions[..]);
            let of_keys = match &context.memory {
                Some(memory) if attention.is_cross => {
                    (keys_in, memory.sequence, &memory.sequence.positions[..])
                }
                _ => own,
            };
            let placed = |rows: &Option<PlaceRows>, of| -> Result<Option<O::Buffer>> {
                let rows = rows.as_ref();
                rows.map(|rows| at_places(context, rows, of)).transpose()
            };
            [
                placed(&places.of_queries, own)?,
                placed(&places.of_keys, of_keys)?,
            ]
        }
        None => [None, None],
    };
    let narrow = match spec.narrowed.as_deref() {
        Some(narrow) => Some(narrowed(context, &narrow.by, attn_in)?),
        None => None,
    };
    let reaches_keys = spec
        .narrowed
        .as_ref()
        .is_some_and(|narrow| narrow.reaches_keys);
    let narrow_k = narrow.as_ref().filter(|_| reaches_keys);
    let [placed_q, placed_k] = &placed;
    let [convolved_q, convolved_v] = match spec.convolved_inputs() {
        Some(inputs) => {
            let convolved = |input| -> Result<Option<O::Buffer>> {
                let mut rows = O::Buffer::default();
                ops.copy(attn_in, &mut rows)?;
                convolve_input(context, input, &mut rows)?;
                Ok(Some(rows))
            };
            [convolved(&inputs.queries)?, convolved(&inputs.values)?]
        }
        None => [None, None],
    };
    let q_in = convolved_q.as_ref().or(placed_q.as_ref());
    let q_in = q_in.or(narrow.as_ref()).unwrap_or(attn_in);
    let k_in = placed_k.as_ref().or(narrow_k).unwrap_or(keys_in);
    let reach_values = spec
        .places
        .as_ref()
        .is_some_and(|places| places.reach_values);
    let v_in = if reach_values { k_in } else { keys_in };
    let v_in = convolved_v.as_ref().unwrap_or(v_in);
    s.bias_factors = match &spec.bias_gate {
        Some(gate) => {
            let grows = (attention.growth, &context.positions()[..], context.n_past);
            bias_factors(gate, grows, context.shelf(), &ops.get(attn_in)?.values)?
        }
        None => Vec::new(),
    };
    let has_keys = !s.past.as_ref().is_some_and(|past| past.is_whole);
    if spec.reuses_keys() {
        ops.linear(attn_in, &weights.q, &mut s.q, context.pace)?; // [position, n_heads · d_head]
        let keys = [&mut s.k, &mut s.v];
        reuse_keys(ops, (attention, spec), (&s.q, &s.kept), keys)?;
    }
    let indexer = weights.indexer.as_ref();
    index_keys(context, indexer, attn_in, &mut s.index)?;
    if weights
        .latent
        .as_ref()
        .is_none_or(|latent| latent.q.is_none())
    {
        index_queries(context, indexer, attn_in, &mut s.index)?;
    }
    let reads_both = spec
        .latent
        .as_ref()
        .is_some_and(|latent| latent.q_reads_both);
    match (&weights.latent, &weights.k, &weights.v) {
        (None, _, _) if !has_keys => ops.linear(q_in, &weights.q, &mut s.q, context.pace)?,
        (None, Some(k), Some(v)) => {
            ops.linear(q_in, &weights.q, &mut s.q, context.pace)?; // [position, n_heads · d_head]
            ops.linear(k_in, k, &mut s.k, context.pace)?; // [position, n_kv_heads · d_head]
            ops.linear(v_in, v, &mut s.v, context.pace)?; // [position, n_kv_heads · d_value]
            if let Some(pooling) = pooling {
                keep_largest(context, pooling, &mut s.q)?;
            }
        }
        (Some(latent), Some(k), Some(v)) => {
            match &latent.q {
                Some((down, norm)) => {
                    ops.linear(attn_in, down, &mut s.latent, context.pace)?; // [position, d_latent]
                    ops.norm(&s.latent, norm, &mut s.normed_latent)?;
                    index_queries(context, indexer, &s.normed_latent, &mut s.index)?;
                    let from = if reads_both {
                        ops.join_heads(&s.normed_latent, &s.latent, 1, &mut s.both_latents)?;
                        &s.both_latents
                    } else {
                        &s.normed_latent
                    };
                    ops.linear(from, &weights.q, &mut s.q, context.pace)?;
                }
                None => ops.linear(attn_in, &weights.q, &mut s.q, context.pace)?,
            }
            let buffers = LatentBuffers {
                kept: &mut s.kept,
                before_norm: &mut s.latent,
                normed: &mut s.normed_latent,
                shared_key: &mut s.shared_key,
            };
            fill_latent(context, spec, latent, keys_in, buffers)?;
            store_latents(ops, attention, &mut s.normed_latent)?;
            ops.linear(&s.normed_latent, k, &mut s.own_key, context.pace)?; // [position, n_heads · own]
            ops.linear(&s.normed_latent, v, &mut s.v, context.pace)?;
            match &latent.shared_key {
                Some(_) => {
                    ops.join_heads(&s.own_key, &s.shared_key, attention.n_kv_heads, &mut s.k)?
                }
                None => ops.copy(&s.own_key, &mut s.k)?,
            }
        }
        _ => {}
    }
    if let Some(experts) = spec.experts.as_deref() {
        s.chosen = choose_heads(context, experts, attn_in, &mut s.q)?;
        if has_keys {
            for_all_groups(ops, experts.rule.n_used, &mut s.k)?;
            for_all_groups(ops, experts.rule.n_used, &mut s.v)?;
        }
    }
    if let (Some(of), true) = (spec.kv_convolutions.as_deref(), has_keys) {
        let memories = s.past.as_mut().map(|past| &mut past.convolved);
        let [of_keys, of_values] = match memories {
            Some([keys, values, ..]) => [Some(keys), Some(values)],
            None => [None, None],
        };
        add_convolved(context, Some(&of[0]), of_keys, &mut s.k)?;
        add_convolved(context, Some(&of[1]), of_values, &mut s.v)?;
    }
    if let Some(gate) = &weights.gate {
        let from = if reads_both { &s.both_latents } else { attn_in };
        ops.linear(from, gate, &mut s.gate, context.pace)?; // [position, n_heads · d_value] or [position, n_heads]
        open_gates(ops, attention, spec, &mut s.gate)?;
    }
    if let Some(table) = spec.value_rows.as_ref().filter(|_| has_keys) {
        add_rows(context, table, &mut s.v)?;
    }
    if has_keys {
        pair_values(context.shelf(), spec, attention.n_kv_heads, &mut s.v)?;
    }
    if let Some(limit) = spec.clip {
        ops.clip(&mut s.q, limit)?;
        if has_keys {
            ops.clip(&mut s.k, limit)?;
            ops.clip(&mut s.v, limit)?;
        }
    }
    if let (Some(narrow), Some(_)) = (narrow, spec.pooled_keys()) {
        // What picks among pools reads it too.
        s.normed_latent = narrow;
    }
    if let Some(side) = spec.side.as_deref() {
        join_side(context, side, (attention.n_heads, attention.n_kv_heads), s)?;
    }
    Ok(())
}

/// Applies the query, key and value norms, if there are any.
fn norm_queries_and_keys<O: Ops>(
    ops: &O,
    spec: &ProjectionSpec,
    weights: &AttentionWeights<'_, O>,
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    if let (Some(norm), Some(source)) = (&weights.q_norm, &spec.q_norm) {
        ops.norm_heads(&mut s.q, norm, source.width)?;
    }
    let has_keys = !s.past.as_ref().is_some_and(|past| past.is_whole);
    if let (Some(norm), Some(source), true) = (&weights.k_norm, &spec.k_norm, has_keys) {
        ops.norm_heads(&mut s.k, norm, source.width)?;
    }
    if let (Some(norm), Some(source), true) = (&weights.v_norm, &spec.v_norm, has_keys) {
        ops.norm_heads(&mut s.v, norm, source.width)?;
    }
    Ok(())
}
