//! Verdicts of `check` as text for a terminal or a log.

use std::io::{self, Write};

use attnscope_checkpoint::counted::counted;
pub use attnscope_checks::figure;
use attnscope_checks::{Status, Tester, duration};

use super::conclusion::Conclusion;
use super::finding::FindingRecord;
use super::grouped::{self, Group, grouped, severities, write_groups};
use super::note::shortened;
use super::plain::one_line;
use super::verdicts::TargetVerdict;

/// How to show checks that found nothing.
#[derive(Debug, Clone, Copy)]
pub enum Quiet {
    /// Each check with its reason.
    Listed,
    /// One line for all of them, ending with where to find the list.
    Counted(&'static str),
}

/// Writes one target: a summary sentence, the findings, notes, and what was not judged.
///
/// # Errors
/// When the target cannot be written.
pub fn write_text(target: &TargetVerdict, quiet: Quiet, to: &mut impl Write) -> io::Result<()> {
    let title = target.title();
    let title = one_line(&title);
    if let Some(error) = &target.error {
        return writeln!(to, "{title}: not judged: {}", one_line(error));
    }
    let findings: Vec<FindingRecord> = target
        .findings()
        .into_iter()
        .map(FindingRecord::of)
        .collect();
    let groups = grouped(&findings);
    writeln!(to, "{title}: {}", summary(target, &findings, &groups))?;
    for said in &target.first {
        writeln!(to, "  note: {}", one_line(said))?;
    }
    write_groups(&groups, to)?;
    let notes = match quiet {
        Quiet::Listed => target.notes.iter().map(|note| note.text.clone()).collect(),
        Quiet::Counted(_) => shortened(&target.notes),
    };
    for note in notes {
        writeln!(to, "  note: {}", one_line(&note))?;
    }
    for (check, verdict) in &target.verdicts {
        let is_listed = match quiet {
            Quiet::Listed => verdict.findings.is_empty(),
            Quiet::Counted(_) => verdict.status == Status::Undecidable,
        };
        if is_listed {
            let (status, why) = (words(verdict.status), one_line(&verdict.why));
            let tested = target.would_test(check, verdict);
            let tested = tested.map_or(String::new(), |command| format!(" (tests it: {command})"));
            writeln!(to, "  {status} {}: {why}{tested}", check.id)?;
        }
    }
    write_untested(target, to)?;
    if target.verdicts.is_empty() {
        return Ok(());
    }
    Conclusion::of(target, &groups, &counts(target, quiet)).write(to)
}

/// Says in one line what was found: `2 errors, no warnings in 22 checks run: pad-mass in 2 heads`.
pub(super) fn summary(
    target: &TargetVerdict,
    findings: &[FindingRecord],
    groups: &[Group<'_>],
) -> String {
    let names = match grouped::named(groups) {
        names if names.is_empty() => names,
        names => format!(": {names}"),
    };
    let are_run = target.verdicts.iter();
    match are_run
        .filter(|(_, verdict)| verdict.status.is_run())
        .count()
    {
        0 => "no check was run that could fail here".to_owned(),
        n => format!(
            "{} in {} run{names}",
            severities(findings),
            counted(n, "check")
        ),
    }
}

/// Writes which boundaries no prompt crossed, and what the budget left out.
fn write_untested(target: &TargetVerdict, to: &mut impl Write) -> io::Result<()> {
    let mut lines = untested(target).into_iter();
    lines.try_for_each(|line| writeln!(to, "  {line}"))
}

/// Says which boundaries no prompt crossed, and what the budget left out.
pub(super) fn untested(target: &TargetVerdict) -> Vec<String> {
    let mut lines = Vec::new();
    let open = target.cover.iter().filter(|of| !of.is_crossed);
    let open = open.filter_map(|of| Some((&of.boundary, of.needs?)));
    let open: Vec<String> = open
        .map(|(what, needs)| format!("{what} ({needs} tokens)"))
        .collect();
    if !open.is_empty() {
        let all = open.join(", ");
        let is_asked = target.left_out.iter().any(|of| all.contains(&of.what));
        let how = if is_asked {
            ""
        } else {
            "; --cover makes prompts that do"
        };
        lines.push(format!("not crossed: {all}{how}"));
    }
    lines.extend(target.left_out.iter().map(|left_out| {
        let (what, time) = (&left_out.what, duration(left_out.seconds));
        format!("left out: {what}, about {time} more (--budget)")
    }));
    lines
}

/// Says what the checks gave that found nothing.
pub(super) fn counts(target: &TargetVerdict, quiet: Quiet) -> String {
    let n_untested = |needs_code: bool| {
        let verdicts = target.verdicts.iter();
        let untested = verdicts.filter_map(|(_, verdict)| verdict.would_test);
        let needs = untested.map(|tester| tester == Tester::OwnCode);
        needs.filter(|needs| *needs == needs_code).count()
    };
    let counts = [
        (target.n_with(Status::Passed), "passed"),
        (
            n_untested(true),
            "not tested without the code that trained it",
        ),
        (n_untested(false), "not tested"),
        (target.n_with(Status::NotApplicable), "do not apply"),
    ];
    let counts = counts.into_iter().filter(|(n, _)| *n > 0);
    let counts = counts.map(|(n, what)| format!("{n} {what}"));
    let counts: Vec<String> = counts.collect();
    match (counts.join(" · "), quiet) {
        (counts, _) if counts.is_empty() => "no other check was run".to_owned(),
        (counts, Quiet::Counted(listed)) => format!("{counts} ({listed})"),
        (counts, Quiet::Listed) => counts,
    }
}

pub(super) fn words(status: Status) -> &'static str {
    match status {
        Status::Fired => "fired",
        Status::Undecidable => "undecidable",
        Status::Passed => "passed",
        Status::NotTested => "not tested",
        Status::NotApplicable => "not applicable",
    }
}
