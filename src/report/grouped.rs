//! Findings grouped for people: findings of one check at many heads become one entry that lists the heads.

use std::io::{self, Write};

use attnscope_checkpoint::counted::counted;
use attnscope_checks::{Needs, Severity, find};

use super::finding::{FindingRecord, PlaceRecord};
use super::plain::one_line;
use super::verdict_text::figure;

/// Most places named; the rest is counted.
const MOST_NAMED: usize = 8;

/// Findings of one check at different places.
pub struct Group<'a> {
    /// The finding furthest beyond its threshold.
    pub worst: &'a FindingRecord,
    /// All findings, in their original order.
    all: Vec<&'a FindingRecord>,
}

/// Kind of place: the whole model, a layer or a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Model,
    Layer,
    Head,
}

fn kind(place: &PlaceRecord) -> Kind {
    match (place.layer, place.head) {
        (None, _) => Kind::Model,
        (Some(_), None) => Kind::Layer,
        (Some(_), Some(_)) => Kind::Head,
    }
}

/// Whether two findings have the same threshold.
fn is_same_line(a: &FindingRecord, b: &FindingRecord) -> bool {
    a.threshold.0.total_cmp(&b.threshold.0).is_eq()
}

/// Whether a finding compares records of a training: its threshold is what the place had before.
fn is_of_history(finding: &FindingRecord) -> bool {
    find(&finding.check).is_some_and(|check| check.needs == Needs::History)
}

/// Groups findings by check, severity and kind of place, the worst severity first.
pub fn grouped<'a>(findings: impl IntoIterator<Item = &'a FindingRecord>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for finding in findings {
        let is_one = |group: &&mut Group<'_>| {
            let known = group.worst;
            // A check with two thresholds makes two groups.
            (&known.check, &known.severity, kind(&known.place))
                == (&finding.check, &finding.severity, kind(&finding.place))
                && (is_of_history(finding) || is_same_line(known, finding))
        };
        match groups.iter_mut().find(is_one) {
            Some(group) => {
                if finding.excess() > group.worst.excess() {
                    group.worst = finding;
                }
                group.all.push(finding);
            }
            None => groups.push(Group {
                worst: finding,
                all: vec![finding],
            }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.worst.severity()));
    groups
}

impl Group<'_> {
    /// Returns the check and the number of places: `entropy-collapse in 5 heads`.
    pub fn summary(&self) -> String {
        let check = &self.worst.check;
        let n = self.all.len();
        let what = match kind(&self.worst.place) {
            Kind::Model => return check.to_string(),
            Kind::Layer => "layer",
            Kind::Head => "head",
        };
        match n {
            1 => format!("{check} in {}", self.worst.place.label()),
            n => format!("{check} in {n} {what}s"),
        }
    }

    /// Returns every place, consecutive ones merged: `L0H0-3, L1H2`.
    pub(super) fn places(&self) -> String {
        match self.all.as_slice() {
            [only] => return only.place.whole_label(),
            all if kind(&self.worst.place) == Kind::Model => {
                return format!("({} times)", all.len());
            }
            _ => {}
        }
        let mut places: Vec<(String, usize)> =
            self.all.iter().map(|of| numbered(&of.place)).collect();
        places.sort();
        places.dedup();
        let mut runs: Vec<(String, usize, usize)> = Vec::new();
        for (before, idx) in places {
            match runs.last_mut() {
                Some((known, _, last)) if *known == before && *last + 1 == idx => *last = idx,
                _ => runs.push((before, idx, idx)),
            }
        }
        let named = runs.iter().take(MOST_NAMED);
        let named = named.map(|(before, first, last)| {
            if first == last {
                format!("{before}{first}")
            } else {
                format!("{before}{first}-{last}")
            }
        });
        let named: Vec<String> = named.collect();
        let more = if runs.len() > MOST_NAMED { ", …" } else { "" };
        let what = match kind(&self.worst.place) {
            Kind::Head => "heads",
            Kind::Layer | Kind::Model => "layers",
        };
        format!("{}{more} ({} {what})", named.join(", "), self.all.len())
    }

    /// Says what was seen at the worst place.
    pub(super) fn seen(&self) -> String {
        let at = match self.all.len() {
            1 => String::new(),
            _ => at_worst(&self.worst.place.whole_label()),
        };
        format!("{at}{}", one_line(&self.worst.evidence))
    }

    /// Returns the value at the worst place, and that at the mildest if it differs.
    pub(super) fn values(&self) -> String {
        let worst = self.worst.value.0;
        // Values of findings with thresholds of their own are not comparable.
        let is_one_line = self.all.iter().all(|of| is_same_line(of, self.worst));
        let values = self.all.iter().map(|of| of.value.0);
        let mildest = values.filter(|_| is_one_line).min_by(|a, b| {
            let far = |value: &f64| (value - worst).abs();
            far(b).total_cmp(&far(a))
        });
        let mildest = mildest.filter(|mildest| figure(*mildest) != figure(worst));
        let range = mildest.map_or(String::new(), |mildest| format!(" … {}", figure(mildest)));
        figure(worst) + &range
    }

    /// Returns the threshold with its unit.
    pub(super) fn threshold(&self) -> String {
        let unit = match self.worst.unit.as_ref() {
            "" => String::new(),
            unit => format!(" {unit}"),
        };
        figure(self.worst.threshold.0) + &unit
    }

    /// Writes the group: its places, the evidence at the worst of them, the numbers, and the advice.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, width: usize, to: &mut impl Write) -> io::Result<()> {
        let worst = self.worst;
        let head = format!(
            "  {:<7} {:<width$}  {}",
            worst.severity,
            worst.check,
            self.places()
        );
        writeln!(to, "{}", head.trim_end())?;
        writeln!(to, "          seen: {}", self.seen())?;
        writeln!(
            to,
            "          measured {}, threshold {}",
            self.values(),
            self.threshold()
        )?;
        writeln!(to, "          do: {}", one_line(&worst.advice))
    }
}

/// Words for the worst of several places; nothing where the place is the whole model.
fn at_worst(label: &str) -> String {
    if label.is_empty() {
        String::new()
    } else {
        format!("worst at {label}: ")
    }
}

/// Splits a place into its prefix and its last number.
fn numbered(place: &PlaceRecord) -> (String, usize) {
    let label = place.label();
    let digits = label.chars().rev().take_while(char::is_ascii_digit).count();
    let (before, number) = label.split_at(label.len() - digits);
    (before.to_owned(), number.parse().unwrap_or(0))
}

/// Writes groups one after another, with aligned columns.
///
/// # Errors
/// When they cannot be written.
pub fn write_groups(groups: &[Group<'_>], to: &mut impl Write) -> io::Result<()> {
    let width = groups.iter().map(|group| group.worst.check.len()).max();
    groups
        .iter()
        .try_for_each(|group| group.write(width.unwrap_or(0), to))
}

/// Names the groups above information, errors separate from warnings if there are both.
pub fn named(groups: &[Group<'_>]) -> String {
    let of = |severity: Severity| {
        let of = groups
            .iter()
            .filter(|group| group.worst.severity() == severity);
        let names: Vec<String> = of.map(Group::summary).collect();
        names.join(", ")
    };
    match (of(Severity::Error), of(Severity::Warning)) {
        (errors, warnings) if errors.is_empty() => warnings,
        (errors, warnings) if warnings.is_empty() => errors,
        (errors, warnings) => format!("errors of {errors}; warnings of {warnings}"),
    }
}

/// Returns one line with counts: `13 errors, 4 warnings`.
pub fn severities(findings: &[FindingRecord]) -> String {
    let n_of = |severity: Severity| {
        let of = findings.iter().filter(|of| of.severity() == severity);
        of.count()
    };
    let some = |n: usize, word: &str| match n {
        0 => format!("no {word}s"),
        n => counted(n, word),
    };
    match (n_of(Severity::Error), n_of(Severity::Warning)) {
        (0, 0) => "no errors or warnings".to_owned(),
        (n, m) => format!("{}, {}", some(n, "error"), some(m, "warning")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_checks::Finding;
    use attnscope_spec::Place;
    use attnscope_spec::Stack;

    fn record(check: &'static str, place: Place, value: f64, threshold: f64) -> FindingRecord {
        FindingRecord::of(&Finding {
            check,
            severity: Severity::Warning,
            place,
            value,
            threshold,
            unit: "",
            evidence: format!("seen at {place}"),
            advice: "mend it".to_owned(),
        })
    }

    #[test]
    fn collapsed_heads_form_one_group_that_shows_the_worst_of_them() {
        let head = |layer, head| Place::layer(Stack::Only, layer).head(head);
        let findings = [
            record("entropy-collapse", head(0, 0), 0.03, 0.05),
            record("entropy-collapse", head(0, 1), 0.002, 0.05),
            record("entropy-collapse", head(1, 3), 0.04, 0.05),
            record("score-explosion", head(0, 1), 120.0, 100.0),
            record("score-explosion", head(0, 2), 70_000.0, 65_504.0),
        ];
        let groups = grouped(&findings);
        assert_eq!(groups.len(), 3, "two lines of one check are two reasons");
        let mut text = Vec::new();
        write_groups(&groups, &mut text).expect("writes");
        let text = String::from_utf8(text).expect("text");
        assert!(
            text.contains("entropy-collapse  L0H0-1, L1H3 (3 heads)"),
            "{text}"
        );
        assert!(text.contains("seen: worst at L0H1: seen at L0H1"), "{text}");
        assert!(
            text.contains("measured 0.002 … 0.040, threshold 0.050"),
            "{text}"
        );
        assert_eq!(groups[0].summary(), "entropy-collapse in 3 heads");
        assert_eq!(groups[1].summary(), "score-explosion in L0H1");
    }

    #[test]
    fn layers_that_shift_at_once_form_one_group_whatever_they_had_before() {
        let layer = |layer| Place::layer(Stack::Only, layer);
        let findings = [
            record("level-shift", layer(0), 5.7, 0.62),
            record("level-shift", layer(1), 12.0, 0.60),
        ];
        let groups = grouped(&findings);
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].places(), "L0-1 (2 layers)");
        assert_eq!(
            (groups[0].values(), groups[0].threshold()),
            ("12.000".to_owned(), "0.600".to_owned())
        );
    }
}
