//! The record of one unit of a batch: what ran, how it ended, and what was found.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::finding::FindingRecord;

/// Changes when a reader of the old shape would misread the new one.
pub const UNIT_VERSION: u32 = 1;

/// The words for how a unit ended.
const DONE: &str = "done";
const FAILED: &str = "failed";

/// One checkpoint on some prompts: the file beside the unit's rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct UnitRecord {
    #[schemars(extend("const" = UNIT_VERSION))]
    pub version: u32,
    /// Digest of weights, prompts, options and version: the name of both files.
    pub id: String,
    /// Base name of the checkpoint.
    pub checkpoint: String,
    /// Ids of the prompts.
    pub prompts: Vec<String>,
    #[schemars(schema_with = "statuses")]
    pub status: Cow<'static, str>,
    /// Why the unit failed; null where it did not.
    pub error: Option<String>,
    /// What checks found in the runs, the worst first; of several prompts the worst at each place.
    pub findings: Vec<FindingRecord>,
    /// How long it took.
    pub seconds: f64,
    /// SHA-256 of the file of rows; null where there is none.
    pub digest: Option<String>,
}

fn statuses(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": [DONE, FAILED] })
}

impl UnitRecord {
    /// Makes the record of a unit that ended, with or without an error.
    pub fn ended(
        id: String,
        checkpoint: String,
        prompts: Vec<String>,
        error: Option<String>,
    ) -> Self {
        Self {
            version: UNIT_VERSION,
            id,
            checkpoint,
            prompts,
            status: if error.is_some() { FAILED } else { DONE }.into(),
            error,
            findings: Vec::new(),
            seconds: 0.0,
            digest: None,
        }
    }

    /// Whether the unit finished without an error.
    pub fn is_done(&self) -> bool {
        self.status == DONE
    }
}
