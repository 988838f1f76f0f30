//! A model that reads tokens with a KV cache, so that each new token costs one row per layer.

use std::ops::Range;

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Ops, reuse_buffers};
use attnscope_compute::pace::Pace;
use attnscope_forward::recurrent::FinalStates;
use attnscope_forward::{
    BlockContext, BlockPast, HeldBytes, Input, LayerRun, LayerWeights, Memory, NoHooks, Recomputed,
    Scratch, Sequence, Unembedding, embed, final_hidden, run_layer, unembedding_for_few_rows,
};
use attnscope_spec::{Model, StackSpec};

use super::super::tap::Tap;
use super::super::watch::Watch;

/// Most new rows for which held weights, laid out for few rows, are worth using.
const FEW: usize = 8;

/// Reads tokens and keeps their keys and values.
pub struct Writer<'a, O: Ops> {
    ops: &'a O,
    model: &'a Model,
    pace: &'a dyn Pace,
    /// Limit in bytes for weights, and for packed keys and values, that are held between tokens.
    weight_bytes: usize,
    weights: Vec<LayerWeights<'a, O>>,
    unembedding: Vec<(Range<usize>, O::Linear<'a>)>,
    past: Past<O>,
    scratch: Scratch<O>,
    /// Last hidden state of the last token. // [1, d_model]
    last: O::Buffer,
    n_rows_run: usize,
    recomputed: Option<Recomputed>,
}

/// KV cache of the tokens that a model has read. It outlives the writer, so that a text whose end was edited need not be read
/// again from its beginning.
pub struct Past<O: Ops> {
    sequence: Sequence,
    source: Option<Sequence>,
    /// Output of the encoder. // [source position, d_model]
    memory: O::Buffer,
    ends: FinalStates,
    blocks: Vec<BlockPast<O>>,
}

impl<O: Ops> Default for Past<O> {
    fn default() -> Self {
        Self {
            sequence: Sequence::default(),
            source: None,
            memory: O::Buffer::default(),
            ends: FinalStates::default(),
            blocks: Vec::new(),
        }
    }
}

/// Memory that a writer holds, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriterMemory {
    pub keys_and_values: usize,
    /// A second copy of keys and values, as attention packs them.
    pub packed: usize,
    /// Weights held between tokens, as f32.
    pub weights: usize,
}

impl WriterMemory {
    /// Memory that a writer will hold after reading `n_tokens` tokens.
    pub fn of(model: &Model, n_tokens: usize, n_source: usize) -> Self {
        const VALUE: usize = size_of::<f32>();
        let stack = model.spec.main_stack();
        let of_attention = |spec: &attnscope_compute::attention::AttentionSpec, n: usize| {
            // Keys, values, and the norm of each head's output for a key.
            n * (spec.n_kv_heads * (spec.d_head + spec.d_value) + spec.n_heads) * VALUE
        };
        let of_packing = |spec: &attnscope_compute::attention::AttentionSpec, n: usize| {
            n * spec.n_kv_heads * (spec.d_head + spec.d_value) * VALUE
        };
        let packed = stack.blocks().iter().map(|block| {
            let own = block.attention().map_or(0, |own| of_packing(own, n_tokens));
            let cross = block.cross.as_ref();
            own + cross.map_or(0, |cross| of_packing(&cross.attention, n_source))
        });
        let kept = stack.blocks().iter().map(|block| {
            let own = block
                .attention()
                .map_or(0, |own| of_attention(own, n_tokens));
            let cross = block.cross.as_ref();
            let cross = cross.map_or(0, |cross| of_attention(&cross.attention, n_source));
            let indexer = block.own().and_then(|own| own.projections.indexer.as_ref());
            let index = indexer.map_or(0, |indexer| n_tokens * indexer.d_key() * VALUE);
            let mixer = block.other_mixer();
            let mixed = mixer.map_or(0, |mixer| mixer.n_kept(n_tokens));
            let of_keys = block
                .own()
                .and_then(|own| own.projections.kv_convolutions.as_ref());
            let convolutions = of_keys.into_iter().chain(&block.convolutions);
            let convolutions = convolutions.flat_map(|both| both.iter());
            let convolved: usize = convolutions.map(|of| of.convolution.n_kept()).sum();
            own + index + cross + (mixed + convolved) * VALUE
        });
        let head = model.spec.head.as_ref();
        let unembed = head.map(|head| &head.unembed);
        // Experts are read when a token selects them.
        let linears = stack.blocks().iter().flat_map(|block| block.linears());
        let weights = linears.chain(unembed);
        Self {
            keys_and_values: kept.sum(),
            packed: packed.sum(),
            weights: weights
                .map(|linear| linear.n_in * linear.n_out().next_multiple_of(64) * VALUE)
                .sum(),
        }
    }
}

impl<'a, O: Ops> Writer<'a, O> {
    /// A writer that has not read anything. Weights are held between tokens if they fit in `weight_bytes`, and packed keys and
    /// values if both fit; otherwise they are read or packed again for each token.
    pub fn new(ops: &'a O, model: &'a Model, weight_bytes: usize, pace: &'a dyn Pace) -> Self {
        Self {
            ops,
            model,
            pace,
            weight_bytes,
            weights: Vec::new(),
            unembedding: Vec::new(),
            past: Past::default(),
            scratch: Scratch::default(),
            last: O::Buffer::default(),
            n_rows_run: 0,
            recomputed: None,
        }
    }

    /// Continues from the KV cache of earlier reading by the same model.
    #[must_use]
    pub fn with_past(self, past: Past<O>) -> Self {
        Self { past, ..self }
    }

    /// Returns its KV cache.
    pub fn into_past(self) -> Past<O> {
        self.past
    }

    /// Number of decoder rows run so far: one more with every token, unless tokens were recomputed.
    pub fn n_rows_run(&self) -> usize {
        self.n_rows_run
    }

    /// Why all tokens were recomputed with the last one, if they were.
    pub fn recomputed(&self) -> Option<Recomputed> {
        self.recomputed
    }

    /// Memory that it holds now.
    ///
    /// # Errors
    /// When the device fails.
    pub fn memory(&self) -> Result<WriterMemory> {
        let kept = self.past.blocks.iter().map(|block| block.n_bytes(self.ops));
        let kept = kept.collect::<Result<Vec<HeldBytes>>>()?;
        let all = WriterMemory::of(self.model, 0, 0);
        Ok(WriterMemory {
            keys_and_values: kept.iter().map(|held| held.values).sum(),
            packed: kept.iter().map(|held| held.packed).sum(),
            weights: if self.weights.is_empty() {
                0
            } else {
                all.weights
            },
        })
    }

    /// Reads an input, except for a beginning that was already read. The last token always runs.
    ///
    /// Returns the attention results of the rows that ran, layer by layer; `tap` receives their values.
    ///
    /// # Errors
    /// When the pace stops it, a tensor contradicts the spec, the device fails, or the tap cannot store a value.
    pub fn read(&mut self, input: &Input, tap: Option<&mut dyn Tap>) -> Result<Vec<LayerRun>> {
        self.encode(input)?;
        let n_past = self.n_still_true(&input.sequence)?;
        // A layer that fails loses its part of the cache, so keep the cache only if all layers succeed.
        let mut past = std::mem::take(&mut self.past);
        let told = self.decode(&input.sequence, n_past, &mut past, tap)?;
        past.sequence.clone_from(&input.sequence);
        self.n_rows_run += input.sequence.len() - n_past;
        self.past = past;
        Ok(told)
    }

    /// Runs the encoder, unless it already ran on this source.
    fn encode(&mut self, input: &Input) -> Result<()> {
        if self.past.source == input.source && !self.past.blocks.is_empty() {
            return Ok(());
        }
        let stack = &self.model.spec.stacks[0];
        self.past = Past::default();
        if let Some(source) = &input.source {
            let (resid, ends) = self.encoder(stack, source)?;
            final_hidden(self.ops, self.model, stack, &resid, &mut self.past.memory)?; // [source position, d_model]
            self.past.ends = ends;
            self.past.source = Some(source.clone());
        }
        let blocks = self.model.spec.main_stack().blocks();
        self.past.blocks = blocks.iter().map(BlockPast::new).collect();
        Ok(())
    }

    fn encoder(&self, stack: &StackSpec, source: &Sequence) -> Result<(O::Buffer, FinalStates)> {
        let (ops, tensors) = (self.ops, &self.model.checkpoint.tensors);
        let (mut resid, mut spare) = (O::Buffer::default(), O::Buffer::default());
        embed(ops, self.model, stack, source, &mut spare, &mut resid)?;
        let context = BlockContext::of(ops, tensors, stack, source, None, self.pace)?;
        let mut scratch = Scratch::<O>::default();
        let _reuse = reuse_buffers();
        let mut ends = FinalStates::default();
        for layer_idx in 0..stack.n_layers() {
            let weights = LayerWeights::read(ops, tensors, stack, layer_idx, self.pace)?;
            let at = (stack, layer_idx);
            let ran = run_layer(
                &context,
                at.0,
                at.1,
                &weights,
                &mut resid,
                &mut scratch,
                &mut NoHooks,
            )?;
            ends = ran.ends;
        }
        Ok((resid, ends))
    }

    /// Number of cached tokens that also begin `sequence` and can stay in the cache.
    fn n_still_true(&mut self, sequence: &Sequence) -> Result<usize> {
        let stack = self.model.spec.main_stack();
        let was = &self.past.sequence;
        let n_was = was.len();
        let (n_reusable, reason) = Recomputed::n_reusable(stack, was, sequence);
        self.recomputed = reason.filter(|_| n_was > 0);
        let mut n_past = n_reusable.min(sequence.len().saturating_sub(1));
        if n_past > 0 && n_past < n_was {
            for block in &mut self.past.blocks {
                if !block.shorten(self.ops, n_past)? {
                    n_past = 0;
                    break;
                }
            }
        }
        if n_past == 0 {
            self.past.blocks = stack.blocks().iter().map(BlockPast::new).collect();
        }
        Ok(n_past)
    }

    /// Runs the tokens after the first `n_past` through the decoder or the only stack.
    fn decode(
        &mut self,
        sequence: &Sequence,
        n_past: usize,
        past: &mut Past<O>,
        mut tap: Option<&mut dyn Tap>,
    ) -> Result<Vec<LayerRun>> {
        let (ops, model, pace) = (self.ops, self.model, self.pace);
        let (stack, tensors) = (model.spec.main_stack(), &model.checkpoint.tensors);
        let n_new = sequence.len() - n_past;
        let new = sequence.part(n_past..sequence.len());
        let (mut resid, mut spare) = (O::Buffer::default(), O::Buffer::default());
        embed(ops, model, stack, &new, &mut spare, &mut resid)?;
        let encoder = &model.spec.stacks[0];
        let encoded = past.source.as_ref().map(|source| source.of_output(encoder));
        let n_source = encoded.as_ref().map_or(0, |encoded| encoded.len());
        let memory = encoded.as_deref().map(|sequence| Memory {
            hidden: &past.memory,
            sequence,
            ends: &past.ends,
        });
        let context = BlockContext::of(ops, tensors, stack, sequence, memory, pace)?.after(n_past);
        let keeps = Recomputed::of(stack).is_none();
        let holds = n_past > 0 && n_new <= FEW && self.holds_weights()?;
        let needs = WriterMemory::of(model, sequence.len(), n_source);
        let packs = needs.weights.saturating_add(needs.packed) <= self.weight_bytes;
        past.blocks.iter_mut().for_each(|block| block.packs(packs));
        let reuse = reuse_buffers();
        let mut told = Vec::with_capacity(stack.n_layers());
        for layer_idx in 0..stack.n_layers() {
            if pace.stops() {
                return Err(Error::Cancelled);
            }
            let read;
            let weights = if holds {
                &self.weights[layer_idx]
            } else {
                read = LayerWeights::read(ops, tensors, stack, layer_idx, pace)?;
                &read
            };
            if let Some(block) = past.blocks.get_mut(layer_idx).filter(|_| keeps) {
                block.lend(&mut self.scratch);
            }
            let scratch = &mut self.scratch;
            let mut run = |hooks: &mut dyn attnscope_forward::Hooks| {
                run_layer(
                    &context, stack, layer_idx, weights, &mut resid, scratch, hooks,
                )
            };
            let ran = match &mut tap {
                None => run(&mut NoHooks)?,
                Some(tap) => {
                    let at = (stack.stack, layer_idx);
                    let mut watch = Watch::new(at, (false, false), false, Some(&mut **tap), &new);
                    let ran = run(&mut watch)?;
                    tap.end_of_layer()?;
                    ran
                }
            };
            if let Some(block) = past.blocks.get_mut(layer_idx).filter(|_| keeps) {
                block.take_back(&mut self.scratch);
            }
            told.push(ran);
        }
        drop(reuse);
        let mut hidden = O::Buffer::default();
        final_hidden(ops, model, stack, &resid, &mut hidden)?; // [position, d_model]
        ops.gather_rows(&hidden, &[n_new - 1], &mut self.last)?; // [1, d_model]
        Ok(told)
    }

    /// Whether weights are held between tokens; reads them at the first call.
    fn holds_weights(&mut self) -> Result<bool> {
        if !self.weights.is_empty() {
            return Ok(true);
        }
        if WriterMemory::of(self.model, 0, 0).weights > self.weight_bytes {
            return Ok(false);
        }
        let (ops, tensors) = (self.ops, &self.model.checkpoint.tensors);
        let stack = self.model.spec.main_stack();
        let _reuse = reuse_buffers();
        for layer_idx in 0..stack.n_layers() {
            let read = LayerWeights::read_for_few_rows(ops, tensors, stack, layer_idx, self.pace);
            match read {
                Ok(weights) => self.weights.push(weights),
                Err(error) => {
                    self.weights.clear();
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// Logits after the last token that was read. // [d_vocab]
    ///
    /// # Errors
    /// When the model has no LM head, a tensor contradicts the spec, the device fails, or the pace stops it.
    pub fn logits(&mut self) -> Result<Vec<f32>> {
        let (ops, model) = (self.ops, self.model);
        let Some(head) = &model.spec.head else {
            return Err(super::no_head(&model.spec));
        };
        let mut unembedding = Unembedding::new(ops, model, head, &self.last, 1, self.pace)?;
        let ranges: Vec<Range<usize>> = unembedding.ranges().collect();
        let mut all = Vec::with_capacity(head.unembed.n_out());
        if self.weights.is_empty() {
            for range in ranges {
                all.extend_from_slice(&unembedding.logits(range)?);
            }
            return Ok(all);
        }
        if self.unembedding.is_empty() {
            let pace = self.pace;
            let _reuse = reuse_buffers();
            let read = ranges.into_iter().map(|range| {
                let weights = unembedding_for_few_rows(ops, model, head, range.clone(), pace)?;
                Ok((range, weights))
            });
            self.unembedding = read.collect::<Result<Vec<_>>>()?;
        }
        let mut to = O::Buffer::default();
        for (range, weights) in &self.unembedding {
            all.extend_from_slice(&unembedding.logits_of(weights, range.clone(), &mut to)?);
        }
        Ok(all)
    }
}
