//! Changed copies of one run, each from the layer that changes on: they pass the later layers together, so that weights are read
//! once for all of them.

use std::ops::Range;

use super::capture::{Base, sequence_of};
use super::variant::{Edits, Variant};
use crate::error::{Error, Result};
use crate::model::recurrent::Ends;
use crate::model::{
    BlockContext, Hook, Input, LayerWeights, Memory, Model, Scratch, Stack, StackSpec,
    final_hidden, run_layer,
};
use crate::ops::{Ops, reuse_buffers};
use crate::pace::Pace;

/// Rows of residuals that go through the layers at the same time, at most, where one copy has not more by itself.
const MOST_ROWS: usize = 8192;
/// Memory for the activations of one block, in values: 192 MiB.
const MOST_ACTIVATIONS: usize = 48 << 20;

/// Whether a variant changes in the layer that runs.
type Changing<'a> = &'a dyn Fn(&Variant) -> bool;

/// A run, and what it takes to run changed copies of it.
pub struct Together<'a, O: Ops> {
    pub ops: &'a O,
    pub model: &'a Model,
    pub input: &'a Input,
    pub base: &'a Base,
    pub pace: &'a dyn Pace,
}

impl<O: Ops> Together<'_, O> {
    /// Which variants run together, in order: those of one stack, as many as have room.
    pub fn rounds(&self, variants: &[Variant]) -> Vec<Range<usize>> {
        let n = self.model.spec.stacks.iter();
        let n = n.map(|stack| sequence_of(self.input, stack.stack).len());
        let most = (MOST_ROWS / n.max().unwrap_or(1).max(1)).max(1);
        let mut rounds: Vec<Range<usize>> = Vec::new();
        for (idx, variant) in variants.iter().enumerate() {
            match rounds.last_mut() {
                Some(round)
                    if round.len() < most && variants[round.start].home() == variant.home() =>
                {
                    round.end = idx + 1;
                }
                _ => rounds.push(idx..idx + 1),
            }
        }
        rounds
    }

    /// Runs variants of one stack, in the order of their layers, and gives the last residual of each.
    /// // [variant, position, d_model]
    ///
    /// # Errors
    /// When the pace stops it, a tensor is not as the spec says, or the device fails.
    pub fn run(&self, variants: &[Variant]) -> Result<Vec<f32>> {
        let spec = &self.model.spec;
        let Some(first) = variants.first() else {
            return Ok(Vec::new());
        };
        let home = first.home();
        let from = spec.stacks.iter().position(|stack| stack.stack == home);
        let mut tall: Vec<f32> = Vec::new(); // [variant that has joined, position, d_model]
        let mut memory = self.base.memory.clone();
        let mut is_memory_shared = true;
        let mut scratch = Scratch::<O>::default();
        for stack in &spec.stacks[from.unwrap_or(0)..] {
            let is_home = stack.stack == home;
            if !is_home {
                // A changed encoder: the decoder reads another memory in every copy.
                let before = &spec.stacks[from.unwrap_or(0)];
                memory = Some(self.ended(before, &tall)?);
                is_memory_shared = false;
                let input = self.base.of(stack.stack, 0, Hook::ResidPre)?;
                tall = input.values.repeat(variants.len());
            }
            let n_joined = |layer_idx: usize| {
                let all = variants.iter();
                all.filter(|variant| !is_home || variant.layer_idx <= layer_idx)
                    .count()
            };
            let _reuse = reuse_buffers();
            let start = if is_home { first.layer_idx } else { 0 };
            for layer_idx in start..stack.n_layers() {
                if self.pace.stops() {
                    return Err(Error::Cancelled);
                }
                let input = self.base.of(stack.stack, layer_idx, Hook::ResidPre)?;
                let n_values = input.values.len().max(1);
                for _ in tall.len() / n_values..n_joined(layer_idx) {
                    tall.extend_from_slice(&input.values);
                }
                let changing = |variant: &Variant| is_home && variant.layer_idx == layer_idx;
                let memory = memory.as_deref().map(|memory| (memory, is_memory_shared));
                let joined = &variants[..tall.len() / n_values];
                self.layer(
                    (stack, layer_idx),
                    (joined, &changing),
                    memory,
                    &mut tall,
                    &mut scratch,
                )?;
            }
        }
        Ok(tall)
    }

    /// One layer for all copies that have joined, as many at a time as there is memory for their activations.
    fn layer(
        &self,
        (stack, layer_idx): (&StackSpec, usize),
        (variants, changing): (&[Variant], Changing<'_>),
        memory: Option<(&[f32], bool)>,
        tall: &mut [f32],
        scratch: &mut Scratch<O>,
    ) -> Result<()> {
        let (ops, model) = (self.ops, self.model);
        let tensors = &model.checkpoint.tensors;
        let sequence = sequence_of(self.input, stack.stack);
        let weights = LayerWeights::read(ops, tensors, stack, layer_idx, self.pace)?;
        let d_model = model.spec.d_model;
        let linears = stack.blocks().get(layer_idx).map(|block| block.linears());
        let width: usize = linears.iter().flatten().map(|linear| linear.n_out()).sum();
        let n_rows = sequence.len().max(1);
        let at_once = MOST_ACTIVATIONS / (n_rows * (width + 8 * d_model)).max(1);
        let at_once = at_once.clamp(1, variants.len().max(1));
        let source = self.input.source.as_ref();
        let n_source = source.map_or(0, |source| source.len()) * d_model;
        let none = Ends::default();
        let mut resid = O::Buffer::default();
        for (chunk_idx, chunk) in variants.chunks(at_once).enumerate() {
            let first = chunk_idx * at_once;
            let mut hidden = O::Buffer::default();
            if let Some((memory, is_shared)) = memory {
                let rows = if is_shared {
                    memory
                } else {
                    &memory[first * n_source..][..chunk.len() * n_source]
                };
                ops.put(rows, d_model, &mut hidden)?;
            }
            let memory = source.filter(|_| stack.stack == Stack::Decoder);
            let memory = memory.map(|sequence| Memory {
                hidden: &hidden,
                sequence,
                ends: &none,
            });
            let context = BlockContext::of(ops, tensors, stack, sequence, memory, self.pace)?
                .with_copies(chunk.len());
            let changes = chunk.iter().enumerate();
            let mut edits = Edits {
                changes: changes.filter(|(_, variant)| changing(variant)).collect(),
                n_rows: sequence.len(),
                in_cross: false,
                home: stack.stack,
            };
            let n_values = sequence.len() * d_model;
            let values = &mut tall[first * n_values..][..chunk.len() * n_values];
            ops.put(values, d_model, &mut resid)?;
            run_layer(
                &context, stack, layer_idx, &weights, &mut resid, scratch, &mut edits,
            )?;
            values.copy_from_slice(&ops.get(&resid)?.values);
        }
        Ok(())
    }

    /// The residuals of a stack behind its final norm.
    fn ended(&self, stack: &StackSpec, tall: &[f32]) -> Result<Vec<f32>> {
        let (mut resid, mut hidden) = (O::Buffer::default(), O::Buffer::default());
        self.ops.put(tall, self.model.spec.d_model, &mut resid)?;
        final_hidden(self.ops, self.model, stack, &resid, &mut hidden)?;
        Ok(self.ops.get(&hidden)?.values.into_owned())
    }
}
