//! One side of a comparison: a model's run in progress, and the statistics of its heads.

use std::ops::ControlFlow;

use attnscope_checks::stats::{LayerReport, Values};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Input, LayerWeights, Scratch};
use attnscope_run::{Job, Observer, Options, Pass, Progress, Tap};
use attnscope_spec::{Model, Stack, StackSpec};

use super::head_map::HeadMap;

/// Statistics of one layer's heads, and their maps if they are kept. // [head]
pub(super) type LayerStatistics = (Stack, usize, Vec<(Values, Option<HeadMap>)>);

/// Observer of a run that keeps the statistics and the maps of its heads.
pub(super) struct Listener<'a> {
    pub tell: Option<&'a dyn Fn(Progress)>,
    pub keeps_maps: bool,
    pub layers: Vec<LayerStatistics>,
}

impl Observer for Listener<'_> {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        if let Some(tell) = self.tell {
            tell(progress);
        }
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        let is_causal = report.spec.mask.causal && !report.spec.is_cross;
        let heads = report.heads.into_iter().map(|head| {
            let pooled = head.summary.pooled;
            let map = self.keeps_maps.then_some(HeadMap { pooled, is_causal });
            (head.stats, map)
        });
        let of_layer = (report.stack, report.layer_idx, heads.collect());
        self.layers.push(of_layer);
        ControlFlow::Continue(())
    }
}

/// One side of a run in progress.
pub(super) struct SideRun<'a, O: Ops> {
    pub ops: &'a O,
    model: &'a Model,
    pace: &'a dyn Pace,
    pub pass: Pass<'a, O>,
    /// [position, d_model]
    pub resid: O::Buffer,
    pub scratch: Scratch<O>,
}

impl<'a, O: Ops> SideRun<'a, O> {
    pub fn begin(
        ops: &'a O,
        model: &'a Model,
        input: &'a Input,
        observer: &'a mut dyn Observer,
        tap: &'a mut dyn Tap,
        pace: &'a dyn Pace,
    ) -> Result<Self> {
        let options = Options {
            keep_bytes: None,
            predicts: false,
        };
        let job = Job {
            input,
            observer,
            tap: Some(tap),
        };
        Ok(Self {
            ops,
            model,
            pace,
            pass: Pass::begin(ops, model, job, options, pace)?,
            resid: O::Buffer::default(),
            scratch: Scratch::default(),
        })
    }

    /// Runs a layer on the residual and returns its weights. `known` are its weights if they were read already.
    pub fn layer(
        &mut self,
        (stack, layer_idx): (&StackSpec, usize),
        known: Option<LayerWeights<'a, O>>,
    ) -> Result<LayerWeights<'a, O>> {
        self.pass.say(stack.stack, layer_idx)?;
        let weights = if let Some(known) = known {
            known
        } else {
            let tensors = &self.model.checkpoint.tensors;
            LayerWeights::read(self.ops, tensors, stack, layer_idx, self.pace)?
        };
        let (resid, scratch) = (&mut self.resid, &mut self.scratch);
        self.pass
            .block(stack, layer_idx, &weights, resid, scratch)?;
        Ok(weights)
    }
}
