//! Facts about each attention call that the capturing code noted in the file's metadata.

use std::collections::BTreeMap;

use attnscope_checkpoint::captured::Captured;
use attnscope_checkpoint::counted::counted;
use attnscope_checks::Discarded;
use attnscope_compute::attention::{RecordedCall, RecordedPositions};
use attnscope_compute::error::Error;
use serde_json::Value;

/// Recorded calls by array name, and facts recorded for all calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    by_name: BTreeMap<String, RecordedCall>,
    all: RecordedCall,
}

impl Calls {
    /// Reads the metadata; entries of an unexpected form are ignored.
    pub fn read(captured: &Captured) -> Self {
        let said = |key: &str| captured.metadata.get(key).map(String::as_str);
        let flag = |key: &str| match said(key) {
            Some("true" | "True" | "1") => Some(true),
            Some("false" | "False" | "0") => Some(false),
            _ => None,
        };
        let all = RecordedCall {
            axis: said("attnscope.softmax_axis").map(str::to_owned),
            dropout_p: said("attnscope.dropout_p").and_then(|text| text.parse().ok()),
            is_training: flag("attnscope.training"),
            is_causal: flag("attnscope.is_causal"),
            is_deterministic: flag("attnscope.deterministic"),
            is_mixed: false,
            is_stepwise: false,
            has_alike_values: false,
            sink_columns: None,
            scale: None,
            d_head: None,
            place: None,
            positions: None,
            shape: Vec::new(),
            heads_moved: BTreeMap::new(),
        };
        let mut by_name = BTreeMap::new();
        let calls = said("attnscope.calls").and_then(|text| serde_json::from_str(text).ok());
        let calls = match calls {
            Some(Value::Array(calls)) => calls,
            _ => Vec::new(),
        };
        for call in &calls {
            let Some(name) = call.get("name").and_then(Value::as_str) else {
                continue;
            };
            let flag = |key: &str| call.get(key).and_then(Value::as_bool);
            let found = RecordedCall {
                axis: call.get("axis").and_then(Value::as_str).map(str::to_owned),
                dropout_p: call.get("dropout_p").and_then(Value::as_f64),
                is_training: flag("training"),
                is_causal: flag("is_causal"),
                is_deterministic: None,
                is_mixed: call
                    .get("after")
                    .and_then(Value::as_array)
                    .is_some_and(|steps| steps.iter().any(|step| step == "mix")),
                is_stepwise: flag("steps_over_all") == Some(true),
                has_alike_values: flag("alike_values") == Some(true),
                sink_columns: call
                    .get("sink_columns")
                    .and_then(Value::as_u64)
                    .map(|n| n as usize),
                scale: call.get("scale").and_then(Value::as_f64),
                d_head: call
                    .get("d_head")
                    .and_then(Value::as_u64)
                    .map(|n| n as usize),
                place: call.get("where").and_then(Value::as_str).map(str::to_owned),
                shape: call.get("shape").map_or(Vec::new(), sizes),
                positions: call.get("positions").map(positions),
                heads_moved: call.get("heads_moved").map_or(BTreeMap::new(), flags),
            };
            // Several calls under one name are modules with one head each.
            by_name.entry(name.to_owned()).or_insert(found);
        }
        Self { by_name, all }
    }

    /// Returns what is recorded about the call that produced an array.
    pub fn of(&self, array: &str) -> RecordedCall {
        let name = array.rsplit_once('.').map_or(array, |(name, _)| name);
        let all = self.all.clone();
        let Some(own) = self.by_name.get(name).cloned() else {
            return all;
        };
        RecordedCall {
            axis: own.axis.or(all.axis),
            dropout_p: own.dropout_p.or(all.dropout_p),
            is_training: own.is_training.or(all.is_training),
            is_causal: own.is_causal.or(all.is_causal),
            is_deterministic: all.is_deterministic,
            is_mixed: own.is_mixed,
            is_stepwise: own.is_stepwise,
            has_alike_values: own.has_alike_values,
            sink_columns: own.sink_columns,
            scale: own.scale,
            d_head: own.d_head,
            place: own.place,
            positions: own.positions,
            shape: own.shape,
            heads_moved: own.heads_moved,
        }
    }
}

fn flags(value: &Value) -> BTreeMap<String, bool> {
    let flags = value.as_object().into_iter().flatten();
    flags
        .filter_map(|(name, flag)| Some((name.clone(), flag.as_bool()?)))
        .collect()
}

fn positions(value: &Value) -> RecordedPositions {
    let is_true = |key: &str| value.get(key).and_then(Value::as_bool) == Some(true);
    let slopes = value.get("slopes").and_then(Value::as_array);
    let slopes = slopes.map(|all| all.iter().filter_map(Value::as_f64).collect::<Vec<_>>());
    RecordedPositions {
        rotated: value
            .get("rotated")
            .and_then(Value::as_str)
            .map(str::to_owned),
        has_rotated_values: is_true("rotated_values"),
        has_unlike_pairs: is_true("unlike_pairs"),
        is_rotated_before: is_true("rotated_before"),
        slopes: slopes.and_then(|all| Some((*all.first()?, *all.last()?))),
    }
}

fn sizes(value: &Value) -> Vec<usize> {
    let sizes = value.as_array().into_iter().flatten();
    sizes
        .filter_map(Value::as_u64)
        .map(|n| n as usize)
        .collect()
}

/// Layers whose results the code throws away; `None` where nothing was noted of them. Entries of an unexpected form are ignored.
pub(super) fn discarded(captured: &Captured) -> Option<Vec<Discarded>> {
    let text = captured.metadata.get("attnscope.discarded")?;
    let layers: Vec<BTreeMap<String, String>> = serde_json::from_str(text).ok()?;
    let layer = |of: &BTreeMap<String, String>| {
        let said = |key: &str| of.get(key).cloned();
        Some(Discarded {
            module: said("module")?,
            class: said("class")?,
            place: said("where")?,
            part: said("part"),
        })
    };
    Some(layers.iter().filter_map(layer).collect())
}

/// What the recorder says of code in which it saw no attention.
pub(super) fn nothing_recorded(captured: &Captured) -> Option<Error> {
    captured.metadata.get("attnscope.capture")?;
    let skipped = captured.metadata.get("attnscope.skipped");
    let skipped = skipped.and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
    let why = skipped.unwrap_or_default().iter().find_map(|entry| {
        let said = |key: &str| entry.get(key).and_then(Value::as_str);
        Some(format!("; {}: {}", said("module")?, said("why")?))
    });
    let problem = format!(
        "no attention was captured{}; what is looked for is a softmax of a product of queries and keys, or scaled_dot_product_attention",
        why.unwrap_or_default()
    );
    Some(Error::file(&captured.path, problem))
}

/// Which axis of vectors holds positions, where nothing but attention says so: a batch may have been meant to come first.
pub(super) fn first_axis(captured: &Captured) -> Option<String> {
    let sizes = captured.metadata.get("attnscope.first_axis")?;
    let sizes = sizes.split_once(',')?;
    let [n, n_rows]: [usize; 2] = [sizes.0.parse().ok()?, sizes.1.parse().ok()?];
    Some(format!(
        "the input [{n}, {n_rows}, feature] is read as {n} positions, since attention runs along its first axis: if that is the batch, \
         pass batch_first=True"
    ))
}

/// The modules in which linear attention ran, which makes no pattern.
pub(super) fn linear(captured: &Captured) -> Option<String> {
    let text = captured.metadata.get("attnscope.linear")?;
    let modules: Vec<String> = serde_json::from_str(text).ok()?;
    let first = modules.first()?;
    let more = match modules.len() {
        1 => String::new(),
        n => format!(" and {}", counted(n - 1, "more module")),
    };
    Some(format!(
        "linear attention in {first}{more}: it makes no matrix of queries by keys, and is not judged"
    ))
}
