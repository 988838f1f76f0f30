//! The readings that enter a race of a model.

use attnscope_spec::Model;

use super::texts::Text;
use super::{FAMILIES, IsLocal, Known, Reading, everywhere, in_self_attention, local};

/// Most heads of a model for which readings of single heads are tried.
const MOST_HEADS: usize = 64;

/// All readings to try: in the whole model, in compatible pairs, in single layers, and in single heads.
pub(super) fn candidate_readings(model: &Model, texts: &[Text]) -> Vec<Reading> {
    let positions = texts
        .iter()
        .flat_map(|text| text.sequence.positions.iter().copied());
    let known = Known {
        model,
        n_longest: texts
            .iter()
            .map(|text| text.sequence.len())
            .max()
            .unwrap_or(0),
        first_position: positions.min().unwrap_or(0),
    };
    let mut all = everywhere(&known);
    debug_assert!(all.iter().all(|one| {
        FAMILIES
            .iter()
            .any(|family| family.id == one.hypothesis.family)
    }));
    let pairs: Vec<Reading> = (0..all.len())
        .flat_map(|idx| {
            all[idx + 1..]
                .iter()
                .filter_map(|other| all[idx].and(other))
                .collect::<Vec<_>>()
        })
        .filter(is_usual)
        .collect();
    all.extend(in_self_attention(model, &all));
    let mut alone = local(model, &all, IsLocal::InLayers);
    if n_heads_of(model) <= MOST_HEADS {
        alone.extend(local(model, &all, IsLocal::InHeads));
    }
    all.extend(pairs);
    all.extend(alone);
    all
}

/// Number of single-head readings that are never tried because the model has too many heads.
pub(super) fn heads_left_out(model: &Model, field: &[Reading]) -> usize {
    if n_heads_of(model) <= MOST_HEADS || model.spec.stacks.len() != 1 {
        return 0;
    }
    let whole = field
        .iter()
        .filter(|reading| reading.hypothesis.layer_idx.is_none());
    n_heads_of(model)
        * whole
            .filter(|reading| reading.is_local == IsLocal::InHeads)
            .count()
}

fn n_heads_of(model: &Model) -> usize {
    let blocks = model.spec.main_stack().blocks().iter();
    blocks
        .filter_map(|block| Some(block.attention()?.n_heads))
        .sum()
}

/// Whether both parts of a pair are mistakes that occur together: another axis, no mask, or a missing or squared scale.
fn is_usual(pair: &Reading) -> bool {
    let usual = [
        "a softmax over queries",
        "no causal mask",
        "no scale",
        "a scale of 1/d_head",
    ];
    pair.hypothesis
        .parts
        .iter()
        .all(|part| usual.contains(&part.as_str()))
}
