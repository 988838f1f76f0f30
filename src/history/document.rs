//! A history as documents: JSON, and the same table that reports write.

use attnscope_checks::stats::{Compute, STATISTICS};
use attnscope_report::record::{About, Row, Table};
use attnscope_report::{
    HISTORY_VERSION, HistoryBatch, HistoryChange, HistoryFinding, HistoryLayer, HistoryLoss,
    HistoryPoint, HistoryRecord, HistoryStep, HistoryTrend, HistoryWarning, Number,
};
use attnscope_spec::Place;

use super::judge::{Finding, Judge, change_of};
use super::log::BatchFacts;
use super::losses::Curve;
use super::text::on_its_way;
use super::trend::Trend;
use super::value::{History, Origin};

/// Prompt name in the rows of a log: its statistics are of training batches.
const BATCH: &str = "training";

/// Rounds to the f64 with the shortest digits of the f32.
fn shortest(value: f64) -> f64 {
    let narrow = value as f32;
    narrow.to_string().parse().unwrap_or(value)
}

/// Returns the history as JSON.
pub fn document(history: &History, judge: &Judge, what_if: Vec<String>) -> HistoryRecord {
    let layers = history.grid().layers().iter().map(|layer| HistoryLayer {
        stack: layer.stack.label(),
        layer: layer.layer_idx,
        n_heads: layer.n_heads,
    });
    let steps = (0..history.records().len()).map(|idx| step(history, idx));
    HistoryRecord {
        version: HISTORY_VERSION,
        name: history.name.clone(),
        origin: history.origin.label(),
        what_if,
        notes: history.notes.clone(),
        logged: logged(history),
        layers: layers.collect(),
        steps: steps.collect(),
        findings: judge
            .findings()
            .iter()
            .map(|finding| of_finding(history, finding))
            .collect(),
        trends: judge
            .trends()
            .iter()
            .map(|trend| of_trend(history, trend))
            .collect(),
    }
}

fn logged(history: &History) -> Vec<HistoryLoss> {
    let losses = history.losses().named();
    let of = |(loss, curve): (&'static str, &Curve)| HistoryLoss {
        loss,
        name: curve.name.clone(),
        logger: curve.logger,
        values: curve.len(),
    };
    losses.map(of).collect()
}

fn step(history: &History, idx: usize) -> HistoryStep {
    let record = &history.records()[idx];
    let grid = history.grid();
    let per_head = history
        .statistics()
        .iter()
        .enumerate()
        .filter(|(_, statistic)| STATISTICS[**statistic].is_per_head());
    let values = per_head.map(|(column, statistic)| {
        let of_layer = |nth: usize| {
            let heads = grid.heads_of(nth);
            heads
                .map(|cell| {
                    let value = history.known(idx, column, cell);
                    value.map(|value| Number(shortest(value)))
                })
                .collect()
        };
        let layers: Vec<Vec<Option<Number>>> = (0..grid.layers().len()).map(of_layer).collect();
        (STATISTICS[*statistic].id, layers)
    });
    HistoryStep {
        step: record.step,
        checkpoint: record.name.clone(),
        state: record.state.label(),
        reason: record.state.reason().map(str::to_owned),
        loss: record.loss().map(Number),
        batch: record.batch().map(of_batch),
        training_loss: history.training_loss(idx).map(Number),
        evaluation_loss: history.evaluation_loss(idx).map(Number),
        values: match record.numbers {
            Some(_) => values.collect(),
            None => std::collections::BTreeMap::new(),
        },
    }
}

fn of_batch(facts: &BatchFacts) -> HistoryBatch {
    let by_position = facts.by_position.iter();
    HistoryBatch {
        padding: facts.padding.map(Number),
        documents: facts.documents.map(Number),
        next_loss: facts.next_loss.map(Number),
        own_loss: facts.own_loss.map(Number),
        by_position: by_position
            .map(|(end, loss)| (*end, loss.0.map(Number)))
            .collect(),
    }
}

fn point(history: &History, idx: usize, value: f64) -> HistoryPoint {
    let record = &history.records()[idx];
    HistoryPoint {
        step: record.step,
        checkpoint: record.name.clone(),
        value: Number(shortest(value)),
    }
}

fn place(place: Place) -> String {
    if place == Place::MODEL {
        String::new()
    } else {
        place.to_string()
    }
}

fn of_finding(history: &History, finding: &Finding) -> HistoryFinding {
    let record = |idx: usize| &history.records()[idx];
    HistoryFinding {
        check: finding.check,
        severity: finding.severity,
        place: place(finding.place),
        statistic: finding.statistic,
        threshold: Number(finding.threshold),
        begins: point(history, finding.begin, finding.to),
        ends: finding.end.map(|end| {
            point(
                history,
                end,
                history.at(end, finding.statistic, finding.cell),
            )
        }),
        from: finding.from.map(|(idx, value)| point(history, idx, value)),
        warned: finding.warned.map(|(idx, statistic)| HistoryWarning {
            step: record(idx).step,
            checkpoint: record(idx).name.clone(),
            statistic,
        }),
        change: change_of(history, finding).map(|change| HistoryChange {
            step: record(change.at).step,
            checkpoint: record(change.at).name.clone(),
            false_alarms: change.false_alarms,
        }),
        why: match &finding.changed {
            Some(words) => format!("{words}; {}", finding.why),
            None => finding.why.clone(),
        },
        advice: finding.advice,
    }
}

fn of_trend(history: &History, trend: &Trend) -> HistoryTrend {
    HistoryTrend {
        check: trend.check,
        place: place(trend.place),
        statistic: trend.statistic,
        threshold: Number(trend.threshold),
        now: Number(trend.now),
        per_step: Number(trend.slope),
        is_ratio: trend.is_ratio,
        crosses: Number(trend.crosses),
        between: [Number(trend.between.0), Number(trend.between.1)],
        text: on_its_way(history, trend),
    }
}

/// Returns the table: the rows of the checkpoints, or a row per head and layer for each record of a log.
pub fn table(history: &History, models: &[String], what_if: Vec<String>) -> Table {
    Table {
        about: About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            models: format!("[{}]", models.join(",")),
            what_if,
        },
        rows: rows(history),
    }
}

/// Returns the rows of the table, in order of steps.
pub fn rows(history: &History) -> Vec<Row> {
    let records = 0..history.records().len();
    match history.origin {
        Origin::Checkpoints => records
            .flat_map(|idx| history.records()[idx].rows.clone())
            .collect(),
        Origin::Log => records.flat_map(|idx| rows_of_log(history, idx)).collect(),
    }
}

/// Returns, for each layer, a row of the layer itself, which combines its heads, and a row per head.
fn rows_of_log(history: &History, idx: usize) -> Vec<Row> {
    let record = &history.records()[idx];
    let grid = history.grid();
    let row = |place: Place, stats: Vec<Option<f64>>| Row {
        checkpoint: record.name.clone(),
        step: record.step,
        prompt: BATCH.to_owned(),
        n_tokens: 0,
        loss: record.loss(),
        stack: place.grid().label().map(str::to_owned),
        layer: place.layer_idx.unwrap_or_default() as u64,
        head: place.head_idx.map(|head| head as u64),
        stats,
    };
    let columns: Vec<Option<usize>> = STATISTICS
        .iter()
        .map(|statistic| history.column(statistic.id))
        .collect();
    let at = |column: Option<usize>, cell| history.known(idx, column?, cell).map(shortest);
    let mut rows = Vec::new();
    for (nth, layer) in grid.layers().iter().enumerate() {
        let heads = grid.heads_of(nth);
        let whole = STATISTICS.iter().zip(&columns).map(|(statistic, column)| {
            let column = (*column)?;
            match statistic.compute {
                Compute::Head(_, gather) => {
                    let values = heads.clone().map(|cell| history.known(idx, column, cell));
                    let values: Option<Vec<f64>> = values.collect();
                    Some(shortest(gather.over(values?.into_iter())))
                }
                Compute::Layer(_) => None,
            }
        });
        rows.push(row(layer.place(), whole.collect()));
        for (head_idx, cell) in heads.clone().enumerate() {
            let stats = columns.iter().map(|column| at(*column, cell)).collect();
            rows.push(row(layer.place().head(head_idx), stats));
        }
    }
    rows
}
