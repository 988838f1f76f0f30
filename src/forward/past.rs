//! KV cache of blocks, so that new tokens cost only their own rows.
//!
//! Results are bit-identical to a run of all tokens together: matrix products sum every row in the same order whatever the
//! other rows, and attention reads the same keys in the same order. Where caching is impossible, [`Recomputed`] says why.

use std::fmt;

use attnscope_compute::attention::{AttentionSpec, SoftmaxAxis};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockSpec, Layers, Stack, StackSpec};

use super::keys_and_values::{HeldBytes, KeysAndValues};
use super::scratch::Scratch;
use super::sequence::Sequence;

/// KV cache of one block.
pub struct BlockPast<O: Ops> {
    own: KeysAndValues<O>,
    cross: Option<KeysAndValues<O>>,
}

impl<O: Ops> BlockPast<O> {
    /// Creates an empty cache.
    pub fn new(spec: &BlockSpec) -> Self {
        Self {
            own: KeysAndValues::default(),
            cross: spec.cross.is_some().then(KeysAndValues::default),
        }
    }

    /// Sets whether to keep a packed copy too, so that attention need not pack all keys for every token.
    pub fn packs(&mut self, packs: bool) {
        self.own.packs(packs);
        self.cross.iter_mut().for_each(|cross| cross.packs(packs));
    }

    /// Moves the cache into the scratch of the block that runs next; [`take_back`](Self::take_back) returns it with the new
    /// tokens.
    pub fn lend(&mut self, scratch: &mut Scratch<O>) {
        scratch.attention.past = Some(std::mem::take(&mut self.own));
        scratch.cross_past = self.cross.take();
    }

    /// Moves the cache back from the scratch.
    pub fn take_back(&mut self, scratch: &mut Scratch<O>) {
        self.own = scratch.attention.past.take().unwrap_or_default();
        self.cross = scratch.cross_past.take();
    }

    /// Returns the cache's size in bytes.
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

    /// Keeps only the first `n` tokens; returns false if that is impossible.
    ///
    /// # Errors
    /// When the device fails.
    pub fn shorten(&mut self, ops: &O, n: usize) -> Result<bool> {
        if self.own.has_states() {
            return Ok(false);
        }
        self.own.shorten(ops, n)?;
        Ok(true)
    }
}

/// Reason why new tokens require recomputing all earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recomputed {
    Recurrent,
    SeesLater,
    OverQueries,
    HeadExceptions,
    WholeText,
    Rotation,
    SharedSoftmax,
    Pools,
}

impl fmt::Display for Recomputed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recurrent => "a recurrent network runs all of its steps again",
            Self::SeesLater => "its attention lets a token see those after it",
            Self::OverQueries => "its softmax over queries changes with every token",
            Self::HeadExceptions => "some of its heads run by other rules",
            Self::WholeText => "its embeddings depend on the whole text",
            Self::Rotation => "its rotary frequencies change with the length of the text",
            Self::SharedSoftmax => "one softmax sees an encoder's tokens and its own",
            Self::Pools => "keys of pools stand behind those of all tokens",
        })
    }
}

impl Recomputed {
    /// Returns why a stack cannot continue from its KV cache; `None` if it can.
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
            if block.merged().is_some() {
                return Some(Self::SharedSoftmax);
            }
            let exceptions = block.cross.as_ref().map(|cross| &cross.exceptions);
            let own = block.own();
            let all = exceptions
                .into_iter()
                .chain(own.as_ref().map(|own| &own.exceptions));
            if all.into_iter().any(|exceptions| !exceptions.is_empty()) {
                return Some(Self::HeadExceptions);
            }
            let cross = block.cross.as_ref().map(|cross| &cross.attention);
            if cross.is_some_and(|cross| cross.softmax_axis == SoftmaxAxis::Queries) {
                return Some(Self::OverQueries);
            }
            own.and_then(|own| Self::of_attention(&own.attention))
        })
    }

    fn of_attention(spec: &AttentionSpec) -> Option<Self> {
        if spec.mask.pools.is_some() {
            Some(Self::Pools)
        } else if spec.mask.sees_later() {
            Some(Self::SeesLater)
        } else if spec.softmax_axis == SoftmaxAxis::Queries {
            Some(Self::OverQueries)
        } else {
            None
        }
    }

    /// Returns how many leading tokens of `was` can be reused for `is`; 0, with the reason, if the stack or its rotation rules
    /// it out.
    pub fn n_reusable(stack: &StackSpec, was: &Sequence, is: &Sequence) -> (usize, Option<Self>) {
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

    /// Checks whether keys rotated for a text of one length are valid for another. A length is the largest position plus one.
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
