//! What is looked at: a model that can be run, a recorded trace, or an alignment of two sentences.

use std::sync::{Arc, LazyLock};

use attnscope_checkpoint::{Knob, Settings, Tensors};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_spec::{Grid, Model, Stack};

use super::align::{AlignSpec, Alignment};
use super::captured::Recorded;

/// What is looked at.
#[derive(Debug, Clone)]
pub enum Subject {
    Model(Arc<Model>),
    Trace(Arc<Recorded>),
    Alignment(Arc<Alignment>),
}

/// What a subject may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// To run with another attention.
    WhatIf,
    /// To run on another text.
    AnotherText,
    /// To tell which tokens it predicts.
    Predict,
    /// To read its files again.
    ReadAgain,
}

/// The sizes of attention, as a title tells them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// Of each stack that runs, in order.
    pub n_layers: Vec<usize>,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    /// `None` where nothing tells it.
    pub d_head: Option<usize>,
}

impl Subject {
    /// A model; `None` for what holds no weights.
    pub fn model(&self) -> Option<&Arc<Model>> {
        match self {
            Self::Model(model) => Some(model),
            Self::Trace(_) | Self::Alignment(_) => None,
        }
    }

    /// What a title calls it.
    pub fn name(&self) -> String {
        match self {
            Self::Model(model) => model.checkpoint.name.clone(),
            Self::Trace(recorded) => recorded.captured.name.clone(),
            Self::Alignment(alignment) => alignment.name(),
        }
    }

    /// The family of a model, or what else it is.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Model(model) => model.spec.family,
            Self::Trace(_) => "trace",
            Self::Alignment(_) => "alignment",
        }
    }

    /// Why it cannot do something; `None` where it can.
    pub fn lacks(&self, ability: Ability) -> Option<&'static str> {
        match (self, ability) {
            (Self::Trace(_), Ability::WhatIf) => Some("a trace holds no weights to run again"),
            (Self::Trace(_), Ability::AnotherText) => {
                Some("a trace holds one run: there is no model to run another text with")
            }
            (Self::Trace(_), Ability::Predict) => {
                Some("a trace holds attention, and no predictions")
            }
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

    /// Heads of every layer of every grid, in the order in which grids run.
    pub fn shape(&self) -> Vec<Grid> {
        match self {
            Self::Model(model) => model.spec.shape(),
            Self::Trace(recorded) => recorded.shape(),
            Self::Alignment(_) => vec![AlignSpec::grid()],
        }
    }

    /// The grids of heads, in the order in which they run.
    pub fn grids(&self) -> Vec<Stack> {
        match self {
            Self::Model(model) => model.spec.grids(),
            Self::Trace(_) | Self::Alignment(_) => {
                self.shape().into_iter().map(|grid| grid.stack).collect()
            }
        }
    }

    /// Layers of a grid; 0 where there is no such grid.
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

    /// Heads of a layer of a grid; 0 where there is none, or it has no attention.
    pub fn n_heads(&self, grid: Stack, layer_idx: usize) -> usize {
        self.attention(grid, layer_idx)
            .map_or(0, |attention| attention.n_heads)
    }

    /// The attention of a layer, as far as it is known.
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

    /// Layers of all stacks, as they run.
    pub fn n_layers_to_run(&self) -> usize {
        match self {
            Self::Model(model) => model.spec.n_layers_to_run(),
            Self::Trace(recorded) => recorded.layers.len(),
            Self::Alignment(_) => 1,
        }
    }

    /// The sizes of its attention, by the first layer that has one.
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
        // What attention a trace recorded is known, and not what its scores were made of.
        let knows_width = !matches!(self, Self::Trace(_));
        Sizes {
            n_layers,
            n_heads: first.map_or(0, |attention| attention.n_heads),
            n_kv_heads: first.map_or(0, |attention| attention.n_kv_heads),
            d_head: first.filter(|_| knows_width).map(|first| first.d_head),
        }
    }

    /// What there is to say of how it was read, line by line.
    pub fn knobs(&self) -> &[Knob] {
        match self {
            Self::Model(model) => &model.spec.knobs,
            Self::Trace(_) => &[],
            Self::Alignment(alignment) => &alignment.knobs,
        }
    }

    /// Keys of a configuration that nothing read.
    pub fn unread_keys(&self) -> &[String] {
        match self {
            Self::Model(model) => &model.spec.unread_keys,
            Self::Trace(_) | Self::Alignment(_) => &[],
        }
    }

    /// Its tensors, or the arrays of a trace.
    pub fn tensors(&self) -> &Tensors {
        static NONE: LazyLock<Tensors> = LazyLock::new(Tensors::default);
        match self {
            Self::Model(model) => &model.checkpoint.tensors,
            Self::Trace(recorded) => recorded.captured.tensors().unwrap_or(&NONE),
            Self::Alignment(_) => &NONE,
        }
    }

    /// Names of tensors that no layer reads.
    pub fn unused_tensors(&self) -> Vec<&str> {
        match self {
            Self::Model(model) => model.spec.unused_tensors(&model.checkpoint.tensors),
            Self::Trace(_) | Self::Alignment(_) => Vec::new(),
        }
    }

    /// The element types of its weights, in words; empty where there are none.
    pub fn dtype_label(&self) -> String {
        match self {
            Self::Model(model) => model.checkpoint.dtype_label(),
            Self::Trace(_) | Self::Alignment(_) => String::new(),
        }
    }

    /// What there is to say of how it was opened and read, a sentence each.
    pub fn remarks(&self) -> Vec<String> {
        self.model()
            .map_or_else(Vec::new, |model| model.checkpoint.remarks())
    }

    /// What a person or a file set of how it is read.
    pub fn settings(&self) -> Option<&Settings> {
        Some(&self.model()?.checkpoint.settings)
    }

    /// # Errors
    /// When a file is no longer what was opened: which.
    pub fn unchanged(&self) -> Result<()> {
        match self {
            Self::Model(model) => model.checkpoint.unchanged(),
            Self::Trace(recorded) => recorded.unchanged(),
            Self::Alignment(_) => Ok(()),
        }
    }

    /// Whether two are one and the same, in memory.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Model(a), Self::Model(b)) => Arc::ptr_eq(a, b),
            (Self::Trace(a), Self::Trace(b)) => Arc::ptr_eq(a, b),
            (Self::Alignment(a), Self::Alignment(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}
