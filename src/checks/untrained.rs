//! The whole model is as a random initialisation leaves it.
//!
//! ## What it does
//! Asks of every layer whether its weights are those of an initialisation, and says so once where all are.
//!
//! ## Why it matters
//! A configuration opened without its weights, or weights whose names the loading code did not recognise, give a model that runs
//! and knows nothing. Every other figure of such a model is one of random numbers.
//!
//! ## How it is measured
//! As in `untrained-layer`, for every layer.
//!
//! ## False alarms
//! A model that is meant to be random, as tests use them: the finding is true, and can be left out with `--ignore untrained`.
//!
//! ## Example
//! `AutoModel.from_config(config).save_pretrained(...)`: every matrix is normal noise, every gain 1, every bias 0.

use attnscope_spec::Place;

use super::evidence::Evidence;
use super::untrained_layer::{is_untrained, judged_layers};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "untrained",
    severity: Severity::Warning,
    needs: Needs::Weights,
    source: include_str!("untrained.rs"),
    judge,
};

/// Whether every layer looks freshly initialised; false if the weights were not examined.
pub(super) fn is_untrained_model(evidence: &Evidence<'_>, thresholds: &Thresholds) -> bool {
    let most = thresholds.untrained_layer.edge_ratio;
    evidence.weights().is_ok_and(|weights| {
        let layers = judged_layers(weights);
        !layers.is_empty() && layers.iter().all(|layer| is_untrained(layer, most))
    })
}

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let weights = match evidence.weights() {
        Ok(weights) => weights,
        Err(verdict) => return verdict,
    };
    let most = thresholds.untrained_layer.edge_ratio;
    let layers = judged_layers(weights);
    if layers.is_empty() {
        return Verdict::not_applicable("no layer has a matrix to look at");
    }
    if !is_untrained_model(evidence, thresholds) {
        let n_untrained = layers
            .iter()
            .filter(|layer| is_untrained(layer, most))
            .count();
        return Verdict::passed(format!(
            "{} of {} layers show that they were trained",
            layers.len() - n_untrained,
            layers.len()
        ));
    }
    let largest = layers.iter().filter_map(|layer| layer.edge_ratio);
    let largest = largest.fold(0.0, f64::max);
    let n_matrices: usize = layers.iter().map(|layer| layer.n_matrices).sum();
    let finding = Finding {
        check: CHECK.id,
        severity: Severity::Warning,
        place: Place::MODEL,
        value: largest,
        threshold: most,
        unit: "of a random matrix's edge",
        evidence: format!(
            "all {n_matrices} matrices of {} layers have singular values as random matrices do, every gain is 1 and every bias 0",
            layers.len()
        ),
        advice: "load the trained weights: a model made from a configuration, or weights under other names, leave the initialisation in place"
            .to_owned(),
    };
    Verdict::of(vec![finding], "")
}
