//! A finding as data: in verdicts, and in the files of a batch, which are read back.

use std::borrow::Cow;

use attnscope_checks::{Explained, Finding, Severity};
use attnscope_spec::Place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::number::Number;

/// A finding of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FindingRecord {
    /// What to do.
    pub advice: String,
    /// Id of the check.
    pub check: Cow<'static, str>,
    /// One sentence: what was seen.
    pub evidence: String,
    /// How much of what a model lacks the named cause explains; left out where a check measures no such thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ExplainsRecord")]
    pub explains: Option<ExplainsRecord>,
    pub place: PlaceRecord,
    #[schemars(schema_with = "super::schema_parts::severity")]
    pub severity: Cow<'static, str>,
    /// Where the check fires.
    pub threshold: Number,
    /// Unit of value and threshold; empty for pure numbers.
    pub unit: Cow<'static, str>,
    /// What was measured.
    pub value: Number,
}

/// How much of what a model lacks a finding explains, in nats per token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ExplainsRecord {
    /// What the model gains under the named cause.
    pub nats: Number,
    /// What is missing of a trained model, at least.
    pub of: Number,
}

impl ExplainsRecord {
    pub fn of(explained: Explained) -> Self {
        Self {
            nats: Number(explained.nats),
            of: Number(explained.of),
        }
    }
}

/// The place of a finding; indices count from 0, and those that do not apply are null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PlaceRecord {
    pub head: Option<usize>,
    pub key: Option<usize>,
    pub layer: Option<usize>,
    pub query: Option<usize>,
    /// Stack of the layer; null for the only stack, and for findings about the whole target.
    #[schemars(schema_with = "super::schema_parts::stack")]
    pub stack: Option<Cow<'static, str>>,
}

impl FindingRecord {
    /// Makes the record of a finding.
    pub fn of(finding: &Finding) -> Self {
        Self {
            advice: finding.advice.clone(),
            check: finding.check.into(),
            evidence: finding.evidence.clone(),
            explains: None,
            place: PlaceRecord::of(&finding.place),
            severity: finding.severity.label().into(),
            threshold: Number(finding.threshold),
            unit: finding.unit.into(),
            value: Number(finding.value),
        }
    }

    /// Returns the severity; an unknown word from another version counts as an error.
    pub fn severity(&self) -> Severity {
        let all = [Severity::Info, Severity::Warning, Severity::Error];
        let known = all.into_iter().find(|known| known.label() == self.severity);
        known.unwrap_or(Severity::Error)
    }

    /// Returns how far the value is past its threshold, as [`Finding::excess`]; infinite if the value is not a number.
    pub fn excess(&self) -> f64 {
        let (value, threshold) = (self.value.0.abs(), self.threshold.0.abs());
        let excess = if value >= threshold {
            value / threshold
        } else {
            threshold / value
        };
        if excess.is_nan() {
            f64::INFINITY
        } else {
            excess
        }
    }
}

impl PlaceRecord {
    /// Makes the record of a place.
    pub fn of(place: &Place) -> Self {
        Self {
            head: place.head_idx,
            key: place.key_idx,
            layer: place.layer_idx,
            query: place.query_idx,
            stack: place.grid().label().map(Cow::from),
        }
    }

    /// Returns the place with query and key if they are known; empty for the whole model.
    pub fn whole_label(&self) -> String {
        let mut label = match self.layer {
            None => String::new(),
            Some(_) => self.label(),
        };
        for (what, idx) in [("query", self.query), ("key", self.key)] {
            if let Some(idx) = idx {
                label.push_str(&format!(" {what} {idx}"));
            }
        }
        label.trim_start().to_owned()
    }

    /// Returns the place in its usual form: `L3H7`, `cross.L3`; `model` for the whole model.
    pub fn label(&self) -> String {
        let stack = self.stack.as_deref();
        let mut label = stack.map_or(String::new(), |stack| format!("{stack}."));
        match (self.layer, self.head) {
            (None, _) => return "model".to_owned(),
            (Some(layer), None) => label.push_str(&format!("L{layer}")),
            (Some(layer), Some(head)) => label.push_str(&format!("L{layer}H{head}")),
        }
        label
    }
}
