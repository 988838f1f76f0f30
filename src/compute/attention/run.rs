//! One attention to run, and who receives its blocks.

use std::ops::Range;

use super::global_keys::GlobalKeys;
use super::kv_head::KeptKeys;
use super::mask::Visibility;
use super::relative_tables::RelativeTables;
use super::repeats::Repeats;
use super::spec::AttentionSpec;
use crate::pace::Pace;

/// Receives finished blocks: for a trace, or for the head on screen.
pub trait BlockSink: Sync {
    /// Rows `first_query..` of one head; scores are −inf and the pattern 0 where masked. // [row, key]
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]);

    /// How many heads run before the sink is made ready for others; `None` for all of them.
    fn n_heads_at_once(&self) -> Option<usize> {
        None
    }

    /// Makes ready for some heads, before any block of them comes; false where that was stopped.
    fn ready(&self, _heads: Range<usize>, _pace: &dyn Pace) -> bool {
        true
    }
}

/// One attention to run: the same for every head.
pub struct Run<'a> {
    pub spec: &'a AttentionSpec,
    pub visibility: &'a Visibility,
    /// Which heads; others leave zeros in the output.
    pub heads: Range<usize>,
    /// Learned sink logits. // [head]
    pub sinks: Option<&'a [f32]>,
    /// Learned values of a bias by buckets. // [bucket, head]
    pub bucket_values: Option<&'a [f32]>,
    /// Learned vectors of distances.
    pub relative: Option<&'a RelativeTables>,
    /// Positions of the tokens, where a bias counts them; indices where it is empty. // [position]
    pub positions: &'a [usize],
    /// Which tokens stand twice, where queries and keys are the same tokens.
    pub repeats: Option<&'a Repeats>,
    /// ‖v W_O‖ of every head, where it is known. // [head][key]
    pub value_norms: Option<&'a [Vec<f32>]>,
    /// Keys and values of what global tokens see, where the visibility has such.
    pub globals: Option<&'a GlobalKeys>,
    pub sink: Option<&'a dyn BlockSink>,
    /// What was packed for the queries before, and is kept for those that follow.
    pub kept: Option<&'a KeptKeys>,
    /// Asked between blocks: true stops the work.
    pub pace: &'a dyn Pace,
}

impl<'a> Run<'a> {
    /// ‖v W_O‖ of a head's keys, where it is known.
    pub fn value_norms_of(&self, head_idx: usize) -> Option<&'a [f32]> {
        Some(self.value_norms?.get(head_idx)?.as_slice())
    }
}
