//! One attention to run, and the receiver of its blocks.

use std::ops::Range;

use super::global_keys::GlobalKeys;
use super::kv_head::KeptKeys;
use super::mask::Visibility;
use super::relative_tables::RelativeTables;
use super::repeats::Repeats;
use super::spec::AttentionSpec;
use crate::pace::Pace;

/// Receives finished blocks, for a trace or for the head on screen.
pub trait BlockSink: Sync {
    /// Rows `first_query..` of one head; where masked, scores are −inf and the pattern is 0. // [row, key]
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]);

    /// Number of heads to run between two calls of [`Self::ready`]; `None` for all.
    fn n_heads_at_once(&self) -> Option<usize> {
        None
    }

    /// Called before any block of these heads arrives; returns false if stopped.
    fn ready(&self, _heads: Range<usize>, _pace: &dyn Pace) -> bool {
        true
    }
}

/// One attention to run, shared by all its heads.
pub struct Run<'a> {
    pub spec: &'a AttentionSpec,
    pub visibility: &'a Visibility,
    /// Heads to run; others are left zero in the output.
    pub heads: Range<usize>,
    /// Learned sink logits. // [head]
    pub sinks: Option<&'a [f32]>,
    /// log Σ exp(score) of what each row's softmax sees besides these keys. // [query, head]
    pub beside: Option<&'a [f32]>,
    /// Learned bias values by bucket. // [bucket, head]
    pub bucket_values: Option<&'a [f32]>,
    /// Factors of the learned bias of each query and head. // [query, head]
    pub bias_factors: Option<&'a [f32]>,
    /// Learned vectors per distance.
    pub relative: Option<&'a RelativeTables>,
    /// Token positions, if a bias uses them; empty if they equal indices. // [position]
    pub positions: &'a [usize],
    /// Rows and columns of the patches that queries and keys are, if they are those of a picture.
    pub grid: Option<[usize; 2]>,
    /// Repeated tokens, if queries and keys are the same tokens.
    pub repeats: Option<&'a Repeats>,
    /// ‖v W_O‖ of every head, if known. // [head][key]
    pub value_norms: Option<&'a [Vec<f32>]>,
    /// Keys and values that global tokens see, if there are global tokens.
    pub globals: Option<&'a GlobalKeys>,
    pub sink: Option<&'a dyn BlockSink>,
    /// Packed keys of earlier queries, kept for later ones.
    pub kept: Option<&'a KeptKeys>,
    /// Asked between blocks whether to stop.
    pub pace: &'a dyn Pace,
}

impl<'a> Run<'a> {
    /// ‖v W_O‖ of a head's keys, if known.
    pub fn value_norms_of(&self, head_idx: usize) -> Option<&'a [f32]> {
        Some(self.value_norms?.get(head_idx)?.as_slice())
    }
}
