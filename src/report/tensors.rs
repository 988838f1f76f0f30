//! The tensors of a checkpoint as JSON.

use std::io::{self, Write};

use attnscope_checkpoint::TensorInfo;
use attnscope_run::TensorStats;
use schemars::JsonSchema;
use serde::Serialize;

use super::json::write_pretty;
use super::number::Number;

/// The tensors of a checkpoint, with their figures where those were asked for.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TensorList(pub Vec<TensorRecord>);

/// A tensor of a checkpoint.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct TensorRecord {
    /// Bytes that the tensor takes in the file.
    bytes: usize,
    /// Element type in the file.
    dtype: String,
    name: String,
    shape: Vec<usize>,
    /// Figures of the values, with `--stats`; null where the elements are not floating point.
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<Option<StatsRecord>>,
}

/// Figures of a tensor's values.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct StatsRecord {
    /// How many values are infinite.
    infinite: usize,
    /// Largest finite value.
    max: Number,
    /// Mean of the finite values.
    mean: Number,
    /// Smallest finite value.
    min: Number,
    /// How many values are NaN.
    nan: usize,
}

impl From<TensorStats> for StatsRecord {
    fn from(of: TensorStats) -> Self {
        Self {
            infinite: of.n_infinite,
            max: Number(f64::from(of.max)),
            mean: Number(of.mean),
            min: Number(f64::from(of.min)),
            nan: of.n_nan,
        }
    }
}

impl TensorRecord {
    /// Describes a tensor. The outer `Option` says whether statistics were requested, the inner one whether there are any.
    pub fn of(name: &str, info: &TensorInfo, stats: Option<Option<TensorStats>>) -> Self {
        Self {
            bytes: info.n_bytes(),
            dtype: info.dtype.to_string(),
            name: name.to_owned(),
            shape: info.shape.clone(),
            stats: stats.map(|stats| stats.map(StatsRecord::from)),
        }
    }
}

impl TensorList {
    /// Writes the document, indented, with a newline at the end.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        write_pretty(self, to)
    }
}
