//! Changes in a history since the last report: findings that begin, get worse or end, and new trends.

use std::collections::BTreeMap;

use attnscope_checks::Severity;

use super::judge::{Finding, Judge};
use super::text::{beginning, grouped, on_its_way, reasons};
use super::value::History;

/// Findings and trends already reported.
#[derive(Debug, Clone, Default)]
pub struct News {
    /// By check, cell and step or name: the reported severity, and whether the end was reported.
    findings: BTreeMap<(&'static str, usize, String), (Severity, bool)>,
    trends: BTreeMap<(&'static str, usize), usize>,
}

/// A reported change.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportedChange {
    /// `None` for a trend, and for the end of a finding.
    pub severity: Option<Severity>,
    /// The first of the findings that are reported together.
    pub finding: Option<Finding>,
    /// A headline, and lines of reasons.
    pub lines: String,
}

/// Number of records after which a continuing trend is reported again.
const AGAIN: usize = 64;

impl News {
    /// Returns everything not reported yet.
    pub fn of(&mut self, history: &History, judge: &Judge) -> Vec<ReportedChange> {
        let mut new = Vec::new();
        let mut ended = Vec::new();
        for finding in judge.findings() {
            let begin = history.records()[finding.begin].label();
            let key = (finding.check, finding.cell, begin);
            let before = self.findings.get(&key).copied();
            if before.is_none_or(|(severity, _)| finding.severity > severity) {
                new.push(finding.clone());
            } else if finding.end.is_some() && before.is_some_and(|(_, is_told)| !is_told) {
                ended.push(finding.clone());
            }
            let severity = before.map_or(finding.severity, |(severity, _)| {
                severity.max(finding.severity)
            });
            self.findings.insert(key, (severity, finding.end.is_some()));
        }
        let mut told = Vec::new();
        for (finding, others) in grouped(&new) {
            let mut lines = format!(
                "{:<8} {}\n",
                finding.severity.label(),
                beginning(history, finding, &others)
            );
            for line in reasons(history, finding) {
                lines += &format!("{:<8} {line}\n", "");
            }
            told.push(ReportedChange {
                severity: Some(finding.severity),
                finding: Some(finding.clone()),
                lines,
            });
        }
        for (finding, others) in grouped(&ended) {
            told.push(ReportedChange {
                severity: None,
                finding: None,
                lines: format!("{:<8} {}\n", "ended", beginning(history, finding, &others)),
            });
        }
        for trend in judge.trends() {
            let key = (trend.check, trend.cell);
            let is_known = self
                .trends
                .get(&key)
                .is_some_and(|at| trend.at < at + AGAIN);
            if !is_known {
                self.trends.insert(key, trend.at);
                told.push(ReportedChange {
                    severity: None,
                    finding: None,
                    lines: format!("{:<8} {}\n", "trend", on_its_way(history, trend)),
                });
            }
        }
        told
    }
}
