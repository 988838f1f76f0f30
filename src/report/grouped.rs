//! Findings grouped for people: findings of one check at many heads become one entry that lists the heads.

use std::io::{self, Write};

use attnscope_checkpoint::counted::counted;
use attnscope_checks::{Finding, Needs, Severity, find};

use super::finding::{FindingRecord, PlaceRecord};
use super::plain::one_line;
use super::verdict_text::figure;

/// Most places named; the rest is counted.
const MOST_NAMED: usize = 8;

/// What groups read of a finding.
pub struct Facts<'a> {
    check: &'a str,
    severity: Severity,
    place: PlaceRecord,
    value: f64,
    threshold: f64,
    unit: &'a str,
    evidence: &'a str,
    /// Ratio of value and threshold; infinite if the value is not a number.
    excess: f64,
}

/// A finding of a run, or a record of one.
pub trait AnyFinding {
    fn facts(&self) -> Facts<'_>;
}

impl AnyFinding for FindingRecord {
    fn facts(&self) -> Facts<'_> {
        Facts {
            check: &self.check,
            severity: self.severity(),
            place: self.place.clone(),
            value: self.value.0,
            threshold: self.threshold.0,
            unit: &self.unit,
            evidence: &self.evidence,
            excess: self.excess(),
        }
    }
}

impl AnyFinding for Finding {
    fn facts(&self) -> Facts<'_> {
        Facts {
            check: self.check,
            severity: self.severity,
            place: PlaceRecord::of(&self.place),
            value: self.value,
            threshold: self.threshold,
            unit: self.unit,
            evidence: &self.evidence,
            excess: if self.excess().is_nan() {
                f64::INFINITY
            } else {
                self.excess()
            },
        }
    }
}

/// Findings of one check at different places.
pub struct Group<'a, F = FindingRecord> {
    /// The finding furthest beyond its threshold.
    pub worst: &'a F,
    /// All findings, in their original order.
    pub all: Vec<&'a F>,
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

/// Whether two thresholds are the same.
fn is_same_line(a: f64, b: f64) -> bool {
    a.total_cmp(&b).is_eq()
}

/// Whether a check compares records of a training: its threshold is what the place had before.
fn is_of_history(check: &str) -> bool {
    find(check).is_some_and(|check| check.needs == Needs::History)
}

/// Groups findings by check, severity and kind of place, the worst severity first.
pub fn grouped<'a, F: AnyFinding>(findings: impl IntoIterator<Item = &'a F>) -> Vec<Group<'a, F>> {
    let mut groups: Vec<(Facts<'a>, Group<'a, F>)> = Vec::new();
    for finding in findings {
        let facts = finding.facts();
        let is_one = |(known, _): &&mut (Facts<'_>, Group<'_, F>)| {
            // A check with two thresholds makes two groups.
            (known.check, known.severity, kind(&known.place))
                == (facts.check, facts.severity, kind(&facts.place))
                && (is_same_line(known.threshold, facts.threshold) || is_of_history(facts.check))
        };
        match groups.iter_mut().find(is_one) {
            Some((worst, group)) => {
                group.all.push(finding);
                if facts.excess > worst.excess {
                    (*worst, group.worst) = (facts, finding);
                }
            }
            None => groups.push((
                facts,
                Group {
                    worst: finding,
                    all: vec![finding],
                },
            )),
        }
    }
    groups.sort_by_key(|(worst, _)| std::cmp::Reverse(worst.severity));
    groups.into_iter().map(|(_, group)| group).collect()
}

impl<F: AnyFinding> Group<'_, F> {
    /// Returns the number and the kind of the places: `5 heads`; nothing for findings about the whole model.
    pub fn counted(&self) -> Option<String> {
        let what = match kind(&self.worst.facts().place) {
            Kind::Model => return None,
            Kind::Layer => "layer",
            Kind::Head => "head",
        };
        Some(counted(self.all.len(), what))
    }

    /// Returns the check and the number of places: `entropy-collapse in 5 heads`.
    pub fn summary(&self) -> String {
        let worst = self.worst.facts();
        match (self.counted(), self.all.len()) {
            (None, _) => worst.check.to_owned(),
            (Some(_), 1) => format!("{} in {}", worst.check, worst.place.label()),
            (Some(n), _) => format!("{} in {n}", worst.check),
        }
    }

    /// Returns every place, consecutive ones merged: `L0H0-3, L1H2`.
    pub fn places(&self) -> String {
        let all = self.all.iter().map(|of| of.facts().place);
        let Some(n) = self.counted() else {
            return match self.all.len() {
                1 => self.worst.facts().place.whole_label(),
                n => format!("({n} times)"),
            };
        };
        if let [only] = self.all.as_slice() {
            return only.facts().place.whole_label();
        }
        let runs = runs(all.collect());
        let named: Vec<String> = runs.iter().take(MOST_NAMED).map(Run::label).collect();
        let more = if runs.len() > MOST_NAMED { ", …" } else { "" };
        format!("{}{more} ({n})", named.join(", "))
    }

    /// Says what was seen at the worst place.
    pub fn seen(&self) -> String {
        let worst = self.worst.facts();
        let at = match self.all.len() {
            1 => String::new(),
            _ => at_worst(&worst.place.whole_label()),
        };
        format!("{at}{}", one_line(worst.evidence))
    }

    /// Returns the value at the worst place, and that at the mildest if it differs.
    pub fn values(&self) -> String {
        let Facts {
            value: worst,
            threshold,
            ..
        } = self.worst.facts();
        let mut facts = self.all.iter().map(|of| of.facts());
        // Values of findings with thresholds of their own are not comparable.
        let is_one_line = facts.all(|of| is_same_line(of.threshold, threshold));
        let values = self.all.iter().map(|of| of.facts().value);
        let mildest = values.filter(|_| is_one_line).min_by(|a, b| {
            let far = |value: &f64| (value - worst).abs();
            far(b).total_cmp(&far(a))
        });
        let mildest = mildest.filter(|mildest| figure(*mildest) != figure(worst));
        let range = mildest.map_or(String::new(), |mildest| format!(" … {}", figure(mildest)));
        figure(worst) + &range
    }

    /// Returns the threshold with its unit.
    pub fn threshold(&self) -> String {
        let worst = self.worst.facts();
        let unit = match worst.unit {
            "" => String::new(),
            unit => format!(" {unit}"),
        };
        figure(worst.threshold) + &unit
    }
}

impl Group<'_> {
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

/// Neighbouring layers of a stack, and the neighbouring heads that are meant in each of them; none for whole layers.
struct Run {
    stack: String,
    layers: (usize, usize),
    heads: Option<(usize, usize)>,
}

impl Run {
    /// Returns the run as text: `L0-11H3-5`, `cross.L2`.
    fn label(&self) -> String {
        let range = |letter: &str, (first, last): (usize, usize)| {
            if first == last {
                format!("{letter}{first}")
            } else {
                format!("{letter}{first}-{last}")
            }
        };
        let heads = self.heads.map(|heads| range("H", heads));
        let stack = match self.stack.as_str() {
            "" => String::new(),
            stack => format!("{stack}."),
        };
        stack + &range("L", self.layers) + &heads.unwrap_or_default()
    }
}

/// Merges places in order: neighbouring heads of a layer, then neighbouring layers in which the same heads are meant.
fn runs(places: Vec<PlaceRecord>) -> Vec<Run> {
    let mut places: Vec<(String, usize, Option<usize>)> = places
        .into_iter()
        .map(|of| {
            (
                of.stack.unwrap_or_default().into_owned(),
                of.layer.unwrap_or(0),
                of.head,
            )
        })
        .collect();
    places.sort();
    places.dedup();
    let mut in_layers: Vec<Run> = Vec::new();
    for (stack, layer, head) in places {
        let is_here = |run: &&mut Run| run.stack == stack && run.layers.0 == layer;
        match (in_layers.last_mut().filter(is_here), head) {
            (
                Some(Run {
                    heads: Some((_, last)),
                    ..
                }),
                Some(head),
            ) if *last + 1 == head => *last = head,
            _ => in_layers.push(Run {
                stack,
                layers: (layer, layer),
                heads: head.map(|head| (head, head)),
            }),
        }
    }
    let mut runs: Vec<Run> = Vec::new();
    // A layer with gaps has several runs; only a layer with one is like its neighbour.
    let is_whole = |of: &Run| {
        let in_layer = in_layers
            .iter()
            .filter(|run| run.stack == of.stack && run.layers == of.layers);
        in_layer.count() == 1
    };
    let are_whole: Vec<bool> = in_layers.iter().map(is_whole).collect();
    let mut was_whole = false;
    for (run, is_whole) in in_layers.into_iter().zip(are_whole) {
        let continues = |last: &&mut Run| {
            let is_next = last.layers.1 + 1 == run.layers.0 && last.stack == run.stack;
            is_next && was_whole && is_whole && last.heads == run.heads
        };
        match runs.last_mut().filter(continues) {
            Some(last) => last.layers.1 = run.layers.1,
            None => runs.push(run),
        }
        was_whole = is_whole;
    }
    runs
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
    fn places_are_in_the_order_of_their_numbers_and_layers_alike_are_one() {
        let head = |layer, head| Place::layer(Stack::Only, layer).head(head);
        let all: Vec<FindingRecord> = (0..12)
            .flat_map(|layer| [0, 1, 2].map(|of| head(layer, of)))
            .chain([head(12, 1), head(13, 1), head(13, 5)])
            .map(|place| record("entropy-collapse", place, 0.01, 0.05))
            .collect();
        let places = grouped(&all)[0].places();
        assert_eq!(places, "L0-11H0-2, L12H1, L13H1, L13H5 (39 heads)");
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
