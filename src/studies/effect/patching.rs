//! Activation patching: which values of a clean prompt restore the behaviour that a corrupted prompt lost.

use std::ops::{ControlFlow, Range};

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input};
use attnscope_run::Progress;
use attnscope_spec::{Model, Place, Stack, StackSpec, StreamEnds};

use super::capture::{Base, of_blocks, sequence_of};
use super::judged::{Asked, asked_logits, head_of};
use super::together::Together;
use super::variant::{Instead, Part, Variant, parts_of};

/// Two prompts of equal length, and the logit on which they differ.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// Prompt whose behaviour should be restored.
    pub clean: &'a Input,
    pub corrupted: &'a Input,
    pub asked: Asked,
}

impl Pair<'_> {
    /// Refuses prompts of different lengths, because every position needs a counterpart.
    ///
    /// # Errors
    /// When they differ in length.
    pub fn check_lengths(&self) -> Result<()> {
        let lengths = |input: &Input| {
            let source = input.source.as_ref().map_or(0, |source| source.len());
            [source, input.sequence.len()]
        };
        let (clean, corrupted) = (lengths(self.clean), lengths(self.corrupted));
        if clean != corrupted {
            let [a, b] = [clean, corrupted].map(|[source, own]| match source {
                0 => format!("{own} tokens"),
                source => format!("{source} tokens and a target of {own}"),
            });
            let problem = format!("expected two prompts of equal length, found {a} and {b}");
            return Err(Error::Prompt(problem));
        }
        Ok(())
    }
}

/// One value of the clean run inserted into the corrupted run.
#[derive(Debug, Clone)]
pub struct Patched {
    pub part: Part,
    pub place: Place,
    /// Patched position; `None` for all positions.
    pub position_idx: Option<usize>,
    columns: Range<usize>,
    /// Logit, or difference of two, in the patched run.
    pub logit: Option<f64>,
}

/// Why the residual of a model with hyper-connections is not patched.
pub const NO_RESIDUAL: &str = "the residual is several streams (hyper-connections), which no one value before a layer replaces; heads, attention and feed-forward layers can be patched";

/// Whether the blocks of a stack read and write several streams.
fn is_connected(stack: &StackSpec) -> bool {
    let rows = stack.rows.as_ref().and_then(|rows| rows.streams.as_ref());
    matches!(rows, Some(StreamEnds::Copied { .. }))
}

/// Patching results so far.
#[derive(Debug, Clone)]
pub struct Patching {
    pub all: Vec<Patched>,
    /// Logits of the two unpatched runs.
    pub clean: f64,
    pub corrupted: f64,
    /// Whether the residual was asked for, but is several streams.
    pub leaves_residual: bool,
    n_done: usize,
}

/// Progress of a patching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchingStep {
    Running(Progress),
    Patched { n_done: usize, n_all: usize },
}

impl Patching {
    /// Plans patches of the parts that `wants` selects: all positions at once, and each of `positions` alone.
    ///
    /// # Errors
    /// When the model predicts no tokens, no part is selected, or the prompts differ in length.
    pub fn plan(
        model: &Model,
        pair: &Pair<'_>,
        positions: &[usize],
        wants: impl Fn(Part, Place) -> bool,
    ) -> Result<Self> {
        of_blocks(model)?;
        head_of(model)?;
        pair.check_lengths()?;
        let mut all: Vec<Patched> = Vec::new();
        let mut parts = parts_of(model, &wants);
        let mut leaves_residual = false;
        for stack in &model.spec.stacks {
            let layers = (0..stack.n_layers()).map(|idx| Place::layer(stack.stack, idx));
            let mut layers = layers
                .filter(|layer| wants(Part::Residual, *layer))
                .peekable();
            // What a branch reads of several streams is no value that later layers read.
            if is_connected(stack) {
                leaves_residual |= layers.peek().is_some();
                continue;
            }
            parts.extend(layers.map(|layer| (Part::Residual, layer, 0..model.spec.d_model)));
        }
        let home = |place: &Place| match place.grid() {
            Stack::Cross => Stack::Decoder,
            other => other,
        };
        parts.sort_by_key(|(_, place, _)| (home(place), place.layer_idx));
        for (part, place, columns) in parts {
            let n = sequence_of(pair.clean, home(&place)).len();
            let each = positions
                .iter()
                .filter(|idx| **idx < n)
                .map(|idx| Some(*idx));
            for position_idx in std::iter::once(None).chain(each) {
                all.push(Patched {
                    part,
                    place,
                    position_idx,
                    columns: columns.clone(),
                    logit: None,
                });
            }
        }
        if all.is_empty() && leaves_residual {
            let problem = format!("{}: {NO_RESIDUAL}", model.spec.family);
            return Err(Error::Setting(problem));
        }
        if all.is_empty() {
            let problem = "the selected places contain no part of the model";
            return Err(Error::Setting(problem.to_owned()));
        }
        Ok(Self {
            all,
            clean: f64::NAN,
            corrupted: f64::NAN,
            leaves_residual,
            n_done: 0,
        })
    }

    /// Runs both prompts and every patch; `tell` receives every step and may stop the run.
    ///
    /// # Errors
    /// When it is stopped, or the model cannot run.
    pub fn run<O: Ops>(
        &mut self,
        ops: &O,
        model: &Model,
        pair: Pair<'_>,
        tell: &mut dyn FnMut(&Self, PatchingStep) -> ControlFlow<()>,
        pace: &dyn Pace,
    ) -> Result<()> {
        let mut hooks: Vec<Hook> = self.all.iter().map(|one| one.part.hook()).collect();
        hooks.sort();
        hooks.dedup();
        let mut base_of = |input: &Input, hooks: &[Hook]| {
            let mut says = |progress| {
                let _ = tell(self, PatchingStep::Running(progress));
            };
            Base::run(ops, model, input, hooks, &mut says, pace)
        };
        let clean = base_of(pair.clean, &hooks)?;
        let corrupted = base_of(pair.corrupted, &[])?;
        let as_they_are = [
            clean.last.values.as_slice(),
            corrupted.last.values.as_slice(),
        ];
        let logits = asked_logits(ops, model, &as_they_are, pair.asked, pace)?;
        (self.clean, self.corrupted) = (logits[0], logits[1]);
        let variants = self.all.iter().map(|one| {
            let (stack, layer_idx) = (one.place.grid(), one.place.layer_idx.unwrap_or(0));
            let from = clean.of(stack, layer_idx, one.part.hook())?;
            Ok(Variant {
                stack,
                layer_idx,
                part: one.part,
                position_idx: one.position_idx,
                columns: one.columns.clone(),
                instead: Instead::Rows(from.values.clone()),
            })
        });
        let variants = variants.collect::<Result<Vec<Variant>>>()?;
        let together = Together {
            ops,
            model,
            input: pair.corrupted,
            base: &corrupted,
            pace,
        };
        let n_values = corrupted.last.values.len().max(1);
        let n_all = variants.len();
        for round in together.rounds(&variants) {
            let tall = together.run(&variants[round.clone()])?;
            let residuals: Vec<&[f32]> = tall.chunks(n_values).collect();
            let logits = asked_logits(ops, model, &residuals, pair.asked, pace)?;
            self.n_done += round.len();
            for (one, logit) in self.all[round].iter_mut().zip(logits) {
                one.logit = Some(logit);
            }
            let n_done = self.n_done;
            let step = PatchingStep::Patched { n_done, n_all };
            if tell(self, step).is_break() {
                return Err(Error::Cancelled);
            }
        }
        Ok(())
    }

    /// Share of the lost logit that a patch restores: 0 is nothing, 1 is all of it.
    pub fn restored(&self, one: &Patched) -> Option<f64> {
        let lost = self.clean - self.corrupted;
        one.logit.map(|logit| (logit - self.corrupted) / lost)
    }
}
