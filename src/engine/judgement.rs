//! The results of all checks of a model on one prompt.

use attnscope_checks::{Check, Finding, Status, Verdict};

/// The verdicts of all checks, including those that do not apply.
#[derive(Debug, Clone)]
pub struct Judgement {
    pub(crate) verdicts: Vec<(&'static Check, Verdict)>,
}

impl Judgement {
    /// All findings, in the order of the checks.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.verdicts
            .iter()
            .flat_map(|(_, verdict)| &verdict.findings)
    }

    /// Each check's id with its status and the reason for it. A check that tested nothing never counts as passed.
    pub fn checks(&self) -> impl Iterator<Item = (&'static str, Status, &str)> {
        self.verdicts
            .iter()
            .map(|(check, verdict)| (check.id, verdict.status, verdict.why.as_str()))
    }
}
