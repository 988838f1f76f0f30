//! Runs two models on one prompt in lockstep: one layer of each is held, and every hook is compared before the next layer runs.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use attnscope_checks::stats::{LayerReport, Values};
use attnscope_compute::attention::{AttentionSpec, Visibility};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Ops, reuse_buffers};
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input, LayerWeights, Scratch};
use attnscope_run::{Job, Observer, Options, Pass, Progress, Tap};
use attnscope_spec::{Model, Stack, StackSpec};

use super::alone::{Alone, Beyond, first_tokens};
use super::exchange::{Compared, Comparer, Exchange, Keeper, Kept};
use super::floors::Floors;
use super::gap::HookGap;
use super::knobs::KnobDifference;
use super::map::LayerMap;
use super::noise::{Noise, routes};
use super::predictions::{AFTER, PredictionDifference, after_layers};
use super::rows::{Again, Compare, Keep, changed, looked_at};
use super::suspects::Suspects;

/// Bytes of A's scores and patterns kept per layer. Heads beyond this limit are recomputed on both sides from their queries and
/// keys.
pub const ROW_BYTES: usize = 64 << 20;

/// Statistics of one layer's heads. // [head]
type OfLayer = (Stack, usize, Vec<Values>);

/// One hook of one layer, compared over a prompt.
#[derive(Debug, Clone)]
pub(super) struct HookSums {
    pub hook: Hook,
    /// `None` for logits; for the encoder's output, only `layer_idx` is `None`.
    pub stack: Option<Stack>,
    pub layer_idx: Option<usize>,
    pub gap: HookGap,
    pub tolerance: f64,
}

/// Comparison of one head's pattern.
#[derive(Debug, Clone)]
pub(super) struct HeadSums {
    pub stack: Stack,
    pub layer_idx: usize,
    pub head_idx: usize,
    /// Mean Jensen–Shannon divergence of its rows, in nats.
    pub divergence: f64,
    /// Statistics of A and B.
    pub stats: Option<[Values; 2]>,
}

/// Results of one prompt.
#[derive(Debug, Default)]
pub(super) struct Ran {
    /// In the order of execution.
    pub hooks: Vec<HookSums>,
    /// Layers of B that differ on A's input, each with its largest relative difference.
    pub isolated: Vec<(Stack, usize, f64)>,
    pub heads: Vec<HeadSums>,
    pub predictions: Option<PredictionDifference>,
    /// The knob of a recording that explains the first difference.
    pub supposed: Option<KnobDifference>,
}

/// Two models to run side by side.
pub(super) struct Sides<'a> {
    pub a: &'a Model,
    pub b: &'a Model,
    pub map: &'a LayerMap,
    pub floors: &'a Floors,
    pub suspects: &'a Suspects,
    /// Layers of A whose counterparts have other weights, if every value was compared.
    pub differing: Option<&'a BTreeSet<String>>,
    pub row_bytes: usize,
}

/// Observer of a run that keeps the statistics of its heads.
struct Listener<'a> {
    tell: Option<&'a dyn Fn(Progress)>,
    layers: Vec<OfLayer>,
}

impl Observer for Listener<'_> {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        if let Some(tell) = self.tell {
            tell(progress);
        }
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        let stats = report.heads.into_iter().map(|head| head.stats);
        let of_layer = (report.stack, report.layer_idx, stats.collect());
        self.layers.push(of_layer);
        ControlFlow::Continue(())
    }
}

/// One side of a run in progress.
struct Side<'a, O: Ops> {
    model: &'a Model,
    pass: Pass<'a, O>,
    /// [position, d_model]
    resid: O::Buffer,
    scratch: Scratch<O>,
}

impl<'a, O: Ops> Side<'a, O> {
    fn begin(
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
            model,
            pass: Pass::begin(ops, model, job, options, pace)?,
            resid: O::Buffer::default(),
            scratch: Scratch::default(),
        })
    }

    /// Runs a layer on the residual and returns its weights. `known` are its weights if they were read already.
    fn layer(
        &mut self,
        ops: &'a O,
        (stack, layer_idx): (&StackSpec, usize),
        known: Option<LayerWeights<'a, O>>,
        pace: &'a dyn Pace,
    ) -> Result<LayerWeights<'a, O>> {
        self.pass.say(stack.stack, layer_idx)?;
        let weights = if let Some(known) = known {
            known
        } else {
            let tensors = &self.model.checkpoint.tensors;
            LayerWeights::read(ops, tensors, stack, layer_idx, pace)?
        };
        let (resid, scratch) = (&mut self.resid, &mut self.scratch);
        self.pass
            .block(stack, layer_idx, &weights, resid, scratch)?;
        Ok(weights)
    }
}

/// Runs a prompt through both models. Each side counts the prompt's positions by its own rule.
pub(super) fn run<O: Ops>(
    ops: &O,
    sides: &Sides<'_>,
    (input_a, input_b): (&Input, &Input),
    tell: &dyn Fn(Progress),
    pace: &dyn Pace,
) -> Result<Ran> {
    let exchange = Exchange::new(&sides.a.spec, input_a, ops.readies_sinks());
    let was_same = Cell::new(false);
    let mut keeper = Keeper::new(&exchange);
    let mut comparer = Comparer::new(&exchange, &was_same);
    let (mut of_a, mut of_b) = (
        Listener {
            tell: Some(tell),
            layers: Vec::new(),
        },
        Listener {
            tell: None,
            layers: Vec::new(),
        },
    );
    let mut ran = Ran::default();
    {
        let mut a = Side::begin(ops, sides.a, input_a, &mut of_a, &mut keeper, pace)?;
        let mut b = Side::begin(ops, sides.b, input_b, &mut of_b, &mut comparer, pace)?;
        let mut noise = Noise::default();
        let work = Work {
            ops,
            sides,
            exchange: &exchange,
            was_same: &was_same,
            pace,
        };
        for (stack_a, stack_b) in sides.a.spec.stacks.iter().zip(&sides.b.spec.stacks) {
            let mut of_stack = Noise::default();
            work.stack(
                (stack_a, stack_b),
                (&mut a, &mut b),
                &mut of_stack,
                &mut ran,
            )?;
            if stack_a.stack != Stack::Encoder {
                noise = of_stack;
            }
        }
        tell(Progress::Predictions);
        let resid = (&a.resid, &b.resid);
        let after = after_layers(ops, (sides.a, sides.b), resid, input_a, pace)?;
        let total = after.gap.total();
        let tolerance = noise.tolerance(sides.floors, (Stack::Only, AFTER), &total, None);
        ran.hooks.push(HookSums {
            hook: AFTER,
            stack: None,
            layer_idx: None,
            gap: after.gap,
            tolerance,
        });
        ran.predictions = after.predictions;
    }
    let counterpart = |stack: Stack, layer_idx: usize| {
        let layer_idx = sides.map.of(stack, layer_idx)?;
        let mut layers = of_b.layers.iter();
        layers.find(|(other, idx, _)| (*other, *idx) == (stack, layer_idx))
    };
    for (stack, layer_idx, stats_a) in &of_a.layers {
        let Some((_, _, stats_b)) = counterpart(*stack, *layer_idx) else {
            continue;
        };
        let of_layer = ran
            .heads
            .iter_mut()
            .filter(|head| (head.stack, head.layer_idx) == (*stack, *layer_idx));
        for head in of_layer {
            let both = stats_a.get(head.head_idx).zip(stats_b.get(head.head_idx));
            head.stats = both.map(|(a, b)| [a.clone(), b.clone()]);
        }
    }
    Ok(ran)
}

struct Work<'a, 's, O: Ops> {
    ops: &'a O,
    sides: &'a Sides<'s>,
    exchange: &'a Exchange<'a>,
    was_same: &'a Cell<bool>,
    pace: &'a dyn Pace,
}

impl<'a, O: Ops> Work<'a, '_, O> {
    fn stack(
        &self,
        (of_a, of_b): (&StackSpec, &StackSpec),
        (a, b): (&mut Side<'a, O>, &mut Side<'a, O>),
        noise: &mut Noise,
        ran: &mut Ran,
    ) -> Result<()> {
        a.resid = a.pass.embed(of_a)?;
        b.resid = b.pass.embed(of_b)?;
        let reuse = reuse_buffers();
        let mut next_b = 0;
        for layer_idx in 0..of_a.n_layers() {
            if self.pace.stops() {
                return Err(Error::Cancelled);
            }
            let Some(layer_b) = self.sides.map.of(of_a.stack, layer_idx) else {
                drop(a.layer(self.ops, (of_a, layer_idx), None, self.pace)?);
                continue;
            };
            while next_b < layer_b {
                drop(b.layer(self.ops, (of_b, next_b), None, self.pace)?);
                next_b += 1;
            }
            next_b = layer_b + 1;
            self.layer(((of_a, layer_idx), (of_b, layer_b)), (a, b), noise, ran)?;
        }
        while next_b < of_b.n_layers() {
            drop(b.layer(self.ops, (of_b, next_b), None, self.pace)?);
            next_b += 1;
        }
        drop(reuse);
        changed(&self.exchange.own).clear();
        changed(&self.exchange.cross).clear();
        if of_a.stack == Stack::Encoder {
            a.pass.end(of_a, &a.resid, false)?;
            b.pass.end(of_b, &b.resid, false)?;
            if let Some(gap) = self.exchange.of_encoded.take() {
                let total = gap.total();
                let at = (Stack::Encoder, AFTER);
                let tolerance = noise.tolerance(self.sides.floors, at, &total, None);
                ran.hooks.push(HookSums {
                    hook: AFTER,
                    stack: Some(Stack::Encoder),
                    layer_idx: None,
                    gap,
                    tolerance,
                });
            }
        }
        Ok(())
    }

    /// Runs one layer of each side and compares them.
    fn layer(
        &self,
        ((of_a, layer_a), (of_b, layer_b)): ((&StackSpec, usize), (&StackSpec, usize)),
        (a, b): (&mut Side<'a, O>, &mut Side<'a, O>),
        noise: &mut Noise,
        ran: &mut Ran,
    ) -> Result<()> {
        let (exchange, stack) = (self.exchange, of_a.stack);
        exchange.begin_layer(stack, layer_a, self.sides.row_bytes);
        self.was_same.set(false);
        let of_both = a.layer(self.ops, (of_a, layer_a), None, self.pace)?;
        // Weights known to be equal are not read twice.
        let known = self.reads_alike((of_a, layer_a), (of_b, layer_b));
        let known = known.then_some(of_both);
        if self.ops.readies_sinks() {
            for grid in [stack, Stack::Cross] {
                self.compute_again(grid, layer_a)?;
            }
        }
        let weights = b.layer(self.ops, (of_b, layer_b), known, self.pace)?;
        for grid in [stack, Stack::Cross] {
            self.heads_left(grid, (layer_a, layer_b))?;
        }
        let (compared, distances) = exchange.finish_layer(stack);
        noise.routes = routes(of_a, layer_a);
        let mut tolerances: Vec<((Stack, Hook), f64)> = Vec::new();
        let mut beyond = Beyond::default();
        for Compared { stack, hook, gap } in compared {
            let attention = exchange.attention(stack);
            let total = gap.total();
            let at = (stack, hook);
            let tolerance = noise.tolerance(self.sides.floors, at, &total, attention);
            tolerances.push((at, tolerance));
            beyond.take(hook, total.relative(), tolerance);
            ran.hooks.push(HookSums {
                hook,
                stack: Some(stack),
                layer_idx: Some(layer_a),
                gap,
                tolerance,
            });
        }
        for (stack, divergences) in distances {
            let heads = divergences.into_iter().enumerate();
            ran.heads
                .extend(heads.map(|(head_idx, divergence)| HeadSums {
                    stack,
                    layer_idx: layer_a,
                    head_idx,
                    divergence,
                    stats: None,
                }));
        }
        let suspects = self.sides.suspects;
        let is_judged = self.sides.floors.of_hooks.is_finite();
        if is_judged && is_among(&suspects.layers, stack, layer_a) {
            // If the layer already ran on A's input, its result stands. A decoder layer may have read another encoder's output.
            let is_alone = exchange.is_same_memory.get() || stack != Stack::Decoder;
            if !(self.was_same.get() && is_alone) {
                let specs = [&self.sides.a.spec, &self.sides.b.spec];
                let has_knobs = is_among(&suspects.by_knobs, stack, layer_a);
                let layers = (stack, [layer_a, layer_b]);
                let (tokens, _) = exchange.sequences(stack);
                let alone = Alone {
                    exchange,
                    tolerances: &tolerances,
                    floor: self.sides.floors.of_hooks,
                    first: first_tokens(specs, layers, tokens, has_knobs),
                };
                let of_b = (of_b, layer_b, &weights);
                beyond = alone.run(self.ops, of_b, (&a.pass, &b.pass), &mut b.scratch)?;
            }
            let largest = beyond.largest();
            if largest > 0.0 {
                ran.isolated.push((stack, layer_a, largest));
            }
        }
        exchange.end_layer();
        Ok(())
    }

    /// Whether both blocks read the same numbers in the same way.
    fn reads_alike(
        &self,
        (of_a, layer_a): (&StackSpec, usize),
        (of_b, layer_b): (&StackSpec, usize),
    ) -> bool {
        let Some(differing) = self.sides.differing else {
            return false;
        };
        let blocks = (of_a.blocks().get(layer_a), of_b.blocks().get(layer_b));
        blocks.0.is_some() && blocks.0 == blocks.1 && !is_among(differing, of_a.stack, layer_a)
    }

    /// Schedules recomputation of A's heads that could not be kept, for when B reaches them.
    fn compute_again(&self, stack: Stack, layer_a: usize) -> Result<()> {
        let shared = self.exchange.rows(stack);
        if looked_at(shared).left().is_empty() {
            return Ok(());
        }
        let again = {
            let of_a = self.exchange.of_a.borrow();
            self.again(0, (stack, layer_a), &of_a)?
        };
        if let Some(again) = again {
            changed(shared).compute_again(again);
        }
        Ok(())
    }

    /// Recomputes, on both sides, the heads of A that could not be kept.
    fn heads_left(&self, stack: Stack, (layer_a, layer_b): (usize, usize)) -> Result<()> {
        let shared = self.exchange.rows(stack);
        let left = looked_at(shared).left();
        if left.is_empty() {
            return Ok(());
        }
        let (of_a, of_b) = (self.exchange.of_a.borrow(), self.exchange.of_b.borrow());
        let a = self.again(0, (stack, layer_a), &of_a)?;
        let b = self.again(1, (stack, layer_b), &of_b)?;
        let (Some(a), Some(b)) = (a, b) else {
            return Ok(());
        };
        for start in left.clone().step_by(a.n_at_once) {
            let heads = start..(start + a.n_at_once).min(left.end);
            changed(shared).keep(heads.clone());
            let ran = a.attend(heads.clone(), &Keep(shared), self.pace);
            let ran = ran.and_then(|()| b.attend(heads, &Compare(shared), self.pace));
            ran.ok_or(Error::Cancelled)?;
        }
        Ok(())
    }

    /// Makes a recomputable attention from its kept queries, keys and values.
    fn again(
        &self,
        side: usize,
        (stack, layer_idx): (Stack, usize),
        values: &BTreeMap<(Stack, Hook), Kept>,
    ) -> Result<Option<Again>> {
        let model = [self.sides.a, self.sides.b][side];
        let of = |hook: Hook| values.get(&(stack, hook)).map(|kept| kept.values.clone());
        let found = (of(Hook::RotQ), of(Hook::RotK), of(Hook::V));
        let (Some(spec), (Some(q), Some(k), Some(v))) =
            (model.spec.attention(stack, layer_idx), found)
        else {
            return Ok(None);
        };
        let (queries, keys) = self.exchange.sequences(stack);
        let tables = super::suspects::tables(model, stack, layer_idx)?;
        let rows = looked_at(self.exchange.rows(stack));
        Ok(Some(Again {
            spec: spec.clone(),
            visibility: visibility(spec, queries, keys),
            positions: queries.positions.clone(),
            sinks: tables.sinks.map(Cow::into_owned),
            buckets: tables.buckets.map(Cow::into_owned),
            relative: tables.relative,
            globals: self.exchange.globals[side].borrow().get(&stack).cloned(),
            values: [q, k, v],
            n_at_once: rows.at_once(self.sides.row_bytes),
        }))
    }
}

/// Returns which keys the queries of an attention see.
fn visibility(
    spec: &AttentionSpec,
    queries: &attnscope_forward::Sequence,
    keys: &attnscope_forward::Sequence,
) -> Visibility {
    let real = queries.real.as_deref();
    if spec.is_cross {
        let keys = (keys.len(), keys.real.as_deref());
        Visibility::of_cross(spec.mask, (queries.len(), real), keys)
    } else {
        queries.visibility(spec)
    }
}

/// Whether `layers` contains a layer or its cross-attention.
fn is_among(layers: &BTreeSet<String>, stack: Stack, layer_idx: usize) -> bool {
    let has = |stack| layers.contains(&super::suspects::layer_name(stack, layer_idx));
    has(stack) || (stack == Stack::Decoder && has(Stack::Cross))
}
