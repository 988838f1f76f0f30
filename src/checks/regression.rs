//! A statistic has moved since an earlier report of the same model and prompt.
//!
//! ## What it does
//! Compares the statistics of every layer and head, and the loss, with those of a report given as `--baseline`.
//!
//! ## Why it matters
//! In CI a new checkpoint or new code should leave attention as it was, or change it on purpose: a head that died or collapsed
//! shows as a statistic that jumped.
//!
//! ## How it is measured
//! Per head, and per layer for what belongs to layers alone: the statistic whose |now − then|, divided by the larger of |then|
//! and a floor, is largest; a finding where it exceeds the threshold. The loss is compared in the same way. Prompts are matched by
//! their id. Value: that ratio.
//!
//! ## False alarms
//! Another prompt under the same id, another length or another tokenizer moves everything. Between devices and versions the last
//! digits differ: far below the threshold.
//!
//! ## Example
//! `attnscope check new/ --inputs ci.jsonl --baseline old.json --fail-on warning`

use attnscope_spec::{Place, Stack};

use super::evidence::{Baseline, BaselineValues, Evidence};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};
use crate::stats::{STATISTICS, Values};

pub static CHECK: Check = Check {
    id: "regression",
    severity: Severity::Warning,
    needs: Needs::Pattern,
    source: include_str!("regression.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let Some(baseline) = evidence.baseline else {
        return Verdict::not_applicable(
            "no baseline was given for this prompt: --baseline REPORT.json",
        );
    };
    let line = Line {
        most: thresholds.regression.relative,
        floor: thresholds.regression.floor,
    };
    let mut findings = Vec::new();
    let (mut n_compared, mut n_absent) = (0usize, 0usize);
    for layer in evidence.layers {
        let then = |head_idx: Option<usize>| baseline.at(layer.stack, layer.layer_idx, head_idx);
        let place = layer.place();
        let heads = layer.heads.iter().enumerate();
        let heads =
            heads.map(|(head_idx, head)| (place.head(head_idx), Some(head_idx), &head.stats));
        let all = heads.chain(std::iter::once((place, None, &layer.stats)));
        for (place, head_idx, now) in all {
            match then(head_idx) {
                Some(then) => {
                    n_compared += 1;
                    findings.extend(line.moved(place, head_idx.is_none(), now, then));
                }
                None => n_absent += 1,
            }
        }
    }
    if let (Some(now), Some(then)) = (evidence.loss, baseline.loss) {
        n_compared += 1;
        let ratio = line.ratio(now, then);
        if ratio > line.most {
            findings.push(line.finding(Place::MODEL, "loss", now, then, ratio));
        }
    }
    match (n_compared, n_absent) {
        (0, _) => {
            Verdict::undecidable("the baseline has none of these layers: is it of another model?")
        }
        (_, 0) => Verdict::of(
            findings,
            format!("no statistic moved by more than {}", line.most),
        ),
        (_, n) => Verdict::of(
            findings,
            format!(
                "no statistic moved by more than {}; {n} places are not in the baseline",
                line.most
            ),
        ),
    }
}

/// The thresholds for a change.
struct Line {
    most: f64,
    floor: f64,
}

impl Line {
    fn ratio(&self, now: f64, then: f64) -> f64 {
        // A change between a number and NaN counts as infinite.
        match (now.is_finite(), then.is_finite()) {
            (true, true) => (now - then).abs() / then.abs().max(self.floor),
            (false, false) => 0.0,
            _ => f64::INFINITY,
        }
    }

    /// The statistic that moved most, if beyond its threshold. Layer means over heads are skipped: the heads themselves are
    /// compared.
    fn moved(
        &self,
        place: Place,
        is_layer: bool,
        now: &Values,
        then: &BaselineValues,
    ) -> Option<Finding> {
        let moved = STATISTICS
            .iter()
            .enumerate()
            .filter_map(|(idx, statistic)| {
                if statistic.is_per_head() == is_layer {
                    return None;
                }
                let (now, then) = (now.at(idx), *then.get(statistic.id)?);
                let ratio = self.ratio(now, then);
                (ratio > self.most).then_some((statistic.title, now, then, ratio))
            });
        let (title, now, then, ratio) = moved.max_by(|a, b| a.3.total_cmp(&b.3))?;
        Some(self.finding(place, title, now, then, ratio))
    }

    fn finding(&self, place: Place, title: &str, now: f64, then: f64, ratio: f64) -> Finding {
        Finding {
            check: CHECK.id,
            severity: Severity::Warning,
            place,
            value: ratio,
            threshold: self.most,
            unit: "of what it was",
            evidence: format!("{title} was {then:.4}, is {now:.4}"),
            advice: "if the change is meant, write a new baseline: attnscope report --format json"
                .to_owned(),
        }
    }
}

impl Baseline {
    /// The statistics of a head, or of the layer if `head_idx` is `None`.
    fn at(
        &self,
        stack: Stack,
        layer_idx: usize,
        head_idx: Option<usize>,
    ) -> Option<&BaselineValues> {
        self.places.get(&(stack, layer_idx, head_idx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_relative_to_the_old_value_or_to_the_floor_if_larger() {
        let line = Line {
            most: 0.2,
            floor: 0.1,
        };
        assert!((line.ratio(1.2, 1.0) - 0.2).abs() < 1e-12);
        assert!((line.ratio(0.03, 0.01) - 0.2).abs() < 1e-12);
        assert_eq!(line.ratio(f64::NAN, 1.0), f64::INFINITY);
        assert_eq!(line.ratio(f64::NAN, f64::NAN), 0.0);
    }
}
