//! A NaN or an infinity appeared, or would in the checkpoint's own dtype.
//!
//! ## What it does
//! Names the first NaN or infinity of a run in the order of computation, and the tensor it came from; in runs that stay finite
//! it says where f16 would have overflowed. On a probe it names the first module that gives one.
//!
//! ## Why it matters
//! One NaN spreads to every later row, since 0·NaN is NaN. This program computes in f32: a model stored as f16 may overflow
//! where it is deployed. Seen in the wild: transformers PR #33317 (eager f16 gave NaN, bf16 perplexity 8.00 instead of 7.13).
//!
//! ## How it is measured
//! Every value that passes a hook is looked at; scores of −inf at masked cells do not count. For checkpoints stored as f16
//! the largest |residual| is compared with 65 504.
//!
//! ## False alarms
//! None for the first part. A model that is only ever run in bf16 or f32 may exceed f16's range without harm: a warning.
//!
//! ## Example
//! `blocks.3.attn.q: first NaN at position 0, column 5; transformer.h.3.attn.c_attn.weight holds one at element 5`

use attnscope_spec::Place;

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "nan-or-inf",
    severity: Severity::Error,
    needs: Needs::Residual,
    source: include_str!("nan_or_inf.rs"),
    judge,
};

/// Largest finite number of f16.
const F16_MAX: f64 = 65_504.0;

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let finding = |severity, place, value, threshold, evidence: String, advice: &str| Finding {
        check: CHECK.id,
        severity,
        place,
        value,
        threshold,
        unit: "",
        evidence,
        advice: advice.to_owned(),
    };
    let mut findings = Vec::new();
    if let Some((place, what)) = &evidence.first_nonfinite {
        let advice = if evidence.is_in_weights {
            "restore the tensor from an earlier checkpoint, or train again with gradient clipping and a wider dtype"
        } else if place.key_idx.is_some() {
            "scale queries before they are multiplied with keys, or compute scores in f32: q·k overflows in f16 above 65 504; and look \
             for rows whose keys are all masked with −inf"
        } else {
            "follow the values up to this place (attnscope report: resid_max_abs layer by layer): no stored weight is the cause, so \
             they grow out of range or are divided by 0 on the way"
        };
        findings.push(finding(
            Severity::Error,
            *place,
            f64::NAN,
            0.0,
            what.clone(),
            advice,
        ));
    } else if let Some(("f16", largest)) = evidence.narrow_dtype
        && largest > F16_MAX
    {
        findings.push(finding(
            Severity::Warning,
            Place::MODEL,
            largest,
            F16_MAX,
            format!("the residual reaches {largest:.0}, more than f16 holds; the checkpoint is stored as f16"),
            "run it in bf16 or f32: in f16 it overflows to infinity",
        ));
    }
    // A trace of the same run has named the place.
    if let (Some(module), true) = (&evidence.probes.nonfinite, findings.is_empty()) {
        let (severity, rest) = if module.reaches_output {
            (Severity::Error, "neither is the output of the model")
        } else {
            (Severity::Info, "the output of the model is finite")
        };
        let n_more = module.n_modules - 1;
        let (name, more) = (
            &module.name,
            match n_more {
                0 => String::new(),
                1 => ", then 1 other module's".to_owned(),
                n => format!(", then those of {n} other modules"),
            },
        );
        findings.push(finding(
            severity,
            Place::MODEL,
            f64::NAN,
            0.0,
            format!("{name} is the first module whose output is not finite{more}; {rest}"),
            "look inside this module for a row whose keys are all masked with −inf, a division by 0, and weights that are NaN",
        ));
    }
    Verdict::of(findings, "every value is finite")
}
