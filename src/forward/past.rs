//! What blocks keep of tokens that have run, so that those after them cost their own rows alone.
//!
//! Rows come out as the bits of a run of all tokens together: products give every row the same sums whatever rows are beside it, and a
//! row of attention is computed over the same keys in the same order. Where that cannot be, [`Recomputed`] says why.

use std::fmt;

use attnscope_compute::attention::{AttentionSpec, SoftmaxAxis, Window};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockSpec, Layers, Stack, StackSpec};

use super::keys_and_values::{HeldBytes, KeysAndValues};
use super::scratch::Scratch;
use super::sequence::Sequence;

/// What one block keeps of the tokens that have run.
pub struct BlockPast<O: Ops> {
    own: KeysAndValues<O>,
    cross: Option<KeysAndValues<O>>,
}

impl<O: Ops> BlockPast<O> {
    /// Nothing yet.
    pub fn new(spec: &BlockSpec) -> Self {
        Self {
            own: KeysAndValues::default(),
            cross: spec.cross.is_some().then(KeysAndValues::default),
        }
    }

    /// Whether keys and values are kept as attention packs them too, so that it need not pack all of them for every token.
    pub fn packs(&mut self, packs: bool) {
        self.own.packs(packs);
        self.cross.iter_mut().for_each(|cross| cross.packs(packs));
    }

    /// Lends what is kept to the block that runs next; it comes back with the tokens that ran.
    pub fn lend(&mut self, scratch: &mut Scratch<O>) {
        scratch.attention.past = Some(std::mem::take(&mut self.own));
        scratch.cross_past = self.cross.take();
    }

    /// Takes back what was lent.
    pub fn take_back(&mut self, scratch: &mut Scratch<O>) {
        self.own = scratch.attention.past.take().unwrap_or_default();
        self.cross = scratch.cross_past.take();
    }

    /// Bytes of what is kept.
    ///
    /// # Errors
    /// When the device fails.
    pub fn n_bytes(&self, ops: &O) -> Result<HeldBytes> {
        let own = self.own.n_bytes(ops)?;
        let of_cross = self.cross.as_ref().map(|cross| cross.n_bytes(ops));
        let of_cross = of_cross.transpose()?.unwrap_or_default();
        Ok(HeldBytes {
            values: own.values + of_cross.values,
            packed: own.packed + of_cross.packed,
        })
    }

    /// Forgets all tokens but the first; false where that cannot be.
    ///
    /// # Errors
    /// When the device fails.
    pub fn shorten(&mut self, ops: &O, n: usize) -> Result<bool> {
        if !self.own.mixed.is_empty() {
            return Ok(false);
        }
        self.own.shorten(ops, n)?;
        Ok(true)
    }
}

/// Why tokens cannot follow others without all of them running again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recomputed {
    Recurrent,
    SeesLater,
    OverQueries,
    Otherwise,
    WholeText,
    Rotation,
}

impl fmt::Display for Recomputed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recurrent => "a recurrent network runs all of its steps again",
            Self::SeesLater => "its attention lets a token see those after it",
            Self::OverQueries => "its softmax over queries changes with every token",
            Self::Otherwise => "some of its heads run by other rules",
            Self::WholeText => "its embeddings depend on the whole text",
            Self::Rotation => "its rotary frequencies change with the length of the text",
        })
    }
}

impl Recomputed {
    /// Why a stack cannot go on from its keys and values; `None` where it can.
    pub fn of(stack: &StackSpec) -> Option<Self> {
        let Layers::Blocks(blocks) = &stack.layers else {
            return Some(Self::Recurrent);
        };
        if stack.embed.dropped.is_some() {
            return Some(Self::WholeText);
        }
        if stack.stack == Stack::Encoder {
            return Some(Self::SeesLater);
        }
        blocks.iter().find_map(|block| {
            let exceptions = block.cross.as_ref().map(|cross| &cross.exceptions);
            let own = block.own();
            let all = exceptions
                .into_iter()
                .chain(own.as_ref().map(|own| &own.exceptions));
            if all.into_iter().any(|exceptions| !exceptions.is_empty()) {
                return Some(Self::Otherwise);
            }
            let cross = block.cross.as_ref().map(|cross| &cross.attention);
            if cross.is_some_and(|cross| cross.softmax_axis == SoftmaxAxis::Queries) {
                return Some(Self::OverQueries);
            }
            own.and_then(|own| Self::of_attention(&own.attention))
        })
    }

    fn of_attention(spec: &AttentionSpec) -> Option<Self> {
        let sees_later = match spec.mask.window {
            Some(Window::Back(_)) => false,
            _ => !spec.mask.causal,
        };
        if sees_later {
            Some(Self::SeesLater)
        } else if spec.softmax_axis == SoftmaxAxis::Queries {
            Some(Self::OverQueries)
        } else {
            None
        }
    }

    /// How many of the tokens that ran begin another sequence with the rows that they had; where that is none though some are the
    /// same, why.
    pub fn n_alike(stack: &StackSpec, was: &Sequence, is: &Sequence) -> (usize, Option<Self>) {
        let is_same = |idx: &usize| {
            let idx = *idx;
            was.tokens[idx] == is.tokens[idx]
                && was.positions[idx] == is.positions[idx]
                && was.is_real(idx) == is.is_real(idx)
        };
        let n_same = (0..was.len().min(is.len())).take_while(is_same).count();
        let length =
            |sequence: &Sequence| sequence.positions.iter().max().map_or(0, |last| last + 1);
        let reason = Self::of(stack).or_else(|| {
            let between = || Self::between(stack, length(was), length(is));
            (n_same > 0).then(between).flatten()
        });
        (if reason.is_some() { 0 } else { n_same }, reason)
    }

    /// Whether keys that were rotated for a text of one length are those of a longer one. Lengths are one more than the largest
    /// position.
    pub fn between(stack: &StackSpec, n_before: usize, n_after: usize) -> Option<Self> {
        let ropes = stack.blocks().iter().filter_map(|block| {
            let attention = block.attention()?;
            attention.rope.as_ref()
        });
        let changes = ropes
            .into_iter()
            .any(|rope| rope.frequencies(n_before) != rope.frequencies(n_after));
        changes.then_some(Self::Rotation)
    }
}
