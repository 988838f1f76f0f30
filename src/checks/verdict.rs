//! What a check says: a status, why, and findings with their place, size and advice.

use attnscope_spec::Place;

use super::evidence::{Evidence, Subject};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; trained models have it by design.
    Info,
    Warning,
    Error,
}

/// As its label.
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

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Fired,
    /// The evidence does not decide.
    Undecidable,
    /// It held, and could have failed.
    Passed,
    /// It held because this program applies the mask, the axis and the window that the configuration declares: it says
    /// nothing about the code that trained the model.
    ByConstruction,
    /// It could be run here, and was not: it says nothing of the model yet.
    NotTested,
    /// It has nothing to look at here.
    NotApplicable,
}

impl Status {
    /// Every status, in the order in which counts list them.
    pub const ALL: [Self; 6] = [
        Self::Fired,
        Self::Passed,
        Self::ByConstruction,
        Self::NotTested,
        Self::NotApplicable,
        Self::Undecidable,
    ];

    /// Whether the check looked at something that could have failed it.
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

/// Something wrong with a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub check: &'static str,
    pub severity: Severity,
    pub place: Place,
    /// What was measured, and what it may be.
    pub value: f64,
    pub threshold: f64,
    /// Of both; empty for pure numbers.
    pub unit: &'static str,
    /// One sentence: what was seen.
    pub evidence: String,
    /// What to do.
    pub advice: String,
}

impl Finding {
    /// How far past its threshold it is: 1 at the threshold, more beyond it. Infinite for what may not be at all.
    pub fn excess(&self) -> f64 {
        let (value, threshold) = (self.value.abs(), self.threshold.abs());
        if value >= threshold {
            value / threshold
        } else {
            threshold / value
        }
    }
}

/// What a check says of some evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub status: Status,
    /// One sentence, whatever the status.
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

    /// Fired where there are findings, passed where there are none.
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

    /// A verdict on what our own runs do by construction.
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
