//! Runs two models on one prompt in lockstep: one layer of each is held, and every hook is compared before the next layer runs.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
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
use super::engines::Engines;
use super::exchange::{Compared, Exchange, Measure, SideTap};
use super::floors::Floors;
use super::gap::HookGap;
use super::knobs::KnobDifference;
use super::largest::Largest;
use super::map::LayerMap;
use super::noise::{Noise, routes};
use super::predictions::{AFTER, PredictionDifference, after_layers};
use super::rows::{Again, changed, looked_at};
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
    /// If asked for, and the width of its vectors.
    pub largest: Option<(Largest, usize)>,
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
    /// Of the last hidden states, if asked for.
    pub hidden: Option<Largest>,
    /// The knob of a recording that explains the first difference.
    pub inferred_knob: Option<KnobDifference>,
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
    pub measure: Measure,
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
    ops: &'a O,
    model: &'a Model,
    pace: &'a dyn Pace,
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
            ops,
            model,
            pace,
            pass: Pass::begin(ops, model, job, options, pace)?,
            resid: O::Buffer::default(),
            scratch: Scratch::default(),
        })
    }

    /// Runs a layer on the residual and returns its weights. `known` are its weights if they were read already.
    fn layer(
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

/// Runs a prompt through both models. Each side counts the prompt's positions by its own rule.
pub(super) fn run<E: Engines>(
    engines: &E,
    sides: &Sides<'_>,
    (input_a, input_b): (&Input, &Input),
    tell: &dyn Fn(Progress),
    pace: &dyn Pace,
) -> Result<Ran> {
    let exchange = Exchange::new(&sides.a.spec, input_a, sides.measure);
    let was_same = Cell::new(false);
    let mut tap_a = SideTap::keep(&exchange);
    let mut tap_b = SideTap::compare(&exchange, &was_same);
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
        let mut a = Side::begin(engines.a(), sides.a, input_a, &mut of_a, &mut tap_a, pace)?;
        let mut b = Side::begin(engines.b(), sides.b, input_b, &mut of_b, &mut tap_b, pace)?;
        let mut noise = Noise::default();
        let work = Work {
            engines,
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
        let input = (input_a, sides.measure);
        let after = after_layers(engines, (sides.a, sides.b), resid, input, pace)?;
        let total = after.gap.total();
        let tolerance = noise.tolerance(sides.floors, (Stack::Only, AFTER), &total, None);
        ran.hooks.push(HookSums {
            hook: AFTER,
            stack: None,
            layer_idx: None,
            gap: after.gap,
            tolerance,
            largest: after
                .logits
                .zip(sides.a.spec.head.as_ref().map(|head| head.unembed.n_out())),
        });
        ran.predictions = after.predictions;
        ran.hidden = after.hidden;
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

struct Work<'a, 's, E> {
    engines: &'a E,
    sides: &'a Sides<'s>,
    exchange: &'a Exchange<'a>,
    was_same: &'a Cell<bool>,
    pace: &'a dyn Pace,
}

impl<'a, E: Engines> Work<'a, '_, E> {
    fn stack(
        &self,
        (of_a, of_b): (&StackSpec, &StackSpec),
        (a, b): (&mut Side<'a, E::A>, &mut Side<'a, E::B>),
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
                drop(a.layer((of_a, layer_idx), None)?);
                continue;
            };
            while next_b < layer_b {
                drop(b.layer((of_b, next_b), None)?);
                next_b += 1;
            }
            next_b = layer_b + 1;
            self.layer(((of_a, layer_idx), (of_b, layer_b)), (a, b), noise, ran)?;
        }
        while next_b < of_b.n_layers() {
            drop(b.layer((of_b, next_b), None)?);
            next_b += 1;
        }
        drop(reuse);
        changed(&self.exchange.own).clear();
        changed(&self.exchange.cross).clear();
        if of_a.stack == Stack::Encoder {
            a.pass.end(of_a, &a.resid, false)?;
            b.pass.end(of_b, &b.resid, false)?;
            if let Some(Compared {
                gap,
                largest,
                width,
                ..
            }) = self.exchange.of_encoded.take()
            {
                let total = gap.total();
                let at = (Stack::Encoder, AFTER);
                let tolerance = noise.tolerance(self.sides.floors, at, &total, None);
                ran.hooks.push(HookSums {
                    hook: AFTER,
                    stack: Some(Stack::Encoder),
                    layer_idx: None,
                    gap,
                    tolerance,
                    largest: largest.map(|largest| (largest, width)),
                });
            }
        }
        Ok(())
    }

    /// Runs one layer of each side and compares them.
    fn layer(
        &self,
        ((of_a, layer_a), (of_b, layer_b)): ((&StackSpec, usize), (&StackSpec, usize)),
        (a, b): (&mut Side<'a, E::A>, &mut Side<'a, E::B>),
        noise: &mut Noise,
        ran: &mut Ran,
    ) -> Result<()> {
        let (exchange, stack) = (self.exchange, of_a.stack);
        exchange.begin_layer(stack, layer_a, self.sides.row_bytes);
        self.was_same.set(false);
        let of_both = a.layer((of_a, layer_a), None)?;
        // Weights known to be equal are not read twice.
        let known = self.reads_alike((of_a, layer_a), (of_b, layer_b));
        let known = known.then(|| self.engines.weights_for_b(of_both)).flatten();
        for grid in [stack, Stack::Cross] {
            self.recompute_heads(grid, layer_a)?;
        }
        let weights = b.layer((of_b, layer_b), known)?;
        let (compared, divergences) = exchange.finish_layer(stack)?;
        noise.routes = routes(of_a, layer_a);
        let mut tolerances: Vec<((Stack, Hook), f64)> = Vec::new();
        let mut beyond = Beyond::default();
        for Compared {
            stack,
            hook,
            gap,
            largest,
            width,
        } in compared
        {
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
                largest: largest.map(|largest| (largest, width)),
            });
        }
        for (stack, of_heads) in divergences {
            let heads = of_heads.into_iter().enumerate();
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
                let of_encoder = self.engines.pass_for_b(&a.pass);
                beyond = alone.run(b.ops, of_b, (of_encoder, &b.pass), &mut b.scratch)?;
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

    /// Has those heads of A that could not be kept computed again, from A's queries, keys and values, when B reaches them.
    fn recompute_heads(&self, stack: Stack, layer_a: usize) -> Result<()> {
        let (exchange, model) = (self.exchange, self.sides.a);
        if looked_at(exchange.rows(stack)).left().is_empty() {
            return Ok(());
        }
        let of_a = exchange.of_a.borrow();
        let of = |hook: Hook| of_a.get(&(stack, hook)).map(|kept| kept.values.clone());
        let found = (of(Hook::RotQ), of(Hook::RotK), of(Hook::V));
        let (Some(spec), (Some(q), Some(k), Some(v))) =
            (model.spec.attention(stack, layer_a), found)
        else {
            return Ok(());
        };
        let (queries, keys) = exchange.sequences(stack);
        let tables = super::suspects::tables(model, stack, layer_a)?;
        let mut rows = changed(exchange.rows(stack));
        let again = Again {
            spec: spec.clone(),
            visibility: visibility(spec, queries, keys),
            positions: queries.positions.clone(),
            sinks: tables.sinks.map(Cow::into_owned),
            buckets: tables.buckets.map(Cow::into_owned),
            relative: tables.relative,
            globals: exchange.globals.borrow().get(&stack).cloned(),
            values: [q, k, v],
            n_at_once: rows.at_once(self.sides.row_bytes),
        };
        rows.recompute_from(again);
        Ok(())
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
