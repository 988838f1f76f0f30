//! Findings of many runs: the worst one at each place is kept, so that the result does not depend on how runs were split.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use attnscope_checks::Severity;
use attnscope_report::FindingRecord;

/// Identity and order of findings: the worst first, then by check and place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    severity: Reverse<Severity>,
    check: String,
    stack: Option<String>,
    layer: Option<usize>,
    head: Option<usize>,
}

/// The findings of one checkpoint.
#[derive(Debug, Clone, Default)]
pub struct Findings(BTreeMap<Key, FindingRecord>);

impl Findings {
    /// Adds a finding. The result does not depend on the order of additions.
    pub fn add(&mut self, finding: FindingRecord) {
        let place = &finding.place;
        let key = Key {
            severity: Reverse(finding.severity()),
            check: finding.check.to_string(),
            stack: place.stack.as_ref().map(ToString::to_string),
            layer: place.layer,
            head: place.head,
        };
        if key.head.is_some() {
            // Keep only the worst finding of a check at a head.
            for other in [Severity::Info, Severity::Warning, Severity::Error] {
                let other = Key {
                    severity: Reverse(other),
                    ..key.clone()
                };
                if other < key && self.0.contains_key(&other) {
                    return;
                }
                if other > key {
                    self.0.remove(&other);
                }
            }
        }
        match self.0.get_mut(&key) {
            None => {
                self.0.insert(key, finding);
            }
            Some(known) if is_worse(&finding, known) => *known = finding,
            Some(_) => {}
        }
    }

    /// Adds a finding made on a prompt.
    pub fn add_on(&mut self, prompt: &str, mut finding: FindingRecord) {
        finding.evidence = format!("prompt {prompt}: {}", finding.evidence);
        self.add(finding);
    }

    /// Returns all findings, the worst first.
    pub fn iter(&self) -> impl Iterator<Item = &FindingRecord> {
        self.0.values()
    }

    /// Returns all findings, the worst first.
    pub fn into_vec(self) -> Vec<FindingRecord> {
        self.0.into_values().collect()
    }

    /// Returns the worst severity.
    pub fn worst(&self) -> Option<Severity> {
        self.0.keys().next().map(|key| key.severity.0)
    }

    /// Counts the findings of a severity.
    pub fn n_of(&self, severity: Severity) -> usize {
        let keys = self.0.keys();
        keys.filter(|key| key.severity.0 == severity).count()
    }
}

/// Whether a finding replaces the known one at its place. If both are equally far past the threshold, the lesser text stays.
fn is_worse(finding: &FindingRecord, known: &FindingRecord) -> bool {
    let order = finding.excess().total_cmp(&known.excess());
    order.then_with(|| known.evidence.cmp(&finding.evidence)) == Ordering::Greater
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_report::{Number, PlaceRecord};

    fn finding(layer: usize, value: f64, severity: &'static str) -> FindingRecord {
        FindingRecord {
            advice: String::new(),
            check: "score-explosion".into(),
            explains: None,
            evidence: format!("seen {value}"),
            place: PlaceRecord {
                head: None,
                key: None,
                layer: Some(layer),
                query: None,
                stack: None,
            },
            severity: severity.into(),
            threshold: Number(10.0),
            unit: "".into(),
            value: Number(value),
        }
    }

    #[test]
    fn the_worst_finding_of_a_place_is_kept_in_any_order() {
        let mut all = vec![
            ("a", finding(0, 20.0, "warning")),
            ("b", finding(0, 40.0, "warning")),
            ("c", finding(0, 40.0, "warning")),
            ("a", finding(1, 15.0, "error")),
            ("b", finding(0, f64::NAN, "error")),
        ];
        let of = |all: &[(&str, FindingRecord)]| {
            let mut findings = Findings::default();
            for (prompt, finding) in all {
                findings.add_on(prompt, finding.clone());
            }
            findings
        };
        let findings = of(&all);
        assert_eq!(findings.worst(), Some(Severity::Error));
        assert_eq!(findings.n_of(Severity::Error), 2);
        let said: Vec<String> = findings.iter().map(|f| f.evidence.clone()).collect();
        assert_eq!(said[2..], ["prompt b: seen 40"]);
        all.reverse();
        let again: Vec<String> = of(&all).iter().map(|f| f.evidence.clone()).collect();
        assert_eq!(said, again);
    }
}
