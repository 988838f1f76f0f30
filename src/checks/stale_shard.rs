//! The files of one checkpoint come from different saves.
//!
//! ## What it does
//! Compares what the files of a sharded checkpoint say of themselves.
//!
//! ## Why it matters
//! A save that was interrupted, or a download over an older one, leaves files of two steps side by side. The model loads, and
//! half of its layers belong to another state of training.
//!
//! ## How it is measured
//! Metadata of the files that is the same in one save: the step, the format, the run, any other entry that is not one of the
//! file itself; the total in names such as `model-00001-of-00003`; and the element type of one kind of tensor, where each file
//! has only one.
//!
//! ## False alarms
//! Entries that differ by nature (the number of the shard, its size, a checksum) are left out. Times of files say nothing, since
//! copies change them, and are not looked at.
//!
//! ## Example
//! `model-00001-of-00002.safetensors` says step 12000, its neighbour step 11500.

use attnscope_spec::Place;

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "stale-shard",
    severity: Severity::Warning,
    needs: Needs::Weights,
    source: include_str!("stale_shard.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let weights = match evidence.weights() {
        Ok(weights) => weights,
        Err(verdict) => return verdict,
    };
    if weights.n_files < 2 {
        return Verdict::not_applicable("the weights lie in one file");
    }
    let finding = |said: &String| Finding {
        check: CHECK.id,
        severity: Severity::Warning,
        place: Place::MODEL,
        value: 1.0,
        threshold: 0.0,
        unit: "",
        evidence: said.clone(),
        advice: "save or download all files of the checkpoint again".to_owned(),
    };
    let findings = weights.stale_shards.iter().map(finding).collect();
    Verdict::of(
        findings,
        "nothing in the files says that they are of different saves",
    )
}
