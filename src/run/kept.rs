//! Layer values kept within a memory budget: layer inputs, so that a head can be recomputed without running the whole model,
//! and outputs of feed-forward blocks, so that an edited text need not be run from its beginning.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use attnscope_forward::recurrent::FinalStates;
use attnscope_spec::Stack;

/// A layer by its stack and its index in the stack.
pub type LayerAt = (Stack, usize);

/// Kept layer inputs and feed-forward outputs of a run.
#[derive(Debug, Default)]
pub struct Kept {
    stride: usize,
    /// By layer. // [position, width of the layer's input]
    inputs: Mutex<BTreeMap<LayerAt, Arc<Vec<f32>>>>,
    /// Number of leading layers of the main stack whose feed-forward output is kept.
    n_added: usize,
    /// By layer of the main stack. // [position, d_model]
    added: Mutex<BTreeMap<usize, Arc<Vec<f32>>>>,
    memory: OnceLock<Encoded>,
}

/// Encoder results that a decoder needs.
#[derive(Debug)]
pub struct Encoded {
    /// [source position, d_model]
    pub hidden: Vec<f32>,
    /// Final states of a recurrent encoder.
    pub ends: FinalStates,
}

impl Kept {
    /// Plans what to keep within `budget` bytes; stacks as (stack, layers, values of one input).
    ///
    /// Layer 0 of each stack is always kept, because everything can be recomputed from it.
    pub fn plan(stacks: Vec<(Stack, usize, usize)>, budget: usize) -> Self {
        let bytes_at = |stride: usize| -> usize {
            let kept = stacks.iter().map(|(_, n_layers, n_values)| {
                n_layers.div_ceil(stride) * n_values * size_of::<f32>()
            });
            kept.sum()
        };
        let n_layers = stacks.iter().map(|(_, n, _)| *n).max().unwrap_or(1).max(1);
        let stride = (1..=n_layers).find(|stride| bytes_at(*stride) <= budget);
        Self {
            stride: stride.unwrap_or(n_layers),
            ..Self::default()
        }
    }

    /// Plans to keep feed-forward outputs of the main stack, from the first layer on, within a separate budget of bytes.
    #[must_use]
    pub fn with_added(self, n_layers: usize, n_values: usize, budget: usize) -> Self {
        let n_fit = budget / (n_values * size_of::<f32>()).max(1);
        Self {
            n_added: n_fit.min(n_layers),
            ..self
        }
    }

    /// Whether to keep the output of a layer's feed-forward block.
    pub fn wants_added(&self, layer_idx: usize) -> bool {
        layer_idx < self.n_added
    }

    pub fn put_added(&self, layer_idx: usize, added: Vec<f32>) {
        let mut all = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(layer_idx, Arc::new(added));
    }

    /// Output of the feed-forward block of a layer in the main stack, if kept. // [position, d_model]
    pub fn added(&self, layer_idx: usize) -> Option<Arc<Vec<f32>>> {
        let all = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&layer_idx).cloned()
    }

    /// Whether to keep a layer's input.
    pub fn wants(&self, (_, layer_idx): LayerAt) -> bool {
        layer_idx.is_multiple_of(self.stride)
    }

    pub fn put(&self, at: LayerAt, input: Vec<f32>) {
        self.lock().insert(at, Arc::new(input));
    }

    /// Nearest kept input at or before a layer of the same stack, and the index of its layer.
    pub fn nearest(&self, (stack, layer_idx): LayerAt) -> Option<(usize, Arc<Vec<f32>>)> {
        self.lock()
            .range((stack, 0)..=(stack, layer_idx))
            .next_back()
            .map(|((_, idx), input)| (*idx, input.clone()))
    }

    /// Copies what another run kept for the layers of a stack before `before`.
    pub fn share(&self, other: &Self, stack: Stack, before: usize) {
        let shared: Vec<_> = {
            let theirs = other.lock();
            let here = theirs.range((stack, 0)..(stack, before));
            here.map(|(at, input)| (*at, input.clone())).collect()
        };
        self.lock().extend(shared);
    }

    /// Bytes that are kept.
    pub fn n_bytes(&self) -> usize {
        let of = |all: &mut dyn Iterator<Item = usize>| all.sum::<usize>() * size_of::<f32>();
        let inputs = of(&mut self.lock().values().map(|values| values.len()));
        let added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        let added = of(&mut added.values().map(|values| values.len()));
        let memory = self.memory.get().map_or(0, |memory| memory.hidden.len());
        inputs + added + memory * size_of::<f32>()
    }

    pub fn put_memory(&self, hidden: Vec<f32>, ends: FinalStates) {
        // A run has one encoder, so an existing value is the same.
        let _ = self.memory.set(Encoded { hidden, ends });
    }

    pub fn memory(&self) -> Option<&Encoded> {
        self.memory.get()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<LayerAt, Arc<Vec<f32>>>> {
        // A panic elsewhere cannot leave this map half-written: its values are complete when inserted.
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_layers(kept: &Kept, n_layers: usize) -> Vec<usize> {
        let wanted = |layer_idx: &usize| kept.wants((Stack::Only, *layer_idx));
        (0..n_layers).filter(wanted).collect()
    }

    #[test]
    fn a_large_budget_keeps_every_layer_and_a_small_one_every_nth() {
        let of = |budget| Kept::plan(vec![(Stack::Only, 12, 100)], budget);
        assert_eq!(kept_layers(&of(12 * 400), 12).len(), 12);
        assert_eq!(kept_layers(&of(3 * 400), 12), [0, 4, 8]);
        assert_eq!(kept_layers(&of(0), 12), [0], "the first is always kept");
        let both = vec![(Stack::Encoder, 6, 100), (Stack::Decoder, 6, 100)];
        assert_eq!(kept_layers(&Kept::plan(both, 6 * 400), 6), [0, 2, 4]);
    }

    #[test]
    fn the_nearest_input_is_the_last_kept_one_of_the_same_stack() {
        let kept = Kept::plan(vec![(Stack::Encoder, 4, 1), (Stack::Decoder, 4, 1)], 16);
        kept.put((Stack::Encoder, 0), vec![1.0]);
        kept.put((Stack::Encoder, 2), vec![2.0]);
        kept.put((Stack::Decoder, 0), vec![3.0]);
        let nearest = |at| kept.nearest(at).map(|(idx, input)| (idx, input[0]));
        assert_eq!(nearest((Stack::Encoder, 3)), Some((2, 2.0)));
        assert_eq!(nearest((Stack::Decoder, 3)), Some((0, 3.0)));
        assert_eq!(nearest((Stack::Only, 3)), None);
    }
}
