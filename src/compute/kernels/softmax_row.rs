//! Statistics of the softmax of one row of scores, in f64: probabilities, entropy, and norms of its Jacobian.

/// Statistics of one row. J = diag(p) − ppᵀ is the derivative of the probabilities by the scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoftmaxRow {
    pub max_probability: f64,
    /// In nats.
    pub entropy: f64,
    /// tr J = Σp(1 − p) = 1 − Σp²: at most 1 − 1/n, and 0 if one key has all the probability.
    pub jacobian_trace: f64,
    /// ‖J‖_F, with ‖J‖_F² = Σp²(1 − p)² + Σ_{i≠j} p_i²p_j².
    pub jacobian_frobenius: f64,
}

impl SoftmaxRow {
    /// The statistics of a row with scores multiplied by `scale`; −∞ is a masked key. `None` if no key is visible, or a scaled
    /// score is NaN or +∞.
    pub fn of(scores: &[f64], scale: f64) -> Option<Self> {
        Some(Self::of_exponentials(&Exponentials::of(scores, scale)?))
    }

    fn of_exponentials(row: &Exponentials) -> Self {
        let Exponentials { total, rest, .. } = *row;
        // All sums are expressed by the keys other than the largest, so that a saturated row keeps its digits; 1 − Σp² would lose
        // them.
        let (mut entropy, mut squares, mut fourths) = (libm::log1p(rest), 0.0, 0.0);
        let (mut trace, mut diagonal) = (0.0, 0.0);
        for (below, e) in row.others() {
            let p = e / total;
            let square = p * p;
            if p > 0.0 {
                entropy += p * below;
            }
            squares += square;
            fourths += square * square;
            trace += p * (1.0 - p);
            diagonal += square * (1.0 - p) * (1.0 - p);
        }
        let (largest, others) = (1.0 / total, rest / total);
        let off_diagonal =
            2.0 * largest * largest * squares + (squares * squares - fourths).max(0.0);
        let own = largest * others;
        Self {
            max_probability: largest,
            entropy,
            jacobian_trace: trace + own,
            jacobian_frobenius: (diagonal + own * own + off_diagonal).sqrt(),
        }
    }

    /// e^entropy: the number of keys of a uniform row with this entropy.
    pub fn perplexity(&self) -> f64 {
        libm::exp(self.entropy)
    }
}

/// Exponentials of a row relative to its largest score, which is kept apart.
struct Exponentials {
    /// For each other visible score, its distance below the largest, and its exponential.
    below: Vec<(f64, f64)>,
    /// Sum over the other scores.
    rest: f64,
    total: f64,
}

impl Exponentials {
    fn of(scores: &[f64], scale: f64) -> Option<Self> {
        let visible = || scores.iter().filter(|score| **score != f64::NEG_INFINITY);
        let mut largest: Option<(usize, f64)> = None;
        for (nth, score) in visible().enumerate() {
            let scaled = score * scale;
            if scaled.is_nan() || scaled == f64::INFINITY {
                return None;
            }
            if largest.is_none_or(|(_, value)| scaled > value) {
                largest = Some((nth, scaled));
            }
        }
        let (largest_nth, largest) = largest?;
        let others = visible().enumerate().filter(|(nth, _)| *nth != largest_nth);
        let below = others.map(|(_, score)| {
            let below = largest - score * scale;
            (below, libm::exp(-below))
        });
        let below: Vec<(f64, f64)> = below.collect();
        let rest = below.iter().map(|(_, e)| e).sum::<f64>();
        Some(Self {
            below,
            rest,
            total: 1.0 + rest,
        })
    }

    fn others(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.below.iter().copied()
    }
}

/// Replaces a row of scores, multiplied by `scale`, by its probabilities. A NaN makes all of them NaN.
pub fn softmax_in_place(row: &mut [f64], scale: f64) {
    let mut largest = f64::NEG_INFINITY;
    for score in row.iter_mut() {
        *score *= scale;
        largest = if score.is_nan() {
            *score
        } else {
            largest.max(*score)
        };
    }
    let mut total = 0.0;
    for score in row.iter_mut() {
        *score = libm::exp(*score - largest);
        total += *score;
    }
    for score in row.iter_mut() {
        *score /= total;
    }
}

/// Bisection steps for the largest eigenvalue; each halves the interval, and an f64 has 53 bits.
const HALVINGS: usize = 60;

/// ‖diag(p) − ppᵀ‖₂, the largest eigenvalue. It lies between the second largest and the largest probability (the eigenvalues of a
/// diagonal matrix minus a rank-1 matrix interlace with the diagonal), where Σ p_i²/(p_i − λ) = 1.
pub fn spectral_norm(probabilities: &[f64]) -> f64 {
    let (mut first, mut second) = (0.0, 0.0);
    for p in probabilities {
        if p.is_nan() {
            return f64::NAN;
        }
        if *p > first {
            (first, second) = (*p, first);
        } else if *p > second {
            second = *p;
        }
    }
    let (mut low, mut high): (f64, f64) = (second, first);
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        let sum: f64 = probabilities.iter().map(|p| p * p / (p - middle)).sum();
        // The sum rises from −∞ above the second to +∞ below the first.
        if sum < 1.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}
