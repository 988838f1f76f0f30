//! Sweeps the scale of the scores of some heads in one layer, in one run of a prompt.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::{Mutex, PoisonError};

use attnscope_checks::stats::LayerReport;
use attnscope_compute::attention::BlockSink;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input};
use attnscope_spec::{Model, Stack};

use super::job::Options;
use super::observer::{Observer, Progress};
use super::pipeline::run;
use super::sweep::Sweep;
use super::tap::Tap;

/// Rows to sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepPlace {
    pub stack: Stack,
    pub layer_idx: usize,
    pub heads: Range<usize>,
    /// One query, or `None` for all that are not padding.
    pub query_idx: Option<usize>,
}

/// Result of a layer sweep.
#[derive(Debug, Clone)]
pub struct LayerSweep {
    pub sweep: Sweep,
    /// Report of the whole layer, with unchanged scale.
    pub layer: LayerReport,
}

/// Runs a prompt up to a layer and sweeps the scores that enter its softmax, after scale, softcap and bias.
///
/// # Errors
/// When the pace stops it, a tensor contradicts the spec, or the device fails.
pub fn sweep_layer<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    place: &SweepPlace,
    scales: &[f64],
    progress: &mut dyn FnMut(Progress),
    pace: &dyn Pace,
) -> Result<LayerSweep> {
    let queries = match (place.stack, &input.source) {
        (Stack::Encoder, Some(source)) => source,
        _ => &input.sequence,
    };
    let encoded = input.encoded(&model.spec);
    let keys = match (place.stack, encoded.as_deref()) {
        (Stack::Cross, Some(encoded)) => encoded,
        _ => queries,
    };
    let mut tap = Rows {
        place,
        n_keys: keys.len(),
        real: queries.real.as_deref(),
        scales,
        parts: Mutex::new(BTreeMap::new()),
    };
    let mut watch = UpTo {
        place,
        seen: None,
        progress,
    };
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    match run(ops, model, input, options, &mut watch, Some(&mut tap), pace) {
        // The run stopped itself after the requested layer.
        Err(Error::Cancelled) if watch.seen.is_some() => {}
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    let layer = watch.seen.ok_or(Error::Cancelled)?;
    let mut sweep = Sweep::new(scales);
    let parts = tap
        .parts
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    for part in parts.values() {
        sweep.join(part);
    }
    Ok(LayerSweep { sweep, layer })
}

/// Sweeps row blocks from any thread; head and first query sort them afterwards.
struct Rows<'a> {
    place: &'a SweepPlace,
    n_keys: usize,
    real: Option<&'a [bool]>,
    scales: &'a [f64],
    parts: Mutex<BTreeMap<(usize, usize), Sweep>>,
}

impl Rows<'_> {
    fn is_wanted(&self, query_idx: usize) -> bool {
        let is_real = self.real.is_none_or(|real| real[query_idx]);
        is_real && self.place.query_idx.is_none_or(|only| only == query_idx)
    }
}

impl BlockSink for Rows<'_> {
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], _pattern: &[f32]) {
        if !self.place.heads.contains(&head_idx) {
            return;
        }
        let mut part = Sweep::new(self.scales);
        for (nth, row) in scores.chunks(self.n_keys).enumerate() {
            if self.is_wanted(first_query + nth) {
                part.add_row(row);
            }
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.insert((head_idx, first_query), part);
    }
}

impl Tap for Rows<'_> {
    fn wants(&self, stack: Stack, layer_idx: usize, hook: Hook) -> bool {
        hook == Hook::Scores && (stack, layer_idx) == (self.place.stack, self.place.layer_idx)
    }

    fn values(&mut self, _: Stack, _: usize, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    fn blocks(&self, stack: Stack, layer_idx: usize) -> Option<&dyn BlockSink> {
        self.wants(stack, layer_idx, Hook::Scores).then_some(self)
    }
}

/// Stops the run after the requested layer.
struct UpTo<'a> {
    place: &'a SweepPlace,
    seen: Option<LayerReport>,
    progress: &'a mut dyn FnMut(Progress),
}

impl Observer for UpTo<'_> {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        (self.progress)(progress);
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        if (report.stack, report.layer_idx) != (self.place.stack, self.place.layer_idx) {
            return ControlFlow::Continue(());
        }
        self.seen = Some(report);
        ControlFlow::Break(())
    }
}
