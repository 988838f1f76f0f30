//! Counts of the Checks panel: findings, checks that ran, and checks that did not.

use attnscope_checkpoint::counted::counted;
use attnscope_checks::{Severity, Status, Tester, Verdict};
use attnscope_run::Judgement;

use super::checks_sides::both_findings;
use crate::state::keys::Action;
use crate::state::scene::Scene;
use crate::state::views::Sides;

/// Sort order of checks in the list: those that can be run from here come right after the findings.
pub fn rank(verdict: &Verdict) -> usize {
    match verdict.status {
        Status::Fired => 0,
        Status::NotTested if can_be_run(verdict) => 1,
        Status::Undecidable => 2,
        Status::Passed => 3,
        Status::NotTested => 4,
        Status::NotApplicable => 5,
    }
}

/// Whether a check was not tested and the screen can test it.
fn can_be_run(verdict: &Verdict) -> bool {
    verdict.would_test == Some(Tester::Probes)
}

/// A glyph for each status, to tell them apart without colour; only checks that could have failed get a tick.
pub fn glyph(verdict: &Verdict) -> &'static str {
    match verdict.status {
        Status::Passed => "✓",
        Status::Undecidable => "?",
        Status::NotTested if can_be_run(verdict) => "○",
        Status::NotTested => "◌",
        Status::NotApplicable | Status::Fired => "–",
    }
}

/// The name of a status in the list.
pub fn words(status: Status) -> &'static str {
    match status {
        Status::NotTested => "not tested",
        Status::NotApplicable => "not applicable",
        status => status.label(),
    }
}

fn n_with(judgement: &Judgement, has: impl Fn(Status) -> bool) -> usize {
    let verdicts = judgement.verdicts.iter();
    verdicts.filter(|(_, verdict)| has(verdict.status)).count()
}

fn n_not_tested(judgement: &Judgement, is_here: bool) -> usize {
    let verdicts = judgement.verdicts.iter().map(|(_, verdict)| verdict);
    let untested = verdicts.filter(|verdict| verdict.status == Status::NotTested);
    untested
        .filter(|verdict| can_be_run(verdict) == is_here)
        .count()
}

/// Number of checks that could be run on the shown subject and were not.
pub fn n_not_run(app: Scene<'_>) -> usize {
    let judgement = app.run().and_then(|run| run.judgement.as_deref());
    judgement.map_or(0, |judgement| n_not_tested(judgement, true))
}

/// Counts of each kind in one line of at most `width` columns; drops the last ones first.
pub fn title(app: Scene<'_>, width: usize) -> String {
    let Some(run) = app.run() else {
        return " checks ".to_owned();
    };
    let Some(judgement) = run.judgement.as_deref() else {
        return " checks ".to_owned();
    };
    if let Some(both) = both_findings(app) {
        let [a, b] = app.labels();
        let n = |wanted: Sides| both.iter().filter(|(_, sides)| *sides == wanted).count();
        return format!(
            " findings: {} only {b} · {} only {a} · {} in both ",
            n(Sides::OnlyB),
            n(Sides::OnlyA),
            n(Sides::Both)
        );
    }
    let findings = app.findings();
    let n_of = |severity: Severity| {
        let of = findings.iter().filter(|of| of.severity == severity);
        of.count()
    };
    let n_run = counted(n_with(judgement, Status::is_run), "check");
    let errors = counted(n_of(Severity::Error), "error");
    let found = match n_of(Severity::Warning) {
        0 => errors,
        n => format!("{errors}, {}", counted(n, "warning")),
    };
    let mut parts = vec![format!("{found} in {n_run} run")];
    if let Some(step) = &run.probing {
        parts.push(format!("{} {} of {}", step.what, step.n_done, step.n));
    } else if n_not_run(app) > 0 {
        let (n, key) = (n_not_run(app), app.keys.key(Action::Probe));
        let them = if n == 1 { "it" } else { "them" };
        parts.push(format!("{n} not tested: {key} tests {them}"));
    }
    let of = |status: Status| n_with(judgement, |other| other == status);
    for (n, what) in [
        (n_of(Severity::Info), "for information"),
        (of(Status::Passed), "passed"),
        (n_not_tested(judgement, false), "not tested here"),
        (of(Status::Undecidable), "undecidable"),
        (of(Status::NotApplicable), "not applicable"),
    ] {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    }
    let mut title = String::new();
    for part in parts {
        let separator = if title.is_empty() { " " } else { " · " };
        let n = title.chars().count() + separator.chars().count() + part.chars().count() + 1;
        if !title.is_empty() && n > width {
            break;
        }
        title = format!("{title}{separator}{part}");
    }
    format!("{title} ")
}
