//! Compares a model with a recording: every recorded hook, and every differing layer in isolation on its recorded input.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::RwLock;

use attnscope_checks::stats::LayerReport;
use attnscope_compute::attention::BlockSink;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Ops, reuse_buffers};
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, LayerWeights, Scratch};
use attnscope_run::{Job, Observer, Options, Pass, Progress, Tap};
use attnscope_spec::Stack;

use super::comparison::Comparison;
use super::explained::explained;
use super::floors::{Floors, Precision};
use super::gap::{Axes, HookGap};
use super::head_map::keep_worst;
use super::head_order::OF_HEADS;
use super::lockstep::{HookSums, Ran};
use super::model_and_recording::{ModelAndRecording, nothing_in_common};
use super::noise::{Noise, routes};
use super::predictions::{RowScan, predictions};
use super::recorded_alone::alone;
use super::recorded_cells::{CellRows, cells_of};
use super::recording::{Form, Recording, told_apart};
use super::recordings::recordings;

/// Observer that reports progress.
struct Told<'a>(&'a dyn Fn(Progress));

impl Observer for Told<'_> {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        (self.0)(progress);
        ControlFlow::Continue(())
    }

    fn layer(&mut self, _: LayerReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Tap that compares the model's values with the recorded ones as they are computed.
struct Listening<'a> {
    of: ModelAndRecording<'a>,
    own: &'a CellRows<'a>,
    cross: &'a CellRows<'a>,
    found: &'a RefCell<Vec<(Stack, Hook, HookGap)>>,
    /// What the heads of the layer have, kept until the first difference. // [position, width]
    before: &'a RefCell<BTreeMap<(Stack, Hook), Vec<f32>>>,
    is_told: &'a Cell<bool>,
}

impl Tap for Listening<'_> {
    fn wants(&self, stack: Stack, layer_idx: usize, hook: Hook) -> bool {
        let explains = matches!(hook, Hook::Q | Hook::K | Hook::RotQ | Hook::RotK);
        let is_before = explains && !self.is_told.get();
        is_before || self.of.recording.has((Some(stack), Some(layer_idx), hook))
    }

    fn values(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        hook: Hook,
        values: &[f32],
        width: usize,
    ) -> Result<()> {
        if OF_HEADS.contains(&hook) && !self.is_told.get() {
            self.before
                .borrow_mut()
                .insert((stack, hook), values.to_vec());
        }
        if let Some(gap) = self.of.gap((stack, layer_idx, hook), values, width)? {
            self.found.borrow_mut().push((stack, hook, gap));
        }
        Ok(())
    }

    fn blocks(&self, stack: Stack, layer_idx: usize) -> Option<&dyn BlockSink> {
        let has = |hook| self.of.recording.has((Some(stack), Some(layer_idx), hook));
        if !has(Hook::Scores) && !has(Hook::Pattern) {
            return None;
        }
        Some(if stack == Stack::Cross {
            self.cross
        } else {
            self.own
        })
    }
}

impl Comparison {
    /// Runs a model on a recording's tokens and compares every recorded hook.
    ///
    /// # Errors
    /// When no hook is common, an array has the wrong shape, the pace stops it, or the device fails.
    pub fn of_recording<O: Ops>(
        ops: &O,
        pair: ModelAndRecording<'_>,
        (id, tolerance): (&str, Option<f64>),
        tell: &dyn Fn(Progress),
        pace: &dyn Pace,
    ) -> Result<Self> {
        let sides = [Precision::of_model(pair.model), pair.recording.precision];
        let mut floors = Floors::new(sides, pair.model.spec.d_model, tolerance);
        floors.follows_rounding = true;
        let mut comparison = Self::empty(floors);
        comparison.randomness[pair.recorded_idx()] = pair.recording.randomness();
        pair.check()?;
        let ran = run(ops, pair, &floors, tell, pace)?;
        comparison.knobs.extend(ran.inferred_knob.clone());
        comparison.take(id, ran);
        Ok(comparison)
    }

    /// Compares the hooks that two recordings share.
    ///
    /// # Errors
    /// When no hook is common, or an array's shape differs from its counterpart's.
    pub fn of_recordings(
        a: &Recording,
        b: &Recording,
        (id, tolerance): (&str, Option<f64>),
    ) -> Result<Self> {
        let mut floors = Floors::new([a.precision, b.precision], 1024, tolerance);
        floors.follows_rounding = true;
        let mut comparison = Self::empty(floors);
        comparison.randomness = [a.randomness(), b.randomness()];
        let ran = recordings(a, b, &floors)?;
        if ran.hooks.is_empty() {
            return Err(nothing_in_common(b));
        }
        comparison.take(id, ran);
        Ok(comparison)
    }
}

fn run<O: Ops>(
    ops: &O,
    of: ModelAndRecording<'_>,
    floors: &Floors,
    tell: &dyn Fn(Progress),
    pace: &dyn Pace,
) -> Result<Ran> {
    let cells = || CellRows {
        of,
        state: RwLock::default(),
    };
    let (own, cross) = (cells(), cells());
    let found = RefCell::new(Vec::new());
    let (before, is_told) = (RefCell::new(BTreeMap::new()), Cell::new(false));
    let mut listening = Listening {
        of,
        own: &own,
        cross: &cross,
        found: &found,
        before: &before,
        is_told: &is_told,
    };
    let mut told = Told(tell);
    let job = Job {
        input: of.input,
        observer: &mut told,
        tap: Some(&mut listening),
    };
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    let model = of.model;
    let mut pass = Pass::begin(ops, model, job, options, pace)?;
    let mut scratch = Scratch::<O>::default();
    let mut ran = Ran::default();
    for stack in &model.spec.stacks {
        let mut noise = Noise::default();
        let mut resid = pass.embed(stack)?;
        let reuse = reuse_buffers();
        for layer_idx in 0..stack.n_layers() {
            if pace.stops() {
                return Err(Error::Cancelled);
            }
            pass.say(stack.stack, layer_idx)?;
            own.begin(stack.stack, layer_idx)?;
            if stack.stack == Stack::Decoder {
                cross.begin(Stack::Cross, layer_idx)?;
            }
            let tensors = &model.checkpoint.tensors;
            let weights = LayerWeights::read(ops, tensors, stack, layer_idx, pace)?;
            pass.block(stack, layer_idx, &weights, &mut resid, &mut scratch)?;
            let mut gaps = found.take();
            for (grid, cells) in [(stack.stack, &own), (Stack::Cross, &cross)] {
                if grid == Stack::Cross && stack.stack != Stack::Decoder {
                    continue;
                }
                ran.heads
                    .extend(cells_of(cells, (grid, layer_idx), &mut gaps));
                keep_worst(&mut ran.heads);
            }
            noise.routes = routes(stack, layer_idx);
            let mut differs = false;
            for (grid, hook, gap) in gaps {
                let total = gap.total();
                let attention = model.spec.attention(grid, layer_idx);
                let tolerance = noise.tolerance(floors, (grid, hook), &total, attention);
                let is_beyond = total.relative() > tolerance || total.n_one_sided > 0;
                if is_beyond && !is_told.replace(true) {
                    let at = (grid, layer_idx, hook);
                    ran.inferred_knob = explained(of, at, (&total, tolerance), &before.borrow())?;
                }
                differs |= is_beyond;
                ran.hooks.push(HookSums {
                    hook,
                    stack: Some(grid),
                    layer_idx: Some(layer_idx),
                    gap,
                    tolerance,
                    largest: None,
                });
            }
            if differs {
                let at = (stack, layer_idx);
                let largest = alone(ops, of, at, (&pass, &weights), &mut scratch, floors)?;
                if largest > 0.0 {
                    ran.isolated.push((stack.stack, layer_idx, largest));
                }
            }
        }
        drop(reuse);
        if stack.stack == Stack::Encoder {
            pass.end(stack, &resid, false)?;
        } else {
            tell(Progress::Predictions);
            after(ops, of, &resid, floors, &mut ran, pace)?;
        }
    }
    Ok(ran)
}

/// Compares logits, or the last hidden states of a model without a head.
fn after<O: Ops>(
    ops: &O,
    of: ModelAndRecording<'_>,
    resid: &O::Buffer,
    floors: &Floors,
    ran: &mut Ran,
    pace: &dyn Pace,
) -> Result<()> {
    let place = (None, None, Hook::Logits);
    if !of.recording.has(place) {
        return Ok(());
    }
    let (model, sequence) = (of.model, &of.input.sequence);
    let is_real = |idx: usize| sequence.is_real(idx);
    let mut hidden = O::Buffer::default();
    attnscope_forward::final_hidden(ops, model, model.spec.main_stack(), resid, &mut hidden)?;
    let n = model.spec.n_last(sequence.len(), sequence.grid());
    let width_of = |width| Form::Vectors {
        n_heads: None,
        n_positions: n,
        width,
    };
    let gap = match &model.spec.head {
        None => {
            let host = ops.get(&hidden)?;
            let Some(recorded) = of.recording.values(place, width_of(host.width))? else {
                return Ok(());
            };
            let both = of.ordered(&host.values, &recorded);
            HookGap::of_vectors(Axes::Queries, None, both, host.width, &is_real)
        }
        Some(head) => {
            attnscope_forward::pool_hidden(ops, model, head, sequence, &mut hidden)?;
            let d_vocab = head.unembed.n_out();
            let Some(mut recorded) = of.recording.values(place, width_of(d_vocab))? else {
                return Ok(());
            };
            let slack = of.recording.slack(place, width_of(d_vocab))?;
            let has_loss = model.spec.is_causal_lm;
            let target = |i: usize| sequence.tokens.get(i + 1).map(|token| *token as usize);
            let mut rows: Vec<RowScan> = (0..n)
                .map(|i| RowScan::new(target(i).filter(|_| has_loss)))
                .collect();
            let add = |range: Range<usize>, logits: &[f32]| {
                let width = range.len();
                for (idx, (row, mine)) in rows.iter_mut().zip(logits.chunks(width)).enumerate() {
                    let at = idx * d_vocab + range.start;
                    let recorded = &mut recorded[at..at + width];
                    let mut mine = Cow::Borrowed(mine);
                    if let Some(slack) = &slack {
                        told_apart(mine.to_mut(), recorded, &slack[at..at + width]);
                    }
                    let (a, b) = of.ordered(&mine, recorded);
                    if is_real(idx) {
                        row.add(idx, &range, [a, b]);
                    }
                }
                Ok(())
            };
            attnscope_forward::logits_in_chunks(ops, model, head, &hidden, n, pace, add)?;
            // Logits with gaps are no predictions.
            ran.predictions = slack
                .is_none()
                .then(|| predictions(&rows, has_loss, &is_real));
            RowScan::gap_of(&rows)
        }
    };
    let tolerance =
        Noise::default().tolerance(floors, (Stack::Only, Hook::Logits), &gap.total(), None);
    let before = ran
        .hooks
        .iter()
        .map(|hook| hook.tolerance)
        .fold(tolerance, f64::max);
    ran.hooks.push(HookSums {
        hook: Hook::Logits,
        stack: None,
        layer_idx: None,
        gap,
        tolerance: before,
        largest: None,
    });
    Ok(())
}
