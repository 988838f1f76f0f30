//! One step of a history: its data and the state of reading it.

use std::path::PathBuf;

use attnscope_report::record::Row;

use super::log::BatchFacts;

/// State of reading a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Found, not read yet.
    Waiting,
    /// Still being written; says what is missing.
    Incomplete(String),
    /// Being read now.
    Reading,
    /// Read; the statistics match the files.
    Done,
    /// Could not be read; says why, in one line.
    Failed(String),
    /// Deleted; statistics that were read are kept.
    Gone,
    /// Changed since it was read; the statistics are those of the previous files.
    Changed,
}

impl State {
    /// Returns the word for it in documents.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Incomplete(_) => "incomplete",
            Self::Reading => "reading",
            Self::Done => "done",
            Self::Failed(_) => "failed",
            Self::Gone => "gone",
            Self::Changed => "changed",
        }
    }

    /// Returns the reason behind the state, if it has one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Incomplete(why) | Self::Failed(why) => Some(why),
            _ => None,
        }
    }
}

/// Statistics of one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbers {
    /// Mean loss in nats, if known; for a log, as the training reported it.
    pub loss: Option<f64>,
    /// What a log says of the batch; `None` for checkpoints, and for logs without it.
    pub batch: Option<Box<BatchFacts>>,
    /// [statistic of the history][cell of the grid]; [`UNKNOWN`] for missing values
    pub values: Box<[f32]>,
}

/// Marks a value that a record does not have, since logs need not record everything at each step. It is a NaN with its own bits,
/// so that code that only asks for the value sees NaN.
pub const UNKNOWN: f32 = f32::from_bits(0x7fc0_0a77);

/// Whether a value is missing from the record, rather than not finite.
pub fn is_unknown(value: f32) -> bool {
    value.to_bits() == UNKNOWN.to_bits()
}

/// One step of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Base name of a checkpoint; for records of a log, the name of the log.
    pub name: String,
    /// Path of the checkpoint; `None` for records of a log.
    pub path: Option<PathBuf>,
    pub step: Option<u64>,
    /// Time at which a log's record was written, in seconds since 1970.
    pub time: Option<f64>,
    pub state: State,
    pub numbers: Option<Numbers>,
    /// Rows of the table for a checkpoint; empty for records of a log, whose rows are made on request.
    pub rows: Vec<Row>,
}

impl Record {
    /// Makes the record of a checkpoint that is not read yet.
    pub fn waiting(name: String, path: PathBuf, step: Option<u64>) -> Self {
        Self {
            name,
            path: Some(path),
            step,
            time: None,
            state: State::Waiting,
            numbers: None,
            rows: Vec::new(),
        }
    }

    /// Returns the name for people: `step 250`, or the checkpoint's name if the step is unknown.
    pub fn label(&self) -> String {
        match self.step {
            Some(step) => format!("step {step}"),
            None => self.name.clone(),
        }
    }

    /// What a log says of the batch.
    pub fn batch(&self) -> Option<&BatchFacts> {
        self.numbers.as_ref()?.batch.as_deref()
    }

    pub fn loss(&self) -> Option<f64> {
        self.numbers.as_ref()?.loss
    }
}
