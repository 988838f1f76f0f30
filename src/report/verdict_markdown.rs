//! Verdicts of `check` as Markdown, short enough for the summary of a job or the comment of a pull request.

use std::fmt::Write as _;
use std::io::{self, Write};

use attnscope_checks::Status;

use super::conclusion::Conclusion;
use super::finding::FindingRecord;
use super::grouped::{Group, grouped};
use super::markdown::{MOST_CHARACTERS, code, escaped, table};
use super::note::shortened;
use super::verdict_text::{Quiet, counts, summary, untested, words};
use super::verdicts::TargetVerdict;

/// Writes a section for each target: what is wrong, the findings in groups, and what was not judged.
///
/// # Errors
/// When it cannot be written.
pub fn write_check_markdown(targets: &[TargetVerdict], to: &mut impl Write) -> io::Result<()> {
    let mut text = String::new();
    let mut n_left_out = 0;
    for target in targets {
        let section = section(target);
        if text.len() + section.len() <= MOST_CHARACTERS || text.is_empty() {
            text += &section;
        } else {
            n_left_out += 1;
        }
    }
    if n_left_out > 0 {
        let _ = write!(
            text,
            "\n… and {n_left_out} more targets; `--format json` has them all\n"
        );
    }
    to.write_all(text.trim_start().as_bytes())
}

fn section(target: &TargetVerdict) -> String {
    let title = code(&target.title());
    if let Some(error) = &target.error {
        return format!("\n## {title}\n\nNot judged: {}\n", escaped(error));
    }
    let findings = target.findings().into_iter();
    let findings: Vec<FindingRecord> = findings.map(FindingRecord::of).collect();
    let groups = grouped(&findings);
    let mut text = format!(
        "\n## {title}\n\n{}\n",
        escaped(&summary(target, &findings, &groups))
    );
    if !target.verdicts.is_empty() {
        let counts = counts(target, Quiet::Listed);
        let Conclusion { wrong, sure, first } = Conclusion::of(target, &groups, &counts);
        for (what, said) in [("Wrong", wrong), ("Sure", sure), ("First", first)] {
            let _ = write!(text, "\n**{what}:** {}\n", escaped(&said));
        }
    }
    for note in &target.first {
        let _ = write!(text, "\nNote: {}\n", escaped(note));
    }
    if !groups.is_empty() {
        let titles = [
            "",
            "check",
            "place",
            "seen",
            "value",
            "threshold",
            "what to do",
        ];
        let titles = titles.map(|title| (title, title == "value" || title == "threshold"));
        let rows: Vec<Vec<String>> = groups.iter().map(row).collect();
        text += "\n";
        text += &table(&titles, &rows);
    }
    for note in shortened(&target.notes).into_iter().chain(untested(target)) {
        let _ = write!(text, "\nNote: {}\n", escaped(&note));
    }
    let open = target.verdicts.iter();
    for (check, verdict) in open.filter(|(_, verdict)| verdict.status == Status::Undecidable) {
        let (status, why) = (words(verdict.status), escaped(&verdict.why));
        let _ = write!(text, "\n{status}: {}: {why}\n", code(check.id));
    }
    text
}

fn row(group: &Group<'_>) -> Vec<String> {
    let worst = group.worst;
    vec![
        worst.severity.to_string(),
        worst.check.to_string(),
        group.places(),
        group.seen(),
        group.values(),
        group.threshold(),
        worst.advice.clone(),
    ]
}
