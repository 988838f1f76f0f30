//! Texts that are noise to any model: a few tokens over and over, or tokens drawn evenly by chance.
//!
//! What a healthy model does on them looks like a fault: it attends to everything alike where all keys are the same token, and
//! predicts nothing where nothing can be predicted. Such findings are information.

use std::collections::BTreeMap;

use super::Check;
use super::evidence::{Evidence, Probed};
use super::verdict::{Severity, Verdict};

/// A text that tells little about a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noise {
    /// A few tokens over and over.
    Repeated,
    /// Tokens as even as a draw by chance from the whole vocabulary.
    Even,
}

/// Checks whose findings on noise may be of the text alone.
const OF_TEXTS: [&str; 7] = [
    "entropy-collapse",
    "entropy-uniform",
    "softmax-saturation",
    "rank-collapse",
    "duplicate-heads",
    "dead-head",
    "order-blind",
];

/// Fewer tokens repeat or differ by chance.
const FEWEST: usize = 24;
/// Any sentence of as many tokens says one of them twice.
const FEWEST_EVEN: usize = 48;
/// Entropy of the tokens below which a text repeats itself, in nats: that of a sentence of a dozen different words is 2.5. Ours.
const REPEATED: f64 = 1.5;
/// Standard deviations within which counts are as even as by chance: 5000 draws of 60 tokens stay within, and 500 texts as long lie
/// 7 and more away. Ours.
const DEVIATIONS: f64 = 4.5;

impl Noise {
    /// Judges a text by how often each token stands in it; `None` for texts, and for what is too short to tell.
    pub fn of(tokens: &[u32], d_vocab: usize) -> Option<Self> {
        let n = tokens.len() as f64;
        if tokens.len() < FEWEST {
            return None;
        }
        let mut counts = BTreeMap::<u32, f64>::new();
        for token in tokens {
            *counts.entry(*token).or_default() += 1.0;
        }
        let entropy: f64 = counts
            .values()
            .map(|count| count / n * (n / count).ln())
            .sum();
        if entropy < REPEATED {
            return Some(Self::Repeated);
        }
        // The index of dispersion: for counts by chance it is the number of kinds less one, with twice that as its variance.
        let kinds = d_vocab as f64;
        let squares: f64 = counts.values().map(|count| count * count).sum();
        let dispersion = squares * kinds / n - n;
        let off = (dispersion - (kinds - 1.0)) / (2.0 * (kinds - 1.0)).sqrt();
        (tokens.len() >= FEWEST_EVEN && off <= DEVIATIONS).then_some(Self::Even)
    }

    /// Describes the text.
    pub fn words(self) -> &'static str {
        match self {
            Self::Repeated => "the text is a few tokens over and over",
            Self::Even => "the tokens are as even as by chance",
        }
    }
}

/// Turns warnings that may be of the text alone into information, and says so.
pub(super) fn soften(verdicts: &mut [(&'static Check, Verdict)], evidence: &Evidence<'_>) {
    let of_readings = match &evidence.probes.training {
        Probed::Ran(training) => training.noise,
        _ => None,
    };
    for (check, verdict) in verdicts {
        let noise = match check.id {
            "knows-nothing" => of_readings,
            id if OF_TEXTS.contains(&id) => evidence.noise,
            _ => None,
        };
        let Some(noise) = noise else { continue };
        let warnings = verdict.findings.iter_mut();
        for finding in warnings.filter(|finding| finding.severity == Severity::Warning) {
            finding.severity = Severity::Info;
            let words = format!("; {}, noise to any model", noise.words());
            finding.evidence.push_str(&words);
            finding.advice = "give text of the kind that the model was trained on".to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_and_even_tokens_are_told_from_texts() {
        assert_eq!(Noise::of(&[7; 60], 50), Some(Noise::Repeated));
        let twice: Vec<u32> = (0..60).map(|idx| idx % 3).collect();
        assert_eq!(Noise::of(&twice, 50), Some(Noise::Repeated));
        let even: Vec<u32> = (0..60u32)
            .map(|idx| idx.wrapping_mul(2_654_435_761) % 50)
            .collect();
        assert_eq!(Noise::of(&even, 50), Some(Noise::Even));
        // Every fifth token is the same mark.
        let text: Vec<u32> = (0..60)
            .map(|idx| if idx % 5 == 0 { 1 } else { idx })
            .collect();
        assert_eq!(Noise::of(&text, 60), None);
        assert_eq!(Noise::of(&text, 50_000), None);
        assert_eq!(Noise::of(&[7; 5], 50), None);
    }
}
