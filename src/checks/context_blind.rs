//! What the layers give does not reach the output.
//!
//! ## What it does
//! Replaces earlier tokens, and looks whether the output moves at any later position. When it does not although modules inside the
//! model do, their results are thrown away. Where a target stands beside a source, it replaces every token of the source as well.
//!
//! ## Why it matters
//! A loop over layers that hands each of them the same input, or a return value that is never used, leaves a model that predicts
//! from each token alone. Cross-attention that takes its keys from the decoder leaves a translator that never reads its source. It trains, its loss falls to that of a bigram table, and its attention looks healthy. Seen in the wild:
//! TinyPeLLM, whose loop over layers never uses `layer_outputs`.
//!
//! ## How it is measured
//! From a probe of the model itself (`attnscope capture-script`): the output moves by nothing at all, and the last position of
//! some module moves. The first of these modules is named.
//!
//! ## False alarms
//! Layers whose residual branches are multiplied by a gate that starts at 0 (ReZero, LayerScale) do the same until they are trained.
//! Where the movement is lost inside a layer and the probe found that the model is not trained, it is for information.
//!
//! ## Example
//! `for layer in self.layers: out = layer(x)`, and then `self.head(x)`.

use attnscope_spec::Place;

use super::evidence::{ContextProbe, Evidence};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "context-blind",
    severity: Severity::Error,
    needs: Needs::Probes,
    source: include_str!("context_blind.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let probe = match evidence.probes.context.seen() {
        Ok(probe) => probe,
        Err(verdict) => return verdict,
    };
    if probe.is_source_blind && !probe.is_deaf {
        return Verdict::of(vec![of_source(probe)], "");
    }
    if !probe.is_deaf {
        return Verdict::passed("the output moves when earlier tokens are others");
    }
    let first = probe.first.as_ref();
    let name = first.and_then(|first| first.name.clone());
    let name = name.unwrap_or_else(|| "a module inside the model".to_owned());
    let lost = probe.lost_in.as_ref();
    let lost_in = lost.map_or(String::new(), |layer| format!(", inside {layer}"));
    let untrained = lost.and(probe.untrained.as_ref());
    let reason = untrained.map_or(String::new(), |why| format!("; not trained: {why}"));
    let finding = Finding {
        check: CHECK.id,
        severity: if untrained.is_some() {
            Severity::Info
        } else {
            Severity::Error
        },
        place: first.map_or(Place::MODEL, |first| first.place),
        value: 0.0,
        threshold: first.map_or(0.0, |first| first.amount),
        unit: "",
        evidence: format!(
            "the output does not depend on earlier tokens although {name} does: what layers give is thrown away{lost_in}{reason}"
        ),
        advice: if untrained.is_some() {
            "nothing if a gate of this layer starts at 0, as in ReZero; else look for a result that is not used"
        } else {
            "look for a result that is not used: x = layer(x) in the loop over layers, and the head on the last x"
        }
        .to_owned(),
    };
    Verdict::of(vec![finding], "")
}

/// The finding for a decoder whose output does not depend on the source.
fn of_source(probe: &ContextProbe) -> Finding {
    let why = probe.untrained.as_ref();
    let reason = why.map_or(String::new(), |why| format!("; not trained: {why}"));
    Finding {
        check: CHECK.id,
        severity: if why.is_some() { Severity::Info } else { Severity::Error },
        place: Place::MODEL,
        value: 0.0,
        threshold: 0.0,
        unit: "",
        evidence: format!(
            "the output does not move at all when every token of the source is another: the decoder does not read the encoder{reason}"
        ),
        advice: if why.is_some() {
            "nothing if the gate of cross-attention starts at 0; else look at what cross-attention takes its keys and values from"
        } else {
            "give cross-attention the output of the encoder as keys and as values, and add what it gives to the decoder"
        }
        .to_owned(),
    }
}
