//! Verdicts of `check` as data: the versioned shape that outside programs rely on.

use std::io::Write;

use attnscope_checks::{Check, Finding, Severity, Status, Verdict};
use schemars::JsonSchema;
use serde::Serialize;

use super::finding::FindingRecord;

/// Changes when a reader of the old shape would misread the new one.
pub const VERSION: u32 = 1;

/// Result for one target.
#[derive(Debug, Clone)]
pub struct TargetVerdict {
    /// The target as named on the command line.
    pub target: String,
    /// What-ifs that were on.
    pub what_if: Vec<String>,
    /// Notes to show first, such as the text used where none was given.
    pub first: Vec<String>,
    /// Notes about how the target was read.
    pub notes: Vec<String>,
    /// Stored tensors that no part of the model reads.
    pub unread: Vec<String>,
    /// Why nothing could be judged, if so.
    pub error: Option<String>,
    pub verdicts: Vec<(&'static Check, Verdict)>,
}

impl TargetVerdict {
    /// A target that could not be read or run.
    pub fn unread(target: String, reason: String) -> Self {
        Self {
            target,
            what_if: Vec::new(),
            first: Vec::new(),
            notes: Vec::new(),
            unread: Vec::new(),
            error: Some(reason),
            verdicts: Vec::new(),
        }
    }

    /// Returns the target's name for people, with its what-ifs.
    pub fn title(&self) -> String {
        if self.what_if.is_empty() {
            self.target.clone()
        } else {
            format!("{}, what if {}", self.target, self.what_if.join(", "))
        }
    }

    /// Returns all notes, the ones to show first before the others.
    pub fn all_notes(&self) -> impl Iterator<Item = &String> {
        self.first.iter().chain(&self.notes)
    }

    /// Returns every finding, the worst first; equal ones in the order in which they run.
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

    /// Returns the worst severity of any finding.
    pub fn worst(&self) -> Option<Severity> {
        self.findings().first().map(|finding| finding.severity)
    }

    /// Counts the checks with a status.
    pub fn n_with(&self, status: Status) -> usize {
        self.verdicts
            .iter()
            .filter(|(_, verdict)| verdict.status == status)
            .count()
    }

    /// Counts the findings of a severity.
    pub fn n_findings(&self, severity: Severity) -> usize {
        self.findings()
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    }
}

/// What every check says of every target.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Document {
    targets: Vec<TargetRecord>,
    #[schemars(extend("const" = VERSION))]
    version: u32,
}

/// What every check says of a target.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct TargetRecord {
    checks: Vec<CheckRecord>,
    /// Why the target could not be judged; left out where it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    error: Option<String>,
    /// What checks found, the worst first.
    findings: Vec<FindingRecord>,
    /// What a reader must know of how the target was read; left out where there is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// The target as it was named on the command line.
    target: String,
    /// Stored tensors that the model never reads, less buffers and states of optimisers; left out where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<String>,
    /// What-ifs that were on, as they were written; left out where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    what_if: Vec<String>,
}

/// What came of a check.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CheckRecord {
    /// Id of the check.
    id: &'static str,
    #[schemars(schema_with = "super::schema_parts::status")]
    status: &'static str,
    /// One sentence: why the check has this status.
    why: String,
}

/// Writes the verdicts for all targets.
///
/// # Errors
/// When they cannot be written.
pub fn write_verdicts(targets: &[TargetVerdict], to: &mut impl Write) -> std::io::Result<()> {
    let document = Document {
        targets: targets.iter().map(TargetRecord::of).collect(),
        version: VERSION,
    };
    super::json::write_pretty(&document, to)
}

impl TargetRecord {
    pub(super) fn of(target: &TargetVerdict) -> Self {
        let check = |(check, verdict): &(&'static Check, Verdict)| CheckRecord {
            id: check.id,
            status: verdict.status.label(),
            why: verdict.why.clone(),
        };
        let findings = target.findings().into_iter();
        Self {
            checks: target.verdicts.iter().map(check).collect(),
            error: target.error.clone(),
            findings: findings.map(FindingRecord::of).collect(),
            notes: target.all_notes().cloned().collect(),
            target: target.target.clone(),
            unread: target.unread.clone(),
            what_if: target.what_if.clone(),
        }
    }
}
