//! A trace that can be shown before its cells are compared with what they should be, which takes longest.

use std::collections::BTreeMap;
use std::sync::Arc;

use attnscope_checkpoint::captured::Captured;
use attnscope_checks::stats::{LayerReport, Values};
use attnscope_compute::attention::{HeadSummary, ScoreScale};
use attnscope_compute::error::Result;
use attnscope_compute::kernels::residual::{Peak, ResidualShape};
use attnscope_compute::pace::Pace;
use attnscope_forward::Hook;
use attnscope_spec::Stack;
use rayon::prelude::*;

use super::Trace;
use super::arrays::Parts;
use super::declared::Stated;
use super::layers::CapturedAttention;
use super::layout::Axes;
use super::names::Layer;
use super::shapes::Observations;

/// When the patterns of a trace are audited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audits {
    AtOnce,
    Later,
}

/// A trace with all statistics, of which no pattern was audited yet: no check can judge it.
///
/// Statistics that depend on what an audit finds are those of attention without learned sinks and without documents.
pub struct Unaudited {
    pub trace: Trace,
    pub(super) gathered: Gathered,
    /// By place; `None` where a place has no report.
    pub(super) known: Vec<Option<Known>>,
}

/// What was found out about all layers of a trace before any was looked at by itself.
pub(super) struct Gathered {
    pub all: BTreeMap<(Stack, Layer), Parts>,
    pub stated: Stated,
    pub seen: Observations,
    pub tokens: Vec<u32>,
    pub row_tolerance: f64, // as far as dtypes tell
}

/// What the audits of a layer take over from its statistics.
pub(super) struct Known {
    /// By head, with the rows that pairs of heads are compared by.
    pub summaries: Vec<HeadSummary>,
    pub scale: Option<ScoreScale>,
    pub residual: Option<(ResidualShape, Peak)>,
}

/// The place of an attention in the trace.
#[derive(Debug, Clone)]
pub(super) struct At {
    pub stack: Stack,
    pub layer_idx: usize,
    pub name: Option<String>,
}

impl Gathered {
    /// Every attention of the trace, in order.
    pub fn places<'a>(&'a self, captured: &'a Captured) -> Vec<(At, CapturedAttention<'a>)> {
        let mut n_modules = 0;
        let mut places = Vec::new();
        for ((stack, layer), parts) in &self.all {
            if !parts.keys().any(|hook| *hook != Hook::ResidPost) {
                continue;
            }
            let layer_idx = match layer {
                Layer::Numbered(number) => *number,
                Layer::Module(_) => {
                    n_modules += 1;
                    n_modules - 1
                }
            };
            let at = At {
                stack: *stack,
                layer_idx,
                name: layer.module(),
            };
            let observed = self.seen.layers.get(&(*stack, layer.clone()));
            let attention = CapturedAttention {
                captured,
                stated: &self.stated,
                tokens: &self.tokens,
                row_tolerance: self.row_tolerance,
                parts,
                axes: observed.map_or(Axes::default(), |seen| seen.axes),
                seen: observed.map(|seen| &seen.audit),
                kept: observed.and_then(|seen| seen.kept.as_ref()),
            };
            places.push((at, attention));
        }
        places
    }
}

impl Unaudited {
    /// Audits every pattern of the trace, which is as [`read_trace`](super::read_trace) reads it then.
    ///
    /// # Errors
    /// When the file cannot be read any more, or the pace stops it.
    pub fn audited(&self, captured: &Captured, pace: &dyn Pace) -> Result<Trace> {
        let mut trace = self.trace.clone();
        let places = self.gathered.places(captured).into_par_iter();
        let found = places.zip(&self.known).map(|((at, attention), known)| {
            let known = known.as_ref();
            let found = known.map(|known| attention.report(at, Audits::AtOnce, Some(known), pace));
            Ok(found.transpose()?.flatten())
        });
        let found: Vec<_> = found.collect::<Result<_>>()?;
        trace.layers = found
            .into_iter()
            .flatten()
            .map(|found| Arc::new(found.report))
            .collect();
        Ok(trace)
    }
}

/// Whether an audit changed what is shown of a layer.
pub fn is_shown_otherwise(before: &LayerReport, after: &LayerReport) -> bool {
    let is_same = |a: &Values, b: &Values| {
        let bits = |of: &Values| of.iter().map(|value| value.map(f64::to_bits)).collect();
        let [a, b]: [Vec<_>; 2] = [bits(a), bits(b)];
        a == b
    };
    let heads = || before.heads.iter().zip(&after.heads);
    !is_same(&before.stats, &after.stats)
        || before.alike != after.alike
        || !heads().all(|(a, b)| a.kind == b.kind && is_same(&a.stats, &b.stats))
}
