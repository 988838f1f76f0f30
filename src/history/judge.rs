//! Findings of a history: what begins and ends at which step, how far it moved, and trends towards thresholds.

use std::collections::BTreeMap;

use attnscope_checks::stats::STATISTICS;
use attnscope_checks::weight::SeverityDecision;
use attnscope_checks::{Severity, Thresholds};
use attnscope_spec::Place;

use super::change_point::{self, ChangePoint, change_point};
use super::crossing::Crossing;
use super::lines::{LINES, Line, Scope};
use super::masks::{self, MaskFollower};
use super::moved::moved_from;
use super::onset::Follower;
use super::record::is_unknown;
use super::shifts::Shifts;
use super::standing::{WRONG_AXIS, standing};
use super::strays::strays;
use super::trend::{self, Trend};
use super::value::{History, Origin};
use super::weigh::weigh;

/// A finding of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub check: &'static str,
    pub severity: Severity,
    pub place: Place,
    /// Cell in the grid.
    pub cell: usize,
    pub statistic: &'static str,
    pub threshold: f64,
    /// The record at which it begins, and the value there.
    pub begin: usize,
    pub to: f64,
    /// The record at which it ends; `None` if it has not ended.
    pub end: Option<usize>,
    /// The record where the statistic's move began, and the value there.
    pub from: Option<(usize, f64)>,
    /// What changed in words, where that says more than the values: `causal → window 16`.
    pub changed: Option<String>,
    /// The record before this finding where some statistic of the place first had a trend towards a line, and that statistic.
    pub warned: Option<Warned>,
    /// Reason for the severity.
    pub why: String,
    pub advice: &'static str,
}

/// A record with a trend towards a line, and the statistic.
type Warned = (usize, &'static str);

/// The check for values that are not finite.
const BROKEN: &str = "nan-or-inf";

/// Number of records before a finding that are searched for the first warning.
const WARNED_WITHIN: usize = 64;

/// Judges a history as it grows, and keeps its findings.
#[derive(Debug, Clone)]
pub struct Judge {
    thresholds: Thresholds,
    /// [line][series]
    followers: Vec<Vec<Follower>>,
    /// Changes of level from one record to the next.
    shifts: Shifts,
    /// Masks of heads that change.
    masks: MaskFollower,
    /// Ranges of records with values that are not finite.
    broken: Vec<Broken>,
    /// Whether a value was finite before. // [column × cells]
    was_finite: Vec<bool>,
    /// Number of records judged, and the history's epoch then.
    n_seen: usize,
    seen: Option<(u64, u64)>,
    /// Cached first warnings, by line, series and first record.
    warned: BTreeMap<(usize, usize, usize), Option<Warned>>,
    findings: Vec<Finding>,
    trends: Vec<Trend>,
}

#[derive(Debug, Clone, Copy)]
struct Broken {
    begin: usize,
    end: Option<usize>,
    cell: Option<usize>,
    statistic: &'static str,
    n: usize,
    value: f64,
}

impl Judge {
    pub fn new(thresholds: Thresholds) -> Self {
        Self {
            thresholds,
            followers: Vec::new(),
            shifts: Shifts::default(),
            masks: MaskFollower::default(),
            broken: Vec::new(),
            was_finite: Vec::new(),
            n_seen: 0,
            seen: None,
            warned: BTreeMap::new(),
            findings: Vec::new(),
            trends: Vec::new(),
        }
    }

    pub fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Returns the findings in order of the steps at which they begin; the worst first at the same step.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the trends towards a line at the last record.
    pub fn trends(&self) -> &[Trend] {
        &self.trends
    }

    /// Judges new records; does nothing if the history has not changed. Returns whether anything changed.
    pub fn look(&mut self, history: &History) -> bool {
        let now = (history.epoch(), history.revision());
        if self.seen == Some(now) {
            return false;
        }
        if self.seen.is_none_or(|(epoch, _)| epoch != now.0)
            || self.followers.is_empty()
            || self.n_seen > history.records().len()
        {
            *self = Self::new(self.thresholds.clone());
            let followers = LINES
                .iter()
                .map(|line| vec![Follower::default(); line.n_units(history)]);
            self.followers = followers.collect();
        }
        self.seen = Some(now);
        if history.grid().layers().is_empty() {
            // The shapes are not known yet.
            self.followers.clear();
            return true;
        }
        let n = history.records().len();
        for record_idx in self.n_seen..n {
            if history.records()[record_idx].numbers.is_some() {
                self.take(history, record_idx);
            }
        }
        // Checkpoints at the end that are not read yet are judged later.
        self.n_seen = match history
            .records()
            .iter()
            .rposition(|record| record.numbers.is_some())
        {
            Some(last) => last + 1,
            None => 0,
        };
        self.findings = self.found(history);
        self.trends = self.on_their_way(history);
        true
    }

    fn take(&mut self, history: &History, record_idx: usize) {
        let needs_two = history.origin == Origin::Log;
        for (line, followers) in LINES.iter().zip(&mut self.followers) {
            let at = line.at(&self.thresholds);
            if history.column(line.statistic).is_none() {
                continue;
            }
            for (unit, follower) in followers.iter_mut().enumerate() {
                let value = line.value(history, record_idx, unit);
                follower.take(record_idx, value, line, at, needs_two);
            }
        }
        if needs_two {
            self.shifts.take(history, record_idx);
            self.masks.take(history, record_idx);
        }
        self.look_for_broken(history, record_idx);
    }

    /// Looks for values that are no longer finite, and a loss that is not a number.
    fn look_for_broken(&mut self, history: &History, record_idx: usize) {
        let Some(numbers) = &history.records()[record_idx].numbers else {
            return;
        };
        let n_cells = history.grid().n_cells();
        self.was_finite.resize(numbers.values.len(), false);
        let (mut n, mut first) = (0, None);
        for (at, value) in numbers.values.iter().enumerate() {
            let was_finite = &mut self.was_finite[at];
            if value.is_finite() {
                *was_finite = true;
            } else if *was_finite && !is_unknown(*value) {
                n += 1;
                first.get_or_insert((at, f64::from(*value)));
            }
        }
        let losses = [numbers.loss, history.training_loss(record_idx)].into_iter();
        let loss = losses.flatten().find(|loss| !loss.is_finite());
        let found = match (loss, first) {
            (None, None) => None,
            (Some(loss), _) => Some((None, "loss", loss)),
            (None, Some((at, value))) => {
                let statistic = history.statistics()[at / n_cells];
                Some((Some(at % n_cells), STATISTICS[statistic].id, value))
            }
        };
        let lasting = self.broken.last_mut().filter(|broken| broken.end.is_none());
        match (lasting, found) {
            (None, Some((cell, statistic, value))) => self.broken.push(Broken {
                begin: record_idx,
                end: None,
                cell,
                statistic,
                n,
                value,
            }),
            (Some(broken), None) => broken.end = Some(record_idx),
            _ => {}
        }
    }

    fn found(&mut self, history: &History) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self
            .broken
            .iter()
            .map(|broken| of_broken(history, broken))
            .collect();
        for (nth_line, line) in LINES.iter().enumerate() {
            let at = line.at(&self.thresholds);
            let mut crossings = Vec::new();
            for (unit, follower) in self.followers[nth_line].iter().enumerate() {
                for stretch in follower.stretches() {
                    crossings.push(Crossing {
                        unit,
                        cell: line.cell(history, unit),
                        begin: stretch.begin,
                        to: line.value(history, stretch.begin, unit),
                        end: stretch.end,
                        is_confirmed: stretch.is_confirmed,
                        from: moved_from(history, line, unit, stretch.begin, &self.thresholds),
                    });
                }
            }
            let lasting: Vec<usize> = self.followers[nth_line]
                .iter()
                .enumerate()
                .filter(|(_, follower)| follower.lasts())
                .map(|(unit, _)| history.grid().layer_of(line.cell(history, unit)))
                .collect();
            for crossing in crossings {
                let layer = history.grid().layer_of(crossing.cell);
                let n_beyond = lasting.iter().filter(|of| **of == layer).count();
                let n_layer = (n_beyond, history.grid().layers()[layer].n_heads);
                let weight = weigh(history, line, &crossing, n_layer, &self.thresholds);
                let Some(SeverityDecision { severity, why }) = weight else {
                    continue;
                };
                let key = (nth_line, crossing.unit, crossing.begin);
                let warned = match self.warned.get(&key) {
                    Some(known) => *known,
                    None => {
                        let warned =
                            first_warning(history, crossing.cell, crossing.begin, &self.thresholds);
                        self.warned.insert(key, warned);
                        warned
                    }
                };
                findings.push(Finding {
                    check: line.check,
                    severity,
                    place: history.grid().place(crossing.cell),
                    cell: crossing.cell,
                    statistic: line.statistic,
                    threshold: at,
                    begin: crossing.begin,
                    to: crossing.to,
                    end: crossing.end,
                    from: crossing.from,
                    changed: None,
                    warned,
                    why,
                    advice: line.advice,
                });
            }
        }
        let changes = self.masks.changes();
        // What begins or ends there says why a layer attends otherwise from there on.
        let found = findings.iter().map(|of| (of.cell, of.begin, of.end));
        let masked = changes
            .iter()
            .flat_map(|of| of.cells.iter().map(|cell| (*cell, of.begin, of.end)));
        let told = found.chain(masked).flat_map(|(cell, begin, end)| {
            let layer = history.grid().layer_of(cell);
            [Some(begin), end].map(move |at| at.map(|record_idx| (layer, record_idx)))
        });
        let told: Vec<(usize, usize)> = told.flatten().collect();
        let changed = masks::told(history, changes, &mut findings);
        findings.extend(changed);
        let mut shifts = self.shifts.findings(history);
        shifts.retain(|found| {
            let mut known = findings.iter();
            !known.any(|of| (of.check, of.cell, of.begin) == (found.check, found.cell, found.begin))
        });
        shifts.retain(|found| {
            let at = (history.grid().layer_of(found.cell), found.begin);
            found.severity > Severity::Info || found.statistic == "loss" || !told.contains(&at)
        });
        findings.extend(shifts);
        let mut standing = standing(history, &self.thresholds);
        // What begins at some record is told there.
        standing.retain(|of| {
            !findings
                .iter()
                .any(|found| (found.check, found.cell) == (of.check, of.cell))
        });
        // Rows that do not sum to 1 have no entropy: nothing else about them is not finite.
        let axes = standing.iter().filter(|found| found.check == WRONG_AXIS);
        let axes: Vec<usize> = axes.map(|found| found.begin).collect();
        findings.retain(|found| {
            found.check != BROKEN || found.statistic == "loss" || !axes.contains(&found.begin)
        });
        findings.extend(standing);
        if history.origin == Origin::Checkpoints {
            findings.extend(strays(history));
        }
        findings.sort_by(|a, b| {
            (a.begin, std::cmp::Reverse(a.severity), a.cell).cmp(&(
                b.begin,
                std::cmp::Reverse(b.severity),
                b.cell,
            ))
        });
        findings
    }

    fn on_their_way(&self, history: &History) -> Vec<Trend> {
        let Some(last) = history
            .records()
            .iter()
            .rposition(|record| record.numbers.is_some())
        else {
            return Vec::new();
        };
        let mut trends = Vec::new();
        for (line, followers) in LINES.iter().zip(&self.followers) {
            for (unit, follower) in followers.iter().enumerate() {
                if !follower.lasts() {
                    trends.extend(trend_at(history, line, unit, last, &self.thresholds));
                }
            }
        }
        trends
    }
}

fn of_broken(history: &History, broken: &Broken) -> Finding {
    let place = broken
        .cell
        .map_or(Place::MODEL, |cell| history.grid().place(cell));
    let others = match broken.n {
        0 | 1 => String::new(),
        n => format!("; {n} values are not finite"),
    };
    Finding {
        check: BROKEN,
        severity: Severity::Error,
        place,
        cell: broken.cell.unwrap_or(0),
        statistic: broken.statistic,
        threshold: 0.0,
        begin: broken.begin,
        to: broken.value,
        end: broken.end,
        from: None,
        changed: None,
        warned: None,
        why: format!("{} was finite before{others}", broken.statistic),
        advice: "go back to a checkpoint before it, lower the learning rate, and look for overflow in half precision",
    }
}

/// Returns steps and values of a series up to a record, without unknown values.
fn points(history: &History, line: &Line, unit: usize, last: usize) -> Vec<(f64, f64)> {
    const MOST: usize = 32;
    let mut points = Vec::with_capacity(MOST);
    for idx in (0..=last).rev() {
        let value = line.value(history, idx, unit);
        if history.records()[idx].numbers.is_some() && !value.is_nan() {
            points.push((history.x(idx), value));
        }
        if points.len() == MOST || last - idx > 4 * MOST {
            break;
        }
    }
    points.reverse();
    points
}

fn trend_at(
    history: &History,
    line: &Line,
    unit: usize,
    last: usize,
    thresholds: &Thresholds,
) -> Option<Trend> {
    // Shares of a few heads jump, and a head's output relative to the median has no meaningful trend.
    if !matches!(line.scope, Scope::Heads | Scope::Layers) || !line.is_fault || line.leak.is_some()
    {
        return None;
    }
    let cell = line.cell(history, unit);
    if line.value(history, last, unit).is_nan()
        || line.design(history, last, cell, thresholds).is_some()
    {
        return None;
    }
    let threshold = line.at(thresholds);
    let points = points(history, line, unit, last);
    let fit = trend::towards(&points, line, threshold)?;
    let first = points[points.len() - fit.n].0;
    let before = (0..=last).rev().take_while(|idx| history.x(*idx) >= first);
    let since = before.last().unwrap_or(last);
    Some(Trend {
        check: line.check,
        statistic: line.statistic,
        place: history.grid().place(cell),
        cell,
        at: last,
        since,
        now: fit.now,
        threshold,
        slope: fit.slope,
        is_ratio: line.is_ratio,
        crosses: fit.crosses,
        between: fit.between,
    })
}

/// Returns the first record before a finding where a statistic of its place had a trend towards a line, if such a trend
/// lasted until the finding or shortly before it.
fn first_warning(
    history: &History,
    cell: usize,
    begin: usize,
    thresholds: &Thresholds,
) -> Option<Warned> {
    let of_cell = LINES.iter().filter(|line| {
        let is_head = cell < history.grid().n_heads();
        line.scope == if is_head { Scope::Heads } else { Scope::Layers }
    });
    let mut first: Option<Warned> = None;
    for line in of_cell.filter(|line| history.column(line.statistic).is_some()) {
        let unit = (0..line.n_units(history)).find(|unit| line.cell(history, *unit) == cell)?;
        for idx in begin.saturating_sub(WARNED_WITHIN)..begin {
            if first.is_some_and(|(known, _)| known <= idx) {
                break;
            }
            if trend_at(history, line, unit, idx, thresholds).is_some() {
                first = Some((idx, line.statistic));
            }
        }
    }
    first
}

/// Tests whether the level of a finding's statistic changed near its beginning, at a stated false-alarm rate; returns the first
/// record of the new level. `None` also if there are too few records.
pub fn change_of(history: &History, finding: &Finding) -> Option<ChangePoint> {
    let line = LINES
        .iter()
        .find(|line| line.check == finding.check && line.statistic == finding.statistic)?;
    let unit = (0..line.n_units(history)).find(|unit| line.cell(history, *unit) == finding.cell)?;
    let half = change_point::MOST / 2;
    let known = |idx: &usize| {
        let value = line.value(history, *idx, unit);
        (!value.is_nan()).then_some((*idx, value))
    };
    let begin = finding.from.map_or(finding.begin, |(from, _)| from + 1);
    let mut before: Vec<(usize, f64)> = (0..begin)
        .rev()
        .filter_map(|idx| known(&idx))
        .take(half)
        .collect();
    before.reverse();
    let after = (begin..history.records().len()).filter_map(|idx| known(&idx));
    before.extend(after.take(half));
    let values: Vec<f64> = before.iter().map(|(_, value)| *value).collect();
    let found = change_point(&values)?;
    Some(ChangePoint {
        at: before[found.at].0,
        ..found
    })
}
