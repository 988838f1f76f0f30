//! BLEU (Papineni et al. 2002) as defined by sacreBLEU: n-gram counts summed over a corpus, a brevity penalty from the closest
//! reference lengths, and exponential smoothing.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use super::tokenise::tokenise_13a;

/// Length of the longest n-grams.
pub const MOST: usize = 4;

/// Counts that BLEU is computed from; those of segments are summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BleuCounts {
    /// Hypothesis n-grams that occur in a reference, clipped to their highest count in any reference. // [n − 1]
    pub correct: [usize; MOST],
    /// All n-grams of the hypothesis. // [n − 1]
    pub total: [usize; MOST],
    pub hypothesis_len: usize,
    /// Length of the reference closest in length, or the shorter one in a tie.
    pub reference_len: usize,
}

impl AddAssign for BleuCounts {
    fn add_assign(&mut self, other: Self) {
        for n in 0..MOST {
            self.correct[n] += other.correct[n];
            self.total[n] += other.total[n];
        }
        self.hypothesis_len += other.hypothesis_len;
        self.reference_len += other.reference_len;
    }
}

/// A score from 0 to 100, with its components.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bleu {
    pub score: f64,
    /// Smoothed, in percent. // [n − 1]
    pub precisions: [f64; MOST],
    pub brevity_penalty: f64,
    pub hypothesis_len: usize,
    pub reference_len: usize,
}

/// Counts of each n-gram of up to four tokens.
fn n_grams<'t>(tokens: &[&'t str]) -> BTreeMap<Vec<&'t str>, usize> {
    let mut counts = BTreeMap::new();
    for n in 1..=MOST {
        for n_gram in tokens.windows(n) {
            *counts.entry(n_gram.to_vec()).or_insert(0) += 1;
        }
    }
    counts
}

impl BleuCounts {
    /// Counts of one segment against its references.
    pub fn of(hypothesis: &str, references: &[String]) -> Self {
        let hypothesis = tokenise_13a(hypothesis);
        let tokens: Vec<&str> = hypothesis
            .split(' ')
            .filter(|token| !token.is_empty())
            .collect();
        let references: Vec<String> = references.iter().map(|one| tokenise_13a(one)).collect();
        let mut counts = Self {
            hypothesis_len: tokens.len(),
            ..Self::default()
        };
        let mut most: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
        let mut nearest: Option<(usize, usize)> = None;
        for reference in &references {
            let reference: Vec<&str> = reference
                .split(' ')
                .filter(|token| !token.is_empty())
                .collect();
            let apart = (reference.len().abs_diff(tokens.len()), reference.len());
            nearest = Some(nearest.map_or(apart, |other| other.min(apart)));
            for (n_gram, n) in n_grams(&reference) {
                let most = most.entry(n_gram).or_insert(0);
                *most = n.max(*most);
            }
        }
        counts.reference_len = nearest.map_or(0, |(_, length)| length);
        // Each occurrence is counted in turn, up to the allowed number.
        for n in 1..=MOST {
            let mut own: BTreeMap<&[&str], usize> = BTreeMap::new();
            for n_gram in tokens.windows(n) {
                let seen = own.entry(n_gram).or_insert(0);
                *seen += 1;
                counts.total[n - 1] += 1;
                let allowed = most.get(n_gram).copied().unwrap_or(0);
                counts.correct[n - 1] += usize::from(*seen <= allowed);
            }
        }
        counts
    }

    /// Score of a corpus or, with `effective_order`, of a single segment, without n-gram orders longer than the segment.
    pub fn bleu(&self, effective_order: bool) -> Bleu {
        let lengths = (self.hypothesis_len as f64, self.reference_len as f64);
        let brevity_penalty = match lengths {
            (own, reference) if own >= reference => 1.0,
            (0.0, _) => 0.0,
            (own, reference) => (1.0 - reference / own).exp(),
        };
        let mut precisions = [0.0; MOST];
        let mut order = MOST;
        let mut smoothing = 1.0;
        for (n, precision) in precisions.iter_mut().enumerate() {
            if self.total[n] == 0 {
                break;
            }
            if effective_order {
                order = n + 1;
            }
            let total = self.total[n] as f64;
            *precision = if self.correct[n] == 0 {
                // Exponential smoothing: each order without a match counts half of the previous one.
                smoothing *= 2.0;
                100.0 / (smoothing * total)
            } else {
                100.0 * self.correct[n] as f64 / total
            };
        }
        let is_nothing = self.correct.iter().all(|n| *n == 0);
        let has_all = precisions[..order].iter().all(|p| *p > 0.0);
        let score = if is_nothing || !has_all {
            0.0
        } else {
            let logs: f64 = precisions[..order].iter().map(|p| p.ln()).sum();
            brevity_penalty * (logs / order as f64).exp()
        };
        Bleu {
            score,
            precisions: if is_nothing { [0.0; MOST] } else { precisions },
            brevity_penalty,
            hypothesis_len: self.hypothesis_len,
            reference_len: self.reference_len,
        }
    }
}
