//! The verdict of `check` as data: the versioned shape that outside programs rely on.

use std::io::Write;

use serde_json::{Value, json};

use super::number::Number;
use attnscope_engine::checks::{Check, Finding, Severity, Status, Verdict};

/// Changes when a reader of the old shape would misread the new one.
pub const VERSION: u32 = 1;

/// What came of one target.
#[derive(Debug, Clone)]
pub struct TargetVerdict {
    /// What was named on the command line.
    pub target: String,
    /// What was supposed of it.
    pub what_if: Vec<String>,
    /// What a person must know of how it was read.
    pub notes: Vec<String>,
    /// Why nothing could be judged.
    pub error: Option<String>,
    pub verdicts: Vec<(&'static Check, Verdict)>,
}

impl TargetVerdict {
    /// A target that could not be read or run.
    pub fn unread(target: String, reason: String) -> Self {
        Self {
            target,
            what_if: Vec::new(),
            notes: Vec::new(),
            error: Some(reason),
            verdicts: Vec::new(),
        }
    }

    /// The target as people are told of it, with what was supposed of it.
    pub fn title(&self) -> String {
        if self.what_if.is_empty() {
            self.target.clone()
        } else {
            format!("{}, what if {}", self.target, self.what_if.join(", "))
        }
    }

    /// Every finding, the worst first; of equals in the order in which they run.
    pub fn findings(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> = self
            .verdicts
            .iter()
            .flat_map(|(_, verdict)| &verdict.findings)
            .collect();
        findings
            .sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.place.layer_idx));
        findings
    }

    /// The worst severity of any finding.
    pub fn worst(&self) -> Option<Severity> {
        self.findings().first().map(|finding| finding.severity)
    }

    /// How many checks ended with a status.
    pub fn n_with(&self, status: Status) -> usize {
        self.verdicts
            .iter()
            .filter(|(_, verdict)| verdict.status == status)
            .count()
    }

    /// How many findings have a severity.
    pub fn n_findings(&self, severity: Severity) -> usize {
        self.findings()
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    }
}

/// Writes the verdicts of all targets.
///
/// # Errors
/// When they cannot be written.
pub fn write_verdicts(targets: &[TargetVerdict], to: &mut impl Write) -> std::io::Result<()> {
    let document = json!({
        "version": VERSION,
        "targets": targets.iter().map(record).collect::<Vec<_>>(),
    });
    super::json::write_pretty(&document, to)
}

/// One target as data.
pub(super) fn record(target: &TargetVerdict) -> Value {
    let checks = target.verdicts.iter().map(|(check, verdict)| {
        json!({ "id": check.id, "status": verdict.status.label(), "why": verdict.why })
    });
    let mut said = json!({
        "target": target.target,
        "checks": checks.collect::<Vec<_>>(),
        "findings": target.findings().into_iter().map(finding).collect::<Vec<_>>(),
    });
    // Only where it is not the checkpoint as it is.
    if !target.what_if.is_empty() {
        said["what_if"] = json!(target.what_if);
    }
    if let Some(error) = &target.error {
        said["error"] = json!(error);
    }
    if !target.notes.is_empty() {
        said["notes"] = json!(target.notes);
    }
    said
}

fn finding(finding: &Finding) -> Value {
    let place = &finding.place;
    json!({
        "check": finding.check,
        "severity": finding.severity.label(),
        "place": {
            "stack": place.grid().label(),
            "layer": place.layer_idx,
            "head": place.head_idx,
            "query": place.query_idx,
            "key": place.key_idx,
        },
        "value": number(finding.value),
        "threshold": number(finding.threshold),
        "unit": finding.unit,
        "evidence": finding.evidence,
        "advice": finding.advice,
    })
}

fn number(value: f64) -> Value {
    serde_json::to_value(Number(value)).unwrap_or(Value::Null)
}
