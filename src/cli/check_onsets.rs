//! When each finding of the last step of a training began: the steps before it are judged from the newest back, for as long as a
//! finding is open.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::history_reading::read;
use super::session::Session;
use crate::history::{Found, LINES, Scope, training_in};
use crate::report::TargetVerdict;
use attnscope_engine::checks::{Check, Finding};

/// A training among the targets: its last step, which is judged, and the ones before, in order.
#[derive(Debug, Clone)]
pub struct Steps {
    pub last: PathBuf,
    before: Vec<Found>,
}

/// The trainings among some paths: directories whose checkpoints all tell their step. Their other steps are taken out of the
/// targets.
///
/// # Errors
/// When a directory holds several trainings.
pub fn trainings(given: &[PathBuf], targets: &mut Vec<PathBuf>) -> Result<Vec<Steps>> {
    let mut trainings = Vec::new();
    for directory in given {
        let Some(mut steps) = training_in(directory)? else {
            continue;
        };
        let have_steps = steps.iter().all(|found| found.step.is_some());
        if steps.len() < 2 || !have_steps {
            continue;
        }
        let is_of_it = |target: &PathBuf| {
            target == directory || steps.iter().any(|found| found.path == *target)
        };
        let at = targets.iter().position(is_of_it).unwrap_or(targets.len());
        targets.retain(|target| !is_of_it(target));
        if let Some(last) = steps.pop() {
            targets.insert(at.min(targets.len()), last.path.clone());
            trainings.push(Steps {
                last: last.path,
                before: steps,
            });
        }
    }
    Ok(trainings)
}

/// Judges one step by some checks, given by their ids.
pub type JudgeStep<'a> = dyn FnMut(&Path, &[&str]) -> Result<TargetVerdict> + 'a;

/// A finding of the last step whose beginning is looked for.
struct Open {
    check: &'static Check,
    finding: Finding,
    /// The earliest step that has it so far; `None` for the last step.
    begins: Option<Found>,
}

impl Steps {
    /// One line for each finding of the last step: the step at which it began, and by how much its statistic moved there.
    ///
    /// `judge` judges one step by some checks.
    pub fn begins(
        &self,
        session: &Session<'_>,
        verdict: &TargetVerdict,
        judge: &mut JudgeStep<'_>,
    ) -> Vec<String> {
        let mut open: Vec<Open> = Vec::new();
        for (check, verdict) in &verdict.verdicts {
            for finding in &verdict.findings {
                open.push(Open {
                    check,
                    finding: finding.clone(),
                    begins: None,
                });
            }
        }
        let mut lines = Vec::new();
        for step in self.before.iter().rev() {
            if open.is_empty() {
                break;
            }
            let wanted: Vec<&str> = open.iter().map(|open| open.check.id).collect();
            let Ok(verdict) = judge(&step.path, &wanted) else {
                lines.push(format!("{}: could not be judged", label(Some(step))));
                continue;
            };
            let mut still = Vec::new();
            for mut of in open {
                let mut now = verdict
                    .verdicts
                    .iter()
                    .filter(|(check, _)| check.id == of.check.id);
                let findings = now.next().map_or(&[][..], |(_, verdict)| &verdict.findings);
                match findings
                    .iter()
                    .find(|finding| finding.place.is_same_head(&of.finding.place))
                {
                    Some(finding) => {
                        of.finding = finding.clone();
                        of.begins = Some(step.clone());
                        still.push(of);
                    }
                    None => lines.push(self.began(session, &of, Some(step))),
                }
            }
            open = still;
        }
        lines.extend(open.iter().map(|of| self.began(session, of, None)));
        lines
    }

    /// `before` is the step without the finding, where there is one.
    fn began(&self, session: &Session<'_>, of: &Open, before: Option<&Found>) -> String {
        let place = match of.finding.place.layer_idx {
            Some(_) => format!(" {}", of.finding.place),
            None => String::new(),
        };
        let Some(before) = before else {
            return format!("{}{place} is there since the first step", of.check.id);
        };
        let last = crate::history::alone(&self.last);
        let step = label(of.begins.as_ref().or(Some(&last)));
        let now = crate::report::digits(of.finding.value);
        let moved = match was(session, of, before) {
            Some(was) => format!("{} → {now}", crate::report::digits(was)),
            None => now,
        };
        format!("{}{place} begins at {step} ({moved})", of.check.id)
    }
}

fn label(found: Option<&Found>) -> String {
    match found.map(|found| (found.step, &found.name)) {
        Some((Some(step), _)) => format!("step {step}"),
        Some((None, name)) => name.clone(),
        None => String::new(),
    }
}

/// The statistic of a finding at a step that does not have the finding.
fn was(session: &Session<'_>, of: &Open, before: &Found) -> Option<f64> {
    let line = LINES.iter().find(|line| {
        line.check == of.check.id && matches!(line.scope, Scope::Heads | Scope::Layers)
    })?;
    let reading = read(session, before).ok()?;
    let cell = reading.grid.cell(&of.finding.place)?;
    let nth = attnscope_engine::stats::index_of(line.statistic)?;
    let value = reading
        .numbers
        .values
        .get(nth * reading.grid.n_cells() + cell)?;
    Some(f64::from(*value))
}
