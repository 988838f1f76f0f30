//! Extracts values from a run as they are computed, for traces.

use std::ops::Range;

use attnscope_compute::attention::{BlockSink, GlobalKeys};
use attnscope_compute::error::Result;
use attnscope_forward::Hook;
use attnscope_spec::Stack;

/// Receives selected values of a run, layer by layer. Default methods ignore everything.
pub trait Tap {
    fn wants(&self, stack: Stack, layer_idx: usize, hook: Hook) -> bool;

    /// Receives one value of a block. // values: [position, width]
    ///
    /// # Errors
    /// When it cannot be stored; stops the run.
    fn values(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        hook: Hook,
        values: &[f32],
        width: usize,
    ) -> Result<()>;

    /// Sink for scores and pattern of a layer's heads, if wanted.
    fn blocks(&self, _stack: Stack, _layer_idx: usize) -> Option<&dyn BlockSink> {
        None
    }

    /// Whether branch outputs are wanted before their norm.
    fn wants_raw(&self) -> bool {
        false
    }

    /// Receives a branch's output before its norm; the hook is `AttnOut` or `MlpOut`. // values: [position, width]
    ///
    /// # Errors
    /// When it cannot be stored; stops the run.
    fn raw(&mut self, _: Stack, _: usize, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    /// Whether whole rows are wanted, if they hold more than the residual.
    fn wants_rows(&self) -> bool {
        false
    }

    /// Receives rows that hold more than the residual; called before `values` for `ResidPre` or `ResidPost`.
    /// // values: [position, width]
    ///
    /// # Errors
    /// When they cannot be stored; stops the run.
    fn rows(&mut self, _: Stack, _: usize, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    /// Whether the keys of global tokens are wanted.
    fn wants_globals(&self) -> bool {
        false
    }

    /// Receives the keys and values that global tokens attend to in a layer's self-attention.
    fn globals(&mut self, _: Stack, _: &GlobalKeys) {}

    /// Called after each layer.
    ///
    /// # Errors
    /// When one of its values could not be stored; stops the run.
    fn end_of_layer(&mut self) -> Result<()> {
        Ok(())
    }

    /// Receives the encoder's output. // [source position, d_model]
    ///
    /// # Errors
    /// When it cannot be stored; stops the run.
    fn memory(&mut self, _values: &[f32]) -> Result<()> {
        Ok(())
    }

    /// Whether the last hidden states are wanted: what the head reads.
    fn wants_hidden(&self) -> bool {
        false
    }

    /// Receives the last hidden states, after the final norm. // [position, d_model]
    fn hidden(&mut self, _values: &[f32]) {}

    /// Receives logits of all positions for a range of the vocabulary, or else the last hidden states. // [position, range]
    ///
    /// # Errors
    /// When they cannot be stored; stops the run.
    fn logits(&mut self, _range: Range<usize>, _values: &[f32]) -> Result<()> {
        Ok(())
    }
}
