//! What the blocks of a stack share while they run: device, tokens, and the encoder's output.

use std::borrow::Cow;

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::{AttentionSpec, Visibility};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_spec::StackSpec;

use super::recurrent::Ends;
use super::sequence::Sequence;
use super::weights::WeightReader;

/// The encoder's output, and the tokens it belongs to.
pub struct Memory<'a, O: Ops> {
    /// [source position, d_model]
    pub hidden: &'a O::Buffer,
    pub sequence: &'a Sequence,
    /// What a recurrent encoder ended with.
    pub ends: &'a Ends,
}

/// What a feed-forward layer adds to the first rows, before any norm on it.
#[derive(Debug, Clone, Copy)]
pub struct KnownRows<'a> {
    pub n: usize,
    /// [n, d_model]
    pub rows: &'a [f32],
}

/// What all blocks of a stack share.
pub struct BlockContext<'a, O: Ops> {
    pub ops: &'a O,
    pub tensors: &'a Tensors,
    pub sequence: &'a Sequence,
    /// Learned values of a bias by buckets. // [bucket, head]
    pub bucket_values: Option<Vec<f32>>,
    /// What cross-attention looks at.
    pub memory: Option<Memory<'a, O>>,
    /// Asked between row blocks and between experts: true stops the work.
    pub pace: &'a dyn Pace,
    /// How many copies of the sequence lie one after another in the residual. With copies, a block tells nothing of its heads:
    /// it only leaves the residual. `None` is the usual run of one sequence, which tells everything.
    pub copies: Option<usize>,
    /// How many of the sequence's first tokens are over: the residual has the rows of those after them, and the keys and values of
    /// those before come from [`Scratch`](super::Scratch).
    pub n_past: usize,
    /// What the block that runs next adds to its first rows, where that is known.
    pub known: Option<KnownRows<'a>>,
}

impl<'a, O: Ops> BlockContext<'a, O> {
    /// A context without tables of learned biases.
    pub(super) fn plain(
        ops: &'a O,
        tensors: &'a Tensors,
        sequence: &'a Sequence,
        memory: Option<Memory<'a, O>>,
        pace: &'a dyn Pace,
    ) -> Self {
        Self {
            ops,
            tensors,
            sequence,
            bucket_values: None,
            memory,
            pace,
            copies: None,
            n_past: 0,
            known: None,
        }
    }

    /// The context of a stack's blocks.
    ///
    /// # Errors
    /// When a table of learned biases is missing or has another shape.
    pub fn of(
        ops: &'a O,
        tensors: &'a Tensors,
        stack: &StackSpec,
        sequence: &'a Sequence,
        memory: Option<Memory<'a, O>>,
        pace: &'a dyn Pace,
    ) -> Result<Self> {
        let bucket_values = match &stack.bucket_values {
            Some(table) => {
                let stored = tensors.expect(&table.tensor, &[table.n_rows, table.width])?;
                Some(stored.widen()?.into_owned())
            }
            None => None,
        };
        Ok(Self {
            bucket_values,
            ..Self::plain(ops, tensors, sequence, memory, pace)
        })
    }

    /// The context of the tokens that follow some of the sequence.
    pub fn after(self, n_past: usize) -> Self {
        Self { n_past, ..self }
    }

    /// The context of a block that adds to its first rows what is known.
    pub fn knowing(self, known: Option<KnownRows<'a>>) -> Self {
        Self { known, ..self }
    }

    /// The context of several copies of the sequence.
    pub fn with_copies(self, copies: usize) -> Self {
        Self {
            copies: Some(copies),
            ..self
        }
    }

    /// The context of more copies of what runs here.
    pub(super) fn spread(&self, copies: usize) -> Self {
        Self {
            ops: self.ops,
            tensors: self.tensors,
            sequence: self.sequence,
            bucket_values: self.bucket_values.clone(),
            memory: self.memory.as_ref().map(|memory| Memory {
                hidden: memory.hidden,
                sequence: memory.sequence,
                ends: memory.ends,
            }),
            pace: self.pace,
            copies: Some(copies),
            n_past: self.n_past,
            known: None,
        }
    }

    /// The position of every row of the residual.
    pub(super) fn positions(&self) -> Cow<'_, [usize]> {
        let positions = &self.sequence.positions[self.n_past..];
        match self.copies {
            None | Some(1) => Cow::Borrowed(positions),
            Some(copies) => Cow::Owned(positions.repeat(copies)),
        }
    }

    /// The token of every row of the residual.
    pub(super) fn tokens(&self) -> Cow<'_, [u32]> {
        let tokens = &self.sequence.tokens[self.n_past..];
        match self.copies {
            None | Some(1) => Cow::Borrowed(tokens),
            Some(copies) => Cow::Owned(tokens.repeat(copies)),
        }
    }

    pub(super) fn shelf(&self) -> WeightReader<'a, O> {
        WeightReader::new(self.ops, self.tensors, self.pace)
    }

    /// Which keys each query sees: its own sequence's, or the encoder's.
    pub(super) fn visibility(&self, spec: &AttentionSpec) -> Visibility {
        let (n_queries, real) = (self.sequence.len(), self.sequence.real.as_deref());
        if !spec.is_cross {
            let visibility = self.sequence.visibility(spec);
            return visibility.with_first_query(self.n_past);
        }
        let keys = self.memory.as_ref().map(|memory| memory.sequence);
        let n_keys = keys.map_or(0, Sequence::len);
        let real_keys = keys.and_then(|keys| keys.real.as_deref());
        let visibility = Visibility::of_cross(spec.mask, (n_queries, real), (n_keys, real_keys));
        visibility.with_first_query(self.n_past)
    }
}
