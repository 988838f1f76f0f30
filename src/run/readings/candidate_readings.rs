//! The readings that enter a race of a model.

use attnscope_forward::Sequence;
use attnscope_spec::Model;

use super::as_it_stands::can_run;
use super::texts::Text;
use super::{FAMILIES, IsLocal, Known, Reading, everywhere, in_self_attention, local};

/// Most heads of a model for which readings of single heads are tried.
const MOST_HEADS: usize = 64;

impl<'a> Known<'a> {
    pub(super) fn of(model: &'a Model, texts: &[Text]) -> Self {
        let all = || texts.iter().map(|text| &text.sequence);
        let positions = all().flat_map(|sequence| sequence.positions.iter().copied());
        let ids = || all().flat_map(|sequence| sequence.tokens.iter().copied());
        Self {
            model,
            n_longest: all().map(Sequence::len).max().unwrap_or(0),
            first_position: positions.min().unwrap_or(0),
            ids: [ids().min().unwrap_or(0), ids().max().unwrap_or(0)],
            separator: separator(texts),
        }
    }
}

/// The token with which every text begins, if it also stands inside one.
fn separator(texts: &[Text]) -> Option<u32> {
    let mut firsts = texts
        .iter()
        .map(|text| text.sequence.tokens.first().copied());
    let first = firsts.next()??;
    let is_first = firsts.all(|other| other == Some(first));
    let mut inside = texts.iter().flat_map(|text| &text.sequence.tokens[1..]);
    (is_first && inside.any(|id| *id == first)).then_some(first)
}

/// Readings of a whole model together with those that `first` leaves open, each made for the spec of `first`.
pub(super) fn together_with(model: &Model, texts: &[Text], first: &Reading) -> Vec<Reading> {
    let as_read = first.spec.as_deref().cloned();
    let as_read = as_read.map(|spec| model.with_spec(spec));
    let known = Known::of(as_read.as_ref().unwrap_or(model), texts);
    let declared = Reading::declared();
    let others = everywhere(&known).into_iter();
    let both = others
        .filter(|other| other.hypothesis.family != super::silence::FAMILY.id)
        .filter_map(|other| first.and(&other));
    // The second may take back what the first changed.
    both.filter(|both| !both.does_the_same(first) && !both.does_the_same(&declared))
        .filter(|both| both.spec.as_deref() != Some(&model.spec) && can_run(model, both))
        .collect()
}

/// The declared model without a part of each layer.
pub(super) fn silence(model: &Model) -> Vec<Reading> {
    (super::silence::FAMILY.readings)(&Known::of(model, &[]))
}

/// A reading whose layers add nothing to the residual: what is left is the embedding.
pub(super) fn without_layers(model: &Model, reading: &Reading) -> Option<Reading> {
    let as_read = reading.spec.as_deref().cloned();
    let as_read = as_read.map(|spec| model.with_spec(spec));
    let known = Known::of(as_read.as_ref().unwrap_or(model), &[]);
    let spec = known.with_blocks(|block| block.branch_scales = [0.0; 2])?;
    Some(Reading {
        offset: reading.offset,
        ..Reading::new(super::silence::FAMILY.id, "no layer", "").with_attention(spec)
    })
}

/// All readings to try: in the whole model, in compatible pairs, in single layers, and in single heads.
pub(super) fn candidate_readings(model: &Model, texts: &[Text]) -> Vec<Reading> {
    let mut all = everywhere(&Known::of(model, texts));
    debug_assert!(all.iter().all(|one| {
        FAMILIES
            .iter()
            .any(|family| family.id == one.hypothesis.family)
    }));
    let pairs = pairs_of(&all);
    all.extend(in_self_attention(model, &all));
    let mut alone = local(model, &all, IsLocal::InLayers);
    if n_heads_of(model) <= MOST_HEADS {
        alone.extend(local(model, &all, IsLocal::InHeads));
    }
    all.extend(pairs);
    all.extend(alone);
    all.retain(|reading| can_run(model, reading));
    all
}

/// Pairs of readings that occur together.
pub(super) fn pairs_of(all: &[Reading]) -> Vec<Reading> {
    let of = |idx: usize| {
        all[idx + 1..]
            .iter()
            .filter_map(move |other| all[idx].and(other))
    };
    (0..all.len()).flat_map(of).filter(is_usual).collect()
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
