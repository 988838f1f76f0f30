//! A whole batch as data: the findings of all units, failed and missing units, and the rows.

use std::io::{self, Write};
use std::sync::Arc;

use attnscope_checkpoint::counted::counted;
use attnscope_checks::Severity;
use attnscope_checks::stats::STATISTICS;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::finding::FindingRecord;
use super::grouped::{self, grouped, severities, write_groups};
use super::plain::one_line;

/// Changes when a reader of the old shape would misread the new one.
const VERSION: u32 = 1;
/// Most units of one kind listed.
const MOST_SHOWN: usize = 5;

/// What came of a batch.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Merged {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    pub units: UnitCounts,
    pub checkpoints: Vec<MergedCheckpoint>,
    pub failed: Vec<FailedUnit>,
    pub missing: Vec<MissingUnit>,
    /// The rows of the table, every column by its name; null where a row has no value.
    #[schemars(schema_with = "rows")]
    rows: Vec<()>,
}

/// How many units ended in which way.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct UnitCounts {
    pub done: usize,
    pub failed: usize,
    pub missing: usize,
}

/// One checkpoint of a batch.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct MergedCheckpoint {
    /// Base name.
    pub checkpoint: String,
    /// Step of the training, where the name or the trainer's state tells it.
    pub step: Option<u64>,
    /// Units that have ended.
    pub units: usize,
    /// How long all of them took.
    pub seconds: f64,
    /// What was found, the worst first; of all prompts the worst at each place.
    pub findings: Vec<FindingRecord>,
}

/// A unit that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FailedUnit {
    pub id: String,
    pub checkpoint: String,
    pub prompts: Vec<String>,
    /// Why.
    pub error: String,
}

/// A unit that was planned, and of which there is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct MissingUnit {
    pub checkpoint: String,
    // Shared by the units of all checkpoints on the same prompts: there may be millions.
    #[serde(serialize_with = "shared_texts")]
    #[schemars(with = "Vec<String>")]
    pub prompts: Arc<[String]>,
}

fn shared_texts<S: Serializer>(texts: &Arc<[String]>, to: S) -> Result<S::Ok, S::Error> {
    texts[..].serialize(to)
}

fn rows(_: &mut SchemaGenerator) -> Schema {
    let places = [
        ("checkpoint", json!({ "type": "string" })),
        ("step", json!({ "type": ["integer", "null"] })),
        ("prompt", json!({ "type": "string" })),
        ("n_tokens", json!({ "type": "integer" })),
        ("loss", number_or_null()),
        ("stack", json!({ "type": ["string", "null"] })),
        ("layer", json!({ "type": "integer" })),
        ("head", json!({ "type": ["integer", "null"] })),
    ];
    let statistics = STATISTICS
        .iter()
        .map(|statistic| (statistic.id, number_or_null()));
    let columns: Map<String, Value> = places
        .into_iter()
        .chain(statistics)
        .map(|(name, kind)| (name.to_owned(), kind))
        .collect();
    let names: Vec<&String> = columns.keys().collect();
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": names,
            "properties": columns,
            "additionalProperties": false,
        },
    })
}

/// Schema of a number, a word for a number that JSON lacks, or null.
fn number_or_null() -> Value {
    json!({ "anyOf": [
        { "type": ["number", "null"] },
        { "enum": ["NaN", "Infinity", "-Infinity"] },
    ] })
}

impl Default for Merged {
    fn default() -> Self {
        Self {
            version: VERSION,
            units: UnitCounts::default(),
            checkpoints: Vec::new(),
            failed: Vec::new(),
            missing: Vec::new(),
            rows: Vec::new(),
        }
    }
}

impl Merged {
    /// Returns the document up to the first row, and its end after the last row.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn around_rows(&self) -> io::Result<(String, &'static str)> {
        const END: &str = "]}";
        let mut text = serde_json::to_string(self)?;
        text.truncate(text.len() - END.len());
        Ok((text, END))
    }

    /// Returns the worst severity of any finding.
    pub fn worst(&self) -> Option<Severity> {
        let findings = self.checkpoints.iter().flat_map(|of| &of.findings);
        findings.map(FindingRecord::severity).max()
    }

    /// Counts the findings of a severity.
    pub fn n_findings(&self, severity: Severity) -> usize {
        let findings = self.checkpoints.iter().flat_map(|of| &of.findings);
        findings
            .filter(|finding| finding.severity() == severity)
            .count()
    }

    /// Returns one line with the number of units and the findings.
    pub fn headline(&self) -> String {
        let UnitCounts {
            done,
            failed,
            missing,
        } = self.units;
        let mut parts = vec![
            counted(self.checkpoints.len(), "checkpoint"),
            format!("{} done", counted(done, "unit")),
        ];
        parts.extend((failed > 0).then(|| format!("{failed} failed")));
        parts.extend((missing > 0).then(|| format!("{missing} missing")));
        parts.push(counted(self.n_findings(Severity::Error), "error"));
        parts.push(counted(self.n_findings(Severity::Warning), "warning"));
        parts.join(" · ")
    }

    /// Writes the verdict for a terminal: the headline, missing and failed units, and the findings of each checkpoint.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_text(&self, to: &mut impl Write) -> io::Result<()> {
        writeln!(to, "{}", self.headline())?;
        for unit in self.failed.iter().take(MOST_SHOWN) {
            let (unit, error) = (
                named(&unit.checkpoint, &unit.prompts),
                one_line(&unit.error),
            );
            writeln!(to, "  failed  {unit}: {error}")?;
        }
        rest(self.failed.len(), "failed", to)?;
        for unit in self.missing.iter().take(MOST_SHOWN) {
            writeln!(to, "  missing {}", named(&unit.checkpoint, &unit.prompts))?;
        }
        rest(self.missing.len(), "missing", to)?;
        for of in &self.checkpoints {
            let shown = of.findings.iter().filter(|f| f.severity() > Severity::Info);
            let groups = grouped(shown);
            if groups.is_empty() {
                continue;
            }
            writeln!(
                to,
                "{}: {}: {}",
                one_line(&of.checkpoint),
                severities(&of.findings),
                grouped::named(&groups)
            )?;
            write_groups(&groups, to)?;
        }
        Ok(())
    }
}

fn rest(n: usize, what: &str, to: &mut impl Write) -> io::Result<()> {
    if n > MOST_SHOWN {
        writeln!(
            to,
            "  … {} more {what}; --format json has them all",
            n - MOST_SHOWN
        )?;
    }
    Ok(())
}

/// Describes a unit by its checkpoint and prompts.
pub fn named(checkpoint: &str, prompts: &[String]) -> String {
    let prompts = match prompts {
        [] => "no prompts".to_owned(),
        [only] => format!("prompt {only}"),
        [first, .., last] => format!("{} prompts, {first} to {last}", prompts.len()),
    };
    one_line(&format!("{checkpoint}: {prompts}")).into_owned()
}
