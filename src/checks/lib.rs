//! Findings: what is wrong with a model. One file per check; commands, screens and docs read the registry.

mod attention_sink;
mod batch_leak;
mod beyond_context;
mod cache_mismatch;
pub mod collapse;
#[cfg(test)]
mod collapse_tests;
mod context_blind;
mod copied_layer;
mod credible;
mod dead_head;
mod document_leak;
mod duplicate_heads;
mod entropy_collapse;
mod entropy_uniform;
mod evidence;
mod figure;
mod foreign_ids;
mod foreign_step;
mod future_leak;
mod gain;
mod head_reshape;
mod invariance;
mod knows_nothing;
mod label_shift;
mod length_leak;

#[cfg(test)]
mod made;

mod level_shift;
mod loss_jump;
mod mask_changed;
mod mask_mass;
mod mask_shape;
mod massive_activation;
mod misplaced_positions;
mod named;
mod named_cause;
mod nan_or_inf;
mod noise;
mod normaliser;
mod not_deterministic;
mod only_far;
mod order_blind;
mod pad_mass;
mod padding_leak;
mod page;
mod pattern_mismatch;
mod rank_collapse;
mod regression;
mod row_sum;
mod saturated_dtype;
mod scale_mismatch;
mod score_explosion;
mod score_scale;
mod softmax_saturation;
mod spectral_bound;
mod stale_shard;
pub mod stats;
mod thresholds;
mod trained_otherwise;

#[cfg(test)]
mod trained_otherwise_tests;

mod unexplained;
mod uniform_row;
mod unread_weights;
mod untrained;
mod untrained_layer;
mod verdict;
pub mod weight;
mod weights_seen;
mod window_width;
mod worse_beyond;
mod wrong_axis;
mod zero_weights;

pub use attnscope_spec::Place;
pub use evidence::{
    Baseline, BaselineValues, Boundary, ContextProbe, Delimiters, Discarded, Evidence, FutureProbe,
    Influence, InvarianceProbe, LabelsProbe, Movement, NonfiniteModule, OrderProbe, Probed, Probes,
    Reordered, SILENCE, SeesLabels, Subject, TestedHypothesis, TrainingHypothesis, TrainingProbe,
    Worst,
};
pub use figure::figure;
pub use gain::{loss_words, mean_loss};
pub use named::{check_named, statistic_named};
pub use noise::Noise;
pub use page::{checks_page, page};
pub use thresholds::{DEFAULTS as DEFAULT_THRESHOLDS, Thresholds};
pub use trained_otherwise::duration;
pub use verdict::{Explained, Finding, Severity, Status, Tester, Verdict};
pub use weights_seen::{
    LayerCopy, LayerWeights, SaturatedTensor, UnreadKind, UnreadTensor, Weights, ZeroWeights,
};

/// The kind of evidence that a check needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// The attention pattern of a run or a trace.
    Pattern,
    /// Scores, queries and keys: row summaries with scores.
    Scores,
    /// The residual stream.
    Residual,
    /// Runs of the model on changed prompts.
    Probes,
    /// The weights alone, without a text.
    Weights,
    /// The records of a training, in order of steps.
    History,
}

impl Needs {
    /// How sure a finding is that rests on such evidence.
    pub fn certainty(self) -> &'static str {
        match self {
            Self::Pattern | Self::Scores | Self::Residual => {
                "measured on this text; another text may differ"
            }
            Self::Probes => "measured by running the model on other inputs",
            Self::Weights => "measured on the weights, whatever the text",
            Self::History => "measured over the records of the training",
        }
    }
}

/// A check.
#[derive(Debug)]
pub struct Check {
    /// Its id, which names the problem and reads well after “allow”.
    pub id: &'static str,
    /// The worst severity of its findings.
    pub severity: Severity,
    pub needs: Needs,
    /// The source of the check's file, whose doc comment is its page.
    source: &'static str,
    pub judge: fn(&Evidence<'_>, &Thresholds) -> Verdict,
}

/// All checks, in the order of reports: normalisation and masks, leaks, training and weights, then values and statistics.
pub static CHECKS: &[&Check] = &[
    &wrong_axis::CHECK,
    &row_sum::CHECK,
    &mask_mass::CHECK,
    &mask_shape::CHECK,
    &window_width::CHECK,
    &pad_mass::CHECK,
    &uniform_row::CHECK,
    &pattern_mismatch::CHECK,
    &normaliser::CHECK,
    &head_reshape::CHECK,
    &misplaced_positions::CHECK,
    &future_leak::CHECK,
    &padding_leak::CHECK,
    &batch_leak::CHECK,
    &document_leak::CHECK,
    &length_leak::CHECK,
    &cache_mismatch::CHECK,
    &order_blind::CHECK,
    &context_blind::CHECK,
    &label_shift::CHECK,
    &not_deterministic::CHECK,
    &trained_otherwise::CHECK,
    &knows_nothing::CHECK,
    &untrained::CHECK,
    &untrained_layer::CHECK,
    &copied_layer::CHECK,
    &unread_weights::CHECK,
    &zero_weights::CHECK,
    &saturated_dtype::CHECK,
    &stale_shard::CHECK,
    &nan_or_inf::CHECK,
    &entropy_collapse::CHECK,
    &entropy_uniform::CHECK,
    &score_explosion::CHECK,
    &softmax_saturation::CHECK,
    &rank_collapse::CHECK,
    &massive_activation::CHECK,
    &dead_head::CHECK,
    &duplicate_heads::CHECK,
    &attention_sink::CHECK,
    &scale_mismatch::CHECK,
    &score_scale::CHECK,
    &spectral_bound::CHECK,
    &beyond_context::CHECK,
    &worse_beyond::CHECK,
    &foreign_ids::CHECK,
    &regression::CHECK,
    &loss_jump::CHECK,
    &level_shift::CHECK,
    &mask_changed::CHECK,
    &foreign_step::CHECK,
];

impl Check {
    /// What the check finds, in one sentence without a full stop.
    pub fn title(&self) -> &'static str {
        let first = self.source.lines().next().unwrap_or_default();
        first.trim_start_matches("//!").trim().trim_end_matches('.')
    }

    /// How sure its findings are.
    pub fn certainty(&self) -> &'static str {
        let of_losses = [knows_nothing::CHECK.id, label_shift::CHECK.id];
        if self.id == trained_otherwise::CHECK.id {
            "the 99 % interval of the gain lies above 0"
        } else if of_losses.contains(&self.id) {
            "losses on this text; another text may differ"
        } else {
            self.needs.certainty()
        }
    }
}

/// The checks of runs and weights: all but those of a training's records.
pub fn of_runs() -> impl Iterator<Item = &'static &'static Check> {
    CHECKS.iter().filter(|check| check.needs != Needs::History)
}

/// The check with an id.
pub fn find(id: &str) -> Option<&'static Check> {
    CHECKS.iter().copied().find(|check| check.id == id)
}

/// Runs every check of runs and weights, in the registry's order; those of trainings judge a history.
pub fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Vec<(&'static Check, Verdict)> {
    let verdict = |check: &&'static Check| {
        // A probe has no layers, so checks of layers do not apply. It may hold the first value that is not finite.
        let verdict = match (evidence.subject, check.needs, &evidence.lacks) {
            (Subject::Probe, Needs::Pattern | Needs::Scores | Needs::Residual, Some(lacks))
                if check.id != nan_or_inf::CHECK.id || evidence.probes.nonfinite.is_none() =>
            {
                Verdict::not_applicable(lacks.clone())
            }
            _ => (check.judge)(evidence, thresholds),
        };
        (*check, verdict)
    };
    let mut verdicts: Vec<_> = of_runs().map(verdict).collect();
    noise::soften(&mut verdicts, evidence);
    verdicts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_kebab_case_and_name_their_files() {
        let mut seen = BTreeSet::new();
        for check in CHECKS {
            assert!(seen.insert(check.id), "{} is registered twice", check.id);
            assert!(check.id.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
            let file = format!("{}.rs", check.id.replace('-', "_"));
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(&file);
            let text = std::fs::read_to_string(path).unwrap_or_else(|_| panic!("no {file}"));
            assert_eq!(text, check.source, "{file} is not the page of {}", check.id);
        }
    }

    #[test]
    fn every_check_file_is_registered() {
        let directory = env!("CARGO_MANIFEST_DIR");
        let mut n_written = 0;
        for entry in std::fs::read_dir(directory).expect("the source tree") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                continue;
            }
            let text = std::fs::read_to_string(path).expect("a file");
            n_written += usize::from(text.contains("\npub static CHECK: Check"));
        }
        assert_eq!(n_written, CHECKS.len());
    }

    #[test]
    fn every_check_page_is_complete() {
        for check in CHECKS {
            let page = page(check);
            for part in [
                "What it does",
                "Why it matters",
                "How it is measured",
                "False alarms",
                "Example",
            ] {
                let has = page.lines().any(|line| line == format!("## {part}"));
                assert!(has, "{}: no part {part:?}", check.id);
            }
        }
    }
}
