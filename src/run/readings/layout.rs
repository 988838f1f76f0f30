//! How stored numbers are laid out: which are queries, keys and values, of which head, and which way round.
//!
//! - **order**: queries, keys and values in every other order, where they have one shape.
//! - **fused**: `[q k v]` of each head one after another ↔ all queries, all keys, all values.
//! - **shared keys**: `repeat` ↔ `repeat_interleave`: which queries a head of keys and values serves.
//! - **heads**: joined without exchanging axes back, cut without exchanging axes, both; columns as [d_head, head], where they are
//!   cut, joined, or both; another number of heads of the same total width.
//! - **transposed**: queries, keys and values, or the output, as the other way round.
//! - **gate and up** exchanged in gated feed-forward layers.
//!
//! Single layers matter here: a converter or a shard often breaks one. Large models that predict better than word frequencies are
//! not read with other weights.

use attnscope_compute::attention::{AttentionOverride, Bias, Scale};
use attnscope_forward::{Cut, Deviation};
use attnscope_spec::{BlockSpec, FeedForward, LinearSource, MlpSpec, Part, ProjectionSpec};

use super::{Family, IsLocal, Known, Reading};

pub(super) const FAMILY: Family = Family {
    id: "layout",
    source: include_str!("layout.rs"),
    readings,
};

fn readings(known: &Known<'_>) -> Vec<Reading> {
    let mut all = orders(known);
    all.extend(transposed(known));
    all.extend(heads(known));
    all.extend(exchanged_gates(known));
    all
}

/// Reading with changed weights; `None` if the change affects no block.
fn with(known: &Known<'_>, name: &str, change: impl Fn(&mut BlockSpec)) -> Option<Reading> {
    let spec = known.with_blocks(change)?;
    let reading = Reading::new(FAMILY.id, name, "").with_weights(spec);
    Some(reading.local(IsLocal::InLayers))
}

fn orders(known: &Known<'_>) -> Vec<Reading> {
    // Each order gives the stored part from which queries, keys and values are really taken.
    let orders = [
        ("queries and keys exchanged", [1, 0, 2]),
        ("keys and values exchanged", [0, 2, 1]),
        ("queries and values exchanged", [2, 1, 0]),
        ("the order keys, values, queries", [2, 0, 1]),
        ("the order values, queries, keys", [1, 2, 0]),
    ];
    let mut all = Vec::new();
    for (name, order) in orders {
        let whole = with(known, name, |block| {
            if let Some(own) = block.own_mut() {
                reorder(&mut own.projections, order);
            }
            if let Some(cross) = &mut block.cross {
                reorder(&mut cross.projections, order);
            }
        });
        all.extend(whole);
        if known.blocks().any(|block| block.cross.is_some()) {
            let name = format!("{name} in self-attention");
            all.extend(with(known, &name, |block| {
                if let Some(own) = block.own_mut() {
                    reorder(&mut own.projections, order);
                }
            }));
        }
    }
    all.extend(with(
        known,
        "queries, keys and values fused the other way",
        refuse,
    ));
    all
}

/// Takes queries, keys and values from other stored parts, if all have the same shape.
fn reorder(projections: &mut ProjectionSpec, order: [usize; 3]) {
    if !projections.is_by_head() {
        return;
    }
    let parts = [&projections.q, &projections.k, &projections.v].map(LinearSource::clone);
    let mut pairs = order.iter().enumerate();
    if pairs.all(|(to, from)| parts[to].n_out() == parts[*from].n_out()) {
        let [q, k, v] = order.map(|from| parts[from].clone());
        (projections.q, projections.k, projections.v) = (q, k, v);
    }
}

/// Switches a fused projection between `[q k v]` per head and all q, all k, all v.
fn refuse(block: &mut BlockSpec) {
    let Some(own) = block.own_mut() else { return };
    let (n_heads, d_head) = (own.attention.n_heads, own.attention.d_head);
    let projections = &mut own.projections;
    let width = n_heads * d_head;
    let is_fused = projections.q.weight == projections.k.weight
        && projections.q.weight == projections.v.weight
        && projections.q.n_stored_out == 3 * width;
    if !is_fused || n_heads < 2 {
        return;
    }
    let parts = [&mut projections.q, &mut projections.k, &mut projections.v];
    for part in parts.into_iter().map(|source| &mut source.part) {
        let nth = part.offset / part.len.max(1);
        let len = if part.group == 3 * width {
            d_head
        } else {
            width
        };
        *part = Part {
            group: 3 * len,
            offset: nth * len,
            len,
        };
    }
}

fn transposed(known: &Known<'_>) -> Vec<Reading> {
    let flip = |source: &mut LinearSource| {
        if source.n_in == source.n_out() && source.slab.is_none() {
            source.is_transposed = !source.is_transposed;
        }
    };
    let inputs = |block: &mut BlockSpec| {
        if let Some(own) = block.own_mut().filter(|own| own.projections.is_by_head()) {
            let projections = &mut own.projections;
            let parts = [&mut projections.q, &mut projections.k, &mut projections.v];
            parts.into_iter().for_each(flip);
        }
    };
    let output = |block: &mut BlockSpec| {
        if let Some(own) = block.own_mut() {
            flip(&mut own.projections.o);
        }
    };
    let both = |block: &mut BlockSpec| {
        inputs(block);
        output(block);
    };
    [
        with(known, "query, key and value matrices transposed", inputs),
        with(known, "output matrices transposed", output),
        with(known, "all matrices of attention transposed", both),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn heads(known: &Known<'_>) -> Vec<Reading> {
    let Some(own) = known.blocks().find_map(BlockSpec::own) else {
        return Vec::new();
    };
    let attention = &own.attention;
    let mut all = Vec::new();
    if attention.n_kv_heads > 1 && attention.n_kv_heads < attention.n_heads {
        let odd = AttentionOverride {
            tiles_keys: true,
            ..AttentionOverride::NONE
        };
        let name = "heads of keys repeated as a whole (repeat, not repeat_interleave)";
        let reading = Reading::new(FAMILY.id, name, "").odd(odd);
        all.push(reading.local(IsLocal::InLayers));
    }
    if attention.n_heads > 1 && attention.d_value == attention.d_head {
        let (lie, channel) = (Cut::AsTheyLie, Cut::ByChannel);
        for (name, cut, joined) in [
            (
                "heads joined without exchanging axes back",
                Cut::Columns,
                lie,
            ),
            ("heads cut without exchanging axes", lie, Cut::Columns),
            ("heads cut and joined without exchanging axes", lie, lie),
            ("heads cut and joined as [d_head, head]", channel, channel),
            ("heads joined as [d_head, head]", Cut::Columns, channel),
            ("heads cut as [d_head, head]", channel, Cut::Columns),
        ] {
            let deviation = Deviation {
                cut,
                joined,
                ..Deviation::NONE
            };
            // The first three mix tokens, later ones into earlier ones; no model gains by that unless it was trained that way.
            let reading = Reading::new(FAMILY.id, name, "").deviating(deviation);
            all.push(reading.local(IsLocal::InLayers));
        }
    }
    all.extend(other_numbers(known));
    all
}

/// Readings with another number of heads, if nothing in the model depends on the head width.
fn other_numbers(known: &Known<'_>) -> Vec<Reading> {
    let fits = known.blocks().filter_map(BlockSpec::own).all(|own| {
        let attention = &own.attention;
        let is_rotated_whole = attention
            .rope
            .as_ref()
            .is_none_or(|rope| rope.first == 0 && rope.d_rotary == attention.d_head);
        attention.n_kv_heads == attention.n_heads
            && attention.d_value == attention.d_head
            && own.projections.q_norm.is_none()
            && own.projections.sinks.is_none()
            && own.projections.is_by_head()
            && own.projections.q.part.group != 3 * attention.d_head
            && matches!(attention.bias, Bias::None)
            && is_rotated_whole
    });
    let n_heads = known
        .blocks()
        .find_map(|block| Some(block.attention()?.n_heads))
        .unwrap_or(0);
    if !fits || n_heads == 0 {
        return Vec::new();
    }
    let candidates = [(4, 1), (2, 1), (1, 2), (1, 4)];
    let numbers = candidates
        .iter()
        .filter(|(_, by)| n_heads % by == 0)
        .map(|(times, by)| n_heads * times / by);
    let mut numbers: Vec<usize> = numbers.chain([1]).filter(|n| *n != n_heads).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let with_heads = |n: usize| {
        let spec = known.with_blocks(|block| {
            let Some(own) = block.own_mut() else { return };
            let attention = &mut own.attention;
            let width = attention.n_heads * attention.d_head;
            if width % n != 0 || (attention.rope.is_some() && !(width / n).is_multiple_of(2)) {
                return;
            }
            let was = attention.d_head;
            (attention.n_heads, attention.n_kv_heads) = (n, n);
            (attention.d_head, attention.d_value) = (width / n, width / n);
            let is_usual =
                (attention.scale.factor(was) / Scale::InvSqrtD.factor(was) - 1.0).abs() < 1e-4;
            if is_usual {
                attention.scale = Scale::InvSqrtD;
            }
            if let Some(rope) = &mut attention.rope {
                rope.d_rotary = width / n;
            }
        })?;
        let name = if n == 1 {
            "one head".to_owned()
        } else {
            format!("{n} heads")
        };
        let advice = format!("--set n_heads={n}");
        Some(Reading::new(FAMILY.id, name, advice).with_attention(spec))
    };
    numbers.into_iter().filter_map(with_heads).collect()
}

fn exchanged_gates(known: &Known<'_>) -> Option<Reading> {
    let exchange = |mlp: &mut MlpSpec| {
        if let Some(gate) = &mut mlp.gate {
            std::mem::swap(gate, &mut mlp.up);
        }
    };
    with(known, "gate and up exchanged", |block| {
        match &mut block.feed_forward {
            FeedForward::Dense(mlp) => exchange(mlp),
            FeedForward::Experts(experts) => experts.experts.iter_mut().for_each(exchange),
            FeedForward::None => {}
        }
    })
}
