//! A monitor's log as a target of `check` and `report`: its last record is judged, and its records become a table.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attnscope_checkpoint::Opening;
use attnscope_checks::{CHECKS, Check, Finding, Needs, Place, Thresholds, Verdict};
use attnscope_compute::error::Error;
use attnscope_history::{
    Following, History, Judge, LINES, RereadQueue, Sources, beginning, grouped, is_checkpoint,
    on_its_way,
};
use attnscope_report::{Note, Onset, TargetVerdict};

use super::history_reading::{history_of, log_at};

/// Reason why checks that need more than head statistics do not run.
const NO_WEIGHTS: &str =
    "a monitor log holds statistics of heads: no weights to run, and no patterns";
/// The check that examines every value.
const BROKEN: &str = "nan-or-inf";

/// Returns the monitor's log at a target, or in a directory without checkpoints.
pub fn log_of(target: &Path) -> Option<PathBuf> {
    if target.is_dir() && is_checkpoint(target) {
        return None;
    }
    log_at(target, false).ok().flatten()
}

/// Reads a log to its end.
///
/// # Errors
/// When it is not a log, or has no records.
pub fn read_log(path: &Path) -> Result<History> {
    let sources = Sources::Log(path.to_path_buf());
    let mut history = history_of(&sources);
    let following = Following {
        sources,
        watches: false,
        rereads: false,
        cache: None,
        again: RereadQueue::default(),
        opening: Opening::default(),
    };
    following.run(&mut |_| Err(Error::Cancelled), &mut |updates| {
        updates.into_iter().for_each(|update| history.apply(update));
        ControlFlow::Continue(())
    })?;
    if history.records().is_empty() {
        bail!("{}: there is no record in it", path.display());
    }
    Ok(history)
}

/// Judges the last record of a log by the checks that its statistics allow, and notes when each finding began.
///
/// # Errors
/// As for [`read_log`].
pub fn judged(
    target: &Path,
    log: &Path,
    thresholds: &Thresholds,
    wants: &dyn Fn(&Check) -> bool,
) -> Result<TargetVerdict> {
    let history = read_log(log)?;
    let mut judge = Judge::new(thresholds.clone());
    judge.look(&history);
    let checks = CHECKS.iter().filter(|check| wants(check));
    let verdicts = checks.map(|check| (*check, verdict(check, &history, &judge)));
    let verdicts: Vec<(&'static Check, Verdict)> = verdicts.collect();
    let mut notes = vec![Note::from(attnscope_history::heading(&history))];
    notes.extend(history.notes.iter().cloned().map(Note::from));
    let wanted = judge.findings().iter().filter(|finding| {
        let is_wanted = |(check, _): &(&Check, Verdict)| check.id == finding.check;
        verdicts.iter().any(is_wanted)
    });
    let wanted: Vec<_> = wanted.cloned().collect();
    for (finding, others) in grouped(&wanted) {
        notes.push(Note {
            text: beginning(&history, finding, &others),
            onset: Some(Onset {
                check: finding.check,
                places: std::iter::once(finding.place)
                    .chain(others)
                    .filter(|place| *place != Place::MODEL)
                    .collect(),
                order: finding.begin,
                step: history.records()[finding.begin].label(),
                is_over: finding.end.is_some(),
            }),
        });
    }
    let trends = judge.trends().iter();
    let trends = trends.map(|trend| format!("trend: {}", on_its_way(&history, trend)));
    notes.extend(trends.map(Note::from));
    Ok(TargetVerdict {
        target: target.display().to_string(),
        what_if: Vec::new(),
        first: Vec::new(),
        notes,
        error: None,
        unread: Vec::new(),
        cover: Vec::new(),
        left_out: Vec::new(),
        next: None,
        verdicts,
    })
}

fn verdict(check: &Check, history: &History, judge: &Judge) -> Verdict {
    let mut lines = LINES.iter().filter(|line| line.check == check.id);
    let Some(line) = lines.next() else {
        if check.id == BROKEN {
            let otherwise = "every value of the last record that was finite before is finite";
            return Verdict::of(lasting(check, history, judge), otherwise);
        }
        if check.needs == Needs::History {
            let otherwise = "no sudden change lasts until the last record";
            return Verdict::of(lasting(check, history, judge), otherwise);
        }
        return Verdict::not_applicable(NO_WEIGHTS);
    };
    if history.column(line.statistic).is_none() {
        return Verdict::not_applicable(format!("the log does not record {}", line.statistic));
    }
    let otherwise = format!(
        "{} is beyond {} nowhere in the last record, or rightly so",
        line.statistic,
        attnscope_report::digits(line.at(judge.thresholds()))
    );
    Verdict::of(lasting(check, history, judge), otherwise)
}

/// Returns the findings of a check that have not ended at the last record.
fn lasting(check: &Check, history: &History, judge: &Judge) -> Vec<Finding> {
    let last = history.records().len() - 1;
    let open = judge.findings().iter();
    let open = open.filter(|finding| finding.check == check.id && finding.end.is_none());
    let findings = open.map(|finding| {
        let now = history.at(last, finding.statistic, finding.cell);
        Finding {
            check: check.id,
            severity: finding.severity,
            place: finding.place,
            value: if now.is_nan() { finding.to } else { now },
            threshold: finding.threshold,
            unit: "",
            evidence: format!("{}; {}", beginning(history, finding, &[]), finding.why),
            advice: finding.advice.to_owned(),
        }
    });
    findings.collect()
}
