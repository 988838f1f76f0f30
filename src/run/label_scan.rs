//! Predictions of a classification head: it has few logits, which are kept whole.

use std::ops::Range;

use attnscope_spec::{LabelKind, Labels};

use super::predictions::{LabelAt, N_TOP, Predictions, TopToken};

/// Collects logits range by range.
#[derive(Debug)]
pub struct LabelScan<'a> {
    labels: &'a Labels,
    /// [position, label]
    logits: Vec<f32>,
    is_real: Vec<bool>,
    /// Position whose labels count; `None` if all positions count.
    pooled: Option<usize>,
}

impl<'a> LabelScan<'a> {
    /// Scan of a text's tokens, as given and as the head's stack reads them; `is_real` is false for padding.
    pub fn new(
        labels: &'a Labels,
        [given, tokens]: [&[u32]; 2],
        is_real: impl Fn(usize) -> bool,
    ) -> Self {
        Self {
            labels,
            logits: vec![f32::NAN; tokens.len() * labels.names.len()],
            is_real: (0..tokens.len()).map(is_real).collect(),
            pooled: labels.pooled.position(given),
        }
    }

    /// Adds the logits of a range of labels. // [position, range]
    pub fn add(&mut self, range: &Range<usize>, logits: &[f32]) {
        let n = self.labels.names.len();
        for (row, part) in self.logits.chunks_mut(n).zip(logits.chunks(range.len())) {
            row[range.clone()].copy_from_slice(part);
        }
    }

    /// Ends the scan and returns the predictions.
    pub fn finish(self) -> Predictions {
        let n = self.labels.names.len().max(1);
        let n_positions = self.is_real.len();
        let at = |position_idx: usize| -> Vec<LabelAt> {
            let row = &self.logits[position_idx * n..(position_idx + 1) * n];
            let sum = log_sum_exp(row.iter().copied());
            let label = |(label_idx, logit): (usize, &f32)| LabelAt {
                position_idx,
                label_idx,
                logit: *logit,
                probability: self.probability(label_idx, *logit, sum),
            };
            row.iter().enumerate().map(label).collect()
        };
        let is_shown =
            |idx: usize| self.pooled.is_none_or(|pooled| pooled == idx) && self.is_real[idx];
        let sorted = |idx: usize| {
            let mut labels = at(idx);
            labels.sort_by(|a, b| b.logit.total_cmp(&a.logit));
            labels
        };
        let top = |idx: usize| -> Vec<TopToken> {
            let shown = if is_shown(idx) {
                sorted(idx)
            } else {
                Vec::new()
            };
            let token = |label: &LabelAt| TopToken {
                id: label.label_idx as u32,
                probability: label.probability.unwrap_or(label.logit),
            };
            shown.iter().take(N_TOP).map(token).collect()
        };
        let labels = match (self.pooled, self.labels.kind) {
            (Some(pooled), _) if pooled < n_positions => at(pooled),
            (_, LabelKind::Span) => self.spans(&at),
            _ => {
                let shown = (0..n_positions).filter(|idx| is_shown(*idx));
                shown
                    .filter_map(|idx| sorted(idx).first().copied())
                    .collect()
            }
        };
        Predictions {
            top: (0..n_positions).map(top).collect(),
            next_loss: None,
            loss: None,
            n_in_loss: 0,
            labels,
        }
    }

    /// Most likely position of each label.
    fn spans(&self, at: &dyn Fn(usize) -> Vec<LabelAt>) -> Vec<LabelAt> {
        let n_positions = self.is_real.len();
        let real = || (0..n_positions).filter(|idx| self.is_real[*idx]);
        let best = |label_idx: usize| {
            let all = real().filter_map(|idx| at(idx).get(label_idx).copied());
            all.reduce(|best, label| {
                if label.logit > best.logit {
                    label
                } else {
                    best
                }
            })
        };
        (0..self.labels.names.len()).filter_map(best).collect()
    }

    fn probability(&self, label_idx: usize, logit: f32, log_sum: f64) -> Option<f32> {
        let logit = f64::from(logit);
        let probability = match self.labels.kind {
            LabelKind::Value => return None,
            LabelKind::OneOf => (logit - log_sum).exp(),
            LabelKind::Several => 1.0 / (1.0 + (-logit).exp()),
            LabelKind::Span => {
                let n = self.labels.names.len();
                let column = self.logits.iter().skip(label_idx).step_by(n);
                let real = column.zip(&self.is_real).filter(|(_, is_real)| **is_real);
                (logit - log_sum_exp(real.map(|(logit, _)| *logit))).exp()
            }
        };
        Some(probability as f32)
    }
}

fn log_sum_exp(values: impl Iterator<Item = f32> + Clone) -> f64 {
    let most = values.clone().fold(f32::NEG_INFINITY, f32::max);
    let most = f64::from(most);
    most + values
        .map(|v| (f64::from(v) - most).exp())
        .sum::<f64>()
        .ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_spec::Pooled;

    fn labels(kind: LabelKind, pooled: Pooled) -> Labels {
        Labels {
            names: vec!["a".to_owned(), "b".to_owned()],
            kind,
            pooled,
        }
    }

    fn scanned(labels: &Labels) -> Predictions {
        // Three tokens; the last one is padding.
        let mut scan = LabelScan::new(labels, [&[4, 5, 0]; 2], |idx| idx < 2);
        scan.add(&(0..1), &[1.0, 3.0, 9.0]);
        scan.add(&(1..2), &[2.0, 0.0, 9.0]);
        scan.finish()
    }

    #[test]
    fn a_pooled_text_has_one_set_of_labels_at_its_pooled_position() {
        let labels = labels(LabelKind::OneOf, Pooled::Last(Some(0)));
        let found = scanned(&labels);
        assert_eq!(found.labels.len(), 2);
        assert!(found.labels.iter().all(|label| label.position_idx == 1));
        let expected = 1.0 / (1.0 + (-3.0f64).exp());
        let of_a = found.labels[0].probability.expect("a probability");
        assert!((f64::from(of_a) - expected).abs() < 1e-6);
        assert!(found.top[0].is_empty() && found.top[2].is_empty());
        assert_eq!(found.top[1][0].id, 0);
    }

    #[test]
    fn span_ends_are_chosen_among_real_positions() {
        let found = scanned(&labels(LabelKind::Span, Pooled::Every));
        let at: Vec<usize> = found
            .labels
            .iter()
            .map(|label| label.position_idx)
            .collect();
        assert_eq!(at, [1, 0]);
        let expected = 1.0 / (1.0 + (-2.0f64).exp());
        for label in &found.labels {
            let probability = label.probability.expect("a probability");
            assert!((f64::from(probability) - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn values_have_no_probability_and_independent_labels_use_a_sigmoid() {
        let found = scanned(&labels(LabelKind::Value, Pooled::First));
        assert_eq!(found.labels[1].logit, 2.0);
        assert_eq!(found.labels[1].probability, None);
        let found = scanned(&labels(LabelKind::Several, Pooled::First));
        let probability = found.labels[0].probability.expect("a probability");
        assert!((f64::from(probability) - 1.0 / (1.0 + (-1.0f64).exp())).abs() < 1e-6);
    }
}
