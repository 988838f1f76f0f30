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
    /// Nothing that could have failed the check was looked at: it has not run, or attnscope itself applies what it asks for. This
    /// says nothing about the model.
    NotTested,
    /// The evidence for the check does not exist here.
    NotApplicable,
}

impl Status {
    /// Every status, in the order of counts.
    pub const ALL: [Self; 5] = [
        Self::Fired,
        Self::Passed,
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
            Self::NotTested => "not-tested",
            Self::NotApplicable => "not-applicable",
        }
    }
}

/// What tests a check that was not tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tester {
    /// Running the code that trained the model: attnscope applies the declared mask, axis and window itself when it runs a
    /// checkpoint.
    OwnCode,
    /// Changing prompts and looking at weights, as `attnscope check` does.
    Probes,
    /// A prompt that crosses the boundaries of the model.
    LongPrompt,
    /// A probe that the user writes for the model's own input.
    Script,
}

impl Tester {
    /// The command that tests a check on a target; names in capitals stand for what the user has.
    pub fn command(self, target: &str, check: &str) -> String {
        let target = if target.contains(' ') {
            format!("'{target}'")
        } else {
            target.to_owned()
        };
        match self {
            Self::OwnCode => format!("attnscope check FILE.py:NAME --select {check}"),
            Self::Probes => format!("attnscope check {target} --select {check}"),
            Self::LongPrompt => format!("attnscope check {target} --cover --select {check}"),
            Self::Script => "attnscope capture-script".to_owned(),
        }
    }
}

/// How much of what a model lacks a finding explains, in nats per token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Explained {
    pub nats: f64,
    /// How much is missing, at least.
    pub of: f64,
}

impl Explained {
    /// The share from which advice may say how to run a model as it was trained. Ours.
    pub const ENOUGH: f64 = 0.8;

    pub fn share(self) -> f64 {
        self.nats / self.of
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
    /// What would test it, if it was not tested.
    pub would_test: Option<Tester>,
    /// What the finding explains, where that is measured.
    pub explains: Option<Explained>,
    pub findings: Vec<Finding>,
}

impl Verdict {
    fn without_findings(status: Status, why: impl Into<String>) -> Self {
        Self {
            status,
            why: why.into(),
            would_test: None,
            explains: None,
            findings: Vec::new(),
        }
    }

    pub fn not_applicable(why: impl Into<String>) -> Self {
        Self::without_findings(Status::NotApplicable, why)
    }

    pub fn not_tested(why: impl Into<String>, would_test: Tester) -> Self {
        Self {
            would_test: Some(would_test),
            ..Self::without_findings(Status::NotTested, why)
        }
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
            findings,
            ..Self::without_findings(Status::Fired, places)
        }
    }

    /// The verdict on a property that attnscope's own runs have whatever the model: without findings nothing was tested.
    pub fn of_our_run(
        evidence: &Evidence<'_>,
        findings: Vec<Finding>,
        otherwise: impl Into<String>,
    ) -> Self {
        let verdict = Self::of(findings, otherwise);
        if verdict.status == Status::Passed && evidence.subject == Subject::Checkpoint {
            let why = format!("attnscope itself makes it so: {}", verdict.why);
            return Self::not_tested(why, Tester::OwnCode);
        }
        verdict
    }
}
