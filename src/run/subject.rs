//! Subject of an analysis: a model that can run, a recorded trace, or an alignment of two sentences.

use std::sync::{Arc, LazyLock};

use attnscope_checkpoint::{Knob, Settings, Tensors};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_live::About;
use attnscope_spec::{Grid, Model, Stack};

use super::align::{AlignSpec, Alignment};
use super::captured::Recorded;

/// What a session analyses.
#[derive(Debug, Clone)]
pub enum Subject {
    Model(Arc<Model>),
    Trace(Arc<Recorded>),
    Alignment(Arc<Alignment>),
}

/// An operation that not every subject supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Run with changed attention.
    WhatIf,
    /// Run on another text.
    AnotherText,
    /// Predict tokens.
    Predict,
    /// Read its files again.
    ReadAgain,
}

/// Sizes of attention, as shown in the title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// Number of layers of each stack, in the order of running.
    pub n_layers: Vec<usize>,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    /// `None` if unknown.
    pub d_head: Option<usize>,
}

impl Subject {
    /// The model; `None` for subjects without weights.
    pub fn model(&self) -> Option<&Arc<Model>> {
        match self {
            Self::Model(model) => Some(model),
            Self::Trace(_) | Self::Alignment(_) => None,
        }
    }

    /// Name in the title.
    pub fn name(&self) -> String {
        match self {
            Self::Model(model) => model.checkpoint.name.clone(),
            Self::Trace(recorded) => recorded.captured.name.clone(),
            Self::Alignment(alignment) => alignment.name(),
        }
    }

    /// Model family, or the kind of subject.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Model(model) => model.spec.family,
            Self::Trace(recorded) if recorded.live.is_some() => "live",
            Self::Trace(_) => "trace",
            Self::Alignment(_) => "alignment",
        }
    }

    /// Reason why an operation is not possible; `None` if it is.
    pub fn why_not(&self, ability: Ability) -> Option<&'static str> {
        if let Self::Trace(recorded) = self
            && let Some(live) = &recorded.live
        {
            return lacks_of_live(recorded, live, ability);
        }
        match (self, ability) {
            (Self::Trace(_), Ability::WhatIf) => Some("a trace holds no weights to run again"),
            (Self::Trace(_), Ability::AnotherText) => {
                Some("a trace holds one run: there is no model to run another text with")
            }
            (Self::Trace(recorded), Ability::Predict) => match recorded.outcome.predictions {
                Some(_) => None,
                None => Some("this trace holds attention, and no logits of its tokens"),
            },
            (Self::Alignment(_), Ability::Predict) => {
                Some("an alignment attends, and predicts no tokens")
            }
            (Self::Alignment(_), Ability::ReadAgain) => {
                Some("an alignment is not read again: start attnscope align again")
            }
            (Self::Model(model), Ability::Predict) => match model.spec.head {
                Some(_) => None,
                None => Some("this checkpoint has no language-model head: it predicts no tokens"),
            },
            (Self::Model(_) | Self::Alignment(_), Ability::WhatIf | Ability::AnotherText)
            | (Self::Model(_) | Self::Trace(_), Ability::ReadAgain) => None,
        }
    }

    /// Heads of every layer of every grid, in the order of running.
    pub fn shape(&self) -> Vec<Grid> {
        match self {
            Self::Model(model) => model.spec.shape(),
            Self::Trace(recorded) => recorded.shape(),
            Self::Alignment(_) => vec![AlignSpec::grid()],
        }
    }

    /// Grids of heads, in the order of running.
    pub fn grids(&self) -> Vec<Stack> {
        match self {
            Self::Model(model) => model.spec.grids(),
            Self::Trace(_) | Self::Alignment(_) => {
                self.shape().into_iter().map(|grid| grid.stack).collect()
            }
        }
    }

    /// Number of layers in a grid; 0 if there is no such grid.
    pub fn n_layers(&self, grid: Stack) -> usize {
        match self {
            Self::Model(model) => model.spec.n_layers(grid),
            Self::Trace(_) | Self::Alignment(_) => {
                let shape = self.shape();
                let grid = shape.iter().find(|here| here.stack == grid);
                grid.map_or(0, |grid| grid.n_heads.len())
            }
        }
    }

    /// Number of heads in a layer of a grid; 0 if there is no such layer or it has no attention.
    pub fn n_heads(&self, grid: Stack, layer_idx: usize) -> usize {
        self.attention(grid, layer_idx)
            .map_or(0, |attention| attention.n_heads)
    }

    /// Attention of a layer, as far as it is known.
    pub fn attention(&self, grid: Stack, layer_idx: usize) -> Option<&AttentionSpec> {
        match self {
            Self::Model(model) => model.spec.attention(grid, layer_idx),
            Self::Trace(recorded) => recorded.attention(grid, layer_idx),
            Self::Alignment(alignment) => {
                let is_here = (grid, layer_idx) == (Stack::Cross, 0);
                is_here.then_some(&alignment.spec.attention)
            }
        }
    }

    /// Number of layers in all stacks.
    pub fn n_layers_to_run(&self) -> usize {
        match self {
            Self::Model(model) => model.spec.n_layers_to_run(),
            Self::Trace(recorded) => recorded.layers.len(),
            Self::Alignment(_) => 1,
        }
    }

    /// Sizes of its attention, taken from the first layer that has attention.
    pub fn sizes(&self) -> Sizes {
        let (n_layers, first) = match self {
            Self::Model(model) => {
                let stacks = model.spec.stacks.iter();
                let first = model.spec.main_stack().first_attention();
                (stacks.map(|stack| stack.n_layers()).collect(), first)
            }
            Self::Trace(_) | Self::Alignment(_) => {
                let shape = self.shape();
                let last = shape.last().map(|grid| grid.stack);
                let n_layers = shape.iter().map(|grid| grid.n_heads.len()).collect();
                (n_layers, last.and_then(|grid| self.attention(grid, 0)))
            }
        };
        // A trace records attention weights, but not the head width behind its scores.
        let knows_width = !matches!(self, Self::Trace(_));
        Sizes {
            n_layers,
            n_heads: first.map_or(0, |attention| attention.n_heads),
            n_kv_heads: first.map_or(0, |attention| attention.n_kv_heads),
            d_head: first.filter(|_| knows_width).map(|first| first.d_head),
        }
    }

    /// Facts about how it was interpreted, one line each.
    pub fn knobs(&self) -> &[Knob] {
        match self {
            Self::Model(model) => &model.spec.knobs,
            Self::Trace(_) => &[],
            Self::Alignment(alignment) => &alignment.knobs,
        }
    }

    /// Configuration keys that were not used.
    pub fn unread_keys(&self) -> &[String] {
        match self {
            Self::Model(model) => &model.spec.unread_keys,
            Self::Trace(_) | Self::Alignment(_) => &[],
        }
    }

    /// Tensors of a model, or arrays of a trace.
    pub fn tensors(&self) -> &Tensors {
        static NONE: LazyLock<Tensors> = LazyLock::new(Tensors::default);
        match self {
            Self::Model(model) => &model.checkpoint.tensors,
            Self::Trace(recorded) => recorded.captured.tensors().unwrap_or(&NONE),
            Self::Alignment(_) => &NONE,
        }
    }

    /// Names of tensors that no layer uses.
    pub fn unused_tensors(&self) -> Vec<&str> {
        match self {
            Self::Model(model) => model.spec.unused_tensors(&model.checkpoint.tensors),
            Self::Trace(_) | Self::Alignment(_) => Vec::new(),
        }
    }

    /// Element types of its weights, in words; empty without weights.
    pub fn dtype_label(&self) -> String {
        match self {
            Self::Model(model) => model.checkpoint.dtype_label(),
            Self::Trace(_) | Self::Alignment(_) => String::new(),
        }
    }

    /// Notes on how it was opened, one sentence each.
    pub fn remarks(&self) -> Vec<String> {
        self.model()
            .map_or_else(Vec::new, |model| model.checkpoint.remarks())
    }

    /// Settings given by the user or a file.
    pub fn settings(&self) -> Option<&Settings> {
        Some(&self.model()?.checkpoint.settings)
    }

    /// # Errors
    /// When a file has changed since it was opened; names the file.
    pub fn unchanged(&self) -> Result<()> {
        match self {
            Self::Model(model) => model.checkpoint.unchanged(),
            Self::Trace(recorded) => recorded.unchanged(),
            Self::Alignment(_) => Ok(()),
        }
    }

    /// Whether both are the same object in memory.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Model(a), Self::Model(b)) => Arc::ptr_eq(a, b),
            (Self::Trace(a), Self::Trace(b)) => Arc::ptr_eq(a, b),
            (Self::Alignment(a), Self::Alignment(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// Reason why an operation is not possible on a process that holds a model.
fn lacks_of_live(recorded: &Recorded, live: &About, ability: Ability) -> Option<&'static str> {
    let (lacks, why) = match ability {
        Ability::WhatIf => (
            live.lacks.what_if.is_some(),
            "the process that holds this model cannot change its attention",
        ),
        Ability::AnotherText => (
            // Where rows of a file ran, those of another file can.
            live.lacks.text.is_some() && recorded.values.is_none(),
            "this model takes no token ids: it runs the inputs that came with it, or the rows of --values FILE",
        ),
        Ability::ReadAgain => (
            live.lacks.reload.is_some(),
            "the model lives in the process that opened it: there is no file to load again",
        ),
        Ability::Predict => (
            recorded.outcome.predictions.is_none(),
            "this model's output is no row of logits per token",
        ),
    };
    lacks.then_some(why)
}
