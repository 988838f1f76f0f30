//! Runs changed copies of one run together, each from its changed layer on, so that the weights of later layers are read once
//! for all of them.

use std::ops::Range;

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Ops, reuse_buffers};
use attnscope_compute::pace::Pace;
use attnscope_forward::recurrent::FinalStates;
use attnscope_forward::{
    BlockContext, Input, LayerWeights, Memory, Scratch, final_hidden, run_layer,
};
use attnscope_spec::{Model, Stack, StackSpec};

use super::capture::{Base, sequence_of};
use super::logit_rows::MOST_KEPT;
use super::variant::{Edits, Instead, Part, Variant};

/// Most residual rows that run through the layers together, unless a single copy has more.
const MOST_ROWS: usize = 8192;

/// Memory for the activations of one block, in values: 192 MiB.
const MOST_ACTIVATIONS: usize = 48 << 20;

/// Extra memory in bytes for changed copies of some prompts: residuals, the activations of a block, and the logits that
/// copies are compared with.
pub fn bytes_of_copies(model: &Model, inputs: &[Input], n_variants: usize) -> usize {
    let spec = &model.spec;
    let blocks = spec.stacks.iter().flat_map(StackSpec::blocks);
    let widths = blocks.map(|block| block.linears().iter().map(|map| map.n_out()).sum::<usize>());
    let width = widths.max().unwrap_or(0) + 8 * spec.d_model;
    let longest = inputs.iter().map(|input| {
        let source = input.source.as_ref().map_or(0, |source| source.len());
        input.sequence.len().max(source)
    });
    let n = longest.max().unwrap_or(0);
    let rows = (n * n_variants).min(MOST_ROWS.max(n));
    // Inputs of all layers, residuals before and after, activations, and the kept logits.
    let wide = spec.stacks.iter().map(|stack| spec.d_widest_input(stack));
    let wide = wide.max().unwrap_or(0);
    let kept = spec.n_layers_to_run() * n * wide;
    let running = (rows * width).min(MOST_ACTIVATIONS.max(n * width));
    let d_vocab = spec.head.as_ref().map_or(0, |head| head.unembed.n_out());
    let logits = (d_vocab * n).min(MOST_KEPT);
    (kept + 3 * rows * wide + running + logits) * size_of::<f32>()
}

/// A layer of a stack with its weights.
type Layer<'l, 'w, O> = (&'l StackSpec, usize, &'l LayerWeights<'w, O>);

/// A run, with everything needed to run changed copies of it.
pub struct Together<'a, O: Ops> {
    pub ops: &'a O,
    pub model: &'a Model,
    pub input: &'a Input,
    pub base: &'a Base,
    pub pace: &'a dyn Pace,
}

impl<O: Ops> Together<'_, O> {
    /// Groups of consecutive variants that run together: variants of one stack, as many as fit in memory.
    pub fn rounds(&self, variants: &[Variant]) -> Vec<Range<usize>> {
        let homes: Vec<Stack> = variants.iter().map(Variant::home).collect();
        self.rounds_of(&homes)
    }

    /// Groups of consecutive variants whose layers are in these stacks.
    pub fn rounds_of(&self, homes: &[Stack]) -> Vec<Range<usize>> {
        let n = self.model.spec.stacks.iter();
        let n = n.map(|stack| sequence_of(self.input, stack.stack).len());
        let most = (MOST_ROWS / n.max().unwrap_or(1).max(1)).max(1);
        let mut rounds: Vec<Range<usize>> = Vec::new();
        for (idx, home) in homes.iter().enumerate() {
            match rounds.last_mut() {
                Some(round) if round.len() < most && homes[round.start] == *home => {
                    round.end = idx + 1;
                }
                _ => rounds.push(idx..idx + 1),
            }
        }
        rounds
    }

    /// Runs variants of one stack, ordered by layer, and returns the last residual of each.
    /// // [variant, position, d_model]
    ///
    /// # Errors
    /// When the pace stops it, a tensor contradicts the spec, or the device fails.
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
                // The encoder was changed, so the decoder reads another encoder output in every copy.
                let before = &spec.stacks[from.unwrap_or(0)];
                memory = Some(self.ended(before, &tall)?);
                is_memory_shared = false;
                let input = self.base.input(stack.stack, 0)?;
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
                let input = self.base.input(stack.stack, layer_idx)?;
                let n_values = input.values.len().max(1);
                let before = tall.len() / n_values;
                let new = before..n_joined(layer_idx);
                tall.resize(new.end * n_values, 0.0);
                let memory = memory.as_deref().map(|memory| (memory, is_memory_shared));
                let tensors = &self.model.checkpoint.tensors;
                let weights = LayerWeights::read(self.ops, tensors, stack, layer_idx, self.pace)?;
                let layer = (stack, layer_idx, &weights);
                let (old, fresh) = tall.split_at_mut(before * n_values);
                self.layer(layer, memory, old, &mut scratch)?;
                self.join(
                    layer,
                    (&variants[new], &input.values),
                    memory,
                    fresh,
                    &mut scratch,
                )?;
            }
            if is_home {
                // Changes behind the last layer replace its output.
                let behind = variants
                    .iter()
                    .filter(|one| one.layer_idx >= stack.n_layers());
                for variant in behind {
                    if let Instead::Rows(rows) = &variant.instead {
                        tall.extend_from_slice(rows);
                    }
                }
            }
        }
        Ok(tall)
    }

    /// Number of copies that can run through a layer at a time, given the memory for their activations.
    fn at_once(&self, stack: &StackSpec, layer_idx: usize, n_rows: usize) -> usize {
        let linears = stack.blocks().get(layer_idx).map(|block| block.linears());
        let width: usize = linears.iter().flatten().map(|linear| linear.n_out()).sum();
        let width = width + 8 * self.model.spec.d_model;
        (MOST_ACTIVATIONS / (n_rows * width).max(1)).max(1)
    }

    /// Runs one layer for copies that changed in an earlier layer.
    fn layer(
        &self,
        layer: Layer<'_, '_, O>,
        memory: Option<(&[f32], bool)>,
        tall: &mut [f32],
        scratch: &mut Scratch<O>,
    ) -> Result<()> {
        let (stack, layer_idx, _) = layer;
        let n_rows = sequence_of(self.input, stack.stack).len().max(1);
        let n_values = n_rows * self.model.spec.d_input(stack, 0);
        let at_once = self.at_once(stack, layer_idx, n_rows);
        for (chunk_idx, values) in tall.chunks_mut(at_once * n_values).enumerate() {
            let mut edits = Edits {
                changes: Vec::new(),
                n_rows,
                in_cross: false,
                home: stack.stack,
                spreads: None,
            };
            let n_copies = values.len() / n_values;
            let of = (chunk_idx * at_once, n_copies);
            let from = values.to_vec();
            self.run_copies(layer, (&from, of), memory, &mut edits, values, scratch)?;
        }
        Ok(())
    }

    /// Runs the layer in which copies change. They share one computation until the changed values appear.
    fn join(
        &self,
        layer: Layer<'_, '_, O>,
        (variants, input): (&[Variant], &[f32]),
        memory: Option<(&[f32], bool)>,
        tall: &mut [f32],
        scratch: &mut Scratch<O>,
    ) -> Result<()> {
        let (stack, layer_idx, _) = layer;
        let n_rows = sequence_of(self.input, stack.stack).len().max(1);
        let n_values = input.len().max(1);
        // A change before the layer's attention also changes what its heads see.
        let is_early = |variant: &Variant| variant.part == Part::Residual;
        let at_once = self.at_once(stack, layer_idx, n_rows);
        let mut done = 0;
        while done < variants.len() {
            let is_alone = is_early(&variants[done]);
            let alike = variants[done..].iter().take(at_once);
            let n = alike.take_while(|one| is_early(one) == is_alone).count();
            let changes = variants[done..done + n].iter().enumerate();
            let mut edits = Edits {
                changes: changes.collect(),
                n_rows,
                in_cross: false,
                home: stack.stack,
                spreads: (!is_alone).then_some(n),
            };
            let from = if is_alone {
                input.repeat(n)
            } else {
                input.to_vec()
            };
            let to = &mut tall[done * n_values..(done + n) * n_values];
            let of = (done, if is_alone { n } else { 1 });
            self.run_copies(layer, (&from, of), memory, &mut edits, to, scratch)?;
            done += n;
        }
        Ok(())
    }

    /// Runs some copies through a layer: `n_copies` of them from `first` on.
    fn run_copies(
        &self,
        (stack, layer_idx, weights): Layer<'_, '_, O>,
        (from, (first, n_copies)): (&[f32], (usize, usize)),
        memory: Option<(&[f32], bool)>,
        edits: &mut Edits<'_>,
        to: &mut [f32],
        scratch: &mut Scratch<O>,
    ) -> Result<()> {
        let (ops, d_memory) = (self.ops, self.model.spec.d_memory());
        let sequence = sequence_of(self.input, stack.stack);
        let source = self.input.source.as_ref();
        let n_source = source.map_or(0, |source| source.len()) * d_memory;
        let (none, mut hidden) = (FinalStates::default(), O::Buffer::default());
        if let Some((memory, is_shared)) = memory {
            let rows = if is_shared {
                memory
            } else {
                &memory[first * n_source..][..n_copies * n_source]
            };
            ops.put(rows, d_memory, &mut hidden)?;
        }
        let memory = source.filter(|_| stack.stack == Stack::Decoder);
        let memory = memory.map(|sequence| Memory {
            hidden: &hidden,
            sequence,
            ends: &none,
        });
        let tensors = &self.model.checkpoint.tensors;
        let context = BlockContext::of(ops, tensors, stack, sequence, memory, self.pace)?
            .with_copies(n_copies);
        let mut resid = O::Buffer::default();
        ops.put(from, self.model.spec.d_input(stack, 0), &mut resid)?;
        run_layer(
            &context, stack, layer_idx, weights, &mut resid, scratch, edits,
        )?;
        to.copy_from_slice(&ops.get(&resid)?.values);
        Ok(())
    }

    /// Applies a stack's final norm to its residuals.
    fn ended(&self, stack: &StackSpec, tall: &[f32]) -> Result<Vec<f32>> {
        let (mut resid, mut hidden) = (O::Buffer::default(), O::Buffer::default());
        self.ops
            .put(tall, self.model.spec.d_input(stack, 0), &mut resid)?;
        final_hidden(self.ops, self.model, stack, &resid, &mut hidden)?;
        Ok(self.ops.get(&hidden)?.values.into_owned())
    }
}
