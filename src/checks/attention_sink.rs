//! One key takes a large share of the attention of a head.
//!
//! ## What it does
//! Finds heads that give much of their attention to one key whatever the query, and counts them for the whole model.
//!
//! ## Why it matters
//! A sink is how a head does nothing: trained models have it by design (Xiao et al. 2023, arXiv 2309.17453; Gu et al. 2024,
//! arXiv 2410.10781). It matters for pruning, quantisation and streaming, and it makes a low entropy harmless.
//!
//! ## How it is measured
//! α of a key: mean of its probability over the real queries that see it; a head has a sink where the largest α over keys that at
//! least half of the queries see exceeds 0.3. The share of such heads depends on the length of the text, which is said.
//!
//! ## False alarms
//! None: it is information. Only when most heads of a model give more than 0.95 to one key it is a warning, since then hardly
//! any head attends to anything.
//!
//! ## Example
//! GPT-2: most heads from layer 5 on give key 0 more than half.

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "attention-sink",
    severity: Severity::Warning,
    needs: Needs::Pattern,
    source: include_str!("attention_sink.rs"),
    judge,
};

/// Above this mean probability, the key gets practically all attention of the head.
const MASSIVE: f64 = 0.95;

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let least = thresholds.attention_sink.mass;
    let massive_heads = thresholds.attention_sink.massive_heads;
    let (mut n_heads, mut n_massive, mut sunk) = (0usize, 0usize, Vec::new());
    for (layer, head_idx, head) in evidence.heads() {
        if layer.spec.is_cross || !evidence.has_distributions(layer, head) {
            continue;
        }
        let Some((key_idx, mass)) = sink(layer, head) else {
            continue;
        };
        n_heads += 1;
        n_massive += usize::from(mass > MASSIVE);
        if mass > least {
            sunk.push((layer.place().head(head_idx).key(key_idx), key_idx, mass));
        }
    }
    if n_heads == 0 {
        return Verdict::not_applicable("no head attends to enough keys of its own sequence");
    }
    let strongest = sunk.iter().max_by(|a, b| a.2.total_cmp(&b.2));
    let Some((place, key_idx, mass)) = strongest else {
        return Verdict::passed(format!("no key takes more than {least} of any head"));
    };
    let is_massive = n_massive as f64 > massive_heads * n_heads as f64;
    let finding = Finding {
        check: CHECK.id,
        severity: if is_massive {
            Severity::Warning
        } else {
            Severity::Info
        },
        place: *place,
        value: *mass,
        threshold: least,
        unit: "",
        evidence: format!(
            "{} of {n_heads} heads have a sink, {n_massive} give it more than {MASSIVE}; the strongest gives key {key_idx} {mass:.3}",
            sunk.len()
        ),
        advice: if is_massive {
            "most heads attend to one key only: look for a missing scale or a collapsed layer"
                .to_owned()
        } else {
            "by design in trained models; z in the Head panel shows the rest of the pattern"
                .to_owned()
        },
    };
    Verdict::of(vec![finding], "")
}

/// The key with the largest mean probability, among keys that at least half of the real queries see.
fn sink(
    layer: &crate::stats::LayerReport,
    head: &crate::stats::HeadReport,
) -> Option<(usize, f64)> {
    let n = head.summary.rows.len();
    // Number of real queries before each position.
    let mut before = vec![0usize];
    for row in &head.summary.rows {
        before.push(before[before.len() - 1] + usize::from(row.is_real));
    }
    let n_real = before[n];
    let sums = head.summary.column_sums.iter().enumerate();
    let alphas = sums.filter_map(|(key_idx, sum)| {
        let seeing = head.summary.queries_seeing(layer.spec.mask, key_idx);
        let n_seeing: usize = seeing
            .map(|range| before[range.end] - before[range.start])
            .sum();
        let is_seen = n_real >= 4 && 2 * n_seeing >= n_real;
        is_seen.then(|| (key_idx, f64::from(*sum) / n_seeing as f64))
    });
    alphas.max_by(|a, b| a.1.total_cmp(&b.1))
}
