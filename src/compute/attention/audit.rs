//! A pattern that somebody else computed, held against what it is declared to be, cell by cell.

use super::comparison::{Comparison, Mismatch};
use super::mask::Visibility;
use super::normaliser::{self, Explained, Fault, Head, Normaliser, Vectors};
use super::shape::Shape;
use super::spec::{SoftmaxAxis, Window};
use super::support::is_even;

/// Probability where there should be none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Forbidden {
    /// Summed over the cells of one kind.
    pub mass: f64,
    /// The worst cell.
    pub largest: f32,
    pub query_idx: usize,
    pub key_idx: usize,
}

impl Forbidden {
    fn add(&mut self, query_idx: usize, key_idx: usize, p: f32) {
        self.mass += f64::from(p);
        if p > self.largest || p.is_nan() {
            (self.largest, self.query_idx, self.key_idx) = (p, query_idx, key_idx);
        }
    }
}

/// What a whole pattern showed. Padded queries count nowhere; each forbidden cell counts once, under what is most specific.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Audit {
    /// On keys after the query.
    pub after: Forbidden,
    /// On keys outside the declared window.
    pub outside_window: Forbidden,
    /// On padded keys.
    pub on_pads: Forbidden,
    /// On keys of another packed document.
    pub across_documents: Forbidden,
    /// The farthest |query − key| with any probability.
    pub reach: usize,
    /// Cells up to the own position that hold exactly nothing.
    pub n_zeroed: usize,
    /// A query that spreads its mass evenly, over forbidden keys too.
    pub uniform_row: Option<usize>,
    /// The cell that differs most from the softmax of its scores along the declared axis.
    pub mismatch: Option<Mismatch>,
    /// The rows are a softmax whose cells were zeroed at random and the rest divided by 1 − p: that p.
    pub dropout: Option<f64>,
    /// The softmax gave part of every row to one learned logit: its value, where all rows agree.
    pub learned_sink: Option<f64>,
    /// Whether keys of another document could be told.
    pub has_documents: bool,
    /// Whether there were scores to compare with.
    pub has_scores: bool,
    /// Whether some cell is below 0.
    pub is_signed: bool,
    /// Largest |Σ over queries − 1| of a real key, padded queries counted: a softmax over queries takes them all.
    pub query_axis_deviation: Option<f64>,
    /// Largest |Σ over heads − 1| of a cell; set on the first head of a layer.
    pub head_axis_deviation: Option<f64>,
    /// The way to normalise that explains the head; `None` where none does, or where it cannot be told.
    pub normaliser: Option<Explained<Normaliser>>,
    /// What explains a head that no way to normalise does.
    pub fault: Option<Explained<Fault>>,
    /// What the whole layer showed; set on its first head.
    pub of_layer: Option<Box<LayerAudit>>,
}

/// What the arrays of a whole layer showed, and what was recorded beside them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LayerAudit {
    /// The mask that the layer looks like.
    pub shape: Option<Shape>,
    /// What its mask is said to be: `None` where nobody says it.
    pub is_declared_causal: Option<bool>,
    /// The declared prefix that every query sees.
    pub prefix: Option<usize>,
    /// Keys that a first query of a cross-attention is declared to see.
    pub wait_k: Option<usize>,
    /// Whether some keys are declared to be padding.
    pub has_pads: bool,
    /// Which layers it is compared with: modules of one kind.
    pub kind: String,
    /// Heads of which each query gives exactly nothing to any later key, in a layer where others do.
    pub causal_heads: Vec<usize>,
    /// Heads have zeros where other heads of the layer have none: no mask made them.
    pub has_own_zeros: bool,
    /// The batch, where the array runs over the batch in place of the tokens: its size, and the number of tokens.
    pub across_batch: Option<(usize, usize)>,
    /// Largest |Σ over the batch − 1| of a cell, where the array holds a batch.
    pub batch_axis_deviation: Option<f64>,
    pub recorded: RecordedCall,
}

/// What the code that captured a layer noted about its call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordedCall {
    /// The axis over which the softmax ran: `keys`, `queries`, `heads` or `batch`.
    pub axis: Option<String>,
    pub dropout_p: Option<f64>,
    pub is_training: Option<bool>,
    pub is_causal: Option<bool>,
    pub is_deterministic: Option<bool>,
    /// Key columns that took part in the softmax and were cut off after it.
    pub sink_columns: Option<usize>,
    /// Sizes of what entered the softmax, before one sequence of the batch was kept.
    pub shape: Vec<usize>,
}

/// What a pattern is held against.
#[derive(Debug, Clone, Copy)]
pub struct Against<'a> {
    pub visibility: &'a Visibility,
    /// The declared axis.
    pub axis: SoftmaxAxis,
    /// Which packed document each position belongs to; empty where there is one.
    pub documents: &'a [usize],
    /// How far cells may lie from what is expected, as a share of the largest cell of their row: by the pattern's kind of float.
    pub tolerance: f64,
    pub vectors: Option<Vectors<'a>>,
    /// The mask that the layer looks like.
    pub shape: Option<&'a Shape>,
    /// Whether a sink is declared, or key columns were recorded to be cut off.
    pub has_sinks: bool,
    /// Whether zeros may be a head's own, and not those of a mask that all heads share.
    pub has_own_zeros: bool,
}

/// What is allowed where nothing explains a head more closely: the scores may have been rounded before they were stored.
const LOOSE: f64 = 1e-3;

impl Audit {
    /// Looks at a whole pattern. // pattern and scores: [query, key]
    pub fn of(against: &Against<'_>, pattern: &[f32], scores: Option<&[f32]>) -> Self {
        let visibility = against.visibility;
        let mut audit = Self {
            has_documents: !against.documents.is_empty(),
            has_scores: scores.is_some(),
            is_signed: pattern.iter().any(|p| *p < 0.0),
            ..Self::default()
        };
        let n_keys = visibility.n_keys;
        audit.query_axis_deviation = query_axis_deviation(visibility, pattern);
        for query_idx in 0..visibility.n_queries {
            let span = query_idx * n_keys..(query_idx + 1) * n_keys;
            let row = &pattern[span.clone()];
            // A NaN is not a probability: `nan-or-inf` names it.
            let is_broken = |values: &[f32]| {
                let mut values = values.iter();
                values.any(|value| value.is_nan() || *value == f32::INFINITY)
            };
            let has_broken_score = scores.is_some_and(|scores| is_broken(&scores[span.clone()]));
            if visibility.is_real_query(query_idx) && !is_broken(row) && !has_broken_score {
                audit.row(visibility, against.documents, query_idx, row);
            }
        }
        audit.compare(against, pattern, scores);
        audit
    }

    fn row(&mut self, visibility: &Visibility, documents: &[usize], query_idx: usize, row: &[f32]) {
        let window = visibility.range_of_window(query_idx);
        let is_foreign = |idx: &usize| documents.get(*idx) != documents.get(query_idx);
        let is_narrowed = visibility.n_visible(query_idx) < row.len()
            || (0..documents.len()).any(|idx| is_foreign(&idx));
        if is_even(row) && is_narrowed {
            self.uniform_row.get_or_insert(query_idx);
            // What a query without any visible key reads is a matter of that row alone.
            if visibility.n_visible(query_idx) == 0 {
                return;
            }
        }
        for (key_idx, p) in row.iter().enumerate() {
            if *p != 0.0 {
                self.reach = self.reach.max(query_idx.abs_diff(key_idx));
            } else if key_idx <= query_idx && visibility.is_real_key(key_idx) {
                self.n_zeroed += 1;
            }
            let is_foreign = documents.get(query_idx) != documents.get(key_idx);
            if visibility.sees(query_idx, key_idx) && !is_foreign {
                continue;
            }
            if *p == 0.0 {
                continue;
            }
            let kind = if !visibility.is_real_key(key_idx) {
                &mut self.on_pads
            } else if is_foreign {
                &mut self.across_documents
            } else if visibility.is_after(query_idx, key_idx) || window.contains(&key_idx) {
                &mut self.after
            } else {
                &mut self.outside_window
            };
            kind.add(query_idx, key_idx, *p);
        }
    }

    /// Holds the pattern against its scores: over the visible keys, since scores may have been captured before their mask; or
    /// over all, where forbidden ones took part.
    fn compare(&mut self, against: &Against<'_>, pattern: &[f32], scores: Option<&[f32]>) {
        let Against {
            visibility, axis, ..
        } = *against;
        let is_masked = self.forbidden_mass() == 0.0;
        // What the layer shows to be hidden took no part, whatever is declared: `mask-shape` speaks of it.
        let shape = against.shape.filter(|shape| shape.is_tight);
        let ranges: Option<Vec<_>> = shape.map(|shape| {
            let queries = 0..visibility.n_queries;
            queries.map(|query_idx| shape.range_of(query_idx)).collect()
        });
        let mut is_hidden = vec![false; visibility.n_keys];
        let unseen = shape
            .iter()
            .flat_map(|shape| shape.unseen.iter().chain(&shape.pads));
        unseen.for_each(|key_idx| is_hidden[*key_idx] = true);
        let counts = |query_idx: usize, key_idx: usize| {
            let documents = against.documents;
            let is_foreign = documents.get(query_idx) != documents.get(key_idx);
            let ranges = ranges.as_ref();
            let is_inside = ranges.is_none_or(|ranges| ranges[query_idx].contains(&key_idx));
            let is_shown = is_inside && !is_hidden[key_idx];
            let is_declared = visibility.sees(query_idx, key_idx) && !is_foreign;
            is_shown && (!is_masked || is_declared)
        };
        if let Some(scores) = scores {
            let compared = Comparison::of(visibility, axis, pattern, scores, &counts);
            self.mismatch = compared.worst;
            self.dropout = compared.dropout();
            self.learned_sink = compared.learned_sink();
        }
        if axis == SoftmaxAxis::Queries {
            return;
        }
        let mut head = Head::of(visibility, pattern, scores, against.vectors, &counts);
        head.has_sinks = against.has_sinks;
        head.has_own_zeros = against.has_own_zeros;
        let loose = LOOSE.max(against.tolerance);
        if self.dropout.is_none() {
            let explained = normaliser::recognise(&head, against.tolerance);
            self.normaliser = explained.or_else(|| normaliser::recognise(&head, loose));
        }
        if self.normaliser.is_none() && self.dropout.is_none() {
            self.fault = normaliser::diagnose(&head, loose);
        }
        if scores.is_none() && self.normaliser.is_none() && self.fault.is_none() {
            self.dropout = normaliser::dropout(&head);
        }
        if let Some(Normaliser::LearnedSink { logit }) = self.normaliser.map(|found| found.by) {
            self.learned_sink.get_or_insert(logit);
        }
    }
}

fn query_axis_deviation(visibility: &Visibility, pattern: &[f32]) -> Option<f64> {
    let mut sums = vec![0.0f64; visibility.n_keys];
    let rows = pattern.chunks(visibility.n_keys.max(1)).enumerate();
    // What a padded query does counts unless it is NaN: a softmax over queries runs over all of them.
    let counted = rows.filter(|(query_idx, row)| {
        visibility.is_real_query(*query_idx) || row.iter().all(|p| p.is_finite())
    });
    for (_, row) in counted {
        sums.iter_mut()
            .zip(row)
            .for_each(|(sum, p)| *sum += f64::from(*p));
    }
    let sums = sums.iter().enumerate();
    let real = sums.filter(|(key_idx, _)| visibility.is_real_key(*key_idx));
    real.map(|(_, sum)| (sum - 1.0).abs()).reduce(f64::max)
}

impl Audit {
    /// Everything that lies where nothing should.
    pub fn forbidden_mass(&self) -> f64 {
        let kinds = [
            self.after,
            self.outside_window,
            self.on_pads,
            self.across_documents,
        ];
        kinds.iter().map(|kind| kind.mass).sum()
    }
}

impl Visibility {
    /// The keys that the window alone would let a query see.
    fn range_of_window(&self, query_idx: usize) -> std::ops::Range<usize> {
        match self.mask().window {
            None => 0..self.n_keys,
            Some(Window::Back(width)) => (query_idx + 1).saturating_sub(width)..self.n_keys,
            Some(Window::Around(reach)) => {
                query_idx.saturating_sub(reach)..(query_idx + 1).saturating_add(reach)
            }
            Some(Window::Chunk(width)) => self.chunk(query_idx, width),
        }
    }

    /// Whether the declared mask hides a key because it comes later.
    fn is_after(&self, query_idx: usize, key_idx: usize) -> bool {
        self.mask().causal && key_idx >= self.range(query_idx).end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::Mask;

    const CAUSAL: Mask = Mask {
        causal: true,
        window: None,
    };

    fn of(
        mask: Mask,
        n: usize,
        real: Option<&[bool]>,
        pattern: &[f32],
        scores: Option<&[f32]>,
    ) -> Audit {
        let visibility = Visibility::of_self(mask, n, real);
        let against = Against {
            visibility: &visibility,
            axis: SoftmaxAxis::Keys,
            documents: &[],
            tolerance: 1e-5,
            vectors: None,
            shape: None,
            has_sinks: false,
            has_own_zeros: true,
        };
        Audit::of(&against, pattern, scores)
    }

    #[test]
    fn each_forbidden_cell_counts_once_under_what_is_most_specific() {
        let window = Mask {
            causal: true,
            window: Some(Window::Back(2)),
        };
        // Key 0 is padding; query 3 sees keys 2 and 3.
        let real = [false, true, true, true];
        #[rustfmt::skip]
        let pattern = [
            0.0, 0.0, 0.0, 0.0,
            0.0, 0.9, 0.1, 0.0,
            0.2, 0.4, 0.4, 0.0,
            0.1, 0.3, 0.3, 0.3,
        ];
        let audit = of(window, 4, Some(&real), &pattern, None);
        let seen = |kind: Forbidden| (kind.largest, kind.query_idx, kind.key_idx);
        assert_eq!(seen(audit.after), (0.1, 1, 2));
        assert_eq!(seen(audit.outside_window), (0.3, 3, 1));
        assert_eq!(seen(audit.on_pads), (0.2, 2, 0));
        assert!((audit.on_pads.mass - 0.3).abs() < 1e-6);
        assert_eq!(audit.reach, 3);
    }

    #[test]
    fn an_even_row_over_forbidden_keys_is_told_from_an_honest_one() {
        let even = [1.0 / 3.0; 9];
        assert_eq!(of(CAUSAL, 3, None, &even, None).uniform_row, Some(0));
        // The last row of a causal head may well be even.
        let honest = [
            1.0,
            0.0,
            0.0,
            0.5,
            0.5,
            0.0,
            1.0 / 3.0,
            1.0 / 3.0,
            1.0 / 3.0,
        ];
        assert_eq!(of(CAUSAL, 3, None, &honest, None).uniform_row, None);
    }

    #[test]
    fn a_learned_sink_and_dropout_are_recognised_by_their_scores() {
        let n = 24usize;
        let score = |i: usize, j: usize| ((i * 7 + j * 13) % 5) as f32 * 0.4;
        let matrix = |cell: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
            (0..n * n)
                .map(|at| {
                    if at % n > at / n {
                        0.0
                    } else {
                        cell(at / n, at % n)
                    }
                })
                .collect()
        };
        let scores = matrix(&score);
        let sum = |i: usize| (0..=i).map(|j| score(i, j).exp()).sum::<f32>();
        let sunk = matrix(&|i, j| score(i, j).exp() / (sum(i) + 2f32.exp()));
        let audit = of(CAUSAL, n, None, &sunk, Some(&scores));
        assert!(
            (audit.learned_sink.expect("a sink") - 2.0).abs() < 1e-3,
            "{audit:?}"
        );
        assert_eq!(audit.dropout, None);
        let dropped = matrix(&|i, j| {
            let kept = (i * 31 + j * 17) % 10 != 0;
            if kept {
                score(i, j).exp() / sum(i) / 0.9
            } else {
                0.0
            }
        });
        let audit = of(CAUSAL, n, None, &dropped, Some(&scores));
        assert!(
            (audit.dropout.expect("dropout") - 0.1).abs() < 1e-3,
            "{audit:?}"
        );
        assert_eq!(audit.learned_sink, None);
        let plain = matrix(&|i, j| score(i, j).exp() / sum(i));
        let audit = of(CAUSAL, n, None, &plain, Some(&scores));
        assert_eq!((audit.dropout, audit.learned_sink), (None, None));
        assert!(audit.mismatch.expect("compared").difference < 1e-6);
    }

    #[test]
    fn a_sink_that_a_row_hardly_feels_is_still_one_and_a_lost_cell_is_none() {
        let n = 12usize;
        // Later rows have larger scores: the last one gives its sink 1e-6.
        let score = |i: usize, j: usize| ((i * 5 + j * 3) % 4) as f32 * 0.2 + i as f32;
        let cell = |i: usize, j: usize| {
            let sum = (0..=i).map(|j| f64::from(score(i, j)).exp()).sum::<f64>();
            (f64::from(score(i, j)).exp() / (sum + 0.5f64.exp())) as f32
        };
        let matrix = |of: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
            let at = |at: usize| {
                if at % n > at / n {
                    0.0
                } else {
                    of(at / n, at % n)
                }
            };
            (0..n * n).map(at).collect()
        };
        let scores = matrix(&score);
        let mut sunk = matrix(&cell);
        let audit = of(CAUSAL, n, None, &sunk, Some(&scores));
        assert!((audit.learned_sink.expect("a sink") - 0.5).abs() < 1e-2);
        sunk[5 * n + 2] *= 0.5;
        assert_eq!(of(CAUSAL, n, None, &sunk, Some(&scores)).learned_sink, None);
    }
}
