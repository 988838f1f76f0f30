//! Verdicts of `check` as workflow commands, which GitHub shows as annotations of a run.

use std::io::{self, Write};

use attnscope_checkpoint::counted::counted;
use attnscope_checks::{Finding, Severity, Status};

use super::named_place;
use super::verdicts::TargetVerdict;

/// Most findings shown per check and target. GitHub shows ten annotations of a kind in a step; this keeps one check from
/// using them all.
const MOST_SHOWN: usize = 5;

/// Writes a command for each finding, the worst first, and a line of counts.
///
/// # Errors
/// When it cannot be written.
pub fn write_github(targets: &[TargetVerdict], to: &mut impl Write) -> io::Result<()> {
    let mut n_hidden = 0;
    for target in targets {
        for note in target.all_notes() {
            let message = in_message(&format!("{}: {note}", target.title()));
            writeln!(to, "::notice title=note::{message}")?;
        }
        if let Some(error) = &target.error {
            let message = in_message(&format!("{}: not judged: {error}", target.title()));
            writeln!(to, "::error title=not judged::{message}")?;
        }
        let mut shown: Vec<&str> = Vec::new();
        for finding in target.findings() {
            shown.push(finding.check);
            let n = shown
                .iter()
                .filter(|check| **check == finding.check)
                .count();
            if n <= MOST_SHOWN {
                write_finding(&target.title(), finding, to)?
            } else {
                n_hidden += 1
            }
        }
    }
    let count = |severity| -> usize { targets.iter().map(|t| t.n_findings(severity)).sum() };
    let undecided: usize = targets.iter().map(|t| t.n_with(Status::Undecidable)).sum();
    let mut counts = vec![
        counted(targets.len(), "target"),
        counted(count(Severity::Error), "error"),
        counted(count(Severity::Warning), "warning"),
        format!("{} for information", count(Severity::Info)),
        format!("{undecided} undecidable"),
    ];
    if n_hidden > 0 {
        counts.push(format!(
            "{n_hidden} not shown here (--format json has them all)"
        ));
    }
    writeln!(to, "attnscope check: {}", counts.join(", "))
}

fn write_finding(target: &str, finding: &Finding, to: &mut impl Write) -> io::Result<()> {
    let command = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "notice",
    };
    let message = format!(
        "{} in {target}: {}; {}",
        named_place::whole(&finding.place),
        finding.evidence,
        finding.advice
    );
    writeln!(
        to,
        "::{command} title={}::{}",
        in_property(finding.check),
        in_message(&message)
    )
}

/// Escapes a message: the runner decodes it, and a raw line end would begin another command.
/// Source: `escapeData` of actions/toolkit, packages/core/src/command.ts.
fn in_message(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Escapes a property, which `,` and `:` would end: `escapeProperty` of the same file.
fn in_property(text: &str) -> String {
    in_message(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_would_end_a_command_are_escaped() {
        assert_eq!(in_message("50 %\r\n::error::x"), "50 %25%0D%0A::error::x");
        assert_eq!(in_property("a: b, c"), "a%3A b%2C c");
    }
}
