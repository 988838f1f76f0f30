//! Finds the step at which each finding of a training's last step began, and the resulting severity: earlier steps are judged
//! from the newest back, as long as the beginning of a finding is unknown.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use anyhow::Result;
use attnscope_checks::{Check, Finding, Place, Thresholds};
use attnscope_compute::error::Error;
use attnscope_history::{
    Found, History, Judge, LINES, Line, LossReader, Origin, Reading, Scope, Update,
};
use attnscope_report::{Note, Onset, TargetVerdict};

use super::targets::training_in;

/// A training among the targets: its last step, which is judged, and the earlier steps in order.
#[derive(Debug, Clone)]
pub struct Steps {
    pub last: PathBuf,
    before: Vec<Found>,
}

/// Finds trainings among some paths: directories whose checkpoints all have a step. Removes their earlier steps from the
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

/// Callbacks that judge and run steps.
pub struct Asking<'a> {
    /// Judges one step by the checks with the given ids.
    pub judge: &'a mut dyn FnMut(&Path, &[&str]) -> Result<TargetVerdict>,
    /// Runs the prompts through one step.
    pub read: &'a mut dyn FnMut(&Found) -> Result<Reading, Error>,
}

/// A finding of the last step whose beginning is not known yet.
struct Open {
    check: &'static Check,
    finding: Finding,
    /// The earliest step known to have it; `None` for the last step.
    begins: Option<Found>,
}

/// A finding whose beginning is known.
struct Began {
    check: &'static str,
    places: Vec<Place>,
    /// Position of the step among all.
    order: usize,
    /// The step, and how far the statistic moved there; `None` if the first step has the finding.
    at: Option<(String, String)>,
}

impl Steps {
    /// Adds to the last step's verdict when each finding began, in one line for those that began together, and adjusts severities
    /// like a history: a collapse from healthy values is worse than a finding present from the start.
    pub fn judge(
        &self,
        verdict: &mut TargetVerdict,
        asking: &mut Asking<'_>,
        thresholds: &Thresholds,
    ) {
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
        let (mut began, mut earliest): (Vec<Began>, Option<usize>) = (Vec::new(), None);
        let mut read: BTreeMap<usize, Reading> = BTreeMap::new();
        for (step_idx, step) in self.before.iter().enumerate().rev() {
            if open.is_empty() {
                break;
            }
            let wanted: Vec<&str> = open.iter().map(|open| open.check.id).collect();
            let Ok(then) = (asking.judge)(&step.path, &wanted) else {
                let text = format!("{}: could not be judged", label(Some(step)));
                verdict.notes.push(text.into());
                continue;
            };
            let mut still = Vec::new();
            for mut of in open {
                let mut now = then
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
                    None => {
                        if line_of(&of).is_some() {
                            earliest = Some(step_idx);
                            if let Entry::Vacant(vacant) = read.entry(step_idx)
                                && let Ok(reading) = (asking.read)(step)
                            {
                                vacant.insert(reading);
                            }
                        }
                        let was = read.get(&step_idx).and_then(|reading| was(reading, &of));
                        self.add(&mut began, &of, Some(was));
                    }
                }
            }
            open = still;
        }
        for of in &open {
            self.add(&mut began, of, None);
        }
        verdict.notes.extend(began.iter().map(Began::note));
        if let Some(from) = earliest {
            self.weigh(verdict, from, read, asking, thresholds);
        }
    }

    /// Adds a finding to those that began at the same step. `was` is its statistic at the step before; `None` if the first
    /// step has the finding.
    fn add(&self, began: &mut Vec<Began>, of: &Open, was: Option<Option<f64>>) {
        let last = attnscope_history::alone(&self.last);
        let step = label(of.begins.as_ref().or(Some(&last)));
        let now = attnscope_report::digits(of.finding.value);
        let at = was.map(|was| {
            let moved = match was {
                Some(was) => format!("{} → {now}", attnscope_report::digits(was)),
                None => now,
            };
            (step, moved)
        });
        let place = of.finding.place.layer_idx.map(|_| of.finding.place);
        let is_step = |step: &Found| of.begins.as_ref().is_some_and(|at| at.path == step.path);
        let order = match of.begins {
            Some(_) => self.before.iter().position(is_step).unwrap_or(0),
            None => self.before.len(),
        };
        let is_with = |known: &&mut Began| {
            let step = |at: &Option<(String, String)>| at.as_ref().map(|(step, _)| step.clone());
            known.check == of.check.id && step(&known.at) == step(&at)
        };
        match began.iter_mut().find(is_with) {
            Some(known) => known.places.extend(place),
            None => began.push(Began {
                check: of.check.id,
                places: place.into_iter().collect(),
                order,
                at,
            }),
        }
    }

    /// Raises findings of the last step to the severity that a history gives them, if that is worse.
    fn weigh(
        &self,
        verdict: &mut TargetVerdict,
        from: usize,
        mut read: BTreeMap<usize, Reading>,
        asking: &mut Asking<'_>,
        thresholds: &Thresholds,
    ) {
        let last = attnscope_history::alone(&self.last);
        let steps: Vec<&Found> = self.before[from..].iter().chain([&last]).collect();
        let mut history = History::new(String::new(), Origin::Checkpoints);
        let found = |step: &&Found| (step.path.clone(), step.name.clone(), step.step);
        history.apply(Update::Found(steps.iter().map(found).collect()));
        let steps: Vec<Found> = steps.into_iter().cloned().collect();
        let logged = LossReader::read_all(&steps);
        logged.notes.iter().for_each(|note| log::warn!("{note}"));
        history.apply(Update::Losses(logged.losses.unwrap_or_default()));
        for (nth, step) in steps.iter().enumerate() {
            let known = read.remove(&(from + nth));
            match known.map_or_else(|| (asking.read)(step), Ok) {
                Ok(reading) => {
                    history.apply(Update::Read(step.path.clone(), Box::new(reading)));
                }
                Err(e) => log::warn!("{}: {e}", step.name),
            }
        }
        let mut judge = Judge::new(thresholds.clone());
        judge.look(&history);
        let lasting = judge.findings().iter().filter(|found| found.end.is_none());
        for known in lasting {
            let findings = verdict
                .verdicts
                .iter_mut()
                .filter(|(check, _)| check.id == known.check)
                .flat_map(|(_, verdict)| &mut verdict.findings);
            for finding in findings {
                if finding.place.is_same_head(&known.place) && finding.severity < known.severity {
                    finding.severity = known.severity;
                    finding.evidence.push_str("; ");
                    finding.evidence.push_str(&known.why);
                }
            }
        }
    }
}

impl Began {
    fn note(&self) -> Note {
        let step = self.at.as_ref().map(|(step, _)| step.clone());
        Note {
            text: self.told(),
            onset: Some(Onset {
                check: self.check,
                places: self.places.clone(),
                order: self.order,
                step: step.unwrap_or_else(|| "the first step".to_owned()),
                is_over: false,
            }),
        }
    }

    fn told(&self) -> String {
        /// Most places named.
        const MOST: usize = 5;
        let Self {
            check, places, at, ..
        } = self;
        let named = places.iter().take(MOST).map(Place::to_string);
        let named = named.collect::<Vec<_>>();
        let named = match places.len().saturating_sub(MOST) {
            0 => named.join(", "),
            n => format!("{} and {n} more", named.join(", ")),
        };
        let what = format!("{check} {named}");
        let what = what.trim_end();
        let is_one = places.len() <= 1;
        match at {
            Some((step, moved)) if is_one => format!("{what} begins at {step} ({moved})"),
            Some((step, moved)) => format!("{what} begin at {step} (the first {moved})"),
            None if is_one => format!("{what} is there since the first step"),
            None => format!("{what} are there since the first step"),
        }
    }
}

fn label(found: Option<&Found>) -> String {
    match found.map(|found| (found.step, &found.name)) {
        Some((Some(step), _)) => format!("step {step}"),
        Some((None, name)) => name.clone(),
        None => String::new(),
    }
}

/// Returns the history's threshold line for a finding.
fn line_of(of: &Open) -> Option<&'static Line> {
    LINES.iter().find(|line| {
        line.check == of.check.id && matches!(line.scope, Scope::Heads | Scope::Layers)
    })
}

/// Returns a finding's statistic at a step without the finding.
fn was(reading: &Reading, of: &Open) -> Option<f64> {
    let line = line_of(of)?;
    let cell = reading.grid.cell(&of.finding.place)?;
    let nth = attnscope_checks::stats::index_of(line.statistic)?;
    let value = reading
        .numbers
        .values
        .get(nth * reading.grid.n_cells() + cell)?;
    Some(f64::from(*value))
}
