//! A table of effects as data: described columns and rows of cells.

use std::io::{self, Write};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::column::Column;
use crate::document::ModelRecord;
use crate::json::write_pretty;
use crate::number::{Number, number};
use crate::plain::{cell, one_line};
use crate::text_table::{digits, text_table, wrapped};

/// Version of the JSON.
const VERSION: u32 = 1;
/// Most width of remarks in text.
const WIDTH: usize = 100;

/// A value of the table; empty if the column does not apply to the row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Empty,
    Text(String),
    Integer(u64),
    Number(f64),
}

impl Cell {
    /// A number, or an empty cell.
    pub fn of(value: Option<f64>) -> Self {
        value.map_or(Self::Empty, Self::Number)
    }

    /// An index or a count, or an empty cell.
    pub fn index(value: Option<usize>) -> Self {
        value.map_or(Self::Empty, |value| Self::Integer(value as u64))
    }

    /// A text.
    pub fn text(value: impl Into<String>) -> Self {
        Self::Text(value.into())
    }

    /// Formats the value as it is shown in tables.
    pub fn shown(&self) -> String {
        match self {
            Self::Empty => "-".to_owned(),
            Self::Text(text) => one_line(text).into_owned(),
            Self::Integer(value) => value.to_string(),
            Self::Number(value) => digits(*value),
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Empty => to.serialize_none(),
            Self::Text(text) => to.serialize_str(text),
            Self::Integer(value) => to.serialize_u64(*value),
            Self::Number(value) => Number(*value).serialize(to),
        }
    }
}

/// Columns, rows and remarks.
#[derive(Debug, Clone, Default)]
pub struct SheetRows {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
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

struct Keyed<'a>(&'a [Column], &'a [Cell]);

impl Serialize for Keyed<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (column, cell) in self.0.iter().zip(self.1) {
            map.serialize_entry(column.id, cell)?;
        }
        map.end()
    }
}

/// Schema of a row: the columns of one measure, each with a text, a number, or null.
fn rows(_: &mut SchemaGenerator) -> Schema {
    let cell = || serde_json::json!({ "type": ["number", "string", "null"] });
    let columns = super::columns::every_column();
    let columns: serde_json::Map<String, serde_json::Value> = columns
        .into_iter()
        .map(|column| (column.id.to_owned(), cell()))
        .collect();
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": columns,
            "additionalProperties": false
        }
    })
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
        let columns = sheet.columns.iter().map(|column| ColumnRecord {
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
            rows: sheet
                .rows
                .iter()
                .map(|row| Keyed(&sheet.columns, row))
                .collect(),
        };
        write_pretty(&document, to)
    }

    /// Writes the rows. `is_raw` leaves texts unescaped, even those that a spreadsheet would compute.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_csv(&self, is_raw: bool, to: &mut impl Write) -> io::Result<()> {
        let mut writer = ::csv::Writer::from_writer(to);
        writer.write_record(self.sheet.columns.iter().map(|column| column.id))?;
        for row in &self.sheet.rows {
            let cells = row.iter().map(|value| match value {
                Cell::Empty => String::new(),
                Cell::Text(text) if is_raw => text.clone(),
                Cell::Text(text) => cell(text).into_owned(),
                Cell::Integer(value) => value.to_string(),
                Cell::Number(value) => number(*value),
            });
            writer.write_record(cells)?;
        }
        writer.flush()
    }

    /// Returns the table as text, with how it was computed below.
    pub fn text(&self) -> String {
        let sheet = &self.sheet;
        // Columns that are empty in every row are not shown.
        let is_filled = |idx: &usize| sheet.rows.iter().any(|row| row[*idx] != Cell::Empty);
        let shown: Vec<usize> = (0..sheet.columns.len()).filter(is_filled).collect();
        let titles: Vec<&str> = shown.iter().map(|idx| sheet.columns[*idx].id).collect();
        let rows: Vec<Vec<String>> = sheet
            .rows
            .iter()
            .map(|row| shown.iter().map(|idx| row[*idx].shown()).collect())
            .collect();
        let mut text = text_table(&titles, &rows);
        if !sheet.totals.is_empty() {
            text.push('\n');
            for (name, value) in &sheet.totals {
                text += &format!("{name}: {}\n", digits(*value));
            }
        }
        text.push('\n');
        if !self.complete {
            text += "stopped: these rows are what was done until then\n";
        }
        for note in &sheet.notes {
            text += &wrapped(note, WIDTH, "  ");
        }
        text
    }
}
