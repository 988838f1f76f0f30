//! A history as JSON: its steps, the statistics of every head, and what begins and ends at which step.

use std::collections::BTreeMap;
use std::io::{self, Write};

use attnscope_checks::Severity;
use schemars::JsonSchema;
use serde::Serialize;

use super::json::write_pretty;
use super::number::Number;

/// Changes when a reader of the old shape would misread the new one.
pub const HISTORY_VERSION: u32 = 3;

/// Runs of one training in order of steps.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HistoryRecord {
    #[schemars(extend("const" = HISTORY_VERSION))]
    pub version: u32,
    /// The directory of the checkpoints, or the log.
    pub name: String,
    #[schemars(schema_with = "origin")]
    pub origin: &'static str,
    /// What-ifs that were on, as they were written.
    pub what_if: Vec<String>,
    /// Lines for a person, such as log lines that could not be used.
    pub notes: Vec<String>,
    /// Losses that the training logged beside its checkpoints.
    pub logged: Vec<HistoryLoss>,
    /// Layers with attention, in the order of the values.
    pub layers: Vec<HistoryLayer>,
    /// In order.
    pub steps: Vec<HistoryStep>,
    /// What begins and ends, in order of the steps at which it begins.
    pub findings: Vec<HistoryFinding>,
    /// What is on its way to a threshold at the last step.
    pub trends: Vec<HistoryTrend>,
}

fn origin(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "enum": ["checkpoints", "log"] })
}

/// A loss that the training logged beside its checkpoints.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HistoryLoss {
    /// "training" or "evaluation".
    pub loss: &'static str,
    /// Name under which it was logged, such as "train/loss".
    pub name: String,
    /// Where it was logged: trainer_state.json, TensorBoard or W&B.
    pub logger: &'static str,
    /// Number of values.
    pub values: usize,
}

/// A layer of a history.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HistoryLayer {
    /// Stack of the layer; null for the only stack.
    pub stack: Option<&'static str>,
    /// Index of the layer in its stack, from 0.
    pub layer: usize,
    pub n_heads: usize,
}

/// A step of a history.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HistoryStep {
    /// Step of the training; null where neither the name nor the trainer's state tells it.
    pub step: Option<u64>,
    /// Base name of the checkpoint; the name of the log for its records.
    pub checkpoint: String,
    /// done, failed, incomplete (still being written), gone (deleted after it was read), changed (written again after it was read), waiting or reading.
    pub state: &'static str,
    /// Why it failed, or what is missing; null otherwise.
    pub reason: Option<String>,
    /// Mean loss in nats: of a checkpoint on the prompts, of a log's record as the training reported it. Null where it is not known.
    pub loss: Option<Number>,
    /// What a monitor's log says of the batch; null for checkpoints, and for logs without it.
    pub batch: Option<HistoryBatch>,
    /// Training loss that was logged beside the checkpoints: the last value at or before the step, at most one interval of logging
    /// before it. Null where there is none, and for records of a log.
    pub training_loss: Option<Number>,
    /// Evaluation loss that was logged beside the checkpoints, by the rule of training_loss.
    pub evaluation_loss: Option<Number>,
    /// Statistics by their ids, as [layer][head]; empty for a step that was not read.
    #[schemars(schema_with = "super::schema_parts::values_by_layer")]
    pub values: BTreeMap<&'static str, Vec<Vec<Option<Number>>>>,
}

/// A batch of a training, as far as the monitor saw it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HistoryBatch {
    /// Share of positions that are padding.
    pub padding: Option<Number>,
    /// Mean number of documents in a row.
    pub documents: Option<Number>,
    /// Mean −log p of the next token at sampled positions, in nats.
    pub next_loss: Option<Number>,
    /// Mean −log p of the token that a position holds itself, in nats.
    pub own_loss: Option<Number>,
    /// [end, mean −log p of the next token] for ranges of positions below 1, 2, 4, 8, …
    pub by_position: Vec<(u32, Option<Number>)>,
}

/// A step that a finding speaks of.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HistoryPoint {
    pub step: Option<u64>,
    pub checkpoint: String,
    /// The statistic there.
    pub value: Number,
}

/// Something that begins at a step.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HistoryFinding {
    /// Id of the check.
    pub check: &'static str,
    #[schemars(schema_with = "super::schema_parts::severity")]
    pub severity: Severity,
    /// Where, as flags take it: L3H7, encoder.L3; empty for the whole model.
    pub place: String,
    /// Id of the statistic, or "loss".
    pub statistic: &'static str,
    pub threshold: Number,
    /// The first step beyond the threshold.
    pub begins: HistoryPoint,
    /// The first step that is back; null while it lasts.
    pub ends: Option<HistoryPoint>,
    /// Where the statistic came from; null where it was beyond the threshold from the first step on.
    pub from: Option<HistoryPoint>,
    /// The step at which a statistic of the place was first on its way to a threshold; null where none was.
    pub warned: Option<HistoryWarning>,
    /// Whether the level of the statistic changed, at a stated rate of false alarms; null where noise may look so, or too few
    /// steps tell.
    pub change: Option<HistoryChange>,
    /// What the severity follows from.
    pub why: String,
    /// What to do.
    pub advice: &'static str,
}

/// A statistic on its way to a threshold before a finding began.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HistoryWarning {
    pub step: Option<u64>,
    pub checkpoint: String,
    pub statistic: &'static str,
}

/// A change of level.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HistoryChange {
    /// The first step of the new level.
    pub step: Option<u64>,
    pub checkpoint: String,
    /// The share of series of noise in which a change as plain is found.
    pub false_alarms: f64,
}

/// A statistic on its way to a threshold.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HistoryTrend {
    pub check: &'static str,
    pub place: String,
    pub statistic: &'static str,
    pub threshold: Number,
    /// The fitted value at the last step.
    pub now: Number,
    /// Change per step: the share by which the statistic grows where `is_ratio`, the difference otherwise.
    pub per_step: Number,
    pub is_ratio: bool,
    /// The step at which it crosses the threshold if it goes on.
    pub crosses: Number,
    /// The 95 % interval of that step; its end may be infinite.
    pub between: [Number; 2],
    /// One sentence for a person.
    pub text: String,
}

/// Writes a history, indented, with a newline at the end.
///
/// # Errors
/// When the target cannot be written.
pub fn write_history(history: &HistoryRecord, to: &mut impl Write) -> io::Result<()> {
    write_pretty(history, to)
}
