//! The end of a verdict, for whoever reads nothing else: what is wrong, how sure that is, and what to do first.

use std::io::{self, Write};

use attnscope_checks::{Severity, Status, find};

use super::grouped::Group;
use super::plain::one_line;
use super::verdicts::TargetVerdict;

/// Writes the three lines; `counts` says what the other checks gave.
///
/// # Errors
/// When they cannot be written.
pub fn write_conclusion(
    target: &TargetVerdict,
    groups: &[Group<'_>],
    counts: &str,
    to: &mut impl Write,
) -> io::Result<()> {
    let mut grave = groups
        .iter()
        .filter(|group| group.worst.severity() > Severity::Info);
    let Some(worst) = grave.next() else {
        let next = open_question(target).unwrap_or_else(|| {
            "nothing; attnscope check FILE.py:FUNCTION tests the code that trains the model"
                .to_owned()
        });
        writeln!(to, "  wrong: nothing that was tested")?;
        writeln!(to, "  sure:  {counts}")?;
        return writeln!(to, "  first: {}", one_line(&next));
    };
    let others = match grave.count() {
        0 => String::new(),
        1 => "; 1 more finding".to_owned(),
        n => format!("; {n} more findings"),
    };
    let check = find(&worst.worst.check);
    let title = check.map_or("", |check| check.title());
    let certainty = check.map_or("", |check| check.certainty());
    writeln!(to, "  wrong: {title} ({}){others}", worst.summary())?;
    writeln!(to, "  sure:  {certainty}; {counts}")?;
    writeln!(to, "  first: {}", one_line(&worst.worst.advice))
}

/// What would decide a check that could not.
fn open_question(target: &TargetVerdict) -> Option<String> {
    let mut open = target
        .verdicts
        .iter()
        .filter(|(_, verdict)| verdict.status == Status::Undecidable);
    let (check, verdict) = open.next()?;
    Some(format!("{} is open: {}", check.id, verdict.why))
}
