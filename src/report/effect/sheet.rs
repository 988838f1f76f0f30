//! A table of effects, and how it was computed.

use std::io::{self, Write};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use crate::document::ModelRecord;
use crate::json::write_pretty;
use crate::markdown::escaped;
use crate::number::Number;
use crate::table::{Keyed, Table, keyed_schema};
use crate::text_table::{digits, wrapped};

/// Version of the JSON.
const VERSION: u32 = 1;
/// Remark on a table that was stopped before its end.
const STOPPED: &str = "stopped: these rows are what was done until then";

/// Most width of remarks in text.
const WIDTH: usize = 100;

/// Columns, rows and remarks.
#[derive(Debug, Clone, Default)]
pub struct SheetRows {
    pub table: Table,
    /// How it was computed, and its limits.
    pub notes: Vec<String>,
    /// Overall numbers, such as the logit and the sum of all shares.
    pub totals: Vec<(&'static str, f64)>,
}

/// A prompt that was run.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PromptOf {
    /// Id of the prompt.
    pub id: String,
    /// Tokens of the stack that predicts.
    pub n_tokens: usize,
}

/// Result of one measure.
#[derive(Debug)]
pub struct EffectReport {
    pub by: &'static str,
    pub model: ModelRecord,
    pub what_if: Vec<String>,
    pub prompts: Vec<PromptOf>,
    /// False if the work was stopped: the rows are what was done by then.
    pub complete: bool,
    pub sheet: SheetRows,
}

/// What the parts of a model do, by one measure.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "EffectReport")]
struct Document<'a> {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    /// The measure.
    by: &'a str,
    model: &'a ModelRecord,
    /// What-ifs that were on, as they were written.
    what_if: &'a [String],
    prompts: &'a [PromptOf],
    /// False where the work was stopped: the rows are what was done until then.
    complete: bool,
    /// How it was computed, and what it cannot tell.
    notes: &'a [String],
    /// Numbers of the whole: a logit, the sum of all shares.
    totals: Vec<Total<'a>>,
    columns: Vec<ColumnRecord<'a>>,
    /// One object a row, with a key for every column.
    #[schemars(schema_with = "rows")]
    rows: Vec<Keyed<'a>>,
}

/// What a column holds.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ColumnRecord<'a> {
    /// Name of the column, as rows have it.
    id: &'a str,
    /// Unit, where it has one.
    unit: Option<&'a str>,
    about: &'a str,
}

/// A number of the whole.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Total<'a> {
    name: &'a str,
    value: Number,
}

/// Schema of a row: the columns of one measure.
fn rows(_: &mut SchemaGenerator) -> Schema {
    keyed_schema(super::columns::every_column())
}

impl JsonSchema for EffectReport {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EffectReport".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Document::json_schema(generator)
    }
}

impl EffectReport {
    /// Writes the document.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        let sheet = &self.sheet;
        let columns = sheet.table.columns.iter().map(|column| ColumnRecord {
            id: column.id,
            unit: column.unit,
            about: column.about,
        });
        let document = Document {
            version: VERSION,
            by: self.by,
            model: &self.model,
            what_if: &self.what_if,
            prompts: &self.prompts,
            complete: self.complete,
            notes: &sheet.notes,
            totals: sheet
                .totals
                .iter()
                .map(|(name, value)| Total {
                    name,
                    value: Number(*value),
                })
                .collect(),
            columns: columns.collect(),
            rows: sheet.table.keyed(),
        };
        write_pretty(&document, to)
    }

    /// Returns the table as Markdown, with how it was computed below.
    pub fn markdown(&self) -> String {
        let sheet = &self.sheet;
        let mut text = sheet.table.markdown();
        let totals = sheet.totals.iter();
        let totals = totals.map(|(name, value)| format!("{name}: {}", digits(*value)));
        let stopped = (!self.complete).then(|| STOPPED.to_owned());
        for line in totals.chain(stopped).chain(sheet.notes.iter().cloned()) {
            text += &format!("\n{}\n", escaped(&line));
        }
        text
    }

    /// Returns the table as text, with how it was computed below.
    pub fn text(&self) -> String {
        let sheet = &self.sheet;
        let mut text = sheet.table.text();
        if !sheet.totals.is_empty() {
            text.push('\n');
            for (name, value) in &sheet.totals {
                text += &format!("{name}: {}\n", digits(*value));
            }
        }
        text.push('\n');
        if !self.complete {
            text += &format!("{STOPPED}\n");
        }
        for note in &sheet.notes {
            text += &wrapped(note, WIDTH, "  ");
        }
        text
    }
}
