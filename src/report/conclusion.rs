//! The end of a verdict, for whoever reads nothing else: what is wrong, how sure that is, and what to do first.

use std::io::{self, Write};

use attnscope_checks::{Severity, Status, find};

use super::grouped::Group;
use super::plain::one_line;
use super::verdicts::TargetVerdict;

/// What a verdict comes to.
pub(super) struct Conclusion {
    /// What is wrong.
    pub wrong: String,
    /// How sure that is.
    pub sure: String,
    /// What to do first.
    pub first: String,
}

impl Conclusion {
    /// Draws it; `counts` says what the other checks gave.
    pub(super) fn of(target: &TargetVerdict, groups: &[Group<'_>], counts: &str) -> Self {
        let mut grave = groups
            .iter()
            .filter(|group| group.worst.severity() > Severity::Info);
        let Some(worst) = grave.next() else {
            let said = open_question(target).or_else(|| target.next.clone());
            let next = said.unwrap_or_else(|| {
                "nothing; attnscope check FILE.py:FUNCTION tests the code that trains the model"
                    .to_owned()
            });
            return Self {
                wrong: "nothing that was tested".to_owned(),
                sure: counts.to_owned(),
                first: next,
            };
        };
        let others = match grave.count() {
            0 => String::new(),
            1 => "; 1 more finding".to_owned(),
            n => format!("; {n} more findings"),
        };
        let check = find(&worst.worst.check);
        let title = check.map_or("", |check| check.title());
        let certainty = check.map_or("", |check| check.certainty());
        Self {
            wrong: format!("{title} ({}){others}", worst.summary()),
            sure: format!("{certainty}; {counts}"),
            first: worst.worst.advice.clone(),
        }
    }

    /// Writes the three lines.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        writeln!(to, "  wrong: {}", self.wrong)?;
        writeln!(to, "  sure:  {}", self.sure)?;
        writeln!(to, "  first: {}", one_line(&self.first))
    }
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
