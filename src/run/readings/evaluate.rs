//! Losses of many readings on the same texts, all of them one layer after another, so that a layer's weights are read once.

use std::ops::Range;
use std::rc::Rc;

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Ops, reuse_buffers};
use attnscope_compute::pace::Pace;
use attnscope_forward::{
    BlockContext, Deviation, DroppedResiduals, Scratch, Segment, Sequence, embed, final_hidden,
    logits_in_chunks, run_layer_as_read,
};
use attnscope_spec::{HeadSpec, Model, NormSource, StackSpec};

use super::Reading;
use super::as_it_stands::{self, Passing, in_layer, stack_as_read, stands};
use super::rounded::Rounded;
use super::texts::Text;
use crate::predictions::Scan;

/// Most numbers in the residuals of all readings that run together.
const MOST_VALUES: usize = 24 << 20;

/// Current state of a reading's forward pass.
struct State<'r> {
    reading: &'r Reading,
    sequences: Vec<Sequence>,
    /// [row of all texts, width of a row]
    resid: Rc<Vec<f32>>,
    /// Outputs of the encoder. // [row of all sources, d_model]
    memory: Option<Rc<Vec<f32>>>,
}

impl<'r> State<'r> {
    fn new(reading: &'r Reading, texts: &[Text]) -> Self {
        let sequences = texts.iter().map(|text| reading.sequence(&text.sequence));
        Self {
            reading,
            sequences: sequences.collect(),
            resid: Rc::default(),
            memory: None,
        }
    }
}

/// Losses of the declared model, then of every reading, in nats. // [1 + reading][wanted position of all texts]
///
/// # Errors
/// When a tensor contradicts the spec, the device fails, or the work is stopped.
pub fn losses<O: Ops>(
    ops: &O,
    model: &Model,
    texts: &[Text],
    readings: &[&Reading],
    pace: &dyn Pace,
) -> Result<Vec<Vec<f32>>> {
    // The declared model runs beside the readings, because most readings share layers with it.
    let declared = Reading::declared();
    in_chunks((ops, model, texts), Some(&declared), readings, pace)
}

/// Losses of readings alone, where those of the declared model are known or not needed. // [reading][wanted position of all texts]
///
/// # Errors
/// As for [`losses`].
pub(super) fn losses_of_readings<O: Ops>(
    ops: &O,
    model: &Model,
    texts: &[Text],
    readings: &[&Reading],
    pace: &dyn Pace,
) -> Result<Vec<Vec<f32>>> {
    in_chunks((ops, model, texts), None, readings, pace)
}

/// Runs readings in chunks that fit in memory, each beside `declared` if that is given, whose losses then come first.
fn in_chunks<O: Ops>(
    (ops, model, texts): (&O, &Model, &[Text]),
    declared: Option<&Reading>,
    readings: &[&Reading],
    pace: &dyn Pace,
) -> Result<Vec<Vec<f32>>> {
    let n_rows: usize = texts.iter().map(|text| text.sequence.len()).sum();
    let width = |stack| model.spec.d_input(stack, 0);
    let width = model.spec.stacks.iter().map(width).max().unwrap_or(1);
    let n_beside = usize::from(declared.is_some());
    let at_once = (MOST_VALUES / (n_rows * width).max(1)).max(2) - n_beside;
    let mut chunks = readings.chunks(at_once);
    let mut all = Vec::with_capacity(n_beside + readings.len());
    let mut chunk = chunks.next().unwrap_or_default();
    loop {
        let beside = declared.into_iter();
        let mut states: Vec<State<'_>> = beside
            .chain(chunk.iter().copied())
            .map(|reading| State::new(reading, texts))
            .collect();
        if states.is_empty() {
            return Ok(all);
        }
        for stack in 0..model.spec.stacks.len() {
            run_stack(ops, model, texts, stack, &mut states, pace)?;
        }
        let n_known = if all.is_empty() { 0 } else { n_beside };
        all.extend(unembed(ops, model, texts, &states[n_known..], pace)?);
        match chunks.next() {
            Some(next) => chunk = next,
            None => return Ok(all),
        }
    }
}

/// Runs one stack for all states.
fn run_stack<O: Ops>(
    ops: &O,
    model: &Model,
    texts: &[Text],
    stack_idx: usize,
    states: &mut [State<'_>],
    pace: &dyn Pace,
) -> Result<()> {
    let is_encoder = stack_idx + 1 < model.spec.stacks.len();
    for idx in 0..states.len() {
        let reading = states[idx].reading;
        let embeds_alike = |earlier: &&State<'_>| {
            reading_stack(reading, model, stack_idx).embed
                == reading_stack(earlier.reading, model, stack_idx).embed
                && reading.positions == earlier.reading.positions
                && reading.rows_late == earlier.reading.rows_late
                && reading.rounded.is_none()
                && earlier.reading.rounded.is_none()
        };
        let known = states[..idx].iter().find(embeds_alike);
        states[idx].resid = match known.map(|earlier| earlier.resid.clone()) {
            Some(resid) => resid,
            None => {
                let sequences = sequences_of(&states[idx], texts, is_encoder);
                let stack = reading_stack(reading, model, stack_idx);
                Rc::new(embedded(ops, model, stack, &sequences)?)
            }
        };
    }
    let declared = &model.spec.stacks[stack_idx];
    let tensors = &model.checkpoint.tensors;
    let _reuse = reuse_buffers();
    let dummy = Sequence::default();
    let context = BlockContext::of(ops, tensors, declared, &dummy, None, pace)?;
    let mut scratch = Scratch::<O>::default();
    for layer_idx in 0..declared.n_layers() {
        let at = (stack_idx, layer_idx);
        // Readings with equal states share one run of the layer. For example, a reading of a single layer equals the declared
        // model up to that layer.
        let runs: Vec<(&State<'_>, Vec<usize>)> = {
            let mut runs: Vec<(&State<'_>, Vec<usize>)> = Vec::new();
            for (idx, state) in states.iter().enumerate() {
                let known = runs.iter_mut();
                match known
                    .into_iter()
                    .find(|(known, _)| does_the_same(model, at, known, state))
                {
                    Some((_, who)) => who.push(idx),
                    None => runs.push((state, vec![idx])),
                }
            }
            runs
        };
        let running: Vec<&State<'_>> = runs.iter().map(|(state, _)| *state).collect();
        let stepped = step(&context, model, texts, at, &running, &mut scratch)?;
        let who: Vec<Vec<usize>> = runs.into_iter().map(|(_, who)| who).collect();
        for (who, resid) in who.into_iter().zip(stepped) {
            let reading = states[who[0]].reading;
            let resid = Rc::new(match reading.rounded {
                Some(rounded) => rounded.after_layer(resid, layer_idx),
                None => resid,
            });
            for idx in who {
                states[idx].resid = resid.clone();
            }
        }
    }
    if is_encoder {
        let mut known: Vec<Normed> = Vec::new();
        for state in states.iter_mut() {
            state.memory = Some(normed(ops, model, state, stack_idx, &mut known)?);
        }
    }
    Ok(())
}

/// Whether two states leave a layer with equal residuals.
fn does_the_same(
    model: &Model,
    (stack_idx, layer_idx): (usize, usize),
    a: &State<'_>,
    b: &State<'_>,
) -> bool {
    let have_one_memory = match (&a.memory, &b.memory) {
        (None, None) => true,
        (Some(a), Some(b)) => Rc::ptr_eq(a, b),
        _ => false,
    };
    Rc::ptr_eq(&a.resid, &b.resid)
        && have_one_memory
        && in_layer(a.reading, model, (stack_idx, layer_idx))
            == in_layer(b.reading, model, (stack_idx, layer_idx))
        && a.reading.positions == b.reading.positions
        && a.reading.rows_late == b.reading.rows_late
        && a.reading.rounded == b.reading.rounded
        && {
            let [a, b] = [a, b].map(|one| one.reading.block(model, stack_idx, layer_idx));
            std::ptr::eq(a, b) || a == b
        }
}

/// A reading's spec of a stack.
fn reading_stack<'a>(reading: &'a Reading, model: &'a Model, stack_idx: usize) -> &'a StackSpec {
    &reading.spec_of(model).stacks[stack_idx]
}

/// Sequences that a stack reads.
fn sequences_of<'s>(
    state: &'s State<'_>,
    texts: &'s [Text],
    is_encoder: bool,
) -> Vec<&'s Sequence> {
    if is_encoder {
        texts
            .iter()
            .filter_map(|text| text.source.as_ref())
            .collect()
    } else {
        state.sequences.iter().collect()
    }
}

/// What cross-attention reads beside each text. // [source position, d_model]
fn sources_of<'s>(
    state: &'s State<'_>,
    texts: &'s [Text],
    d_model: usize,
) -> Vec<Option<(&'s [f32], &'s Sequence)>> {
    let mut at = 0;
    let of_text = |text: &'s Text| {
        let (memory, source) = (state.memory.as_ref()?, text.source.as_ref()?);
        let values = &memory[at * d_model..(at + source.len()) * d_model];
        at += source.len();
        Some((values, source))
    };
    texts.iter().map(of_text).collect()
}

/// A state that passes a layer by its spec alone; every reading that may run has one.
fn passing<'s>(
    state: &'s State<'_>,
    model: &'s Model,
    texts: &'s [Text],
    (stack_idx, layer_idx): (usize, usize),
) -> Option<Passing<'s>> {
    let is_encoder = stack_idx + 1 < model.spec.stacks.len();
    let sequences = sequences_of(state, texts, is_encoder);
    let sources = sources_of(state, texts, model.spec.d_model);
    Some(Passing {
        stack: stack_as_read(state.reading, model, (stack_idx, layer_idx))?,
        resid: &state.resid,
        sources,
        sequences,
    })
}

/// Embeddings of several sequences, concatenated. // [row, width of a row]
fn embedded<O: Ops>(
    ops: &O,
    model: &Model,
    stack: &StackSpec,
    sequences: &[&Sequence],
) -> Result<Vec<f32>> {
    let mut together = Vec::new();
    let (mut spare, mut resid) = (O::Buffer::default(), O::Buffer::default());
    for sequence in sequences {
        embed(ops, model, stack, sequence, &mut spare, &mut resid)?;
        together.extend_from_slice(&ops.get(&resid)?.values);
    }
    Ok(together)
}

/// Runs one layer for several states and returns their residuals.
fn step<O: Ops>(
    context: &BlockContext<'_, O>,
    model: &Model,
    texts: &[Text],
    (stack_idx, layer_idx): (usize, usize),
    states: &[&State<'_>],
    scratch: &mut Scratch<O>,
) -> Result<Vec<Vec<f32>>> {
    let is_encoder = stack_idx + 1 < model.spec.stacks.len();
    let declared = &model.spec.stacks[stack_idx];
    if stands(declared, &declared.blocks()[layer_idx]) {
        let no_spec = || Error::Prompt("no spec of this layer says what is supposed".to_owned());
        let passing: Option<Vec<Passing<'_>>> = states
            .iter()
            .map(|state| passing(state, model, texts, (stack_idx, layer_idx)))
            .collect();
        let passing = passing.ok_or_else(no_spec)?;
        return as_it_stands::run(context.ops, model, layer_idx, &passing, context.pace);
    }
    let deviations: Vec<(Deviation, DroppedResiduals)> = states
        .iter()
        .map(|state| state.reading.in_layer(layer_idx))
        .collect();
    let mut together = Vec::new();
    let mut segments = Vec::new();
    let mut at = 0;
    let d_model = model.spec.d_model;
    for (state, (deviation, dropped)) in states.iter().zip(&deviations) {
        together.extend_from_slice(&state.resid);
        let sequences = sequences_of(state, texts, is_encoder).into_iter();
        for (sequence, source) in sequences.zip(sources_of(state, texts, d_model)) {
            segments.push(Segment {
                rows: at..at + sequence.len(),
                sequence,
                spec: state.reading.block(model, stack_idx, layer_idx),
                deviation,
                dropped: *dropped,
                source,
            });
            at += sequence.len();
        }
    }
    let ops = context.ops;
    let mut resid = O::Buffer::default();
    let width = model.spec.d_resid(&model.spec.stacks[stack_idx], 0);
    ops.put_own(together, width, &mut resid)?;
    run_layer_as_read(context, &segments, &mut resid, scratch)?;
    let host = ops.get(&resid)?;
    let mut from = 0;
    let parts = states.iter().map(|state| {
        let values = host.values[from..from + state.resid.len()].to_vec();
        from += state.resid.len();
        values
    });
    Ok(parts.collect())
}

/// A residual, the final norm applied to it, and the result.
struct Normed {
    resid: Rc<Vec<f32>>,
    norm: Option<NormSource>,
    hidden: Rc<Vec<f32>>,
}

/// Applies a stack's final norm to its last residual, once for states that share it. // [row, d_model]
fn normed<O: Ops>(
    ops: &O,
    model: &Model,
    state: &State<'_>,
    stack_idx: usize,
    known: &mut Vec<Normed>,
) -> Result<Rc<Vec<f32>>> {
    let stack = reading_stack(state.reading, model, stack_idx);
    let is_same =
        |one: &&Normed| Rc::ptr_eq(&one.resid, &state.resid) && one.norm == stack.final_norm;
    if let Some(found) = known.iter().find(is_same) {
        return Ok(found.hidden.clone());
    }
    let (mut resid, mut hidden) = (O::Buffer::default(), O::Buffer::default());
    ops.put(&state.resid, model.spec.d_input(stack, 0), &mut resid)?;
    final_hidden(ops, model, stack, &resid, &mut hidden)?;
    let hidden = Rc::new(ops.get(&hidden)?.values.into_owned());
    known.push(Normed {
        resid: state.resid.clone(),
        norm: stack.final_norm.clone(),
        hidden: hidden.clone(),
    });
    Ok(hidden)
}

/// Losses of all states at the wanted positions; states with the declared LM head are unembedded together.
fn unembed<O: Ops>(
    ops: &O,
    model: &Model,
    texts: &[Text],
    states: &[State<'_>],
    pace: &dyn Pace,
) -> Result<Vec<Vec<f32>>> {
    let stack_idx = model.spec.stacks.len() - 1;
    let mut rows = Vec::new();
    let mut at = 0;
    for text in texts {
        rows.extend(text.wanted.iter().map(|idx| at + idx));
        at += text.sequence.len();
    }
    let d_model = model.spec.d_model;
    let (mut hidden, mut known) = (Vec::with_capacity(states.len()), Vec::new());
    for state in states {
        let all = normed(ops, model, state, stack_idx, &mut known)?;
        let mut chosen = Vec::with_capacity(rows.len() * d_model);
        for row in &rows {
            chosen.extend_from_slice(&all[row * d_model..(row + 1) * d_model]);
        }
        hidden.push(chosen);
    }
    let head_of = |state: &State<'_>| state.reading.spec_of(model).head.clone();
    let no_head = || Error::Prompt("the model has no head to predict with".to_owned());
    let declared = model.spec.head.clone().ok_or_else(no_head)?;
    let mut all: Vec<Vec<f32>> = states.iter().map(|_| Vec::new()).collect();
    let (shared, own): (Vec<usize>, Vec<usize>) = (0..states.len()).partition(|idx| {
        let state = &states[*idx];
        state.reading.rounded.is_none() && head_of(state).as_ref() == Some(&declared)
    });
    let groups = std::iter::once(shared).chain(own.into_iter().map(|idx| vec![idx]));
    for group in groups.filter(|group| !group.is_empty()) {
        let head = head_of(&states[group[0]]).ok_or_else(no_head)?;
        let labels = group.iter().flat_map(|idx| {
            let (offset, late) = {
                let reading = states[*idx].reading;
                (reading.offset, reading.rows_late)
            };
            let labels = texts.iter().flat_map(move |text| text.labels(offset));
            labels.map(move |id| id.saturating_add_signed(late))
        });
        let labels: Vec<u32> = labels.collect();
        let parts: Vec<&[f32]> = group.iter().map(|idx| hidden[*idx].as_slice()).collect();
        let rows = parts.concat();
        let rounded = states[group[0]].reading.rounded;
        let together = losses_of_rows(ops, (model, &head), &rows, &labels, rounded, pace)?;
        let n = together.len() / group.len();
        for (nth, idx) in group.into_iter().enumerate() {
            all[idx] = together[nth * n..(nth + 1) * n].to_vec();
        }
    }
    Ok(all)
}

/// −log p of one label for each row of hidden states. // rows: [row, d_model]
fn losses_of_rows<O: Ops>(
    ops: &O,
    (model, head): (&Model, &HeadSpec),
    rows: &[f32],
    labels: &[u32],
    rounded: Option<Rounded>,
    pace: &dyn Pace,
) -> Result<Vec<f32>> {
    let mut hidden = O::Buffer::default();
    ops.put(rows, model.spec.d_model, &mut hidden)?;
    let mut scan = Scan::of_losses(labels.iter().copied());
    let take = |range: Range<usize>, logits: &[f32]| {
        match rounded {
            Some(rounded) => scan.add(&range, &rounded.logits(logits)),
            None => scan.add(&range, logits),
        }
        Ok(())
    };
    logits_in_chunks(ops, model, head, &hidden, labels.len(), pace, take)?;
    Ok(scan.losses())
}
