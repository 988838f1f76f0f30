//! Runs two models on one prompt in lockstep: one layer of each is held, and every hook is compared before the next layer runs.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;

use attnscope_checks::stats::Values;
use attnscope_compute::attention::{AttentionSpec, Visibility};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::reuse_buffers;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input, LayerWeights, bias_factors_on_host};
use attnscope_run::Progress;
use attnscope_spec::{BlockSpec, Model, Stack, StackSpec};

use super::alone::{Alone, Beyond, first_tokens};
use super::engines::Engines;
use super::exchange::{AFTER, Compared, Exchange, Measure, SideTap};
use super::floors::Floors;
use super::gap::HookGap;
use super::head_map::{HeadMap, keep_worst};
use super::knobs::KnobDifference;
use super::largest::Largest;
use super::map::LayerMap;
use super::noise::{Noise, routes};
use super::predictions::{PredictionDifference, after_layers};
use super::rows::{RecomputeInputs, read_rows, write_rows};
use super::side::{LayerStatistics, Listener, SideRun};
use super::suspects::Suspects;

/// Bytes of A's scores and patterns kept per layer. Heads beyond this limit are recomputed from A's queries and keys when B
/// reaches them.
pub const ROW_BYTES: usize = 64 << 20;

/// One hook of one layer, compared over a prompt.
#[derive(Debug, Clone)]
pub(super) struct HookSums {
    pub hook: Hook,
    /// `None` for logits; for the encoder's output, only `layer_idx` is `None`.
    pub stack: Option<Stack>,
    pub layer_idx: Option<usize>,
    pub gap: HookGap,
    pub tolerance: f64,
    /// Largest difference, and the width of the hook's vectors; only with [`Measure::Largest`].
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
    /// Patterns of A and B, if they are known and among those that differ most.
    pub maps: Option<Box<[HeadMap; 2]>>,
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
    /// Largest difference of the last hidden states; only with [`Measure::Largest`].
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
    /// Whether the maps of the heads that differ most are kept.
    pub keeps_maps: bool,
    pub measure: Measure,
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
            keeps_maps: sides.keeps_maps,
            layers: Vec::new(),
        },
        Listener {
            tell: None,
            keeps_maps: sides.keeps_maps,
            layers: Vec::new(),
        },
    );
    let mut ran = Ran::default();
    {
        let mut a = SideRun::begin(engines.a(), sides.a, input_a, &mut of_a, &mut tap_a, pace)?;
        let mut b = SideRun::begin(engines.b(), sides.b, input_b, &mut of_b, &mut tap_b, pace)?;
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
    add_statistics(&mut ran, sides.map, [&of_a.layers, &of_b.layers]);
    Ok(ran)
}

/// Tolerances of a layer's hooks, and how far they are exceeded.
#[derive(Default)]
struct Judged {
    tolerances: Vec<((Stack, Hook), f64)>,
    beyond: Beyond,
}

/// Adds the statistics and the maps of both sides to each head that was compared.
fn add_statistics(ran: &mut Ran, map: &LayerMap, [of_a, of_b]: [&[LayerStatistics]; 2]) {
    let kept = |layers: &[LayerStatistics], stack: Stack, layer_idx: usize, head_idx: usize| {
        let mut layers = layers.iter();
        let layer = layers.find(|(other, idx, _)| (*other, *idx) == (stack, layer_idx));
        layer.and_then(|(.., heads)| heads.get(head_idx).cloned())
    };
    for head in &mut ran.heads {
        let a = kept(of_a, head.stack, head.layer_idx, head.head_idx);
        let b = map
            .of(head.stack, head.layer_idx)
            .and_then(|layer_idx| kept(of_b, head.stack, layer_idx, head.head_idx));
        let Some(((stats_a, map_a), (stats_b, map_b))) = a.zip(b) else {
            continue;
        };
        head.stats = Some([stats_a, stats_b]);
        head.maps = map_a.zip(map_b).map(|(a, b)| Box::new([a, b]));
    }
    keep_worst(&mut ran.heads);
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
        (a, b): (&mut SideRun<'a, E::A>, &mut SideRun<'a, E::B>),
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
        write_rows(&self.exchange.own).clear();
        write_rows(&self.exchange.cross).clear();
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
        (a, b): (&mut SideRun<'a, E::A>, &mut SideRun<'a, E::B>),
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
        let judged = self.take_hooks(layer_a, compared, noise, ran);
        for (stack, of_heads) in divergences {
            let heads = of_heads.into_iter().enumerate();
            ran.heads
                .extend(heads.map(|(head_idx, divergence)| HeadSums {
                    stack,
                    layer_idx: layer_a,
                    head_idx,
                    divergence,
                    stats: None,
                    maps: None,
                }));
        }
        let suspects = self.sides.suspects;
        let is_judged = self.sides.floors.of_hooks.is_finite();
        if is_judged && is_among(&suspects.layers, stack, layer_a) {
            let layers = [layer_a, layer_b];
            let largest = self.given_same_input(layers, (of_b, &weights), (a, b), judged)?;
            if largest > 0.0 {
                ran.isolated.push((stack, layer_a, largest));
            }
        }
        exchange.end_layer();
        Ok(())
    }

    /// Adds the comparison of a layer's hooks to the results.
    fn take_hooks(
        &self,
        layer_a: usize,
        compared: Vec<Compared>,
        noise: &mut Noise,
        ran: &mut Ran,
    ) -> Judged {
        let mut judged = Judged::default();
        for of_hook in compared {
            let Compared { stack, hook, .. } = of_hook;
            let attention = self.exchange.attention(stack);
            let total = of_hook.gap.total();
            let tolerance = noise.tolerance(self.sides.floors, (stack, hook), &total, attention);
            judged.tolerances.push(((stack, hook), tolerance));
            judged.beyond.take(hook, total.relative(), tolerance);
            ran.hooks.push(HookSums {
                hook,
                stack: Some(stack),
                layer_idx: Some(layer_a),
                gap: of_hook.gap,
                tolerance,
                largest: of_hook.largest.map(|largest| (largest, of_hook.width)),
            });
        }
        judged
    }

    /// Returns how far a layer of B differs when it runs on A's input; 0 if it does not.
    fn given_same_input(
        &self,
        [layer_a, layer_b]: [usize; 2],
        (of_b, weights): (&StackSpec, &LayerWeights<'_, E::B>),
        (a, b): (&SideRun<'a, E::A>, &mut SideRun<'a, E::B>),
        judged: Judged,
    ) -> Result<f64> {
        let (exchange, stack) = (self.exchange, of_b.stack);
        // A decoder layer may have read another encoder's output.
        let read_same = exchange.is_same_memory.get() || stack != Stack::Decoder;
        if self.was_same.get() && read_same {
            return Ok(judged.beyond.largest());
        }
        let specs = [&self.sides.a.spec, &self.sides.b.spec];
        let has_knobs = is_among(&self.sides.suspects.by_knobs, stack, layer_a);
        let (tokens, _) = exchange.sequences(stack);
        let alone = Alone {
            exchange,
            tolerances: &judged.tolerances,
            floor: self.sides.floors.of_hooks,
            first: first_tokens(specs, (stack, [layer_a, layer_b]), &tokens, has_knobs),
        };
        let of_encoder = self.engines.pass_for_b(&a.pass);
        let of_b = (of_b, layer_b, weights);
        let beyond = alone.run(b.ops, of_b, (of_encoder, &b.pass), &mut b.scratch)?;
        Ok(beyond.largest())
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

    /// Registers A's queries, keys and values, so that heads that were not kept are recomputed when B reaches them.
    fn recompute_heads(&self, stack: Stack, layer_a: usize) -> Result<()> {
        let exchange = self.exchange;
        if read_rows(exchange.rows(stack)).left().is_empty() {
            return Ok(());
        }
        let Some(recompute) = self.recompute_inputs(stack, layer_a)? else {
            return Ok(());
        };
        let blocks = self.sides.a.spec.stack_of(stack).blocks();
        let merged = blocks.get(layer_a).and_then(BlockSpec::merged);
        let beside = match merged {
            Some(_) if stack == Stack::Cross => self.recompute_inputs(Stack::Decoder, layer_a)?,
            Some(_) => self.recompute_inputs(Stack::Cross, layer_a)?,
            None => None,
        };
        let recompute = RecomputeInputs {
            beside: beside.and_then(|other| other.log_sums(&|| false)),
            ..recompute
        };
        write_rows(exchange.rows(stack)).recompute_from(recompute);
        Ok(())
    }

    /// A's queries, keys and values of an attention, if they were kept.
    fn recompute_inputs(&self, stack: Stack, layer_a: usize) -> Result<Option<RecomputeInputs>> {
        let (exchange, model) = (self.exchange, self.sides.a);
        let of_a = exchange.of_a.borrow();
        let of = |hook: Hook| of_a.get(&(stack, hook)).map(|kept| kept.values.clone());
        let found = (of(Hook::RotQ), of(Hook::RotK), of(Hook::V));
        let (Some(spec), (Some(q), Some(k), Some(v))) =
            (model.spec.attention(stack, layer_a), found)
        else {
            return Ok(None);
        };
        let (queries, keys) = exchange.sequences(stack);
        let tables = super::suspects::tables(model, stack, layer_a)?;
        let block = model.spec.stack_of(stack).blocks().get(layer_a);
        let bias_factors = match (block, of(Hook::ResidPre)) {
            (Some(block), Some(resid)) if stack != Stack::Cross => {
                let rows = (&queries.positions[..], &resid[..]);
                bias_factors_on_host(&model.checkpoint.tensors, block, rows, &|| false)?
            }
            _ => None,
        };
        let rows = read_rows(exchange.rows(stack));
        Ok(Some(RecomputeInputs {
            spec: spec.clone(),
            visibility: visibility(spec, &queries, &keys),
            positions: queries.positions.clone(),
            grid: queries.grid(),
            sinks: tables.sinks.map(Cow::into_owned),
            beside: None,
            buckets: tables.buckets.map(Cow::into_owned),
            bias_factors,
            relative: tables.relative,
            globals: exchange.globals.borrow().get(&stack).cloned(),
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
        let of_keys = (keys.len(), keys.real.as_deref());
        let visibility = Visibility::of_cross(spec.mask, (queries.len(), real), of_keys);
        keys.in_windows(spec, visibility)
    } else {
        queries.visibility(spec)
    }
}

/// Whether `layers` contains a layer or its cross-attention.
fn is_among(layers: &BTreeSet<String>, stack: Stack, layer_idx: usize) -> bool {
    let has = |stack| layers.contains(&super::suspects::layer_name(stack, layer_idx));
    has(stack) || (stack == Stack::Decoder && has(Stack::Cross))
}
