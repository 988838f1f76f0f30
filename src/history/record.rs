//! One step of a history: what is known of it, and how far reading it is.

use std::path::PathBuf;

use attnscope_report::record::Row;

/// How far reading a step is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is there, and has not been read.
    Waiting,
    /// Its files are still being written: what is missing.
    Incomplete(String),
    /// It is being read now.
    Reading,
    /// Its statistics are those of the files as they are.
    Done,
    /// It could not be read: why, in one line.
    Failed(String),
    /// Its files were deleted; statistics that were read stay.
    Gone,
    /// Its files are others than those that were read; the statistics are of the former ones.
    Changed,
}

impl State {
    /// The word for it in documents.
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

    /// What there is to say beside the word.
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
    /// Mean loss in nats, where it is known; as the training reported it in a log.
    pub loss: Option<f64>,
    /// [statistic of the history][cell of the grid], [`UNKNOWN`] where there is none
    pub values: Box<[f32]>,
}

/// Stands for a value that a record does not have: a log need not record the same of every step. It is a NaN with bits of its own,
/// so that whoever asks for a value only finds no number.
pub const UNKNOWN: f32 = f32::from_bits(0x7fc0_0a77);

/// Whether a value is one that a record does not have, rather than one that is not finite.
pub fn is_unknown(value: f32) -> bool {
    value.to_bits() == UNKNOWN.to_bits()
}

/// One step of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The base name of a checkpoint; the name of the log for its records.
    pub name: String,
    /// Where the checkpoint lies; `None` for records of a log.
    pub path: Option<PathBuf>,
    pub step: Option<u64>,
    /// Seconds since 1970 at which a log's record was written.
    pub time: Option<f64>,
    pub state: State,
    pub numbers: Option<Numbers>,
    /// The rows of the table for a checkpoint; empty for records of a log, whose rows are made when they are asked for.
    pub rows: Vec<Row>,
}

impl Record {
    /// A checkpoint that was found and not read.
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

    /// How people call it: `step 250`, or its name where no step is known.
    pub fn label(&self) -> String {
        match self.step {
            Some(step) => format!("step {step}"),
            None => self.name.clone(),
        }
    }

    pub fn loss(&self) -> Option<f64> {
        self.numbers.as_ref()?.loss
    }
}
