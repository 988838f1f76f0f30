//! Verdicts of `check` as JUnit XML: a suite for each target, a case for each check.

use std::io::{self, Write};

use attnscope_checks::{Check, Finding, Severity, Status, Verdict};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::named_place;
use super::verdict_text::figure;
use super::verdicts::TargetVerdict;

/// Writes every target, with errors as failures.
///
/// # Errors
/// When it cannot be written.
pub fn write_junit(targets: &[TargetVerdict], to: &mut impl Write) -> io::Result<()> {
    write_junit_by(targets, &|severity| severity == Severity::Error, to)
}

/// Writes every target. Findings for which `fails` is true are failures, as for the exit code; others are a case's output;
/// checks that were not judged are skipped.
///
/// # Errors
/// When it cannot be written.
pub fn write_junit_by(
    targets: &[TargetVerdict],
    fails: &dyn Fn(Severity) -> bool,
    to: &mut impl Write,
) -> io::Result<()> {
    let mut report = Report::new("attnscope check");
    for target in targets {
        let mut suite = TestSuite::new(target.title());
        for (check, verdict) in &target.verdicts {
            suite.add_test_case(case(&target.title(), check, verdict, fails));
        }
        if let Some(error) = &target.error {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_type("not-judged").set_message(error.as_str());
            suite.add_test_case(TestCase::new("target", status));
        }
        let notes: Vec<&str> = target.all_notes().map(String::as_str).collect();
        if !notes.is_empty() {
            suite.set_system_out(notes.join("\n") + "\n");
        }
        report.add_test_suite(suite);
    }
    report.serialize(to).map_err(io::Error::other)
}

fn case(
    target: &str,
    check: &Check,
    verdict: &Verdict,
    fails: &dyn Fn(Severity) -> bool,
) -> TestCase {
    let (mut failures, others): (Vec<&Finding>, Vec<&Finding>) = verdict
        .findings
        .iter()
        .partition(|finding| fails(finding.severity));
    // The worst failure first.
    failures.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let status = match (failures.first(), verdict.status) {
        (Some(first), _) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            let others = match failures.len() - 1 {
                0 => String::new(),
                n => format!(" (and {n} more)"),
            };
            let place = named_place::module(&first.place);
            status
                .set_type(check.id)
                .set_message(format!("{place}: {}{others}", first.evidence))
                .set_description(lines(&failures));
            status
        }
        (None, Status::NotTested | Status::NotApplicable | Status::Undecidable) => {
            let mut status = TestCaseStatus::skipped();
            status.set_type(verdict.status.label()).set_message(format!(
                "{}: {}",
                verdict.status.label(),
                verdict.why
            ));
            status
        }
        _ => TestCaseStatus::success(),
    };
    let mut case = TestCase::new(check.id, status);
    case.set_classname(target);
    let said = lines(&others);
    if !said.is_empty() {
        case.set_system_out(said);
    }
    case
}

/// Returns the evidence and the advice of each finding, a line each.
fn lines(findings: &[&Finding]) -> String {
    let line = |finding: &&Finding| {
        let unit = match finding.unit {
            "" => String::new(),
            unit => format!(" {unit}"),
        };
        format!(
            "{}: {}: {} (measured {}, threshold {}{unit})\n  do: {}\n",
            finding.severity.label(),
            named_place::whole(&finding.place),
            finding.evidence,
            figure(finding.value),
            figure(finding.threshold),
            finding.advice
        )
    };
    findings.iter().map(line).collect()
}
