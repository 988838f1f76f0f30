//! State shared by the blocks of a stack during a run: device, tokens, and the encoder's output.

use std::borrow::Cow;

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::{AttentionSpec, Visibility};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_spec::{StackSpec, WeightFormat};

use super::recurrent::FinalStates;
use super::rounded::round_read;
use super::sequence::Sequence;
use super::weights::WeightReader;

/// The encoder's output and its tokens.
pub struct Memory<'a, O: Ops> {
    /// [source position, d_model]
    pub hidden: &'a O::Buffer,
    pub sequence: &'a Sequence,
    /// Final states of a recurrent encoder.
    pub ends: &'a FinalStates,
}

/// Known feed-forward outputs of the first rows, before any norm on them.
#[derive(Debug, Clone, Copy)]
pub struct KnownRows<'a> {
    pub n: usize,
    /// [n, d_model]
    pub rows: &'a [f32],
}

/// State shared by all blocks of a stack.
pub struct BlockContext<'a, O: Ops> {
    pub ops: &'a O,
    pub tensors: &'a Tensors,
    pub sequence: &'a Sequence,
    /// Learned bucketed position bias. // [bucket, head]
    pub bucket_values: Option<Vec<f32>>,
    /// Source of cross-attention's keys and values.
    pub memory: Option<Memory<'a, O>>,
    /// Checked between row blocks and between experts: `true` stops the run.
    pub pace: &'a dyn Pace,
    /// Number of copies of the sequence, concatenated in the residual. With copies, a block returns only the residual and no
    /// per-head results. `None` is a normal run of one sequence, with per-head results.
    pub copies: Option<usize>,
    /// Number of leading tokens already processed: the KV cache in [`Scratch`](super::Scratch) holds them, and the residual
    /// holds only the rows after them.
    pub n_past: usize,
    /// Known feed-forward outputs of the first rows, for the block that runs next.
    pub known: Option<KnownRows<'a>>,
}

impl<'a, O: Ops> BlockContext<'a, O> {
    /// Creates a context without learned position biases.
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

    /// Creates the context of a stack's blocks.
    ///
    /// # Errors
    /// When a table of learned biases is missing or has the wrong shape.
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
                let format = stack.embed.rounded.and_then(WeightFormat::number);
                Some(round_read(stored.widen()?, format).into_owned())
            }
            None => None,
        };
        Ok(Self {
            bucket_values,
            ..Self::plain(ops, tensors, sequence, memory, pace)
        })
    }

    /// Continues after the first `n_past` tokens, which have already run.
    pub fn after(self, n_past: usize) -> Self {
        Self { n_past, ..self }
    }

    /// Sets the known feed-forward outputs of the next block.
    pub fn knowing(self, known: Option<KnownRows<'a>>) -> Self {
        Self { known, ..self }
    }

    /// Sets the number of copies of the sequence.
    pub fn with_copies(self, copies: usize) -> Self {
        Self {
            copies: Some(copies),
            ..self
        }
    }

    /// Makes the context for `copies` copies of the current run.
    pub(super) fn spread(&self, copies: usize) -> Self {
        Self {
            copies: Some(copies),
            known: None,
            ..self.over(self.sequence)
        }
    }

    /// Makes the context of a layer that has other tokens than the prompt.
    #[must_use]
    pub fn over<'b>(&self, sequence: &'b Sequence) -> BlockContext<'b, O>
    where
        'a: 'b,
    {
        BlockContext {
            ops: self.ops,
            tensors: self.tensors,
            sequence,
            bucket_values: self.bucket_values.clone(),
            memory: self.memory.as_ref().map(|memory| Memory {
                hidden: memory.hidden,
                sequence: memory.sequence,
                ends: memory.ends,
            }),
            pace: self.pace,
            copies: self.copies,
            n_past: self.n_past,
            known: self.known,
        }
    }

    /// Returns the position of every row of the residual.
    pub(super) fn positions(&self) -> Cow<'_, [usize]> {
        let positions = &self.sequence.positions[self.n_past..];
        match self.copies {
            None | Some(1) => Cow::Borrowed(positions),
            Some(copies) => Cow::Owned(positions.repeat(copies)),
        }
    }

    /// Returns the token of every row of the residual.
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

    /// Returns which keys each query sees: those of its own sequence, or the encoder's for cross-attention.
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
        let visibility = visibility.with_first_query(self.n_past);
        match keys {
            Some(keys) => keys.in_windows(spec, visibility),
            None => visibility,
        }
    }
}
