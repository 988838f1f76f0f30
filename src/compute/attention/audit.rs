//! Compares a pattern computed elsewhere with the declared attention, cell by cell.

use super::comparison::{Comparison, Mismatch, hidden_score};
use super::mask::Visibility;
use super::normaliser::{self, Explained, Fault, Head, Normaliser, Vectors};
use super::recorded_call::RecordedCall;
use super::score_scale::ScoreScale;
use super::seen_keys::SeenKeys;
use super::shape::Shape;
use super::spec::SoftmaxAxis;
use super::support::is_even;

/// Probability on keys that should have none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Forbidden {
    /// Sum over all cells of this kind.
    pub mass: f64,
    /// Largest probability, at the cell below.
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

/// Findings on the pattern of one head. Padded queries are ignored; each forbidden cell is counted once, under the most specific
/// kind.
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
    /// The largest |query − key| with any probability.
    pub reach: usize,
    /// Number of cells up to the query's own position that are exactly zero.
    pub n_zeroed: usize,
    /// A query whose row is uniform over all keys, forbidden ones included.
    pub uniform_row: Option<usize>,
    /// The cell that differs most from the softmax of its scores along the declared axis.
    pub mismatch: Option<Mismatch>,
    /// The p of a dropout: the rows are a softmax with cells zeroed at random and the others divided by 1 − p.
    pub dropout: Option<f64>,
    /// Value of a learned sink logit that takes part of every row, if all rows agree on it.
    pub learned_sink: Option<f64>,
    /// The finite score that every hidden cell has, where the mask is too weak to hide them.
    pub hidden_score: Option<f32>,
    /// Whether document boundaries were known.
    pub has_documents: bool,
    /// Whether scores were available for comparison.
    pub has_scores: bool,
    /// Whether some cell is negative.
    pub is_signed: bool,
    /// Largest |Σ over queries − 1| over real keys. Includes padded queries: a softmax over queries runs over them too.
    pub query_axis_deviation: Option<f64>,
    /// Largest |Σ over heads − 1| of a cell; set on the first head of a layer.
    pub head_axis_deviation: Option<f64>,
    /// The normaliser that explains the head; `None` if none does, or if it cannot be determined.
    pub normaliser: Option<Explained<Normaliser>>,
    /// The fault that explains a head that no normaliser explains.
    pub fault: Option<Explained<Fault>>,
    /// Findings on the whole layer; set on its first head.
    pub of_layer: Option<Box<LayerAudit>>,
}

/// Findings on the arrays of a whole layer, and what was recorded with them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LayerAudit {
    /// The mask inferred from the layer's pattern.
    pub shape: Option<Shape>,
    /// Whether its mask is declared causal; `None` if nothing is declared.
    pub is_declared_causal: Option<bool>,
    /// Number of first keys that every query is declared to see.
    pub prefix: Option<usize>,
    /// Number of keys that the first query of a cross-attention is declared to see (wait-k).
    pub wait_k: Option<usize>,
    /// Whether some keys are declared to be padding.
    pub has_pads: bool,
    /// The kind of module: a layer is compared with layers of the same kind.
    pub kind: String,
    /// Heads whose queries give exactly nothing to later keys, in a layer where other heads do.
    pub causal_heads: Vec<usize>,
    /// Some heads have zeros where other heads of the layer have none, so no shared mask made them.
    pub has_own_zeros: bool,
    /// Set if the attention runs over the batch instead of the tokens: batch size and number of tokens. A batch of one counts
    /// only if every attention of the trace has one query and one key.
    pub across_batch: Option<(usize, usize)>,
    /// Largest |Σ over the batch − 1| of a cell, if the array holds a batch.
    pub batch_axis_deviation: Option<f64>,
    /// The factor between q·k and the scores, if there is one.
    pub score_scale: Option<ScoreScale>,
    pub recorded: RecordedCall,
}

/// What a pattern is compared with.
#[derive(Debug, Clone, Copy)]
pub struct AuditReference<'a> {
    pub visibility: &'a Visibility,
    /// The declared axis.
    pub axis: SoftmaxAxis,
    /// Document index of each position; empty if the text is not packed.
    pub documents: &'a [usize],
    /// Allowed difference from the expected value, as a share of the row's largest cell; depends on the pattern's float type.
    pub tolerance: f64,
    pub vectors: Option<Vectors<'a>>,
    /// What was added to the pattern behind its softmax, where that was recorded. // [query, key]
    pub added: Option<&'a [f32]>,
    /// The mask inferred from the layer's pattern.
    pub shape: Option<&'a Shape>,
    /// Whether a sink is declared, or recorded key columns were cut off.
    pub has_sinks: bool,
    /// Whether heads were mixed after the softmax: then no normaliser explains a pattern.
    pub is_mixed: bool,
    /// Whether zeros may be a head's own, rather than those of a mask shared by all heads.
    pub has_own_zeros: bool,
}

/// Tolerance used if nothing explains a head within the tighter one: scores may have been rounded before they were stored.
const LOOSE: f64 = 1e-3;

/// Most cells of a head of which it is remembered whether they count.
const MOST_REMEMBERED: usize = 1 << 24;

impl Audit {
    /// Audits a whole pattern. // pattern and scores: [query, key]
    pub fn of(against: &AuditReference<'_>, pattern: &[f32], scores: Option<&[f32]>) -> Self {
        let visibility = against.visibility;
        let mut audit = Self {
            has_documents: !against.documents.is_empty(),
            has_scores: scores.is_some() && !against.is_mixed,
            is_signed: pattern.iter().any(|p| *p < 0.0),
            ..Self::default()
        };
        let n_keys = visibility.n_keys;
        audit.query_axis_deviation = query_axis_deviation(visibility, pattern);
        for query_idx in 0..visibility.n_queries {
            let span = query_idx * n_keys..(query_idx + 1) * n_keys;
            let row = &pattern[span.clone()];
            // A NaN is not a probability: the check `nan-or-inf` reports it.
            let is_broken = |values: &[f32]| {
                let mut values = values.iter();
                values.any(|value| value.is_nan() || *value == f32::INFINITY)
            };
            let has_broken_score = scores.is_some_and(|scores| is_broken(&scores[span.clone()]));
            if visibility.is_real_query(query_idx) && !is_broken(row) && !has_broken_score {
                audit.row(visibility, against.documents, query_idx, row);
            }
        }
        if !against.is_mixed {
            audit.compare(against, pattern, scores);
        }
        if audit.forbidden_mass() != 0.0 {
            audit.hidden_score = scores.and_then(|scores| hidden_score(visibility, scores));
        }
        audit
    }

    fn row(&mut self, visibility: &Visibility, documents: &[usize], query_idx: usize, row: &[f32]) {
        let window = visibility.range_of_window(query_idx);
        let is_foreign = |idx: &usize| documents.get(*idx) != documents.get(query_idx);
        let is_narrowed = visibility.n_visible(query_idx) < row.len()
            || (0..documents.len()).any(|idx| is_foreign(&idx));
        if is_even(row) && is_narrowed {
            self.uniform_row.get_or_insert(query_idx);
            // A query without any visible key affects only its own row.
            if visibility.n_visible(query_idx) == 0 {
                return;
            }
        }
        let seen = visibility.seen_by(query_idx);
        for (key_idx, p) in row.iter().enumerate() {
            if *p != 0.0 {
                self.reach = self.reach.max(query_idx.abs_diff(key_idx));
            } else if key_idx <= query_idx && visibility.is_real_key(key_idx) {
                self.n_zeroed += 1;
            }
            if *p == 0.0 {
                continue;
            }
            let is_foreign = documents.get(query_idx) != documents.get(key_idx);
            if seen.has(key_idx) && !is_foreign {
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

    /// Compares the pattern with the softmax of its scores: over the visible keys, since scores may have been captured before
    /// masking; or over all keys, if forbidden ones took part.
    fn compare(&mut self, against: &AuditReference<'_>, pattern: &[f32], scores: Option<&[f32]>) {
        let AuditReference {
            visibility, axis, ..
        } = *against;
        let is_masked = self.forbidden_mass() == 0.0;
        // Keys that the layer's pattern shows to be hidden took no part, whatever is declared: the check `mask-shape` reports
        // that.
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
        let counts_of = |seen: &SeenKeys<'_>, query_idx: usize, key_idx: usize| {
            let documents = against.documents;
            let is_foreign = documents.get(query_idx) != documents.get(key_idx);
            let ranges = ranges.as_ref();
            let is_inside = ranges.is_none_or(|ranges| ranges[query_idx].contains(&key_idx));
            let is_shown = is_inside && !is_hidden[key_idx];
            is_shown && (!is_masked || seen.has(key_idx) && !is_foreign)
        };
        let counts = |query_idx: usize, key_idx: usize| {
            counts_of(&visibility.seen_by(query_idx), query_idx, key_idx)
        };
        // Asked three times of each cell: remembered where that takes little memory.
        let n_keys = visibility.n_keys;
        let is_short = pattern.len() <= MOST_REMEMBERED;
        let mut cells: Vec<bool> = Vec::with_capacity(if is_short { pattern.len() } else { 0 });
        for query_idx in 0..if is_short { visibility.n_queries } else { 0 } {
            let seen = visibility.seen_by(query_idx);
            cells.extend((0..n_keys).map(|key_idx| counts_of(&seen, query_idx, key_idx)));
        }
        let remembered = |query_idx: usize, key_idx: usize| cells[query_idx * n_keys + key_idx];
        let counts: &dyn Fn(usize, usize) -> bool = if is_short { &remembered } else { &counts };
        // One head's scores do not tell a softmax over heads.
        if axis == SoftmaxAxis::Heads {
            return;
        }
        if let Some(scores) = scores {
            let compared = Comparison::of(visibility, axis, pattern, scores, counts);
            self.mismatch = compared.worst;
            self.dropout = compared.dropout();
            self.learned_sink = compared.learned_sink();
        }
        if axis == SoftmaxAxis::Queries {
            return;
        }
        let mut head = Head::of(visibility, pattern, scores, against.vectors, counts);
        head.has_sinks = against.has_sinks;
        head.has_own_zeros = against.has_own_zeros;
        let loose = LOOSE.max(against.tolerance);
        let with_added = |added| normaliser::with_added(&head, added, against.tolerance);
        if let Some(found) = against
            .added
            .filter(|_| scores.is_some())
            .and_then(with_added)
        {
            self.dropout = None;
            self.learned_sink = None;
            match found {
                Ok(mixture) => self.normaliser = Some(mixture),
                Err(fault) => self.fault = Some(fault),
            }
            return;
        }
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
    // Padded queries are counted unless they are NaN: a softmax over queries runs over them too.
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
    /// Total probability on forbidden keys.
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
    /// The keys that the window alone lets a query see.
    fn range_of_window(&self, query_idx: usize) -> std::ops::Range<usize> {
        let Some(window) = self.mask().window else {
            return 0..self.n_keys;
        };
        let keys = window.keys(query_idx, self.first_real_key().unwrap_or(0));
        // Later keys are another fault where the window only reaches back.
        let end = if window.reaches_forward() {
            keys.end
        } else {
            self.n_keys
        };
        keys.start..end
    }

    /// Whether the declared mask hides a key because it comes later.
    fn is_after(&self, query_idx: usize, key_idx: usize) -> bool {
        self.mask().causal && key_idx >= self.range(query_idx).end
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::Window;
    use super::*;
    use crate::attention::Mask;

    const CAUSAL: Mask = Mask::CAUSAL;

    fn of(
        mask: Mask,
        n: usize,
        real: Option<&[bool]>,
        pattern: &[f32],
        scores: Option<&[f32]>,
    ) -> Audit {
        let visibility = Visibility::of_self(mask, n, real);
        let against = AuditReference {
            visibility: &visibility,
            axis: SoftmaxAxis::Keys,
            documents: &[],
            tolerance: 1e-5,
            vectors: None,
            added: None,
            shape: None,
            has_sinks: false,
            is_mixed: false,
            has_own_zeros: true,
        };
        Audit::of(&against, pattern, scores)
    }

    #[test]
    fn each_forbidden_cell_counts_once_under_the_most_specific_kind() {
        let window = Mask {
            window: Some(Window::Back(2)),
            ..CAUSAL
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
    fn an_even_row_over_forbidden_keys_is_distinguished_from_a_legitimate_one() {
        let even = [1.0 / 3.0; 9];
        assert_eq!(of(CAUSAL, 3, None, &even, None).uniform_row, Some(0));
        // The last row of a causal head may legitimately be uniform.
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
    fn a_learned_sink_and_dropout_are_recognised_from_scores() {
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
    fn a_sink_that_hardly_affects_one_row_is_recognised_and_a_lost_cell_is_not_a_sink() {
        let n = 12usize;
        // Later rows have larger scores: the last one gives the sink only 1e-6.
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
