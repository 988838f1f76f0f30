//! The lines of the Checks panel: findings that are alike on one line that unfolds, then the checks without findings.

use attnscope_checks::{Check, Finding, Verdict};
use attnscope_report::{Group, grouped};

use super::checks::judgement;
use super::checks_counts::{rank, words};
use super::checks_sides::both_findings;
use crate::state::filter::{List, Row};
use crate::state::find::{Item, Target};
use crate::state::scene::Scene;
use crate::state::views::{Fold, Sides};

/// One line of the list.
pub enum Entry<'a> {
    /// Findings that are alike; with a filter, those that match.
    Group {
        group: Group<'a, Finding>,
        fold: Fold,
        sides: Option<Sides>,
    },
    Finding {
        finding: &'a Finding,
        /// Which of two runs have it, when the screen shows the difference.
        sides: Option<Sides>,
        /// The line of the group that it belongs to.
        group_idx: Option<usize>,
    },
    /// A check without findings.
    Check(&'static Check, &'a Verdict),
}

impl<'a> Entry<'a> {
    /// The finding, or the worst one of the group, and which runs have it.
    pub fn finding(&self) -> Option<(&'a Finding, Option<Sides>)> {
        match self {
            Self::Group { group, sides, .. } => Some((group.worst, *sides)),
            Self::Finding { finding, sides, .. } => Some((*finding, *sides)),
            Self::Check(..) => None,
        }
    }
}

/// The lines of the list.
pub struct Lines<'a> {
    /// All lines, in the order that they have with every group unfolded.
    pub all: Vec<Entry<'a>>,
    /// Indices of the lines that are neither folded nor filtered away.
    pub shown: Vec<usize>,
    /// Which of the shown lines is selected.
    pub at: usize,
}

impl<'a> Lines<'a> {
    pub fn selected(&self) -> Option<&Entry<'a>> {
        self.all.get(*self.shown.get(self.at)?)
    }

    /// Whether findings say which of two runs have them.
    pub fn has_sides(&self) -> bool {
        let first = self.all.first().and_then(Entry::finding);
        first.is_some_and(|(_, sides)| sides.is_some())
    }
}

/// Adds findings that are alike: one alone, or the line of their group and a line for each.
fn add_group<'a>(group: Group<'a, Finding>, sides: Option<Sides>, to: &mut Vec<Entry<'a>>) {
    if let [finding] = group.all[..] {
        to.push(Entry::Finding {
            finding,
            sides,
            group_idx: None,
        });
        return;
    }
    let group_idx = to.len();
    let members = group.all.clone();
    to.push(Entry::Group {
        fold: Fold::of(group.worst, sides),
        group,
        sides,
    });
    to.extend(members.into_iter().map(|finding| Entry::Finding {
        finding,
        sides,
        group_idx: Some(group_idx),
    }));
}

/// All lines with every group unfolded: findings, then checks that were not run, then the other checks without findings.
fn all(app: Scene<'_>) -> Vec<Entry<'_>> {
    let mut all = Vec::new();
    match both_findings(app) {
        Some(both) => {
            for sides in [Sides::OnlyB, Sides::OnlyA, Sides::Both] {
                let of = both.iter().filter(|(_, of)| *of == sides);
                let groups = grouped(of.map(|(finding, _)| *finding)).into_iter();
                groups.for_each(|group| add_group(group, Some(sides), &mut all));
            }
        }
        None => {
            let groups = grouped(app.findings()).into_iter();
            groups.for_each(|group| add_group(group, None, &mut all));
        }
    }
    let Some(judgement) = judgement(app) else {
        return all;
    };
    let verdicts = judgement.verdicts.iter();
    let quiet = verdicts.filter(|(_, verdict)| verdict.findings.is_empty());
    let mut quiet: Vec<(&'static Check, &Verdict)> =
        quiet.map(|(check, verdict)| (*check, verdict)).collect();
    quiet.sort_by_key(|(_, verdict)| rank(verdict));
    let checks = quiet.into_iter();
    all.extend(checks.map(|(check, verdict)| Entry::Check(check, verdict)));
    all
}

/// The lines, as groups are unfolded and the list is filtered.
pub fn lines(app: Scene<'_>) -> Lines<'_> {
    let mut all = all(app);
    let keeps = |idx: usize| app.keeps(List::Findings, idx);
    // The line of a group is of the findings that the filter keeps, and one alone needs no such line.
    let mut n_kept = vec![0; all.len()];
    for (idx, entry) in all.iter_mut().enumerate() {
        if let Entry::Group { group, .. } = entry {
            let members = group.all.iter().enumerate();
            let kept = members.filter(|(nth, _)| keeps(idx + 1 + nth));
            let kept: Vec<&Finding> = kept.map(|(_, finding)| *finding).collect();
            n_kept[idx] = kept.len();
            if kept.len() < group.all.len()
                && let Some(fewer) = grouped(kept).pop()
            {
                *group = fewer;
            }
        }
    }
    let is_unfolded = |idx: usize| match &all[idx] {
        Entry::Group { fold, .. } => app.checks_view.unfolded.contains(fold),
        _ => true,
    };
    let is_shown = |idx: &usize| match &all[*idx] {
        Entry::Group { .. } => n_kept[*idx] > 1,
        Entry::Finding {
            group_idx: Some(group_idx),
            ..
        } => keeps(*idx) && (is_unfolded(*group_idx) || n_kept[*group_idx] == 1),
        Entry::Finding { .. } | Entry::Check(..) => keeps(*idx),
    };
    let shown: Vec<usize> = (0..all.len()).filter(is_shown).collect();
    let selected = app.checks_view.line_idx;
    let at = shown.partition_point(|idx| *idx <= selected);
    Lines {
        all,
        shown,
        at: at.saturating_sub(1),
    }
}

/// Findings and checks as the palette lists them.
pub fn palette_items(app: Scene<'_>) -> Vec<Item> {
    let of = |(idx, entry): (usize, &Entry<'_>)| match entry {
        Entry::Group { group, .. } => Item {
            about: group.seen(),
            ..Item::new(group.summary(), "findings", Target::Finding(idx))
        },
        Entry::Finding { finding, .. } => Item {
            about: finding.evidence.clone(),
            ..Item::new(
                format!("{} {}", finding.check, finding.place),
                "finding",
                Target::Finding(idx),
            )
        },
        Entry::Check(check, verdict) => Item {
            about: format!("{}: {}", words(verdict.status), verdict.why),
            ..Item::new(check.id, "check", Target::Finding(idx))
        },
    };
    all(app).iter().enumerate().map(of).collect()
}

/// The findings and checks as they are searched: check, place and severity, or what became of the check.
pub fn rows(app: Scene<'_>) -> Vec<Row> {
    let row = |(key, entry): (usize, &Entry<'_>)| {
        let text = match entry {
            // What is kept of a group are its findings.
            Entry::Group { .. } => return None,
            Entry::Finding { finding, .. } => {
                let severity = finding.severity.label();
                format!("{} {} {severity}", finding.check, finding.place)
            }
            Entry::Check(check, verdict) => format!("{} {}", check.id, words(verdict.status)),
        };
        Some(Row { key, text })
    };
    all(app).iter().enumerate().filter_map(row).collect()
}

/// Index of the first line about a check.
pub fn line_of(app: Scene<'_>, id: &str) -> Option<usize> {
    all(app).iter().position(|entry| match entry {
        Entry::Check(check, _) => check.id == id,
        _ => entry.finding().is_some_and(|(found, _)| found.check == id),
    })
}

/// The selected check, or that of the selected findings.
pub fn selected_check(app: Scene<'_>) -> Option<&'static Check> {
    let lines = lines(app);
    match lines.selected()? {
        Entry::Check(check, _) => Some(check),
        entry => attnscope_checks::find(entry.finding()?.0.check),
    }
}
