//! The verdict of a check: a status, a reason, and findings with place, value and advice.

use attnscope_spec::Place;

use super::evidence::{Evidence, Subject};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; trained models may have it by design.
    Info,
    Warning,
    Error,
}

/// Serialised as its label.
impl serde::Serialize for Severity {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.label())
    }
}

impl Severity {
    pub fn label(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Fired,
    /// The evidence does not decide.
    Undecidable,
    /// The check passed, and could have failed.
    Passed,
    /// The check cannot fail, because attnscope itself applies the declared mask, axis and window. This says nothing about the
    /// code that trained the model.
    ByConstruction,
    /// The check could run here but has not; this says nothing about the model yet.
    NotTested,
    /// The evidence for the check does not exist here.
    NotApplicable,
}

impl Status {
    /// Every status, in the order of counts.
    pub const ALL: [Self; 6] = [
        Self::Fired,
        Self::Passed,
        Self::ByConstruction,
        Self::NotTested,
        Self::NotApplicable,
        Self::Undecidable,
    ];

    /// Whether the check ran on evidence that could have failed it.
    pub fn is_run(self) -> bool {
        matches!(self, Self::Fired | Self::Passed | Self::Undecidable)
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Fired => "fired",
            Self::Undecidable => "undecidable",
            Self::Passed => "passed",
            Self::ByConstruction => "by-construction",
            Self::NotTested => "not-tested",
            Self::NotApplicable => "not-applicable",
        }
    }
}

/// A problem of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub check: &'static str,
    pub severity: Severity,
    pub place: Place,
    /// The measured value, and its limit.
    pub value: f64,
    pub threshold: f64,
    /// The unit of both; empty for pure numbers.
    pub unit: &'static str,
    /// One sentence on the observation.
    pub evidence: String,
    /// What to do about it.
    pub advice: String,
}

impl Finding {
    /// Ratio to the threshold: 1 at the threshold, more beyond it. Infinite for something that must never occur.
    pub fn excess(&self) -> f64 {
        let (value, threshold) = (self.value.abs(), self.threshold.abs());
        if value >= threshold {
            value / threshold
        } else {
            threshold / value
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub status: Status,
    /// A one-sentence reason, for every status.
    pub why: String,
    pub findings: Vec<Finding>,
}

impl Verdict {
    fn without_findings(status: Status, why: impl Into<String>) -> Self {
        Self {
            status,
            why: why.into(),
            findings: Vec::new(),
        }
    }

    pub fn not_applicable(why: impl Into<String>) -> Self {
        Self::without_findings(Status::NotApplicable, why)
    }

    pub fn not_tested(why: impl Into<String>) -> Self {
        Self::without_findings(Status::NotTested, why)
    }

    pub fn undecidable(why: impl Into<String>) -> Self {
        Self::without_findings(Status::Undecidable, why)
    }

    pub fn passed(why: impl Into<String>) -> Self {
        Self::without_findings(Status::Passed, why)
    }

    /// `Fired` with findings, `Passed` without.
    pub fn of(findings: Vec<Finding>, otherwise: impl Into<String>) -> Self {
        if findings.is_empty() {
            return Self::passed(otherwise);
        }
        let places = match findings.len() {
            1 => "1 place".to_owned(),
            n => format!("{n} places"),
        };
        Self {
            status: Status::Fired,
            why: places,
            findings,
        }
    }

    /// The verdict on a property that attnscope's own runs have by construction.
    pub fn of_our_run(
        evidence: &Evidence<'_>,
        findings: Vec<Finding>,
        otherwise: impl Into<String>,
    ) -> Self {
        let mut verdict = Self::of(findings, otherwise);
        if verdict.status == Status::Passed && evidence.subject == Subject::Checkpoint {
            verdict.status = Status::ByConstruction;
        }
        verdict
    }
}
