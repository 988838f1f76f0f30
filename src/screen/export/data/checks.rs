//! The data of the Checks panel: every verdict, every finding, and the influence map if it is shown.

use attnscope_checks::Finding;

use attnscope_report::table::{Table, TableRow};
use attnscope_report::table_row;

use super::{Figure, PanelData};
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
    columns: Row::COLUMNS,
    table: |app| Table::of(rows(app)),
};

table_row! {
    struct Row {
        part: &'static str, "", "kind of row";
        check: &'static str, "", "the check by its id, see [checks.md](checks.md)";
        status: &'static str, "", "`fired`, `passed`, `undecidable`, `not-tested` or `not-applicable`";
        why: String, "", "one sentence of the check";
        severity: &'static str, "", "`error`, `warning` or `info`";
        stack: &'static str, "", "which stack the layer belongs to";
        layer: Option<usize>, "", "where the finding is; here and to the right empty where it does not apply";
        head: Option<usize>, "", "the head";
        query: Option<usize>, "position", "the query";
        key: Option<usize>, "position", "the key";
        value: Option<Figure>, "as `unit` says", "what was measured";
        threshold: Option<Figure>, "as `unit` says", "what it may be";
        unit: &'static str, "", "of both; empty for pure numbers";
        evidence: String, "", "one sentence: what was seen";
        advice: String, "", "what to do";
        changed: Option<usize>, "position", "the position that was changed";
        moved: Option<usize>, "position", "the position that moved";
        amount: Option<Figure>, "share", "how far: largest difference divided by the largest value";
    }
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
