//! A few values of the residual dwarf all others.
//!
//! ## What it does
//! Looks for residuals with a value above 100 that is also 1000 times the median, and says in which layer it first appears.
//!
//! ## Why it matters
//! Massive activations act as constant biases and make attention sinks; they break quantisation and overflow f16 (Sun et al.
//! 2024, arXiv 2402.17762).
//!
//! ## How it is measured
//! Largest |resid_post| over real positions against the median of |resid_post| of the same layer; both must hold.
//!
//! ## False alarms
//! Large language models have them by design (LLaMA, Mistral): a warning for who quantises, no fault of training.
//!
//! ## Example
//! LLaMA2-7B: 2 channels of the first token at 600 times thousands of the median from layer 2 on.

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "massive-activation",
    severity: Severity::Warning,
    needs: Needs::Residual,
    source: include_str!("massive_activation.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let most = thresholds.massive_activation.max_abs;
    let times = thresholds.massive_activation.times_median;
    let peaks = || {
        evidence
            .layers
            .iter()
            .filter_map(|layer| Some((layer, layer.peak?)))
    };
    let is_massive = |peak: &attnscope_compute::kernels::residual::Peak| {
        let (value, median) = (f64::from(peak.value.abs()), f64::from(peak.median));
        value > most && value > times * median
    };
    if peaks().next().is_none() {
        return Verdict::not_applicable("there are no residuals to look at");
    }
    let mut massive = peaks().filter(|(_, peak)| is_massive(peak));
    let Some((layer, peak)) = massive.next() else {
        return Verdict::passed("no value of the residual stands out");
    };
    let last = massive
        .next_back()
        .map_or(layer.layer_idx, |(layer, _)| layer.layer_idx);
    let ratio = f64::from(peak.value.abs()) / f64::from(peak.median);
    let finding = Finding {
        check: CHECK.id,
        severity: Severity::Warning,
        place: layer.place().query(peak.position_idx),
        value: f64::from(peak.value.abs()),
        threshold: most,
        unit: "",
        evidence: format!(
            "position {}, channel {}: {:.1}, {ratio:.0} times the median; layers {} to {last}",
            peak.position_idx, peak.column_idx, peak.value, layer.layer_idx
        ),
        advice: "keep this channel out of low-bit quantisation, and expect a sink at this position"
            .to_owned(),
    };
    Verdict::of(vec![finding], "")
}
