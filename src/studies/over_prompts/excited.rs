//! Finds where a prompt excites each head most, as its pattern is computed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use attnscope_compute::attention::BlockSink;
use attnscope_compute::error::Result;
use attnscope_forward::{Hook, Input, Sequence};
use attnscope_run::Tap;
use attnscope_spec::{ModelSpec, Stack};

use super::words::Words;

/// The definition of excitement, for reports and screens.
pub const EXCITEMENT: &str = "largest probability above an equal share (p − 1/visible keys) that a query gives to a key other than the first token, its own and the one before it; in cross-attention to any key";

/// A place that excites a head: the best of its prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Excited {
    pub prompt_idx: usize,
    pub query_idx: usize,
    pub key_idx: usize,
    /// Probability that the query gives to the key.
    pub probability: f64,
    /// The probability less 1/visible keys.
    pub excess: f64,
    pub words: Words,
}

/// A query and a key of one head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spot {
    pub query_idx: usize,
    pub key_idx: usize,
    pub probability: f64,
    pub excess: f64,
}

impl Spot {
    /// Whether it is better than another one; of equal ones, the first in the text is better.
    fn is_better(&self, other: &Self) -> bool {
        let at = |spot: &Self| (spot.query_idx, spot.key_idx);
        let order = self.excess.total_cmp(&other.excess);
        order.then(at(other).cmp(&at(self))).is_gt()
    }
}

/// A head by stack, layer and index.
pub(super) type HeadAt = (Stack, usize, usize);

/// Observes the pattern of one prompt.
pub(super) struct Look<'a> {
    input: &'a Input,
    /// What cross-attention sees.
    encoded: Option<Cow<'a, Sequence>>,
    now: Mutex<(Stack, usize)>,
    best: Mutex<BTreeMap<HeadAt, Spot>>,
}

impl<'a> Look<'a> {
    pub fn at(input: &'a Input, spec: &ModelSpec) -> Self {
        Self {
            input,
            encoded: input.encoded(spec),
            now: Mutex::new((Stack::Only, 0)),
            best: Mutex::default(),
        }
    }

    /// Returns the best place of each head that has one.
    pub fn into_best(self) -> BTreeMap<HeadAt, Spot> {
        self.best
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The tokens of queries and of keys of a stack.
    fn sides(&self, stack: Stack) -> [&Sequence; 2] {
        let target = &self.input.sequence;
        let source = self.input.source.as_ref().unwrap_or(target);
        match stack {
            Stack::Only | Stack::Decoder => [target, target],
            Stack::Encoder => [source, source],
            Stack::Cross => [target, self.encoded.as_deref().unwrap_or(source)],
        }
    }
}

/// Returns the best key of a query. // scores, pattern: [key]
fn best_key(
    scores: &[f32],
    pattern: &[f32],
    query_idx: usize,
    is_left_out: impl Fn(usize) -> bool,
) -> Option<Spot> {
    let n_visible = scores.iter().filter(|s| **s != f32::NEG_INFINITY).count();
    let share = 1.0 / n_visible.max(1) as f64;
    let keys = pattern.iter().enumerate();
    let keys = keys.filter(|(key_idx, p)| p.is_finite() && !is_left_out(*key_idx));
    let spots = keys.map(|(key_idx, p)| Spot {
        query_idx,
        key_idx,
        probability: f64::from(*p),
        excess: f64::from(*p) - share,
    });
    spots.reduce(|best, spot| if spot.is_better(&best) { spot } else { best })
}

impl BlockSink for Look<'_> {
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]) {
        let (stack, layer_idx) = *self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let [queries, keys] = self.sides(stack);
        let n_keys = keys.len().max(1);
        let first = (0..keys.len()).find(|idx| keys.is_real(*idx));
        let rows = scores.chunks(n_keys).zip(pattern.chunks(n_keys));
        let rows = (first_query..).zip(rows);
        let spots = rows.filter_map(|(query_idx, (scores, pattern))| {
            if !queries.is_real(query_idx) {
                return None;
            }
            let previous = (0..query_idx).rev().find(|idx| keys.is_real(*idx));
            let is_left_out = |key_idx: usize| {
                let is_near = Some(key_idx) == first || key_idx == query_idx;
                stack != Stack::Cross && (is_near || Some(key_idx) == previous)
            };
            best_key(scores, pattern, query_idx, is_left_out)
        });
        let best = spots.filter(|spot| spot.excess > 0.0);
        let best = best.reduce(|best, spot| if spot.is_better(&best) { spot } else { best });
        let Some(best) = best else { return };
        let mut all = self.best.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry((stack, layer_idx, head_idx)).or_insert(best);
        if best.is_better(known) {
            *known = best;
        }
    }
}

impl Tap for Look<'_> {
    fn wants(&self, _: Stack, _: usize, _: Hook) -> bool {
        false
    }

    fn values(&mut self, _: Stack, _: usize, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    fn blocks(&self, stack: Stack, layer_idx: usize) -> Option<&dyn BlockSink> {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = (stack, layer_idx);
        Some(self)
    }
}
