//! The verdict of `check` as a person reads it in a terminal or a log.

use std::io::{self, Write};

use super::plain::one_line;
use super::verdicts::TargetVerdict;
use attnscope_engine::checks::{Finding, Severity, Status};

/// Findings that are shown of one check; the rest is counted.
const MOST_SHOWN: usize = 5;

/// Writes one target: a line of counts, the findings, and what was not judged and why.
///
/// # Errors
/// When the target cannot be written.
pub fn write_text(target: &TargetVerdict, to: &mut impl Write) -> io::Result<()> {
    let counted = |severity: Severity, what: &str| {
        let n = target.n_findings(severity);
        (n > 0).then(|| format!("{n} {what}{}", if n == 1 { "" } else { "s" }))
    };
    let mut counts: Vec<String> = [(Severity::Error, "error"), (Severity::Warning, "warning")]
        .into_iter()
        .filter_map(|(severity, what)| counted(severity, what))
        .collect();
    if target.n_findings(Severity::Info) > 0 {
        counts.push(format!(
            "{} for information",
            target.n_findings(Severity::Info)
        ));
    }
    for status in [
        Status::Passed,
        Status::ByConstruction,
        Status::Undecidable,
        Status::NotApplicable,
    ] {
        let n = target.n_with(status);
        if n > 0 {
            counts.push(format!("{n} {}", words(status)));
        }
    }
    if let Some(error) = &target.error {
        return writeln!(
            to,
            "{}: not judged: {}",
            one_line(&target.title()),
            one_line(error)
        );
    }
    writeln!(to, "{}: {}", one_line(&target.title()), counts.join(" · "))?;
    for note in &target.notes {
        writeln!(to, "  note: {}", one_line(note))?;
    }
    let findings = target.findings();
    let width = findings
        .iter()
        .map(|finding| finding.check.len())
        .max()
        .unwrap_or(0);
    let mut shown: Vec<(&str, usize)> = Vec::new();
    for finding in &findings {
        let n = match shown.iter_mut().find(|(check, _)| *check == finding.check) {
            Some((_, n)) => {
                *n += 1;
                *n
            }
            None => {
                shown.push((finding.check, 1));
                1
            }
        };
        if n <= MOST_SHOWN {
            write_finding(finding, width, to)?;
        }
    }
    for (check, n) in shown.iter().filter(|(_, n)| *n > MOST_SHOWN) {
        writeln!(
            to,
            "  … {check}: {} more; --format json has them all",
            n - MOST_SHOWN
        )?;
    }
    for (check, verdict) in &target.verdicts {
        if matches!(verdict.status, Status::Undecidable | Status::NotApplicable) {
            writeln!(
                to,
                "  {} {}: {}",
                words(verdict.status),
                check.id,
                one_line(&verdict.why)
            )?;
        }
    }
    if target.n_with(Status::ByConstruction) > 0 {
        writeln!(
            to,
            "  by construction: mask, axis and window are applied here as the configuration declares; only trained-otherwise, \
             traces and probes speak of the code that trained the model"
        )?;
    }
    Ok(())
}

fn write_finding(finding: &Finding, width: usize, to: &mut impl Write) -> io::Result<()> {
    let severity = finding.severity.label();
    let place = finding.place.to_string();
    let unit = match finding.unit {
        "" => String::new(),
        unit => format!(" {unit}"),
    };
    writeln!(to, "  {severity:<7} {:<width$}  {place}", finding.check)?;
    writeln!(to, "          seen: {}", one_line(&finding.evidence))?;
    writeln!(
        to,
        "          {} against {}{unit}",
        figure(finding.value),
        figure(finding.threshold)
    )?;
    writeln!(to, "          do: {}", one_line(&finding.advice))
}

/// A number as a person reads it: few digits, and powers of ten where they are needed.
pub fn figure(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if value.is_nan() => "NaN".to_owned(),
        0.0 => "0".to_owned(),
        _ if !(1e-3..1e5).contains(&size) => format!("{value:.1e}"),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    }
}

fn words(status: Status) -> &'static str {
    match status {
        Status::Fired => "fired",
        Status::Undecidable => "undecidable",
        Status::Passed => "passed",
        Status::ByConstruction => "by construction",
        Status::NotApplicable => "not applicable",
    }
}
