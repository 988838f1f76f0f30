//! Verdicts of `check` as data: the versioned shape that outside programs rely on.

use std::io::Write;

use attnscope_checks::{Check, Explained, Finding, Severity, Status, Verdict};
use attnscope_run::Crossing;
use schemars::JsonSchema;
use serde::Serialize;

use super::finding::{ExplainsRecord, FindingRecord};
use super::note::Note;
use super::number::Number;

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
    /// Notes about how the target was read, and when findings began.
    pub notes: Vec<Note>,
    /// Stored tensors that no part of the model reads.
    pub unread: Vec<String>,
    /// What the prompts and probes put to the test, where that is known.
    pub cover: Vec<Crossing>,
    /// What the budget did not allow.
    pub left_out: Vec<LeftOut>,
    /// What to do where nothing is wrong, if the target itself says so.
    pub next: Option<String>,
    /// Why nothing could be judged, if so.
    pub error: Option<String>,
    pub verdicts: Vec<(&'static Check, Verdict)>,
}

/// Work that would have cost too much.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut {
    pub what: String,
    /// What it would cost, as budgets count seconds.
    pub seconds: f64,
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
            cover: Vec::new(),
            left_out: Vec::new(),
            next: None,
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
        let notes = self.notes.iter().map(|note| &note.text);
        self.first.iter().chain(notes)
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

    /// The command that tests a check that was not tested.
    pub fn would_test(&self, check: &Check, verdict: &Verdict) -> Option<String> {
        let tester = verdict.would_test?;
        Some(tester.command(&self.target, check.id))
    }

    /// How much of what is missing a finding explains.
    pub fn explains(&self, finding: &Finding) -> Option<Explained> {
        let mut verdicts = self.verdicts.iter();
        let (_, of) = verdicts.find(|(check, _)| check.id == finding.check)?;
        of.explains.filter(|_| of.findings.first() == Some(finding))
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
    /// What the prompts and probes put to the test; empty for targets that hold runs of their own.
    cover: Vec<CoverRecord>,
    /// What would have cost more than the budget.
    left_out: Vec<LeftOutRecord>,
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

/// Something beyond which a model computes otherwise.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CoverRecord {
    boundary: String,
    /// Whether a prompt or a probe crossed it.
    crossed: bool,
    /// Tokens that a prompt needs to cross it; null where no number of tokens does.
    needs: Option<usize>,
    /// The target as it was named on the command line.
    target: String,
}

/// Work that would have cost more than the budget.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct LeftOutRecord {
    /// What it would cost, counted as --budget counts seconds.
    seconds: Number,
    /// The target as it was named on the command line.
    target: String,
    what: String,
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
    /// A command that tests what was not tested; names in capitals stand for what the user has. Null for every other status.
    would_test: Option<String>,
}

/// Writes the verdicts for all targets.
///
/// # Errors
/// When they cannot be written.
pub fn write_verdicts(targets: &[TargetVerdict], to: &mut impl Write) -> std::io::Result<()> {
    let document = Document {
        cover: targets.iter().flat_map(cover_of).collect(),
        left_out: targets.iter().flat_map(left_out_of).collect(),
        targets: targets.iter().map(TargetRecord::of).collect(),
        version: VERSION,
    };
    super::json::write_pretty(&document, to)
}

fn cover_of(target: &TargetVerdict) -> impl Iterator<Item = CoverRecord> {
    target.cover.iter().map(|crossing| CoverRecord {
        boundary: crossing.boundary.clone(),
        crossed: crossing.is_crossed,
        needs: crossing.needs,
        target: target.target.clone(),
    })
}

fn left_out_of(target: &TargetVerdict) -> impl Iterator<Item = LeftOutRecord> {
    target.left_out.iter().map(|left_out| LeftOutRecord {
        seconds: Number(left_out.seconds),
        target: target.target.clone(),
        what: left_out.what.clone(),
    })
}

impl TargetRecord {
    pub(super) fn of(target: &TargetVerdict) -> Self {
        let check = |(check, verdict): &(&'static Check, Verdict)| CheckRecord {
            id: check.id,
            status: verdict.status.label(),
            why: verdict.why.clone(),
            would_test: target.would_test(check, verdict),
        };
        let findings = target.findings().into_iter();
        let record = |finding: &Finding| FindingRecord {
            explains: target.explains(finding).map(ExplainsRecord::of),
            ..FindingRecord::of(finding)
        };
        Self {
            checks: target.verdicts.iter().map(check).collect(),
            error: target.error.clone(),
            findings: findings.map(record).collect(),
            notes: target.all_notes().cloned().collect(),
            target: target.target.clone(),
            unread: target.unread.clone(),
            what_if: target.what_if.clone(),
        }
    }
}
