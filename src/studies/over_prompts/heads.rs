//! What is kept of each head over all prompts, and the runs that fill it.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use attnscope_checks::stats::{HeadType, LayerReport, Stat, Values};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_run::{Job, Observer, Options, Progress, run_all};
use attnscope_spec::{Model, Place, Stack};

use super::excited::{Excited, HeadAt, Look, Spot};
use super::spread::Spread;
use super::words::{Labels, Words};

/// Prompts to hand over at a time: their layers run together, so that weights are read once for all of them.
pub const AT_ONCE: usize = 32;

/// Places kept of each head, from as many prompts.
pub const MOST_PLACES: usize = 10;

/// Most tokens of prompts that run together, unless a single prompt is longer.
const TOKENS_AT_ONCE: usize = 4096;

/// How a run goes over prompts: nothing is kept, and nothing predicted.
pub(super) const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: false,
};

/// What is known of one head over all prompts so far.
#[derive(Debug, Clone)]
pub struct HeadOver {
    pub place: Place,
    /// By index of the statistic; those of layers stay empty.
    spreads: Vec<Spread>,
    /// Number of prompts that ran through it, and how many of them show each type.
    n_prompts: usize,
    kinds: BTreeMap<HeadType, usize>,
    /// The places that excite it most, one of a prompt, the best first.
    pub excited: Vec<Excited>,
}

impl HeadOver {
    fn new(place: Place) -> Self {
        Self {
            place,
            spreads: vec![Spread::default(); Stat::ALL.len()],
            n_prompts: 0,
            kinds: BTreeMap::new(),
            excited: Vec::new(),
        }
    }

    /// Returns how a statistic spreads over the prompts.
    pub fn spread(&self, statistic_idx: usize) -> &Spread {
        &self.spreads[statistic_idx]
    }

    /// Returns the type that most prompts show, and their number; `None` if more prompts show none.
    pub fn kind(&self) -> Option<(HeadType, usize)> {
        let n_typed: usize = self.kinds.values().sum();
        let n_untyped = self.n_prompts - n_typed;
        let most = self
            .kinds
            .iter()
            .max_by_key(|(kind, n)| (**n, std::cmp::Reverse(**kind)));
        most.map(|(kind, n)| (*kind, *n))
            .filter(|(_, n)| *n >= n_untyped)
    }

    fn add(&mut self, prompt_idx: usize, (stats, kind): &(Values, Option<HeadType>)) {
        self.n_prompts += 1;
        for (stat, spread) in Stat::ALL.iter().zip(&mut self.spreads) {
            if stat.statistic().is_per_head() {
                spread.add(prompt_idx, stats.measured(stat.idx()));
            }
        }
        if let Some(kind) = kind {
            *self.kinds.entry(*kind).or_default() += 1;
        }
    }

    /// Keeps a place if it is among the best; of equal ones, that of the earlier prompt is better.
    fn excite(&mut self, (prompt_idx, spot): (usize, Spot), words: impl FnOnce() -> Words) {
        let at = self
            .excited
            .partition_point(|known| known.excess >= spot.excess);
        if at >= MOST_PLACES {
            return;
        }
        self.excited.truncate(MOST_PLACES - 1);
        let Spot {
            query_idx,
            key_idx,
            probability,
            excess,
        } = spot;
        let words = words();
        self.excited.insert(
            at,
            Excited {
                prompt_idx,
                query_idx,
                key_idx,
                probability,
                excess,
                words,
            },
        );
    }
}

/// What is known of all heads over the prompts so far.
#[derive(Debug, Clone)]
pub struct OverPrompts {
    pub n_prompts: usize,
    pub n_tokens: usize,
    /// In the order of stacks, layers and heads.
    pub heads: Vec<HeadOver>,
    by_place: BTreeMap<HeadAt, usize>,
}

impl OverPrompts {
    /// Makes the state before the first prompt.
    pub fn new(model: &Model) -> Self {
        let spec = &model.spec;
        let (mut heads, mut by_place) = (Vec::new(), BTreeMap::new());
        for stack in spec.grids() {
            for layer_idx in 0..spec.n_layers(stack) {
                for head_idx in 0..spec.n_heads(stack, layer_idx) {
                    by_place.insert((stack, layer_idx, head_idx), heads.len());
                    let place = Place::layer(stack, layer_idx).head(head_idx);
                    heads.push(HeadOver::new(place));
                }
            }
        }
        Self {
            n_prompts: 0,
            n_tokens: 0,
            heads,
            by_place,
        }
    }

    /// Returns a head by its place.
    pub fn head(&self, stack: Stack, layer_idx: usize, head_idx: usize) -> Option<&HeadOver> {
        let at = self.by_place.get(&(stack, layer_idx, head_idx))?;
        self.heads.get(*at)
    }

    /// Runs further prompts, in order.
    ///
    /// # Errors
    /// When one cannot be run, or the pace stops it; then some of these prompts may be counted.
    pub fn add<O: Ops>(
        &mut self,
        ops: &O,
        model: &Model,
        inputs: &[Input],
        labels: Labels<'_>,
        pace: &dyn Pace,
    ) -> Result<()> {
        for range in groups(inputs) {
            self.add_group(ops, model, &inputs[range], labels, pace)?;
        }
        Ok(())
    }

    fn add_group<O: Ops>(
        &mut self,
        ops: &O,
        model: &Model,
        inputs: &[Input],
        labels: Labels<'_>,
        pace: &dyn Pace,
    ) -> Result<()> {
        let mut looks: Vec<Look<'_>> = {
            let looks = inputs.iter().map(|input| Look::at(input, &model.spec));
            looks.collect()
        };
        let mut seen: Vec<Seen> = inputs.iter().map(|_| Seen::default()).collect();
        let jobs = inputs.iter().zip(looks.iter_mut().zip(&mut seen));
        let jobs = jobs.map(|(input, (look, seen))| Job {
            input,
            observer: seen,
            tap: Some(look),
        });
        run_all(ops, model, jobs.collect(), OPTIONS, pace)?;
        for ((input, look), seen) in inputs.iter().zip(looks).zip(seen) {
            self.add_prompt(input, &seen, &look.into_best(), labels);
        }
        Ok(())
    }

    fn add_prompt(
        &mut self,
        input: &Input,
        seen: &Seen,
        best: &BTreeMap<HeadAt, Spot>,
        labels: Labels<'_>,
    ) {
        let prompt_idx = self.n_prompts;
        for (place, of_head) in &seen.0 {
            if let Some(at) = self.by_place.get(place) {
                self.heads[*at].add(prompt_idx, of_head);
            }
        }
        for (place, spot) in best {
            if let Some(at) = self.by_place.get(place) {
                let words = || Words::of(input, place.0, (spot.query_idx, spot.key_idx), labels);
                self.heads[*at].excite((prompt_idx, *spot), words);
            }
        }
        self.n_prompts += 1;
        self.n_tokens += n_tokens(input);
    }
}

fn n_tokens(input: &Input) -> usize {
    input.sequence.len() + input.source.as_ref().map_or(0, |source| source.len())
}

/// Divides prompts into groups that run together.
fn groups(inputs: &[Input]) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut n_in_group = 0;
    for (idx, input) in inputs.iter().enumerate() {
        let n = n_tokens(input);
        match groups.last_mut() {
            Some(group) if n_in_group + n <= TOKENS_AT_ONCE => {
                group.end = idx + 1;
                n_in_group += n;
            }
            _ => {
                groups.push(idx..idx + 1);
                n_in_group = n;
            }
        }
    }
    groups
}

/// Statistics and type of each head on one prompt. Row summaries are dropped as soon as a layer is reported.
#[derive(Debug, Default)]
struct Seen(Vec<(HeadAt, (Values, Option<HeadType>))>);

impl Observer for Seen {
    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        let (stack, layer_idx) = (report.stack, report.layer_idx);
        let heads = report.heads.into_iter().enumerate();
        self.0.extend(
            heads.map(|(head_idx, head)| ((stack, layer_idx, head_idx), (head.stats, head.kind))),
        );
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use attnscope_forward::Sequence;

    use super::*;

    #[test]
    fn groups_hold_all_prompts_in_order_and_a_long_one_runs_alone() {
        let input = |n: usize| Input {
            source: None,
            sequence: Sequence::of_text(vec![0; n], (0..n).collect()),
        };
        let inputs = [10, 20, TOKENS_AT_ONCE * 2, 30].map(input);
        assert_eq!(groups(&inputs), [0..2, 2..3, 3..4]);
        assert_eq!(groups(&[]), Vec::<Range<usize>>::new());
    }
}
