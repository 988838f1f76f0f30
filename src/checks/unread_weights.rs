//! Weights are there, and nothing uses them.
//!
//! ## What it does
//! Names stored tensors that the model, as its configuration describes it, does not use: adapters that were not merged, biases
//! or norms that the configuration switches off, layers beyond the last one, an unembedding of its own in a tied model. In running
//! code, names layers that run and whose result is thrown away.
//!
//! ## Why it matters
//! The model runs without them, with other outputs than the trained one, and nothing fails. Either the configuration is not that
//! of the weights, or the weights are not complete without another step.
//!
//! ## How it is measured
//! Tensors of floating point that no part of the model reads. Left out: buffers (positions, masks, rotary tables), states of
//! optimisers, heads of tasks (poolers, classifiers), other modalities, quantisation tables; and tensors that change nothing:
//! copies of a tensor that is read, biases that are 0, gains that are 1. In running code: a layer without parts, with weights, that
//! gives a new tensor, called by an instruction that drops it (`self.norm(x)` where `x = self.norm(x)` is meant), or whose result goes
//! into a variable that the function never reads, as `v = self.value(x)` does where the pattern weighs keys (from Python 3.11 on, where
//! the source can be read); and a part of such a result, as of `gate, up = self.w1(x).chunk(2, -1)` where `gate` is multiplied with
//! itself. Other weights of running code that change nothing are not looked for.
//!
//! ## False alarms
//! Parts of a training setup that are saved with a model under names that are not known here.
//!
//! ## Example
//! `base_model.model.layers.0.self_attn.q_proj.lora_A.weight`: a LoRA adapter, saved beside the weights that it changes.

use std::collections::BTreeMap;

use attnscope_spec::Place;

use super::copied_layer::listed;
use super::evidence::{Discarded, Evidence};
use super::verdict::{Finding, Severity, Verdict};
use super::weights_seen::{UnreadKind, UnreadTensor};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "unread-weights",
    severity: Severity::Warning,
    needs: Needs::Weights,
    source: include_str!("unread_weights.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let weights = match (evidence.weights(), evidence.discarded) {
        (Ok(weights), _) => weights,
        (Err(_), Some(discarded)) => return of_code(discarded),
        (Err(verdict), None) => return verdict,
    };
    let mut by_kind: BTreeMap<UnreadKind, Vec<&UnreadTensor>> = BTreeMap::new();
    for tensor in &weights.unread {
        by_kind.entry(tensor.kind).or_default().push(tensor);
    }
    let finding = |(kind, tensors): (UnreadKind, Vec<&UnreadTensor>)| {
        let names: Vec<String> = tensors
            .iter()
            .map(|tensor| format!("{} {:?}", tensor.name, tensor.shape))
            .collect();
        let (what, advice) = words(kind);
        let places: Vec<Place> = tensors.iter().map(|tensor| tensor.place).collect();
        // One place if all tensors belong to one layer.
        let place = match places.as_slice() {
            [first, others @ ..] if others.iter().all(|place| place == first) => *first,
            _ => Place::MODEL,
        };
        Finding {
            check: CHECK.id,
            severity: Severity::Warning,
            place,
            value: tensors.len() as f64,
            threshold: 0.0,
            unit: "tensors",
            evidence: format!("{what}: {}", listed(&names)),
            advice: match stored_layers(&tensors).filter(|_| kind == UnreadKind::BeyondLayers) {
                Some(n_layers) => advice.replace("n_layers=N", &format!("n_layers={n_layers}")),
                None => advice.to_owned(),
            },
        }
    };
    let findings = by_kind.into_iter().map(finding).collect();
    Verdict::of(
        findings,
        "every stored weight is read, or known to be none of the model's",
    )
}

/// Layers that code runs for nothing: one finding for each line of it.
fn of_code(discarded: &[Discarded]) -> Verdict {
    let mut by_line: BTreeMap<(&str, &str, &str), Vec<String>> = BTreeMap::new();
    for layer in discarded {
        let part = layer.part.as_deref().unwrap_or_default();
        let line = (layer.place.as_str(), layer.class.as_str(), part);
        by_line.entry(line).or_default().push(layer.module.clone());
    }
    let finding = |((place, class, part), modules): ((&str, &str, &str), Vec<String>)| Finding {
        check: CHECK.id,
        severity: Severity::Warning,
        place: Place::MODEL,
        value: modules.len() as f64,
        threshold: 0.0,
        unit: "layers",
        evidence: if part.is_empty() {
            format!(
                "{place} calls a {class} and throws away what it gives: its weights change nothing ({})",
                listed(&modules)
            )
        } else {
            format!(
                "{place} takes apart what a {class} gives, and nothing reads {part}: its weights change nothing ({})",
                listed(&modules)
            )
        },
        advice: if part.is_empty() {
            "assign the result where it is meant to be used (x = self.norm(x)), or remove the layer"
        } else {
            "look where that variable is meant to be read: another one may stand in its place"
        }
        .to_owned(),
    };
    Verdict::of(
        by_line.into_iter().map(finding).collect(),
        "no call of a layer with weights throws its result away",
    )
}

/// Number of layers that tensors are stored for, if all of their names have one.
fn stored_layers(tensors: &[&UnreadTensor]) -> Option<usize> {
    let number = |tensor: &&UnreadTensor| {
        tensor
            .name
            .split('.')
            .find_map(|part| part.parse::<usize>().ok())
    };
    let numbers = tensors.iter().map(number).collect::<Option<Vec<usize>>>()?;
    numbers.into_iter().max().map(|last| last + 1)
}

/// A description of tensors of a kind, and advice.
fn words(kind: UnreadKind) -> (&'static str, &'static str) {
    match kind {
        UnreadKind::Adapter => (
            "an adapter is stored beside the weights and not merged into them",
            "merge it (in peft: model.merge_and_unload()), save the result, and open that",
        ),
        UnreadKind::OfLayer => (
            "layers that run have weights that the configuration does not ask for",
            "compare the configuration with the training code's: a bias, a norm of queries and keys or a gate may be switched off",
        ),
        UnreadKind::BeyondLayers => (
            "the file has more layers than the configuration names",
            "correct the number of layers (--set n_layers=N), or open the file that belongs to this configuration",
        ),
        UnreadKind::Unembedding => (
            "an unembedding of its own is stored, and the configuration ties it to the embedding",
            "set tie_word_embeddings to false in the configuration, or drop the tensor",
        ),
        UnreadKind::Unknown => (
            "tensors are stored that no part of the model reads",
            "see whether the configuration, or the family, is that of these weights",
        ),
    }
}
