//! What a model is made of, as data: which tensors, in which order, with which norms around them.

use std::collections::BTreeSet;

use crate::attention::AttentionSpec;
use crate::checkpoint::{Knob, Tensors};
use crate::error::Result;
use crate::model::Stack;
use crate::ops::{Activation, NormKind};

/// Which outputs of a stored, possibly fused, projection are meant: of every `group` outputs, `len` from `offset`.
///
/// `[all q | all k | all v]` is one group; `[q k v]` repeated per head is one group per head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub group: usize,
    pub offset: usize,
    pub len: usize,
}

/// An affine map and the tensors that hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearSource {
    pub weight: String,
    pub bias: Option<String>,
    pub n_in: usize,
    /// Outputs of the stored tensor, before `part` chooses among them.
    pub n_stored_out: usize,
    /// Stored as [n_in, n_out] instead of [n_out, n_in].
    pub is_input_major: bool,
    pub part: Part,
}

impl LinearSource {
    /// A whole tensor stored as [n_out, n_in].
    pub fn whole(weight: String, bias: Option<String>, n_in: usize, n_out: usize) -> Self {
        let part = Part {
            group: n_out,
            offset: 0,
            len: n_out,
        };
        Self {
            weight,
            bias,
            n_in,
            n_stored_out: n_out,
            is_input_major: false,
            part,
        }
    }

    /// The same, stored as [n_in, n_out].
    pub fn input_major(self) -> Self {
        Self {
            is_input_major: true,
            ..self
        }
    }

    /// Some of the outputs.
    pub fn part(self, part: Part) -> Self {
        Self { part, ..self }
    }

    pub fn n_out(&self) -> usize {
        self.n_stored_out / self.part.group * self.part.len
    }

    pub fn stored_shape(&self) -> [usize; 2] {
        if self.is_input_major {
            [self.n_in, self.n_stored_out]
        } else {
            [self.n_stored_out, self.n_in]
        }
    }
}

/// A norm and the tensors that hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct NormSource {
    pub kind: NormKind,
    pub eps: f32,
    pub width: usize,
    pub gain: Option<String>,
    pub bias: Option<String>,
}

/// A table of rows to look up.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSource {
    pub tensor: String,
    pub n_rows: usize,
    /// Added to an index before the look-up.
    pub offset: usize,
}

/// How tokens become the input of the first block.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbedSpec {
    pub tokens: TableSource,
    /// Learned positions, added.
    pub positions: Option<TableSource>,
    /// Segment embeddings; row 0 is added to every token.
    pub token_types: Option<TableSource>,
    pub norm: Option<NormSource>,
}

/// A feed-forward layer: down(act(up x)), or down(act(gate x) · up x).
#[derive(Debug, Clone, PartialEq)]
pub struct MlpSpec {
    pub up: LinearSource,
    pub gate: Option<LinearSource>,
    pub down: LinearSource,
    pub activation: Activation,
}

/// One block. Each branch may have a norm before it, on its output, and on the residual after the addition.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockSpec {
    pub attention: AttentionSpec,
    pub q: LinearSource,
    pub k: LinearSource,
    pub v: LinearSource,
    pub o: LinearSource,
    pub attn_pre: Option<NormSource>,
    pub attn_out: Option<NormSource>,
    pub attn_post: Option<NormSource>,
    pub mlp: MlpSpec,
    pub mlp_pre: Option<NormSource>,
    pub mlp_out: Option<NormSource>,
    pub mlp_post: Option<NormSource>,
    /// Both branches read the block's input.
    pub is_parallel: bool,
}

/// Blocks that run one after another on one residual stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StackSpec {
    pub stack: Stack,
    pub embed: EmbedSpec,
    pub blocks: Vec<BlockSpec>,
    pub final_norm: Option<NormSource>,
}

/// From the last residual to logits.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadSpec {
    /// A dense layer, its activation and a norm before the unembedding (masked language models).
    pub transform: Option<(LinearSource, Activation, NormSource)>,
    pub unembed: LinearSource,
}

/// A whole model, and how its configuration was read.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    pub family: &'static str,
    pub d_model: usize,
    pub d_vocab: usize,
    /// Positions the model has; `None` when nothing limits them.
    pub n_ctx: Option<usize>,
    pub stacks: Vec<StackSpec>,
    pub head: Option<HeadSpec>,
    /// The head predicts the next token, so a text has a loss.
    pub is_causal_lm: bool,
    pub knobs: Vec<Knob>,
    pub unread_keys: Vec<String>,
}

impl ModelSpec {
    /// The stack whose attention is analysed first: the only one of all models but encoder–decoders.
    pub fn main_stack(&self) -> &StackSpec {
        &self.stacks[0]
    }

    pub fn n_layers(&self) -> usize {
        self.main_stack().blocks.len()
    }

    /// Heads of a layer.
    pub fn n_heads(&self, layer_idx: usize) -> usize {
        self.main_stack().blocks[layer_idx].attention.n_heads
    }

    /// Every tensor the model needs, with the shape it must have.
    pub fn needed_tensors(&self) -> Vec<(&str, Vec<usize>)> {
        let mut needed = Needed::default();
        for stack in &self.stacks {
            needed.stack(stack, self.d_model);
        }
        if let Some(head) = &self.head {
            if let Some((dense, _, norm)) = &head.transform {
                needed.linear(dense);
                needed.norm(Some(norm));
            }
            needed.linear(&head.unembed);
        }
        needed.0
    }

    /// Checks that every needed tensor is there in its shape, before anything runs.
    ///
    /// # Errors
    /// Names the first tensor that is missing or has another shape.
    pub fn check_tensors(&self, tensors: &Tensors) -> Result<()> {
        self.needed_tensors()
            .iter()
            .try_for_each(|(name, shape)| tensors.expect(name, shape).map(|_| ()))
    }

    /// Tensors of the checkpoint that the model never reads.
    pub fn unused_tensors<'a>(&self, tensors: &'a Tensors) -> Vec<&'a str> {
        let needed: BTreeSet<&str> = self
            .needed_tensors()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        tensors
            .iter()
            .map(|(name, _)| name)
            .filter(|name| !needed.contains(name))
            .collect()
    }
}

#[derive(Default)]
struct Needed<'a>(Vec<(&'a str, Vec<usize>)>);

impl<'a> Needed<'a> {
    fn stack(&mut self, stack: &'a StackSpec, d_model: usize) {
        let tables = [
            Some(&stack.embed.tokens),
            stack.embed.positions.as_ref(),
            stack.embed.token_types.as_ref(),
        ];
        for table in tables.into_iter().flatten() {
            self.0.push((&table.tensor, vec![table.n_rows, d_model]));
        }
        self.norm(stack.embed.norm.as_ref());
        for block in &stack.blocks {
            for norm in [&block.attn_pre, &block.attn_out, &block.attn_post] {
                self.norm(norm.as_ref());
            }
            for linear in [&block.q, &block.k, &block.v, &block.o] {
                self.linear(linear);
            }
            for norm in [&block.mlp_pre, &block.mlp_out, &block.mlp_post] {
                self.norm(norm.as_ref());
            }
            for linear in [
                Some(&block.mlp.up),
                block.mlp.gate.as_ref(),
                Some(&block.mlp.down),
            ] {
                linear.into_iter().for_each(|linear| self.linear(linear));
            }
        }
        self.norm(stack.final_norm.as_ref());
    }

    fn linear(&mut self, linear: &'a LinearSource) {
        self.0
            .push((&linear.weight, linear.stored_shape().to_vec()));
        if let Some(bias) = &linear.bias {
            self.0.push((bias, vec![linear.n_stored_out]));
        }
    }

    fn norm(&mut self, norm: Option<&'a NormSource>) {
        let Some(norm) = norm else { return };
        for tensor in [&norm.gain, &norm.bias].into_iter().flatten() {
            self.0.push((tensor, vec![norm.width]));
        }
    }
}
