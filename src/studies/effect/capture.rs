//! Keeps values of a run for later computations: inputs of layers, outputs of heads and branches.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use attnscope_checks::stats::LayerReport;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input, Sequence};
use attnscope_run::{Observer, Options, Outcome, Progress, Tap, run};
use attnscope_spec::{BlockSpec, Model, SelfSpec, Stack, StackSpec};

/// One value of a block, for all positions.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub width: usize,
    /// [position, width]
    pub values: Arc<Vec<f32>>,
}

impl Rows {
    /// Copies rows of a width.
    fn of(values: &[f32], width: usize) -> Self {
        Self {
            width,
            values: Arc::new(values.to_vec()),
        }
    }
}

impl Rows {
    /// Values at one position.
    pub fn row(&self, position_idx: usize) -> &[f32] {
        &self.values[position_idx * self.width..(position_idx + 1) * self.width]
    }
}

/// A finished run with its kept values.
#[derive(Debug)]
pub struct Base {
    pub outcome: Outcome,
    values: BTreeMap<(Stack, usize, Hook), Rows>,
    /// Inputs of layers, if rows hold more than the residual.
    inputs: BTreeMap<(Stack, usize), Rows>,
    /// Output of the last layer of the stack that predicts.
    pub last: Rows,
    /// Encoder output. // [source position, d_model]
    pub memory: Option<Vec<f32>>,
}

impl Base {
    /// Runs a prompt and keeps the input of every layer and the values of `hooks`.
    ///
    /// # Errors
    /// When the model cannot run, or one of its layers is not a block.
    pub fn run<O: Ops>(
        ops: &O,
        model: &Model,
        input: &Input,
        hooks: &[Hook],
        progress: &mut dyn FnMut(Progress),
        pace: &dyn Pace,
    ) -> Result<Self> {
        of_blocks(model)?;
        let main = model.spec.main_stack();
        let mut keeper = Keeper {
            hooks,
            last: (main.stack, main.n_layers().saturating_sub(1)),
            base: Self {
                outcome: Outcome::default(),
                values: BTreeMap::new(),
                inputs: BTreeMap::new(),
                last: Rows::default(),
                memory: None,
            },
        };
        let options = Options {
            keep_bytes: None,
            predicts: false,
        };
        let mut says = Says(progress);
        let outcome = run(
            ops,
            model,
            input,
            options,
            &mut says,
            Some(&mut keeper),
            pace,
        )?;
        Ok(Self {
            outcome,
            ..keeper.base
        })
    }

    /// Input of a layer, with the whole row.
    ///
    /// # Errors
    /// When it was not kept.
    pub fn input(&self, stack: Stack, layer_idx: usize) -> Result<&Rows> {
        match self.inputs.get(&(stack, layer_idx)) {
            Some(rows) => Ok(rows),
            None => self.of(stack, layer_idx, Hook::ResidPre),
        }
    }

    /// Value kept at a hook.
    ///
    /// # Errors
    /// When it was not kept.
    pub fn of(&self, stack: Stack, layer_idx: usize, hook: Hook) -> Result<&Rows> {
        let missing =
            || Error::Setting(format!("{} was not kept", hook.full_name(stack, layer_idx)));
        self.values
            .get(&(stack, layer_idx, hook))
            .ok_or_else(missing)
    }
}

/// Tokens that a stack reads.
pub fn sequence_of(input: &Input, stack: Stack) -> &Sequence {
    match (&input.source, stack) {
        (Some(source), Stack::Encoder) => source,
        _ => &input.sequence,
    }
}

/// Refuses models whose layers cannot be run part by part.
///
/// # Errors
/// When a stack is a recurrent network, has stages, shares a softmax with an encoder, or has layers that read the grid of a picture.
pub fn of_blocks(model: &Model) -> Result<()> {
    let mut stacks = model.spec.stacks.iter();
    if stacks.any(|stack: &StackSpec| stack.recurrence().is_some()) {
        let problem = format!(
            "{}: a recurrent network is one layer, whose parts cannot be changed apart; expected a model of blocks",
            model.spec.family
        );
        return Err(Error::Setting(problem));
    }
    let mut embeds = model.spec.stacks.iter().map(|stack| &stack.embed);
    if embeds.any(|embed| embed.joined.is_some()) {
        let problem = format!(
            "{}: learned rows stand before those of its text, and have no place in the last state; the statistics and maps of each layer work",
            model.spec.family
        );
        return Err(Error::Setting(problem));
    }
    let mut blocks = model.spec.stacks.iter().flat_map(StackSpec::blocks);
    if blocks.any(|block| block.merged().is_some()) {
        let problem = format!(
            "{}: one softmax of its decoder sees the encoder's tokens and its own, so that what takes from one gives to the other; the statistics and maps of each layer work",
            model.spec.family
        );
        return Err(Error::Setting(problem));
    }
    if model.spec.stacks.iter().any(StackSpec::is_staged) {
        let problem = format!(
            "{}: its layers are in stages of different widths or numbers of tokens, so that what a layer adds has no place in the last state; the statistics and maps of each layer work",
            model.spec.family
        );
        return Err(Error::Setting(problem));
    }
    if model.spec.stacks.iter().any(StackSpec::reads_grid) {
        let problem = format!(
            "{}: its layers read the patches around each, or keys of another grid, of two stacks or of pools, so that queries and keys are not the same positions; the statistics and maps of each layer work",
            model.spec.family
        );
        return Err(Error::Setting(problem));
    }
    Ok(())
}

/// Refuses models whose rows hold several residual streams, or whose blocks add more than attention and a feed-forward layer.
///
/// # Errors
/// When they do.
pub fn of_one_stream(model: &Model) -> Result<()> {
    let rows = model
        .spec
        .stacks
        .iter()
        .filter_map(|stack| stack.rows.as_ref());
    let mut blocks = model.spec.stacks.iter().flat_map(StackSpec::blocks);
    if blocks.any(|block| block.row.as_ref().is_some_and(|row| row.join.is_some())) {
        let problem = format!(
            "{}: the residual has two states, and blocks begin with their sum, so that what a block adds is read on two ways; ablation, patching and lens work",
            model.spec.family
        );
        return Err(Error::Setting(problem));
    }
    let mut blocks = model.spec.stacks.iter().flat_map(StackSpec::blocks);
    let has_experts = |own: &SelfSpec| own.projections.experts.is_some();
    if blocks.any(|block| block.own().is_some_and(has_experts)) {
        let problem = format!(
            "{}: experts that each token chooses map what its heads give, so that a head has no output map of its own; ablation, patching and lens work",
            model.spec.family
        );
        return Err(Error::Setting(problem));
    }
    let mut streams = rows.filter_map(|rows| rows.streams.as_ref());
    if let Some(streams) = streams.next() {
        let problem = format!(
            "{}: the residual has streams, {} of them, which every block mixes anew for every token ({}), so that what a block adds is no part of what is read later; ablation, patching and lens work",
            model.spec.family,
            streams.n(),
            streams.name()
        );
        return Err(Error::Setting(problem));
    }
    let mut blocks = model.spec.stacks.iter().flat_map(StackSpec::blocks);
    if blocks.any(|block| block.last_mixer.is_some()) {
        let problem = format!(
            "{}: in some blocks attention and feed-forward layer give their output to a mixer, which alone adds to the residual, so that they have no share of their own here; ablation, patching and lens work",
            model.spec.family
        );
        return Err(Error::Setting(problem));
    }
    let mut blocks = model.spec.stacks.iter().flat_map(StackSpec::blocks);
    if blocks.any(|block| block.conformer.is_some()) {
        let problem = format!(
            "{}: a block also adds a convolution over positions and a layer before attention (Conformer), which have no share of their own here; ablation, patching and lens work",
            model.spec.family
        );
        return Err(Error::Setting(problem));
    }
    let mut blocks = model.spec.stacks.iter().flat_map(StackSpec::blocks);
    if blocks.any(|block| block.bottleneck.is_some()) {
        let problem = format!(
            "{}: the branches of a block add to a narrower residual, which one map brings to that of the stack, so that they have no share of their own here; ablation, patching and lens work",
            model.spec.family
        );
        return Err(Error::Setting(problem));
    }
    let mut blocks = model.spec.stacks.iter().flat_map(StackSpec::blocks);
    if blocks.any(BlockSpec::convolves) {
        let problem = format!(
            "{}: convolutions over a few tokens stand between heads and residual, so that what a head writes at one position is read at others; ablation, patching and lens work",
            model.spec.family
        );
        return Err(Error::Setting(problem));
    }
    Ok(())
}

struct Keeper<'a> {
    hooks: &'a [Hook],
    last: (Stack, usize),
    base: Base,
}

impl Tap for Keeper<'_> {
    fn wants(&self, stack: Stack, layer_idx: usize, hook: Hook) -> bool {
        match hook {
            Hook::ResidPre if stack != Stack::Cross => true,
            Hook::ResidPost => (stack, layer_idx) == self.last,
            _ => self.hooks.contains(&hook),
        }
    }

    fn values(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        hook: Hook,
        values: &[f32],
        width: usize,
    ) -> Result<()> {
        let rows = Rows::of(values, width);
        if hook == Hook::ResidPost {
            self.base.last = rows;
        } else {
            self.base.values.insert((stack, layer_idx, hook), rows);
        }
        Ok(())
    }

    fn wants_rows(&self) -> bool {
        true
    }

    fn rows(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        hook: Hook,
        values: &[f32],
        width: usize,
    ) -> Result<()> {
        let rows = Rows::of(values, width);
        match hook {
            Hook::ResidPre => {
                self.base.inputs.insert((stack, layer_idx), rows);
            }
            _ if (stack, layer_idx) == self.last => self.base.last = rows,
            _ => {}
        }
        Ok(())
    }

    fn memory(&mut self, values: &[f32]) -> Result<()> {
        self.base.memory = Some(values.to_vec());
        Ok(())
    }
}

/// Passes on the progress of a run and drops its reports.
struct Says<'a>(&'a mut dyn FnMut(Progress));

impl Observer for Says<'_> {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        (self.0)(progress);
        ControlFlow::Continue(())
    }

    fn layer(&mut self, _: LayerReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
