//! Reruns a layer of a model in isolation on the recorded input.

use attnscope_compute::attention::BlockSink;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_forward::{Hook, Hooks, LayerWeights, Scratch};
use attnscope_run::Pass;
use attnscope_spec::{Stack, StackSpec};

use super::alone::Beyond;
use super::exchange::is_value;
use super::floors::Floors;
use super::model_and_recording::ModelAndRecording;
use super::recording::Form;

/// Hooks that compare a layer, run on the recorded input, with the recording.
struct FromRecorded<'a> {
    of: ModelAndRecording<'a>,
    layer_idx: usize,
    stack: Stack,
    home: Stack,
    beyond: Beyond,
    tolerance: f64,
}

impl Hooks for FromRecorded<'_> {
    fn wants(&self, hook: Hook) -> bool {
        // Rounding moves z further than the values it is computed from.
        is_value(hook) && hook != Hook::Z
    }

    fn values(&mut self, hook: Hook, values: &[f32], width: usize) -> Result<()> {
        let at = (self.stack, self.layer_idx, hook);
        if let Some(gap) = self.of.gap(at, values, width)? {
            self.beyond
                .take(hook, gap.total().relative(), self.tolerance);
        }
        if self.stack == Stack::Cross && hook == Hook::ResidPost {
            self.stack = self.home;
        }
        Ok(())
    }

    fn blocks(&self) -> Option<&dyn BlockSink> {
        None
    }

    fn cross(&mut self) -> Option<&mut dyn Hooks> {
        self.stack = Stack::Cross;
        Some(self)
    }

    fn back(&mut self) {
        self.stack = self.home;
    }
}

/// Runs a layer of the model on its recorded input and returns the largest relative difference from its recorded values.
pub(super) fn alone<O: Ops>(
    ops: &O,
    of: ModelAndRecording<'_>,
    (stack, layer_idx): (&StackSpec, usize),
    (pass, weights): (&Pass<'_, O>, &LayerWeights<'_, O>),
    scratch: &mut Scratch<O>,
    floors: &Floors,
) -> Result<f64> {
    let width = of.model.spec.d_input(stack, layer_idx);
    // Recordings have only the residual, not the other contents of such rows.
    if stack.rows.is_some() {
        return Ok(0.0);
    }
    let (queries, _) = of.sequences((stack.stack, layer_idx));
    let form = Form::Vectors {
        n_heads: None,
        n_positions: queries.len(),
        width,
    };
    let read = |layer_idx: usize, hook| {
        let place = (Some(stack.stack), Some(layer_idx), hook);
        // A layer cannot run on rows with gaps.
        if of.recording.slack(place, form)?.is_some() {
            return Ok(None);
        }
        of.recording.values(place, form)
    };
    let mut input = read(layer_idx, Hook::ResidPre)?;
    if input.is_none()
        && let Some(before) = layer_idx.checked_sub(1)
        // What the last layer of a stage gives is merged before the next layer reads it.
        && stack
            .blocks()
            .get(before)
            .is_none_or(|block| block.merge.is_none() && block.joined.is_none())
    {
        input = read(before, Hook::ResidPost)?;
    }
    let Some(input) = input else {
        return Ok(0.0);
    };
    let mut resid = O::Buffer::default();
    ops.put(&input, width, &mut resid)?; // [position, d_model]
    let mut hooks = FromRecorded {
        of,
        layer_idx,
        stack: stack.stack,
        home: stack.stack,
        beyond: Beyond::default(),
        tolerance: floors.of_hooks,
    };
    pass.block_again(
        (stack, layer_idx),
        weights,
        &mut resid,
        scratch,
        &mut hooks,
        (None, None),
    )?;
    Ok(hooks.beyond.largest())
}
