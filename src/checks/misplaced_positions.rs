//! Positions enter attention where they tell no distance, or favour far keys.
//!
//! ## What it does
//! Looks at how recorded attention gets its positions: whether queries and keys are both rotated, whether both features of a pair are
//! turned by one angle, whether a rotation stands before a learned map, whether values are rotated, and whether what is added to scores
//! grows or falls with the distance of a key.
//!
//! ## Why it matters
//! Rotary positions tell a distance because queries and keys are turned alike, right before their product (Su et al. 2021,
//! arXiv 2104.09864). Turned alone, or turned before W_Q, they depend on where a token stands. A linear bias with the wrong sign
//! (ALiBi, Press et al. 2022, arXiv 2108.12409) makes heads prefer the farthest keys. Such models train, and are worse.
//!
//! ## How it is measured
//! While the code runs, the recorder compares queries, keys and values with the outputs of layers. They are rotated if every row
//! keeps its length up to one factor, the first row is not turned and another is. A pair is turned by two angles if each feature is x·c + y·s,
//! y the other one of its pair, with c and s fitted over at least three heads, and their c, or their s less its sign, differ by more than
//! 0.01. Scores are fitted by a factor times q·k plus a slope
//! times the distance, head by head; the fit must leave at most 0.1 %. Value: how many layers are affected.
//!
//! ## False alarms
//! Where a norm, a gate or a bias of another form comes between, nothing is said. Rotated values are information: some designs have
//! them. Slopes are only judged where all known heads, at least two, favour far keys; a model may have learned that.
//!
//! ## Example
//! `scores + slopes * (i - j)` in place of `scores - slopes * (i - j)`.

use attnscope_checkpoint::counted::counted;
use attnscope_compute::attention::RecordedPositions;
use attnscope_spec::Place;

use super::evidence::{Evidence, Subject};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};
use crate::stats::LayerReport;

pub static CHECK: Check = Check {
    id: "misplaced-positions",
    severity: Severity::Warning,
    needs: Needs::Pattern,
    source: include_str!("misplaced_positions.rs"),
    judge,
};

type Known<'a> = [(&'a LayerReport, &'a RecordedPositions)];

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    if evidence.subject == Subject::Checkpoint {
        return Verdict::not_applicable("attnscope gives queries and keys their positions itself");
    }
    let known: Vec<(&LayerReport, &RecordedPositions)> = evidence
        .layers
        .iter()
        .filter_map(|layer| Some((&**layer, layer.audit()?.recorded.positions.as_ref()?)))
        .collect();
    let says =
        |of: &RecordedPositions| of.rotated.is_some() || of.slopes.is_some() || of.has_unlike_pairs;
    if !known.iter().any(|(_, positions)| says(positions)) {
        return Verdict::not_applicable(
            "nothing tells how positions enter: that takes a recording of running code, with values",
        );
    }
    let mut findings = Vec::new();
    for (who, other) in [("queries", "keys"), ("keys", "queries")] {
        findings.extend(finding(
            &known,
            Severity::Warning,
            |positions| positions.rotated.as_deref() == Some(who),
            &format!("{who} are rotated by their positions, and {other} are not: their product tells no distance"),
            &format!("rotate {other} as well, after W_Q and W_K and right before their product"),
        ));
    }
    findings.extend(finding(
        &known,
        Severity::Warning,
        |positions| positions.has_unlike_pairs,
        "queries or keys are turned pair by pair, and the two features of a pair by two angles: that is no rotation, and scores depend \
         on where a text begins",
        "pair features as their angles are repeated: [a b a b] goes with halves (rotate_half), [a a b b] with neighbours",
    ));
    findings.extend(finding(
        &known,
        Severity::Warning,
        |positions| positions.is_rotated_before,
        "what W_Q takes is rotated, and not what it gives: a learned map behind a rotation tells no distance",
        "rotate what W_Q and W_K give, head by head",
    ));
    findings.extend(finding(
        &known,
        Severity::Info,
        |positions| positions.has_rotated_values,
        "values are rotated by their positions, and nothing turns the outputs of heads back",
        "nothing to do where this is meant (rotary_value of RoFormer); else rotate queries and keys alone",
    ));
    let slopes: Vec<(f64, f64)> = known.iter().filter_map(|(_, of)| of.slopes).collect();
    let n_heads: usize = known
        .iter()
        .filter(|(_, of)| of.slopes.is_some())
        .map(|(layer, _)| layer.heads.len())
        .sum();
    if n_heads > 1 && slopes.iter().all(|(least, _)| *least > 0.0) {
        let least = slopes.iter().map(|s| s.0).fold(f64::INFINITY, f64::min);
        let most = slopes.iter().map(|s| s.1).fold(0.0, f64::max);
        findings.extend(finding(
            &known,
            Severity::Warning,
            |positions| positions.slopes.is_some(),
            &format!("scores are products of queries and keys plus {least:.4} to {most:.4} per position of distance: every head favours far keys"),
            "subtract the distance times the slope (ALiBi); nothing to do where slopes were learned",
        ));
    }
    Verdict::of(
        findings,
        "queries and keys get positions alike, and no bias favours far keys, as far as the numbers tell",
    )
}

/// Whether recorded positions tell no distance, so that what a model gives depends on where a text begins.
pub(super) fn tell_no_distance(layer: &LayerReport) -> bool {
    let recorded = layer
        .audit()
        .and_then(|audit| audit.recorded.positions.as_ref());
    recorded.is_some_and(|of| {
        let is_of_one = matches!(of.rotated.as_deref(), Some("queries" | "keys"));
        is_of_one || of.has_unlike_pairs || of.is_rotated_before
    })
}

/// One finding for all layers of which `is_off` holds.
fn finding(
    known: &Known<'_>,
    severity: Severity,
    is_off: impl Fn(&RecordedPositions) -> bool,
    what: &str,
    advice: &str,
) -> Option<Finding> {
    let off: Vec<&LayerReport> = known
        .iter()
        .filter(|(_, positions)| is_off(positions))
        .map(|(layer, _)| *layer)
        .collect();
    let first = off.first()?;
    let name = (first.name.clone()).unwrap_or_else(|| first.place().to_string());
    let more = match off.len() {
        1 => String::new(),
        n => format!(" and {}", counted(n - 1, "layer more")),
    };
    Some(Finding {
        check: CHECK.id,
        severity,
        place: if off.len() == 1 {
            first.place()
        } else {
            Place::MODEL
        },
        value: off.len() as f64,
        threshold: 0.0,
        unit: "layers",
        evidence: format!("{name}{more}: {what}"),
        advice: advice.to_owned(),
    })
}
