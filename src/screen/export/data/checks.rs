//! The data of the Checks panel: every verdict, every finding, and the influence map if it is shown.

use attnscope_checks::Finding;
use serde::Serialize;

use super::{Column, Figure, HEAD, PART, PanelData, STACK, Sheet, column};
use crate::panels::checks::influence;
use crate::state::panel::Panel;
use crate::state::scene::Scene;

pub static DATA: PanelData = PanelData {
    panel: Panel::Checks,
    parts: &[
        ("finding", "a finding, the worst first"),
        ("check", "a check and what it says"),
        (
            "influence",
            "a cell of the influence map, where it is shown: how far a position moved when another was changed",
        ),
    ],
    columns: COLUMNS,
    sheet: |app| Sheet::of(rows(app)),
};

const COLUMNS: &[Column] = &[
    PART,
    column(
        "check",
        "",
        "the check by its id, see [checks.md](checks.md)",
    ),
    column(
        "status",
        "",
        "`fired`, `passed`, `by-construction`, `undecidable`, `not-tested` or `not-applicable`",
    ),
    column("why", "", "one sentence of the check"),
    column("severity", "", "`error`, `warning` or `info`"),
    STACK,
    column(
        "layer",
        "",
        "where the finding is; here and to the right empty where it does not apply",
    ),
    HEAD,
    column("query", "position", "the query"),
    column("key", "position", "the key"),
    column("value", "as `unit` says", "what was measured"),
    column("threshold", "as `unit` says", "what it may be"),
    column("unit", "", "of both; empty for pure numbers"),
    column("evidence", "", "one sentence: what was seen"),
    column("advice", "", "what to do"),
    column("changed", "position", "the position that was changed"),
    column("moved", "position", "the position that moved"),
    column(
        "amount",
        "share",
        "how far: largest difference divided by the largest value",
    ),
];

#[derive(Debug, Default, Serialize)]
struct Row {
    part: &'static str,
    check: &'static str,
    status: &'static str,
    why: String,
    severity: &'static str,
    stack: &'static str,
    layer: Option<usize>,
    head: Option<usize>,
    query: Option<usize>,
    key: Option<usize>,
    value: Option<Figure>,
    threshold: Option<Figure>,
    unit: &'static str,
    evidence: String,
    advice: String,
    changed: Option<usize>,
    moved: Option<usize>,
    amount: Option<Figure>,
}

fn rows(app: Scene<'_>) -> Vec<Row> {
    let mut rows: Vec<Row> = app.findings().iter().map(finding).collect();
    let judgement = app.run().and_then(|run| run.judgement.as_ref());
    let verdicts = judgement
        .into_iter()
        .flat_map(|judgement| &judgement.verdicts);
    rows.extend(verdicts.map(|(check, verdict)| Row {
        part: "check",
        check: check.id,
        status: verdict.status.label(),
        why: verdict.why.clone(),
        ..Row::default()
    }));
    if let Some(map) = influence(app) {
        let cells = map.moved.iter().enumerate();
        rows.extend(cells.map(|(idx, amount)| Row {
            part: "influence",
            changed: map.changed.get(idx / map.n_positions.max(1)).copied(),
            moved: Some(idx % map.n_positions.max(1)),
            amount: Some((*amount).into()),
            ..Row::default()
        }));
    }
    rows
}

fn finding(finding: &Finding) -> Row {
    let place = &finding.place;
    Row {
        part: "finding",
        check: finding.check,
        severity: finding.severity.label(),
        stack: place.grid().label().unwrap_or_default(),
        layer: place.layer_idx,
        head: place.head_idx,
        query: place.query_idx,
        key: place.key_idx,
        value: Some(finding.value.into()),
        threshold: Some(finding.threshold.into()),
        unit: finding.unit,
        evidence: finding.evidence.clone(),
        advice: finding.advice.clone(),
        ..Row::default()
    }
}
