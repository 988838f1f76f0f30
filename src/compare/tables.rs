//! Compares two tables of statistics, for heads that both have.

use std::collections::BTreeMap;

use attnscope_checks::stats::{STATISTICS, Values};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::Stack;

use super::comparison::{Comparison, HeadDifference, PromptDifference};
use super::floors::{F32_FLOOR, Floors, Precision};

/// One head of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableHead {
    pub prompt: String,
    pub stack: Stack,
    pub layer_idx: usize,
    pub head_idx: usize,
    /// Loss of the whole prompt, in nats.
    pub loss: Option<f64>,
    pub stats: Values,
}

impl Comparison {
    /// Compares two tables, head by head.
    ///
    /// # Errors
    /// When they have no head of a prompt in common.
    pub fn of_tables((a, b): (&[TableHead], &[TableHead]), tolerance: Option<f64>) -> Result<Self> {
        let floors = Floors::new([Precision::Single; 2], 1, tolerance);
        let mut comparison = Self::empty(floors);
        let place = |head: &TableHead| (head.stack, head.layer_idx, head.head_idx);
        let others = b
            .iter()
            .map(|head| ((head.prompt.as_str(), place(head)), head));
        let others: BTreeMap<_, &TableHead> = others.collect();
        let mut nth_of: BTreeMap<&str, usize> = BTreeMap::new();
        for head in a {
            let Some(other) = others.get(&(head.prompt.as_str(), place(head))) else {
                continue;
            };
            let difference = HeadDifference {
                stack: head.stack,
                layer_idx: head.layer_idx,
                head_idx: head.head_idx,
                divergence: f64::NAN,
                stats: Some([head.stats.clone(), other.stats.clone()]),
                maps: None,
            };
            let prompts = &mut comparison.prompts;
            let nth = *nth_of.entry(&head.prompt).or_insert(prompts.len());
            match prompts.get_mut(nth) {
                Some(prompt) => prompt.heads.push(difference),
                None => prompts.push(PromptDifference {
                    id: head.prompt.clone(),
                    loss: [head.loss, other.loss],
                    predictions: None,
                    heads: vec![difference],
                }),
            }
        }
        if comparison.prompts.is_empty() {
            let problem = "expected two tables with a prompt and a head in common, found none: tables are compared by the ids of \
                           their prompts";
            return Err(Error::Prompt(problem.to_owned()));
        }
        Ok(comparison)
    }

    /// Whether the statistics of all heads agree within the tolerance, if nothing else is known.
    pub(super) fn statistics_match(&self) -> bool {
        if !self.hooks.is_empty() {
            return true;
        }
        let heads = self.prompts.iter().flat_map(|prompt| &prompt.heads);
        let mut pairs = heads.filter_map(|head| head.stats.as_ref());
        pairs.all(|[a, b]| {
            (0..STATISTICS.len()).all(|idx| is_same(a.at(idx), b.at(idx), self.floors.base))
        })
    }
}

/// Precision that is lost when other programs write tables.
const LEAST: f64 = F32_FLOOR / 100.0;

fn is_same(a: f64, b: f64, tolerance: f64) -> bool {
    let is_equal = a == b || (a.is_nan() && b.is_nan());
    is_equal || (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(LEAST)
}
