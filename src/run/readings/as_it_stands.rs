//! Layers that readings change by their spec alone: those that mix tokens otherwise than by attention, rows of several streams, keys that
//! layers share, global tokens, indexers. They run by the machine of whole runs, as a spec says, declared or supposed.

use std::borrow::Cow;
use std::rc::Rc;

use attnscope_compute::attention::{
    AttentionOverride, AttentionSpec, Bias, KeyRank, Mask, MaskOverride, Scale, SoftmaxAxis,
    SoftmaxOverride,
};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::recurrent::FinalStates;
use attnscope_forward::{
    BlockContext, Deviation, DroppedResiduals, LayerWeights, Memory, NoHooks, Scratch, Sequence,
    run_layer,
};
use attnscope_spec::{BlockSpec, Model, StackSpec};

use super::Reading;

/// Whether a block runs as a spec says, so that nothing can be supposed of it that no spec says.
pub(super) fn stands(stack: &StackSpec, block: &BlockSpec) -> bool {
    let attends = block.own().is_some() && block.parallel_mixer.is_none();
    let has_globals = block.attention().is_some_and(|of| of.globals.is_some());
    // Places of a picture are not counted.
    let is_placed = block.attention().is_some_and(|of| {
        let is_turned = of.rope.as_ref().is_some_and(|rope| rope.grid.is_some());
        let is_windowed = of
            .top_keys
            .is_some_and(|top| matches!(top.by, KeyRank::Window(_)));
        let is_biased = matches!(of.bias, Bias::Grid(_) | Bias::Pairs(_) | Bias::Steps(_));
        is_turned || is_windowed || is_biased
    });
    let is_limited = block.feed_forward.is_limited();
    let own = block.own();
    let own = own.as_ref().map(|own| &own.projections);
    let is_own_rule = own.is_some_and(|own| {
        own.indexer.is_some() || own.bias_gate.is_some() || own.experts.is_some()
    });
    // Positions are told, and the rows of the encoder normed, where queries and keys are made.
    let cross = block.cross.as_ref().map(|cross| &cross.projections);
    let is_told = [own, cross]
        .into_iter()
        .flatten()
        .any(|maps| maps.places.is_some() || maps.source_norm.is_some());
    let is_otherwise = has_globals || is_placed || is_limited || is_own_rule || is_told;
    let is_convolved = block.conformer.is_some() || block.convolves() || block.bottleneck.is_some();
    let is_joined = stack.embed.joined.is_some() || block.merged().is_some();
    stack.rows.is_some() || is_joined || !attends || is_otherwise || is_convolved
}

/// Whether all that a reading supposes can be run in this model.
pub(super) fn can_run(model: &Model, reading: &Reading) -> bool {
    let stacks = model.spec.stacks.iter().enumerate();
    let mut places = stacks.flat_map(|(stack_idx, stack)| {
        let blocks = stack.blocks().iter().enumerate();
        blocks.map(move |(layer_idx, block)| ((stack_idx, layer_idx), stands(stack, block)))
    });
    places.all(|(at, stands)| !stands || stack_as_read(reading, model, at).is_some())
}

/// What a reading supposes in a layer beside its spec: nothing where there is no attention to suppose it of.
pub(super) fn in_layer(
    reading: &Reading,
    model: &Model,
    (stack_idx, layer_idx): (usize, usize),
) -> (Deviation, DroppedResiduals) {
    let (deviation, dropped) = reading.in_layer(layer_idx);
    let block = &model.spec.stacks[stack_idx].blocks()[layer_idx];
    match block.own() {
        Some(_) => (deviation, dropped),
        None => (Deviation::NONE, dropped),
    }
}

/// The spec of a stack in which a block does what a reading supposes; `None` if no spec can say that.
pub(super) fn stack_as_read<'a>(
    reading: &'a Reading,
    model: &'a Model,
    (stack_idx, layer_idx): (usize, usize),
) -> Option<Cow<'a, StackSpec>> {
    let stack = reading.stack(model, stack_idx, layer_idx);
    let (deviation, dropped) = in_layer(reading, model, (stack_idx, layer_idx));
    if dropped != DroppedResiduals::default() {
        return None;
    }
    if deviation == Deviation::NONE {
        return Some(Cow::Borrowed(stack));
    }
    let mut stack = stack.clone();
    let block = stack.blocks_mut().get_mut(layer_idx)?;
    deviate(&mut block.own_mut()?.attention, &deviation)?;
    if let Some(cross) = block.cross.as_mut().filter(|_| !deviation.spares_cross) {
        let mut of_cross = deviation;
        of_cross.attention.sight = None;
        deviate(&mut cross.attention, &of_cross)?;
    }
    Some(Cow::Owned(stack))
}

/// Changes attention as a deviation does; `None` if the spec has no words for it.
fn deviate(attention: &mut AttentionSpec, deviation: &Deviation) -> Option<()> {
    let AttentionOverride {
        softmax,
        sight,
        scale,
        ..
    } = deviation.attention;
    let said = Deviation {
        attention: AttentionOverride {
            softmax,
            sight,
            scale,
            ..AttentionOverride::NONE
        },
        spares_cross: deviation.spares_cross,
        ..Deviation::NONE
    };
    if said != *deviation || matches!(attention.scale, Scale::OfKeys(_)) {
        return None;
    }
    attention.softmax_axis = match softmax {
        None => attention.softmax_axis,
        Some(SoftmaxOverride::OverKeys) => SoftmaxAxis::Keys,
        Some(SoftmaxOverride::OverQueries) => SoftmaxAxis::Queries,
        // Here hidden keys get nothing.
        Some(SoftmaxOverride::OverHeads { leaks: false }) => SoftmaxAxis::Heads,
        Some(_) => return None,
    };
    attention.mask = match sight {
        None => attention.mask,
        Some(MaskOverride::All) => Mask::with_width(false, None),
        Some(MaskOverride::Causal) => Mask::with_width(true, None),
        Some(MaskOverride::Window(width)) => Mask::with_width(true, Some(width)),
        Some(_) => return None,
    };
    if scale != 1.0 {
        let factor = scale * attention.scale.factor(attention.d_head);
        attention.scale = Scale::Factor(factor);
    }
    Some(())
}

/// Residuals that pass one layer: those of all texts, one after another. // resid: [row of all texts, width of a row]
pub(super) struct Passing<'s> {
    pub stack: Cow<'s, StackSpec>,
    pub resid: &'s Rc<Vec<f32>>,
    pub sequences: Vec<&'s Sequence>,
    /// The encoder's output and tokens, for each text. // [source position, d_model]
    pub sources: Vec<Option<(&'s [f32], &'s Sequence)>>,
}

/// Runs one layer for several residuals; those with the same block, tokens and source run as copies of each other.
///
/// # Errors
/// When a tensor contradicts the spec, the device fails, or the work is stopped.
pub(super) fn run<O: Ops>(
    ops: &O,
    model: &Model,
    layer_idx: usize,
    passing: &[Passing<'_>],
    pace: &dyn Pace,
) -> Result<Vec<Vec<f32>>> {
    let mut out: Vec<Vec<f32>> = vec![Vec::new(); passing.len()];
    let mut scratch = Scratch::<O>::default();
    let alike = |one: &Passing<'_>, other: &Passing<'_>| {
        let blocks = [one, other].map(|one| &one.stack.blocks()[layer_idx]);
        let sources = |one: &Passing<'_>| {
            let sources = one.sources.iter();
            let all: Vec<*const f32> = sources
                .flatten()
                .map(|(values, _)| values.as_ptr())
                .collect();
            all
        };
        blocks[0] == blocks[1] && one.sequences == other.sequences && sources(one) == sources(other)
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (idx, one) in passing.iter().enumerate() {
        match groups
            .iter_mut()
            .find(|group| alike(&passing[group[0]], one))
        {
            Some(group) => group.push(idx),
            None => groups.push(vec![idx]),
        }
    }
    for group in groups {
        let members: Vec<&Passing<'_>> = group.iter().map(|idx| &passing[*idx]).collect();
        let passed = pass(ops, model, layer_idx, &members, &mut scratch, pace)?;
        for (idx, resid) in group.into_iter().zip(passed) {
            out[idx] = resid;
        }
    }
    Ok(out)
}

/// Runs one layer on residuals of the same tokens, text by text.
fn pass<O: Ops>(
    ops: &O,
    model: &Model,
    layer_idx: usize,
    members: &[&Passing<'_>],
    scratch: &mut Scratch<O>,
    pace: &dyn Pace,
) -> Result<Vec<Vec<f32>>> {
    let Some(first) = members.first() else {
        return Ok(Vec::new());
    };
    let (tensors, stack) = (&model.checkpoint.tensors, &*first.stack);
    let width = model.spec.d_input(stack, 0);
    let weights = LayerWeights::read(ops, tensors, stack, layer_idx, pace)?;
    let ends = FinalStates::default();
    let mut out = vec![Vec::with_capacity(first.resid.len()); members.len()];
    let mut at = 0;
    for (sequence, source) in first.sequences.iter().zip(&first.sources) {
        let (mut resid, mut hidden) = (O::Buffer::default(), O::Buffer::default());
        let values = at..at + sequence.len() * width;
        at = values.end;
        let copies: Vec<&[f32]> = members
            .iter()
            .map(|one| &one.resid[values.clone()])
            .collect();
        ops.put(&copies.concat(), width, &mut resid)?; // [copy · position, width of a row]
        let memory = match source {
            Some((values, sequence)) => {
                ops.put(values, model.spec.d_model, &mut hidden)?;
                Some(Memory {
                    hidden: &hidden,
                    sequence,
                    ends: &ends,
                })
            }
            None => None,
        };
        let context = BlockContext::of(ops, tensors, stack, sequence, memory, pace)?;
        let context = context.with_copies(members.len());
        let hooks = &mut NoHooks;
        run_layer(
            &context, stack, layer_idx, &weights, &mut resid, scratch, hooks,
        )?;
        let host = ops.get(&resid)?;
        let parts = host.values.chunks((sequence.len() * width).max(1));
        out.iter_mut()
            .zip(parts)
            .for_each(|(out, part)| out.extend_from_slice(part));
    }
    Ok(out)
}
