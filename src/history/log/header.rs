//! The first line of a log: its statistics and layers.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use attnscope_checkpoint::open_regular;
use attnscope_checks::stats::index_of;
use attnscope_spec::Stack;
use serde::Deserialize;

use crate::grid::{Grid, LayerShape};

/// Version of logs that this program reads.
const VERSION: u64 = 1;

/// Most cells of a valid header, more heads than any model has.
const MOST_CELLS: usize = 1 << 22;

/// Contents of the first line.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Name of the model in the training.
    pub model: String,
    pub grid: Grid,
    /// Registry indices of the log's known statistics, in the order of the log.
    pub statistics: Vec<usize>,
    /// Ids in the log that this program does not know.
    pub unknown: Vec<String>,
    /// Sampled query rows per head; 0 if all rows were used.
    pub rows: u64,
    /// Steps between two records.
    pub every: u64,
    /// Modules that look like attention and of which the monitor saw none: path and class.
    pub unseen: Vec<String>,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    model: Option<String>,
    statistics: Vec<String>,
    layers: Vec<RawLayer>,
    #[serde(default)]
    rows: Option<u64>,
    #[serde(default)]
    every: Option<u64>,
    #[serde(default)]
    unseen: Vec<String>,
}

#[derive(Deserialize)]
struct RawLayer {
    #[serde(default)]
    stack: Option<String>,
    layer: usize,
    n_heads: usize,
}

impl Header {
    /// Reads the first line.
    ///
    /// # Errors
    /// When it is not the header of a monitor's log, or has impossible values: what was expected, and what was found.
    pub fn read(line: &[u8]) -> Result<Self, String> {
        const EXPECTED: &str =
            "expected the first line of a monitor log ({\"attnscope\":\"monitor\", …})";
        let value: serde_json::Value = serde_json::from_slice(line)
            .map_err(|e| format!("{EXPECTED}, found a line that is no JSON ({e})"))?;
        match value.get("attnscope").and_then(|kind| kind.as_str()) {
            Some("monitor") => {}
            Some(other) => return Err(format!("{EXPECTED}, found a file of kind {other:?}")),
            None => return Err(format!("{EXPECTED}, found JSON without that key")),
        }
        let version = value.get("version").and_then(serde_json::Value::as_u64);
        if version != Some(VERSION) {
            let found = version.map_or("none".to_owned(), |version| version.to_string());
            return Err(format!(
                "monitor log: expected version {VERSION}, found {found}"
            ));
        }
        let raw: Raw =
            serde_json::from_value(value).map_err(|e| format!("monitor log, line 1: {e}"))?;
        Self::of(raw).map_err(|problem| format!("monitor log, line 1: {problem}"))
    }

    /// Parses the line that begins a segment; returns its header if it has one.
    ///
    /// # Errors
    /// When the header has impossible values.
    pub fn read_segment(line: &[u8]) -> Result<Option<Self>, String> {
        let Ok(mut value) = serde_json::from_slice::<serde_json::Value>(line) else {
            return Ok(None);
        };
        if value.get("attnscope").is_some() {
            return Self::read(line).map(Some);
        }
        let Some(segment) = value.get_mut("segment").map(serde_json::Value::take) else {
            return Ok(None);
        };
        if segment.get("layers").is_none() {
            return Ok(None);
        }
        let raw: Raw = serde_json::from_value(segment).map_err(|e| format!("segment: {e}"))?;
        let header = Self::of(raw).map_err(|problem| format!("segment: {problem}"))?;
        Ok(Some(header))
    }

    /// Whether another header describes records of the same shape.
    pub fn has_shape_of(&self, other: &Self) -> bool {
        self.grid == other.grid && self.statistics == other.statistics
    }

    fn of(raw: Raw) -> Result<Self, String> {
        let mut layers = Vec::new();
        let mut known = HashSet::new();
        for layer in &raw.layers {
            let stack = match layer.stack.as_deref() {
                None => Stack::Only,
                Some("encoder") => Stack::Encoder,
                Some("decoder") => Stack::Decoder,
                Some("cross") => Stack::Cross,
                Some(other) => {
                    return Err(format!(
                        "layer {}: expected stack null, encoder, decoder or cross, found {other:?}",
                        layer.layer
                    ));
                }
            };
            let shape = LayerShape {
                stack,
                layer_idx: layer.layer,
                n_heads: layer.n_heads,
            };
            if !known.insert((layer.stack.as_deref(), layer.layer)) {
                return Err(format!("{} is listed twice", shape.place()));
            }
            layers.push(shape);
        }
        let n_cells = layers
            .iter()
            .try_fold(0usize, |n, layer| n.checked_add(layer.n_heads));
        if layers.is_empty() || n_cells.is_none_or(|n| n == 0 || n > MOST_CELLS) {
            return Err(
                "expected layers with heads, found none, or more than a model has".to_owned(),
            );
        }
        let (mut statistics, mut unknown) = (Vec::new(), Vec::new());
        for id in raw.statistics {
            match index_of(&id) {
                Some(idx) if statistics.contains(&idx) => {
                    return Err(format!("statistic {id} is listed twice"));
                }
                Some(idx) => statistics.push(idx),
                None => unknown.push(id),
            }
        }
        if statistics.is_empty() {
            return Err("none of its statistics is known to this program".to_owned());
        }
        Ok(Self {
            model: raw.model.unwrap_or_default(),
            grid: Grid::new(layers),
            statistics,
            unknown,
            rows: raw.rows.unwrap_or(0),
            every: raw.every.unwrap_or(0),
            unseen: raw.unseen,
        })
    }
}

/// Whether a line may begin a segment: monitors write this key first.
pub(super) fn may_begin_segment(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    [&b"{\"segment\""[..], b"{\"attnscope\""]
        .iter()
        .any(|start| line.starts_with(start))
}

/// Whether a file begins like a monitor's log. Reads the first line only, up to the longest header.
pub fn is_monitor_log(path: &Path) -> bool {
    const LONGEST: u64 = 16 << 20;
    let Ok(file) = open_regular(path) else {
        return false;
    };
    let mut reader = BufReader::new(file.take(LONGEST));
    let mut start = [0u8; 1];
    if reader.read_exact(&mut start).is_err() || start != *b"{" {
        return false;
    }
    let mut line = start.to_vec();
    if reader.read_until(b'\n', &mut line).is_err() {
        return false;
    }
    let value: Result<serde_json::Value, _> = serde_json::from_slice(&line);
    value.is_ok_and(|value| value.get("attnscope").is_some_and(|kind| kind == "monitor"))
}
