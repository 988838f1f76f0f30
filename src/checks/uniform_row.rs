//! A row spreads its mass evenly over keys that it may not see.
//!
//! ## What it does
//! Looks for rows whose cells are all alike although some of them are forbidden, and for rows of a run that see no key at all.
//!
//! ## Why it matters
//! A row whose every key is masked with a large finite number becomes uniform without a warning: the query reads the mean of
//! everything, forbidden keys included. With −inf it becomes NaN instead. Seen in the wild: pytorch #103749, #41508.
//!
//! ## How it is measured
//! A real query whose cells differ by less than one part in a thousand while at least one of them is forbidden; in our own
//! runs, real queries without a visible key.
//!
//! ## False alarms
//! None for the last row of an honestly uniform causal head, which has no forbidden key, nor for padded queries, which are
//! left out.
//!
//! ## Example
//! A left-padded row with `masked_fill(mask, -1e9)` whose first query sees only padding.

use super::evidence::{Evidence, Subject};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "uniform-row",
    severity: Severity::Error,
    needs: Needs::Pattern,
    source: include_str!("uniform_row.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let mut findings = Vec::new();
    for layer in evidence.layers {
        let found = layer.heads.iter().enumerate().find_map(|(head_idx, head)| {
            let even = match evidence.subject {
                Subject::Checkpoint => {
                    let mut rows = head.summary.rows.iter();
                    rows.position(|row| row.is_real && row.n_visible == 0)
                }
                _ => head.audit.as_ref().and_then(|audit| audit.uniform_row),
            };
            even.map(|query_idx| (head_idx, head.summary.rows.len(), query_idx))
        });
        let Some((head_idx, n_rows, query_idx)) = found else {
            continue;
        };
        findings.push(Finding {
            check: CHECK.id,
            severity: Severity::Error,
            place: layer.place().head(head_idx).query(query_idx),
            value: 1.0 / n_rows as f64,
            threshold: 0.0,
            unit: "",
            evidence: match evidence.subject {
                Subject::Checkpoint => format!("query {query_idx} sees no key"),
                _ => format!("query {query_idx} gives every key the same, forbidden ones included"),
            },
            advice: "give every real query a key to see, or leave rows without one at zero; a finite mask value makes them uniform".to_owned(),
        });
    }
    Verdict::of_our_run(evidence, findings, "no row is spread over forbidden keys")
}
