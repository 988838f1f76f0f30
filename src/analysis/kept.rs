//! Inputs of layers, kept up to a memory budget so that a head can be run again without running the model again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Every how many layers an input is kept, and those that were.
#[derive(Debug, Default)]
pub struct Kept {
    stride: usize,
    /// By layer. // [position, d_model]
    inputs: Mutex<BTreeMap<usize, Arc<Vec<f32>>>>,
}

impl Kept {
    /// Plans what to keep of `n_layers` inputs of `n_values` values each within `budget` bytes.
    ///
    /// Layer 0 is always kept: it is where everything can be recomputed from.
    pub fn plan(n_layers: usize, n_values: usize, budget: usize) -> Self {
        let n_fit = (budget / (n_values.max(1) * size_of::<f32>())).max(1);
        Self {
            stride: n_layers.div_ceil(n_fit).max(1),
            inputs: Mutex::default(),
        }
    }

    /// Whether a layer's input is to be kept.
    pub fn wants(&self, layer_idx: usize) -> bool {
        layer_idx.is_multiple_of(self.stride)
    }

    pub fn put(&self, layer_idx: usize, input: Vec<f32>) {
        self.lock().insert(layer_idx, Arc::new(input));
    }

    /// The nearest kept input at or before a layer, and which layer's it is.
    pub fn nearest(&self, layer_idx: usize) -> Option<(usize, Arc<Vec<f32>>)> {
        self.lock()
            .range(..=layer_idx)
            .next_back()
            .map(|(idx, input)| (*idx, input.clone()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Arc<Vec<f32>>>> {
        // A panic elsewhere cannot leave a map of finished values half-written.
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_for_all_keeps_all_and_a_small_one_keeps_every_few() {
        let all = Kept::plan(12, 100, 12 * 400);
        assert!((0..12).all(|layer_idx| all.wants(layer_idx)));
        let few = Kept::plan(12, 100, 3 * 400);
        let kept: Vec<usize> = (0..12).filter(|layer_idx| few.wants(*layer_idx)).collect();
        assert_eq!(kept, [0, 4, 8]);
        assert!(
            Kept::plan(12, 100, 0).wants(0),
            "layer 0 is kept whatever the budget"
        );
    }

    #[test]
    fn the_nearest_input_is_at_or_before_the_layer() {
        let kept = Kept::plan(12, 1, 3 * 4);
        kept.put(0, vec![0.0]);
        kept.put(4, vec![4.0]);
        assert_eq!(kept.nearest(3).map(|(idx, _)| idx), Some(0));
        assert_eq!(kept.nearest(7).map(|(idx, _)| idx), Some(4));
        assert!(Kept::default().nearest(0).is_none());
    }
}
