//! Sensitivity: what predictions lose when a what-if holds in one layer or in one head alone.

use std::ops::Range;
use std::sync::Arc;

use attnscope_compute::attention::HeadSummary;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{
    BlockContext, Input, LayerWeights, Memory, NoHooks, Scratch, recurrent::FinalStates, run_layer,
};
use attnscope_run::{WhatIf, with_what_ifs};
use attnscope_spec::{Model, ModelSpec, Place, Stack};

use super::capture::{Base, of_blocks, sequence_of};
use super::estimate::{Estimate, Sampled};
use super::judged::{Judge, Moved, head_of};
use super::together::Together;
use super::variant::{Instead, Part, Variant};

/// What a change does in one place, over the prompts that have run so far.
#[derive(Debug, Clone)]
pub struct PlaceEffect {
    pub place: Place,
    loss: Sampled,
    kl: Sampled,
    entropy: Sampled,
}

impl PlaceEffect {
    fn of(place: Place) -> Self {
        Self {
            place,
            loss: Sampled::default(),
            kl: Sampled::default(),
            entropy: Sampled::default(),
        }
    }

    /// Increase of −log p of the next token, in nats; `None` for models that do not predict the next token.
    pub fn loss(&self) -> Option<Estimate> {
        self.loss.estimate()
    }

    /// KL(run ‖ changed run) of the predictions, in nats.
    pub fn kl(&self) -> Option<Estimate> {
        self.kl.estimate()
    }

    /// Change of the mean entropy of the attention of the changed heads, in nats.
    pub fn entropy(&self) -> Option<f64> {
        self.entropy.mean()
    }

    /// Mean change of the loss; mean divergence for models that do not predict the next token.
    pub fn size(&self) -> Option<f64> {
        self.loss.mean().or_else(|| self.kl.mean())
    }

    pub fn n_prompts(&self) -> usize {
        self.kl.n_prompts()
    }

    fn add(&mut self, moved: Moved, entropy: Option<f64>) {
        self.loss.add(moved.loss);
        self.kl.add(moved.kl);
        self.entropy.add(entropy.into_iter().collect());
    }

    /// The stack in which the layer runs, and the layer.
    fn home(&self) -> (Stack, usize) {
        let stack = match self.place.grid() {
            Stack::Cross => Stack::Decoder,
            other => other,
        };
        (stack, self.place.layer_idx.unwrap_or(0))
    }
}

/// What a change does in each layer and each head.
#[derive(Debug, Clone)]
pub struct Sensitivity {
    pub places: Vec<PlaceEffect>,
    /// The change everywhere at once.
    pub whole: PlaceEffect,
    n_done: usize,
}

impl Sensitivity {
    /// Plans the places that `wants` selects and that the change reaches.
    ///
    /// # Errors
    /// When the model predicts no tokens, its rows hold more than the residual, the change is impossible, or it reaches no place.
    pub fn plan(model: &Model, what_ifs: &[WhatIf], wants: impl Fn(Place) -> bool) -> Result<Self> {
        of_blocks(model)?;
        head_of(model)?;
        with_what_ifs(&model.spec, what_ifs)?;
        let spec = &model.spec;
        if spec.stacks.iter().any(|stack| stack.rows.is_some()) {
            let problem = format!(
                "{}: layers hand on more than the residual, so that a layer cannot be changed alone; run the what-if with a place instead",
                spec.family
            );
            return Err(Error::Setting(problem));
        }
        let places = places_of(spec).filter(|place| wants(*place));
        let reached = places.filter(|place| changed_at(spec, what_ifs, *place).is_some());
        let places: Vec<PlaceEffect> = reached.map(PlaceEffect::of).collect();
        if places.is_empty() {
            let problem = "the what-if changes none of the selected layers and heads by itself";
            return Err(Error::Setting(problem.to_owned()));
        }
        Ok(Self {
            places,
            whole: PlaceEffect::of(Place::MODEL),
            n_done: 0,
        })
    }

    /// Runs every prompt as it is, with the whole change, and with the change in each place; `tell` receives the number of places
    /// done and of all.
    ///
    /// # Errors
    /// When it is stopped, or the model cannot run.
    pub fn run<O: Ops>(
        &mut self,
        ops: &O,
        model: &Model,
        (inputs, what_ifs): (&[Input], &[WhatIf]),
        tell: &mut dyn FnMut(usize, usize),
        pace: &dyn Pace,
    ) -> Result<()> {
        let n_all = inputs.len() * self.places.len();
        let run =
            |model: &Model, input: &Input| Base::run(ops, model, input, &[], &mut |_| {}, pace);
        for input in inputs {
            let base = run(model, input)?;
            let judge = Judge::of(ops, model, (input, &base), None, pace)?;
            if judge.keeps_reference() {
                let everywhere = model.with_spec(with_what_ifs(&model.spec, what_ifs)?);
                let hidden = run(&everywhere, input)?.last.values;
                // The head may be changed too: its own model predicts.
                let moved = judge.moved(ops, &everywhere, &hidden, pace)?;
                if let Some(moved) = moved.into_iter().next() {
                    self.whole.add(moved, None);
                }
            }
            let together = Together {
                ops,
                model,
                input,
                base: &base,
                pace,
            };
            let homes: Vec<Stack> = self.places.iter().map(|one| one.home().0).collect();
            let mut unchanged = Unchanged::default();
            for round in together.rounds_of(&homes) {
                let places = &self.places[round.clone()];
                let changed = places.iter();
                let changed =
                    changed.map(|one| changed_layer(&together, one, what_ifs, &mut unchanged));
                let changed = changed.collect::<Result<Vec<(Variant, Option<f64>)>>>()?;
                let (variants, entropies): (Vec<Variant>, Vec<_>) = changed.into_iter().unzip();
                let tall = together.run(&variants)?;
                let all = judge.moved(ops, model, &tall, pace)?;
                self.n_done += round.len();
                let places = self.places[round].iter_mut();
                for ((one, moved), entropy) in places.zip(all).zip(entropies) {
                    one.add(moved, entropy);
                }
                tell(self.n_done, n_all);
            }
        }
        Ok(())
    }
}

/// All layers and heads, in the order in which layers run.
fn places_of(spec: &ModelSpec) -> impl Iterator<Item = Place> {
    let stacks = spec.stacks.iter().flat_map(|stack| {
        let with_cross = stack.stack == Stack::Decoder;
        (0..stack.n_layers()).flat_map(move |layer_idx| {
            let cross = with_cross.then_some(Stack::Cross);
            let grids = std::iter::once(stack.stack).chain(cross);
            grids.map(move |grid| (grid, layer_idx))
        })
    });
    stacks.flat_map(|(grid, layer_idx)| {
        let layer = Place::layer(grid, layer_idx);
        let n_heads = spec
            .attention(grid, layer_idx)
            .map_or(0, |attention| attention.n_heads);
        let heads = (0..n_heads).map(move |head_idx| layer.head(head_idx));
        std::iter::once(layer).chain(heads)
    })
}

/// The spec with the changes in one place alone; `None` if they are impossible there or change nothing.
fn changed_at(spec: &ModelSpec, what_ifs: &[WhatIf], place: Place) -> Option<ModelSpec> {
    let here = what_ifs.iter().filter_map(|what_if| what_if.only_at(place));
    let here: Vec<WhatIf> = here.collect();
    let changed = with_what_ifs(spec, &here).ok()?;
    (changed != *spec).then_some(changed)
}

/// The attention of the layer that ran last as it is.
#[derive(Default)]
struct Unchanged(Option<((Stack, usize), LayerHeads)>);

/// Summaries of a layer's self-attention and cross-attention.
type LayerHeads = [Vec<HeadSummary>; 2];

/// Runs the layer of a place with the change, from the input that it has without: what stands before the next layer, and the change of
/// its heads' entropy.
fn changed_layer<O: Ops>(
    together: &Together<'_, O>,
    one: &PlaceEffect,
    what_ifs: &[WhatIf],
    unchanged: &mut Unchanged,
) -> Result<(Variant, Option<f64>)> {
    let (stack, layer_idx) = one.home();
    let spec = &together.model.spec;
    let found = unchanged
        .0
        .take()
        .filter(|(at, _)| *at == (stack, layer_idx));
    let (_, before) = match found {
        Some(found) => unchanged.0.insert(found),
        None => {
            let (_, heads) = run_one(together, spec, (stack, layer_idx))?;
            unchanged.0.insert(((stack, layer_idx), heads))
        }
    };
    let missing = || Error::Setting(format!("{}: nothing changes here", one.place));
    let changed = changed_at(spec, what_ifs, one.place).ok_or_else(missing)?;
    let (rows, after) = run_one(together, &changed, (stack, layer_idx))?;
    let variant = Variant {
        stack,
        layer_idx: layer_idx + 1,
        part: Part::Residual,
        position_idx: None,
        columns: 0..spec.d_model,
        instead: Instead::Rows(Arc::new(rows)),
    };
    let grid = usize::from(one.place.grid() == Stack::Cross);
    let heads = one.place.head_idx.map(|head_idx| head_idx..head_idx + 1);
    let mean = |all: &LayerHeads| mean_entropy(&all[grid], heads.clone());
    let entropy = mean(&after).zip(mean(before)).map(|(a, b)| a - b);
    Ok((variant, entropy))
}

/// Runs one layer of a spec on the input that it has in the run. // [position, d_model]
fn run_one<O: Ops>(
    together: &Together<'_, O>,
    spec: &ModelSpec,
    (stack, layer_idx): (Stack, usize),
) -> Result<(Vec<f32>, LayerHeads)> {
    let Together {
        ops,
        model,
        input,
        base,
        pace,
    } = together;
    let of_stack = spec.stack_of(stack);
    let (none, mut hidden) = (FinalStates::default(), O::Buffer::default());
    if let Some(memory) = &base.memory {
        ops.put(memory, spec.d_memory(), &mut hidden)?;
    }
    let source = input.source.as_ref();
    let memory = source.filter(|_| stack == Stack::Decoder);
    let memory = memory.map(|sequence| Memory {
        hidden: &hidden,
        sequence,
        ends: &none,
    });
    let tensors = &model.checkpoint.tensors;
    let sequence = sequence_of(input, stack);
    let context = BlockContext::of(*ops, tensors, of_stack, sequence, memory, *pace)?;
    let weights = LayerWeights::read(*ops, tensors, of_stack, layer_idx, *pace)?;
    let mut resid = O::Buffer::default();
    let rows = base.input(stack, layer_idx)?;
    ops.put(&rows.values, rows.width, &mut resid)?;
    let mut scratch = Scratch::<O>::default();
    let ran = run_layer(
        &context,
        of_stack,
        layer_idx,
        &weights,
        &mut resid,
        &mut scratch,
        &mut NoHooks,
    )?;
    let heads = [ran.attention, ran.cross].map(|run| run.map_or(Vec::new(), |run| run.heads));
    Ok((ops.get(&resid)?.values.into_owned(), heads))
}

/// Mean entropy of the rows of some heads; `None` where there is no attention.
fn mean_entropy(heads: &[HeadSummary], only: Option<Range<usize>>) -> Option<f64> {
    let heads = &heads[only
        .filter(|only| only.end <= heads.len())
        .unwrap_or(0..heads.len())];
    let rows = heads.iter().flat_map(|head| &head.rows);
    let entropies = rows.filter(|row| row.is_real && row.n_visible > 0);
    let (mut sum, mut n) = (0.0, 0usize);
    for row in entropies {
        sum += f64::from(row.entropy);
        n += 1;
    }
    (n > 0).then(|| sum / n as f64)
}
