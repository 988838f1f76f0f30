//! A model beside a recording: every hook that was recorded, and every layer alone on its recorded input.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::RwLock;

use super::comparison::{Comparison, Side};
use super::explained::explained;
use super::floors::{Floors, Precision};
use super::gap::{Axes, HookGap};
use super::knobs::KnobDifference;
use super::lockstep::{HookSums, Ran, routes};
use super::noise::Noise;
use super::predictions::{RowScan, predictions};
use super::recorded_alone::alone;
use super::recorded_cells::{CellRows, cells_of};
use super::recording::{Form, Recording};
use super::recordings::recordings;
use crate::analysis::{Job, Observer, Options, Pass, Progress, Tap};
use crate::attention::BlockSink;
use crate::error::{Error, Result};
use crate::model::{Hook, Input, LayerWeights, Model, Scratch, Sequence, Stack};
use crate::ops::{Ops, reuse_buffers};
use crate::pace::Pace;
use crate::stats::LayerReport;

/// Tells how far the run is.
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

/// A model that is compared with a recording.
#[derive(Clone, Copy)]
pub struct Beside<'a> {
    pub model: &'a Model,
    pub input: &'a Input,
    pub recording: &'a Recording,
    /// Which side the model is.
    pub model_is: Side,
}

impl Beside<'_> {
    /// Makes sure that the model has some hook that was recorded, before anything runs.
    ///
    /// # Errors
    /// When it has none: says what was recorded.
    pub fn check(&self) -> Result<()> {
        if self.has_common() {
            return Ok(());
        }
        Err(nothing_in_common(self.recording))
    }

    fn has_common(&self) -> bool {
        let spec = &self.model.spec;
        let grids = spec.grids().into_iter();
        let mut grids = grids.chain(spec.stacks.iter().map(|stack| stack.stack));
        let has = |stack: Stack, layer_idx: usize| {
            let mut hooks = Hook::ALL.into_iter();
            hooks.any(|hook| self.recording.has((Some(stack), Some(layer_idx), hook)))
        };
        self.recording.has((None, None, Hook::Logits))
            || grids.any(|stack| (0..spec.n_layers(stack)).any(|idx| has(stack, idx)))
    }

    /// The tokens of queries and of keys.
    pub(super) fn sequences(&self, stack: Stack) -> (&Sequence, &Sequence) {
        let main = &self.input.sequence;
        let source = self.input.source.as_ref().unwrap_or(main);
        match stack {
            Stack::Encoder => (source, source),
            Stack::Cross => (main, source),
            _ => (main, main),
        }
    }

    /// Values of the model and of the recording as those of A and B.
    pub(super) fn ordered<'v>(
        &self,
        mine: &'v [f32],
        recorded: &'v [f32],
    ) -> (&'v [f32], &'v [f32]) {
        match self.model_is {
            Side::A => (mine, recorded),
            Side::B => (recorded, mine),
        }
    }

    /// A knob of the model and of the recording as that of A and B.
    pub(super) fn turned(&self, knob: KnobDifference) -> KnobDifference {
        match self.model_is {
            Side::A => knob,
            Side::B => KnobDifference {
                a: knob.b,
                b: knob.a,
                ..knob
            },
        }
    }

    /// Compares vectors with those that were recorded; `None` where none were.
    pub(super) fn gap(
        &self,
        (stack, layer_idx, hook): (Stack, usize, Hook),
        values: &[f32],
        width: usize,
    ) -> Result<Option<HookGap>> {
        let attention = self.model.spec.attention(stack, layer_idx);
        let is_of_keys = matches!(hook, Hook::K | Hook::V | Hook::RotK);
        let n_heads = attention.and_then(|attention| match hook {
            Hook::Q | Hook::RotQ | Hook::Z => Some(attention.n_heads),
            _ if is_of_keys => Some(attention.n_kv_heads),
            _ => None,
        });
        let form = Form::Vectors {
            n_heads,
            n_positions: values.len() / width.max(1),
            width,
        };
        let place = (Some(stack), Some(layer_idx), hook);
        let Some(recorded) = self.recording.values(place, form)? else {
            return Ok(None);
        };
        let (queries, keys) = self.sequences(stack);
        let (axes, sequence) = if is_of_keys {
            (Axes::Keys, keys)
        } else {
            (Axes::Queries, queries)
        };
        let is_real = |idx: usize| sequence.real.as_ref().and_then(|r| r.get(idx)) != Some(&false);
        let both = self.ordered(values, &recorded);
        Ok(Some(HookGap::of_vectors(
            axes, n_heads, both, width, &is_real,
        )))
    }
}

/// Compares what the model gives with what was recorded, as it comes.
struct Listening<'a> {
    of: Beside<'a>,
    own: &'a CellRows<'a>,
    cross: &'a CellRows<'a>,
    found: &'a RefCell<Vec<(Stack, Hook, HookGap)>>,
    /// Queries and keys of the layer before they rotate, while nothing has differed yet. // [position, width]
    before: &'a RefCell<BTreeMap<(Stack, Hook), Vec<f32>>>,
    is_told: &'a Cell<bool>,
}

impl Tap for Listening<'_> {
    fn wants(&self, stack: Stack, layer_idx: usize, hook: Hook) -> bool {
        let is_before = matches!(hook, Hook::Q | Hook::K) && !self.is_told.get();
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
        if matches!(hook, Hook::Q | Hook::K) && !self.is_told.get() {
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
    /// Runs a model beside a recording of the same tokens, and compares every hook that was recorded.
    ///
    /// # Errors
    /// When no hook is common, an array has another shape, the pace stops it, or the device fails.
    pub fn of_recording<O: Ops>(
        ops: &O,
        beside: Beside<'_>,
        (id, tolerance): (&str, Option<f64>),
        tell: &dyn Fn(Progress),
        pace: &dyn Pace,
    ) -> Result<Self> {
        let sides = [
            Precision::of_model(beside.model),
            beside.recording.precision,
        ];
        let mut floors = Floors::new(sides, beside.model.spec.d_model, tolerance);
        floors.follows_rounding = true;
        let mut comparison = Self::empty(floors);
        beside.check()?;
        let ran = run(ops, beside, &floors, tell, pace)?;
        comparison.knobs.extend(ran.supposed.clone());
        comparison.take(id, ran);
        Ok(comparison)
    }

    /// Compares two recordings, hook by hook where both have them.
    ///
    /// # Errors
    /// When no hook is common, or an array has another shape than its counterpart.
    pub fn of_recordings(
        a: &Recording,
        b: &Recording,
        (id, tolerance): (&str, Option<f64>),
    ) -> Result<Self> {
        let mut floors = Floors::new([a.precision, b.precision], 1024, tolerance);
        floors.follows_rounding = true;
        let mut comparison = Self::empty(floors);
        let ran = recordings(a, b, &floors)?;
        if ran.hooks.is_empty() {
            return Err(nothing_in_common(b));
        }
        comparison.take(id, ran);
        Ok(comparison)
    }
}

fn nothing_in_common(recording: &Recording) -> Error {
    let names: Vec<String> = recording
        .places()
        .take(4)
        .map(|(stack, layer_idx, hook)| match (stack, layer_idx) {
            (Some(stack), Some(layer_idx)) => hook.full_name(*stack, *layer_idx),
            _ => hook.to_string(),
        })
        .collect();
    Error::Prompt(format!(
        "{}: expected hooks in common with the other side, found none: it holds {}",
        recording.name(),
        names.join(", ")
    ))
}

fn run<O: Ops>(
    ops: &O,
    of: Beside<'_>,
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
                    ran.supposed = explained(of, at, &total, &before.borrow())?;
                }
                differs |= is_beyond;
                ran.hooks.push(HookSums {
                    hook,
                    stack: Some(grid),
                    layer_idx: Some(layer_idx),
                    gap,
                    tolerance,
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
    of: Beside<'_>,
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
    crate::model::final_hidden(ops, model, model.spec.main_stack(), resid, &mut hidden)?;
    let n = sequence.len();
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
            crate::model::pool_hidden(ops, model, head, sequence, &mut hidden)?;
            let d_vocab = head.unembed.n_out();
            let Some(recorded) = of.recording.values(place, width_of(d_vocab))? else {
                return Ok(());
            };
            let has_loss = model.spec.is_causal_lm;
            let target = |i: usize| sequence.tokens.get(i + 1).map(|token| *token as usize);
            let mut rows: Vec<RowScan> = (0..n)
                .map(|i| RowScan::new(target(i).filter(|_| has_loss)))
                .collect();
            let add = |range: Range<usize>, logits: &[f32]| {
                let width = range.len();
                for (idx, (row, mine)) in rows.iter_mut().zip(logits.chunks(width)).enumerate() {
                    let at = idx * d_vocab + range.start;
                    let (a, b) = of.ordered(mine, &recorded[at..at + width]);
                    if is_real(idx) {
                        row.add(idx, &range, [a, b]);
                    }
                }
                Ok(())
            };
            crate::model::logits_in_chunks(ops, model, head, &hidden, n, pace, add)?;
            ran.predictions = Some(predictions(&rows, has_loss, &is_real));
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
    });
    Ok(())
}
