//! A layer is as a random initialisation leaves it.
//!
//! ## What it does
//! Finds layers whose matrices are noise and whose gains and biases have their initial values, in a model that was trained
//! otherwise.
//!
//! ## Why it matters
//! Loading code fills what it does not find with fresh random weights, often with no more than a line in a log. Fine-tuning code
//! freezes layers that it should not. Such a layer adds noise to everything that follows.
//!
//! ## How it is measured
//! Every gain of the layer's norms is exactly 1, every bias exactly 0, and no matrix has a singular value beyond the edge
//! σ(√m + √n) of a random m × n matrix whose entries vary by σ² (Marchenko and Pastur 1967), times the threshold and what chance
//! gives to small matrices. The largest singular value comes from power iteration, which stops as soon as it is beyond.
//!
//! ## False alarms
//! Trained layers have gains other than 1, and singular values at least 1.2 times the edge. A model whose layers all are as
//! initialised is named once, by `untrained`. Layers that are identities at the start, as when layers are added to a trained
//! model, are as they were initialised: the finding is true.
//!
//! ## Example
//! Layers 4 and 5 of a 6-layer model were missing in the file: their largest singular values are 0.99 times the edge, those of
//! layers 0 to 3 are 2 to 9 times.

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::weights_seen::{LayerWeights, Weights};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "untrained-layer",
    severity: Severity::Warning,
    needs: Needs::Weights,
    source: include_str!("untrained_layer.rs"),
    judge,
};

/// Layers that have matrices.
pub(super) fn judged_layers(weights: &Weights) -> Vec<&LayerWeights> {
    let layers = weights.layers.iter();
    layers.filter(|layer| layer.n_matrices > 0).collect()
}

/// Whether nothing in a layer shows training.
pub(super) fn is_untrained(layer: &LayerWeights, most: f64) -> bool {
    layer
        .edge_ratio
        .is_some_and(|ratio| ratio <= most + layer.chance)
}

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let weights = match evidence.weights() {
        Ok(weights) => weights,
        Err(verdict) => return verdict,
    };
    let most = thresholds.untrained_layer.edge_ratio;
    let layers = judged_layers(weights);
    let untrained = layers.iter().filter(|layer| is_untrained(layer, most));
    let untrained: Vec<&&LayerWeights> = untrained.collect();
    if layers.is_empty() {
        return Verdict::not_applicable("no layer has a matrix to look at");
    }
    if untrained.len() == layers.len() {
        return Verdict::not_applicable("no layer was trained: see untrained");
    }
    let finding = |layer: &&&LayerWeights| {
        Finding {
        check: CHECK.id,
        severity: Severity::Warning,
        place: layer.place,
        value: layer.edge_ratio.unwrap_or(f64::NAN),
        threshold: most,
        unit: "of a random matrix's edge",
        evidence: format!(
            "its {} matrices have singular values as random matrices do, and all {} gains and biases have their initial values; other layers were trained",
            layer.n_matrices, layer.n_neutral
        ),
        advice: "see whether the file that was loaded has this layer, under which names, and whether it was frozen"
            .to_owned(),
    }
    };
    let findings = untrained.iter().map(finding).collect();
    Verdict::of(findings, "every layer shows that it was trained")
}
