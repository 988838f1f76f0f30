//! Events of a training: findings that are one collapse, told once, with a list of where each check found it.

use std::collections::BTreeMap;
use std::ops::Range;

use attnscope_checkpoint::counted::counted;
use attnscope_checks::Severity;
use attnscope_spec::Place;

use super::judge::Finding;
use super::lines::LINES;
use super::text::{beginning, grouped};
use super::value::History;

/// Findings of one check that begin at one step, as [`grouped`] groups them: the first of them, and the places of the others.
pub type Group<'a> = (&'a Finding, Vec<Place>);

/// One thing that happens to a training. A collapse reaches many heads by several checks; any other finding is an event of its own.
#[derive(Debug)]
pub struct Event<'a> {
    /// In order of the steps at which they begin; never empty.
    pub groups: Vec<Group<'a>>,
}

/// Places of this many heads are listed; more are counted.
const MOST_NAMED: usize = 4;

/// Combines findings into events: warnings and errors about the sharpness of heads are one collapse if their moves overlap in
/// time. The worst events come first, and of those the earliest.
pub fn events(findings: &[Finding]) -> Vec<Event<'_>> {
    let mut events: Vec<Event<'_>> = Vec::new();
    // The collapse that lasts, and the last record at which something of it began.
    let mut lasting: Option<(usize, usize)> = None;
    for group in grouped(findings) {
        let (finding, _) = &group;
        let since = finding.from.map_or(finding.begin, |(since, _)| since);
        match lasting.filter(|(_, until)| since <= *until) {
            Some((nth, until)) if is_of_collapse(finding) => {
                lasting = Some((nth, until.max(finding.begin)));
                events[nth].groups.push(group);
            }
            _ => {
                if is_of_collapse(finding) {
                    lasting = Some((events.len(), finding.begin));
                }
                events.push(Event {
                    groups: vec![group],
                });
            }
        }
    }
    events.sort_by_key(|event| (std::cmp::Reverse(event.severity()), event.first().begin));
    events
}

/// Whether a finding says that a head is too sharp.
fn is_of_collapse(finding: &Finding) -> bool {
    let mut lines = LINES.iter();
    let line =
        lines.find(|line| (line.check, line.statistic) == (finding.check, finding.statistic));
    finding.severity > Severity::Info && line.is_some_and(|line| line.is_of_sharpness())
}

impl<'a> Event<'a> {
    /// Returns the worst severity of its findings.
    pub fn severity(&self) -> Severity {
        let severities = self.groups.iter().map(|(finding, _)| finding.severity);
        severities.max().unwrap_or(Severity::Info)
    }

    /// Returns the finding that began first.
    pub fn first(&self) -> &'a Finding {
        self.groups[0].0
    }

    /// Returns the finding whose reasons speak for the event: the earliest of the worst ones.
    pub fn worst(&self) -> &'a Finding {
        let severity = self.severity();
        let mut findings = self.groups.iter().map(|(finding, _)| *finding);
        let worst = findings.find(|finding| finding.severity == severity);
        worst.unwrap_or_else(|| self.first())
    }

    /// Whether it combines several groups of findings.
    pub fn is_collapse(&self) -> bool {
        self.groups.len() > 1
    }

    /// Sums the event up in one line: `collapse of all 8 heads between step 250 and step 400, first in L1H0`.
    pub fn line(&self, history: &History) -> String {
        let (first, others) = &self.groups[0];
        if !self.is_collapse() {
            return beginning(history, first, others);
        }
        let label = |idx: usize| history.records()[idx].label();
        let heads = cells(history, &self.groups);
        let what = match (heads.len(), history.grid().n_heads()) {
            (1, _) => first.place.to_string(),
            (n, n_all) if n == n_all => format!("all {n} heads"),
            (n, n_all) => format!("{n} of {n_all} heads"),
        };
        let begins = self.groups.iter().map(|(finding, _)| finding.begin);
        let last = begins.max().unwrap_or(first.begin);
        let when = if last == first.begin {
            format!("at {}", label(last))
        } else {
            format!("between {} and {}", label(first.begin), label(last))
        };
        let at_once = self.groups.iter();
        let at_once = at_once.take_while(|(finding, _)| finding.begin == first.begin);
        let at_first = cells(history, &self.groups[..at_once.count()]);
        let ends = self.groups.iter().map(|(finding, _)| finding.end);
        let ends: Option<Vec<usize>> = ends.collect();
        let ended = ends.and_then(|ends| ends.into_iter().max());
        let ended = ended.map_or(String::new(), |end| format!(", ends at {}", label(end)));
        let first = if at_first.len() == heads.len() {
            String::new()
        } else {
            format!(", first in {}", named(history, &at_first))
        };
        format!("collapse of {what} {when}{first}{ended}")
    }

    /// Lists where each check found it, one line per check; empty for an event of one group.
    pub fn lists(&self, history: &History) -> Vec<String> {
        if !self.is_collapse() {
            return Vec::new();
        }
        let mut by_check: BTreeMap<usize, (&'static str, Vec<String>)> = BTreeMap::new();
        for group in &self.groups {
            let (finding, _) = group;
            let order = LINES.iter().position(|line| line.check == finding.check);
            let (_, listed) = by_check
                .entry(order.unwrap_or(LINES.len()))
                .or_insert((finding.check, Vec::new()));
            let record = &history.records()[finding.begin];
            let at = record
                .step
                .map_or_else(|| record.label(), |step| step.to_string());
            let heads = cells(history, std::slice::from_ref(group));
            listed.push(format!("{} at {at}", named(history, &heads)));
        }
        let width = by_check.values().map(|(check, _)| check.len()).max();
        let width = width.unwrap_or(0);
        by_check
            .into_values()
            .map(|(check, listed)| format!("{check:<width$}  {}", listed.join(", ")))
            .collect()
    }
}

/// The cells of the heads in some groups, in order.
fn cells(history: &History, groups: &[Group<'_>]) -> Vec<usize> {
    let places = groups.iter().flat_map(|(finding, others)| {
        let others = others.iter().filter_map(|place| history.grid().cell(place));
        std::iter::once(finding.cell).chain(others)
    });
    let mut cells: Vec<usize> = places.collect();
    cells.sort_unstable();
    cells.dedup();
    cells
}

/// Names heads: a layer whose heads are all among them by its own name, neighbours as a range, many by their number.
fn named(history: &History, heads: &[usize]) -> String {
    let grid = history.grid();
    let of_layers = heads.chunk_by(|a, b| grid.layer_of(*a) == grid.layer_of(*b));
    let names = of_layers.flat_map(|heads| {
        let layer = grid.layer_of(heads[0]);
        let whole = grid.heads_of(layer);
        if heads.len() > 1 && heads.len() == whole.len() {
            return vec![grid.layers()[layer].place().to_string()];
        }
        let name = |run: Range<usize>| match run.len() {
            1 => grid.place(run.start).to_string(),
            _ => format!("{}-{}", grid.place(run.start), run.end - 1 - whole.start),
        };
        runs(heads).into_iter().map(name).collect()
    });
    let names: Vec<String> = names.collect();
    if names.len() > MOST_NAMED {
        return counted(heads.len(), "head");
    }
    names.join(", ")
}

/// Splits sorted numbers into ranges of neighbours.
fn runs(numbers: &[usize]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == *number => run.end += 1,
            _ => runs.push(*number..number + 1),
        }
    }
    runs
}
