//! Takes values out of a run as they pass: for traces.

use std::ops::Range;

use attnscope_compute::attention::{BlockSink, GlobalKeys};
use attnscope_compute::error::Result;
use attnscope_forward::Hook;
use attnscope_spec::Stack;

/// Receives what it wants of a run, layer by layer. What it does not say otherwise it lets pass.
pub trait Tap {
    fn wants(&self, stack: Stack, layer_idx: usize, hook: Hook) -> bool;

    /// One value of a block. // values: [position, width]
    ///
    /// # Errors
    /// When it cannot be kept; stops the run.
    fn values(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        hook: Hook,
        values: &[f32],
        width: usize,
    ) -> Result<()>;

    /// Receives scores and pattern of a layer's heads, when they are wanted.
    fn blocks(&self, _stack: Stack, _layer_idx: usize) -> Option<&dyn BlockSink> {
        None
    }

    /// Whether what branches give is wanted before the norms on it.
    fn wants_raw(&self) -> bool {
        false
    }

    /// What a branch gives before the norm on it; the hook is `AttnOut` or `MlpOut`. // values: [position, width]
    ///
    /// # Errors
    /// When it cannot be kept; stops the run.
    fn raw(&mut self, _: Stack, _: usize, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    /// Whether whole rows are wanted, where they hold more than the residual.
    fn wants_rows(&self) -> bool {
        false
    }

    /// Rows that hold more than the residual; the hook is `ResidPre` or `ResidPost`, and comes before. // values: [position, width]
    ///
    /// # Errors
    /// When they cannot be kept; stops the run.
    fn rows(&mut self, _: Stack, _: usize, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    /// Whether it is wanted what global tokens look at.
    fn wants_globals(&self) -> bool {
        false
    }

    /// What global tokens look at in a layer's own attention.
    fn globals(&mut self, _: Stack, _: &GlobalKeys) {}

    /// Called when a layer is done.
    ///
    /// # Errors
    /// When something of it could not be kept; stops the run.
    fn end_of_layer(&mut self) -> Result<()> {
        Ok(())
    }

    /// The encoder's output. // [source position, d_model]
    ///
    /// # Errors
    /// When it cannot be kept; stops the run.
    fn memory(&mut self, _values: &[f32]) -> Result<()> {
        Ok(())
    }

    /// Logits of all positions for a range of the vocabulary, or of the last hidden state's width. // [position, range]
    ///
    /// # Errors
    /// When they cannot be kept; stops the run.
    fn logits(&mut self, _range: Range<usize>, _values: &[f32]) -> Result<()> {
        Ok(())
    }
}
