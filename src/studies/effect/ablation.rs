//! Ablation: how much worse predictions get when a part of a layer is removed.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input};
use attnscope_run::Progress;
use attnscope_spec::{Model, Place};

use super::capture::{Base, of_blocks, sequence_of};
use super::estimate::{Estimate, Sampled};
use super::judged::{Asked, Judge, Moved, head_of};
use super::predicted::Predicted;
use super::together::Together;
use super::variant::{Instead, Part, Variant, parts_of};

/// Replacement of an ablated part's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    Zero,
    /// Its mean over all real positions of all prompts.
    Mean,
    /// Values of the next prompt of equal length in the set, position by position.
    Other,
}

/// Effect of ablating one part, over the prompts that have run so far.
#[derive(Debug, Clone)]
pub struct PartEffect {
    pub part: Part,
    pub place: Place,
    columns: Range<usize>,
    loss: Sampled,
    kl: Sampled,
    logit: Sampled,
}

impl PartEffect {
    /// Increase of −log p of the next token, in nats; `None` for models that do not predict the next token.
    pub fn loss(&self) -> Option<Estimate> {
        self.loss.estimate()
    }

    /// KL(run ‖ ablated) of the predictions, in nats.
    pub fn kl(&self) -> Option<Estimate> {
        self.kl.estimate()
    }

    /// Change of the requested logit, or of a difference of two.
    pub fn logit(&self) -> Option<Estimate> {
        self.logit.estimate()
    }

    /// Mean change of the loss, without an interval; mean divergence for models that do not predict the next token.
    pub fn size(&self) -> Option<f64> {
        self.loss.mean().or_else(|| self.kl.mean())
    }

    /// Number of prompts that have run.
    pub fn n_prompts(&self) -> usize {
        self.kl.n_prompts()
    }

    /// Adds a prompt.
    fn add(&mut self, moved: Moved) {
        self.loss.add(moved.loss);
        self.kl.add(moved.kl);
        self.logit.add(moved.logit.into_iter().collect());
    }
}

/// Progress of an ablation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// An unchanged prompt is running.
    Running {
        prompt_idx: usize,
        progress: Progress,
    },
    /// `n_done` of all ablated runs are done.
    Ablated { n_done: usize, n_all: usize },
}

/// Effects of all chosen parts. It is updated during the run, so partial results remain if it is stopped.
#[derive(Debug, Clone)]
pub struct Ablation {
    pub replaced: Replaced,
    pub parts: Vec<PartEffect>,
    /// Number of prompts that have run with every ablation.
    pub n_prompts: usize,
    n_done: usize,
}

impl Ablation {
    /// Plans the ablation of the parts that `wants` selects.
    ///
    /// # Errors
    /// When the model predicts no tokens, or no part is selected.
    pub fn plan(
        model: &Model,
        replaced: Replaced,
        wants: impl Fn(Part, Place) -> bool,
    ) -> Result<Self> {
        of_blocks(model)?;
        head_of(model)?;
        Self::of_parts(replaced, parts_of(model, wants))
    }

    /// Plans the ablation of parts of a model that other code runs.
    ///
    /// # Errors
    /// When there are none.
    pub fn plan_outside(replaced: Replaced, parts: Vec<(Part, Place)>) -> Result<Self> {
        let parts = parts.into_iter().map(|(part, place)| (part, place, 0..0));
        Self::of_parts(replaced, parts.collect())
    }

    fn of_parts(replaced: Replaced, parts: Vec<(Part, Place, Range<usize>)>) -> Result<Self> {
        let parts = parts.into_iter().map(|(part, place, columns)| PartEffect {
            part,
            place,
            columns,
            loss: Sampled::default(),
            kl: Sampled::default(),
            logit: Sampled::default(),
        });
        let parts: Vec<PartEffect> = parts.collect();
        if parts.is_empty() {
            let problem = "the selected places contain no part of the model";
            return Err(Error::Setting(problem.to_owned()));
        }
        Ok(Self {
            replaced,
            parts,
            n_prompts: 0,
            n_done: 0,
        })
    }

    /// Runs every prompt unchanged, then with each part ablated; `tell` receives every step and may stop the run.
    ///
    /// # Errors
    /// When it is stopped, the model cannot run, or a prompt has no other of equal length.
    pub fn run<O: Ops>(
        &mut self,
        ops: &O,
        model: &Model,
        (inputs, asked): (&[Input], Option<Asked>),
        tell: &mut dyn FnMut(&Self, Step) -> ControlFlow<()>,
        pace: &dyn Pace,
    ) -> Result<()> {
        let n_all = inputs.len() * self.parts.len();
        let means = match self.replaced {
            Replaced::Mean => Some(self.means(ops, model, inputs, tell, pace)?),
            _ => None,
        };
        for (prompt_idx, input) in inputs.iter().enumerate() {
            let base = self.base(ops, model, (input, prompt_idx), &[], tell, pace)?;
            let other = match self.replaced {
                Replaced::Other => {
                    let other_idx = other_of(inputs, prompt_idx)?;
                    let hooks = self.hooks();
                    let other = (&inputs[other_idx], other_idx);
                    Some(self.base(ops, model, other, &hooks, tell, pace)?)
                }
                _ => None,
            };
            let variants = self.parts.iter().enumerate().map(|(part_idx, effect)| {
                let at = (effect.place.grid(), effect.place.layer_idx.unwrap_or(0));
                let instead = match (&means, &other) {
                    (Some(means), _) => Instead::Row(means[part_idx].clone()),
                    (_, Some(other)) => {
                        Instead::Rows(other.of(at.0, at.1, effect.part.hook())?.values.clone())
                    }
                    (None, None) => Instead::Zero,
                };
                Ok(Variant {
                    stack: at.0,
                    layer_idx: at.1,
                    part: effect.part,
                    position_idx: None,
                    columns: effect.columns.clone(),
                    instead,
                })
            });
            let variants = variants.collect::<Result<Vec<Variant>>>()?;
            let together = Together {
                ops,
                model,
                input,
                base: &base,
                pace,
            };
            let judge = Judge::of(ops, model, (input, &base), asked, pace)?;
            for round in together.rounds(&variants) {
                let tall = together.run(&variants[round.clone()])?;
                let all = judge.moved(ops, model, &tall, pace)?;
                self.n_done += round.len();
                for (effect, moved) in self.parts[round].iter_mut().zip(all) {
                    effect.add(moved);
                }
                let n_done = self.n_done;
                go_on(tell(self, Step::Ablated { n_done, n_all }))?;
            }
            self.n_prompts += 1;
        }
        Ok(())
    }

    /// Adds a prompt on which other code runs the model: `run` gives its logits without a part, `[position, d_vocab]`.
    ///
    /// # Errors
    /// When a run fails, or is stopped.
    pub fn add_outside(
        &mut self,
        predicted: &Predicted,
        n_prompts: usize,
        tell: &mut dyn FnMut(Step),
        run: &mut dyn FnMut(Part, Place) -> Result<Vec<f32>>,
    ) -> Result<()> {
        let n_all = n_prompts * self.parts.len();
        for effect in &mut self.parts {
            let logits = run(effect.part, effect.place)?;
            effect.add(predicted.moved(&logits));
            self.n_done += 1;
            tell(Step::Ablated {
                n_done: self.n_done,
                n_all,
            });
        }
        self.n_prompts += 1;
        Ok(())
    }

    /// Runs a prompt unchanged.
    fn base<O: Ops>(
        &self,
        ops: &O,
        model: &Model,
        (input, prompt_idx): (&Input, usize),
        hooks: &[Hook],
        tell: &mut dyn FnMut(&Self, Step) -> ControlFlow<()>,
        pace: &dyn Pace,
    ) -> Result<Base> {
        let mut says = |progress| {
            let step = Step::Running {
                prompt_idx,
                progress,
            };
            // The result is ignored: whoever wants to stop the run also stops it through the pace.
            let _ = tell(self, step);
        };
        Base::run(ops, model, input, hooks, &mut says, pace)
    }

    /// Mean of every part over all real positions of all prompts. // [part][column]
    fn means<O: Ops>(
        &self,
        ops: &O,
        model: &Model,
        inputs: &[Input],
        tell: &mut dyn FnMut(&Self, Step) -> ControlFlow<()>,
        pace: &dyn Pace,
    ) -> Result<Vec<Arc<Vec<f32>>>> {
        let mut sums: Vec<(Vec<f64>, usize)> = self
            .parts
            .iter()
            .map(|effect| (vec![0.0; effect.columns.len()], 0))
            .collect();
        for (prompt_idx, input) in inputs.iter().enumerate() {
            let hooks = self.hooks();
            let base = self.base(ops, model, (input, prompt_idx), &hooks, tell, pace)?;
            for (effect, (sum, n)) in self.parts.iter().zip(&mut sums) {
                let (stack, layer_idx) = (effect.place.grid(), effect.place.layer_idx.unwrap_or(0));
                let rows = base.of(stack, layer_idx, effect.part.hook())?;
                let sequence = sequence_of(input, stack);
                for position_idx in (0..sequence.len()).filter(|idx| sequence.is_real(*idx)) {
                    let row = &rows.row(position_idx)[effect.columns.clone()];
                    sum.iter_mut()
                        .zip(row)
                        .for_each(|(sum, value)| *sum += f64::from(*value));
                    *n += 1;
                }
            }
        }
        let means = sums.into_iter().map(|(sum, n)| {
            let n = n.max(1) as f64;
            Arc::new(sum.iter().map(|sum| (sum / n) as f32).collect())
        });
        Ok(means.collect())
    }

    /// Hooks at which the parts' values are read.
    fn hooks(&self) -> Vec<Hook> {
        let mut hooks: Vec<Hook> = self.parts.iter().map(|effect| effect.part.hook()).collect();
        hooks.sort();
        hooks.dedup();
        hooks
    }
}

/// Index of the next prompt with as many tokens.
fn other_of(inputs: &[Input], prompt_idx: usize) -> Result<usize> {
    let n_of = |input: &Input| {
        let source = input.source.as_ref().map(|source| source.len());
        (source, input.sequence.len())
    };
    let others = (1..inputs.len()).map(|step| (prompt_idx + step) % inputs.len());
    let mut others = others.filter(|idx| n_of(&inputs[*idx]) == n_of(&inputs[prompt_idx]));
    let missing = || {
        Error::Prompt(format!(
            "prompt {prompt_idx} has {} tokens, and no other prompt of the set has as many: expected one to take values from",
            inputs[prompt_idx].sequence.len()
        ))
    };
    others.next().ok_or_else(missing)
}

fn go_on(flow: ControlFlow<()>) -> Result<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Cancelled),
    }
}
