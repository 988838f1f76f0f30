//! One of two engines running side by side: its pass, residual and buffers.

use std::ops::ControlFlow;

use attnscope_checks::stats::LayerReport;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{LayerWeights, Scratch};
use attnscope_run::{Job, Observer, Options, Pass, Progress};
use attnscope_spec::{Model, StackSpec};

use super::exchange::RowsOnly;

/// One engine's run in progress.
pub(super) struct Side<'a, O: Ops> {
    ops: &'a O,
    model: &'a Model,
    pub pass: Pass<'a, O>,
    pace: &'a dyn Pace,
    /// [position, d_model]
    pub resid: O::Buffer,
    scratch: Scratch<O>,
}

impl<'a, O: Ops> Side<'a, O> {
    pub fn begin(ops: &'a O, model: &'a Model, job: Job<'a>, pace: &'a dyn Pace) -> Result<Self> {
        let options = Options {
            keep_bytes: None,
            predicts: false,
        };
        Ok(Self {
            ops,
            model,
            pass: Pass::begin(ops, model, job, options, pace)?,
            pace,
            resid: O::Buffer::default(),
            scratch: Scratch::default(),
        })
    }

    pub fn copy(&self) -> Result<O::Buffer> {
        let mut to = O::Buffer::default();
        self.ops.copy(&self.resid, &mut to)?;
        Ok(to)
    }

    fn weights(&self, (stack, layer_idx): (&StackSpec, usize)) -> Result<LayerWeights<'a, O>> {
        let tensors = &self.model.checkpoint.tensors;
        LayerWeights::read(self.ops, tensors, stack, layer_idx, self.pace)
    }

    /// Runs a layer on the residual, with this engine's tap.
    pub fn layer(&mut self, at: (&StackSpec, usize)) -> Result<()> {
        let (stack, layer_idx) = at;
        self.pass.say(stack.stack, layer_idx)?;
        let weights = self.weights(at)?;
        let (resid, scratch) = (&mut self.resid, &mut self.scratch);
        self.pass.block(stack, layer_idx, &weights, resid, scratch)
    }

    /// Reruns a layer from its input, for the rows of other heads.
    pub fn rows_again(
        &mut self,
        at: (&StackSpec, usize),
        before: &O::Buffer,
        mut hooks: RowsOnly<'_>,
    ) -> Result<()> {
        let weights = self.weights(at)?;
        let mut resid = O::Buffer::default();
        self.ops.copy(before, &mut resid)?;
        let scratch = &mut self.scratch;
        self.pass
            .block_again(at, &weights, &mut resid, scratch, &mut hooks, (None, None))
    }

    /// Returns the engine and its final residual.
    pub fn end(self) -> (&'a O, O::Buffer) {
        (self.ops, self.resid)
    }
}

/// Observer that reports the reference's progress.
pub(super) struct Told<'a>(pub &'a dyn Fn(Progress));

impl Observer for Told<'_> {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        (self.0)(progress);
        ControlFlow::Continue(())
    }

    fn layer(&mut self, _: LayerReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
