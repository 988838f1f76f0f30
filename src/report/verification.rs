//! Differences between two engines, hook by hook: as a table for people, as JSON for programs.

use std::io::{self, Write};

use attnscope_checkpoint::counted::counted;
use attnscope_compare::verify::{DeviceDifference, Floor, ValuePlace};
use attnscope_prompt::Prompt;
use schemars::JsonSchema;
use serde::Serialize;

use super::document::ModelRecord;
use super::json::write_pretty;
use super::number::Number;
use super::text_table::{digits, text_table};

/// Version of the JSON.
const VERSION: u32 = 1;

/// Names of the two engines.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Engines {
    pub reference: String,
    pub other: String,
}

/// How far two engines lie apart on a prompt, hook by hook.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Verification {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    model: ModelRecord,
    /// What-ifs that were on, as they were written.
    what_if: Vec<String>,
    engines: Engines,
    /// Token ids; those of the encoder for models that have one.
    tokens: Vec<u32>,
    /// Token ids of the decoder; left out for models without an encoder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<u32>")]
    decoder_tokens: Option<Vec<u32>>,
    floor: FloorRecord,
    /// Whether every hook is within the floor.
    within: bool,
    /// The hook that uses most of its floor; null where nothing differs.
    worst: Option<String>,
    /// The first hook beyond the floor; null where every hook is within it.
    first_beyond: Option<String>,
    hooks: Vec<HookRow>,
}

/// Differences up to which two engines agree.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct FloorRecord {
    /// Of attention weights, absolute.
    pattern: Number,
    /// Of every other hook, relative to its largest value.
    relative: Number,
}

/// How far the engines lie apart at one hook.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct HookRow {
    hook: String,
    /// Stack of the layer; null for the only stack, and for what follows the last layer.
    #[schemars(schema_with = "super::schema_parts::stack")]
    stack: Option<&'static str>,
    /// Index of the layer, from 0; null for what follows the last layer.
    layer: Option<usize>,
    /// The largest difference of two values; infinite where one of them is not finite and the other is.
    difference: Number,
    /// The largest difference divided by the largest value.
    relative: Number,
    /// The largest absolute value of the reference.
    largest_value: Number,
    /// Where the difference is largest; null where all values are equal.
    place: Option<PlaceRecord>,
    /// The reference's value at the place; null where all values are equal.
    reference: Option<Number>,
    /// The other engine's value at the place; null where all values are equal.
    other: Option<Number>,
    /// The share of the floor that is used; more than 1 is beyond it.
    of_floor: Number,
    /// Whether the difference is within the floor.
    within: bool,
    #[serde(skip)]
    place_in_words: String,
}

/// The place of a value; indices count from 0, and those that the hook does not have are left out.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PlaceRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize")]
    head: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize")]
    kv_head: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize")]
    query: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize")]
    key: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize")]
    position: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize")]
    value: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize")]
    token: Option<usize>,
}

impl PlaceRecord {
    fn of(place: ValuePlace) -> Self {
        let none = Self::default();
        match place {
            ValuePlace::Cell {
                head_idx,
                query_idx,
                key_idx,
            } => Self {
                head: Some(head_idx),
                query: Some(query_idx),
                key: Some(key_idx),
                ..none
            },
            ValuePlace::OfHead {
                position_idx,
                head_idx,
                value_idx,
            } => Self {
                head: Some(head_idx),
                position: Some(position_idx),
                value: Some(value_idx),
                ..none
            },
            ValuePlace::OfKvHead {
                position_idx,
                kv_head_idx,
                value_idx,
            } => Self {
                kv_head: Some(kv_head_idx),
                position: Some(position_idx),
                value: Some(value_idx),
                ..none
            },
            ValuePlace::OfPosition {
                position_idx,
                value_idx,
            } => Self {
                position: Some(position_idx),
                value: Some(value_idx),
                ..none
            },
            ValuePlace::OfToken {
                position_idx,
                token,
            } => Self {
                position: Some(position_idx),
                token: Some(token),
                ..none
            },
        }
    }
}

impl HookRow {
    fn of(found: &DeviceDifference) -> Self {
        let value = |value: f32| found.place.map(|_| Number(f64::from(value)));
        Self {
            hook: found.name.clone(),
            stack: found.layer.and_then(|(stack, _)| stack.label()),
            layer: found.layer.map(|(_, layer_idx)| layer_idx),
            difference: Number(found.difference),
            relative: Number(found.relative),
            largest_value: Number(found.magnitude),
            place: found.place.map(PlaceRecord::of),
            reference: value(found.reference),
            other: value(found.other),
            of_floor: Number(found.tolerance_used),
            within: found.is_within(),
            place_in_words: found
                .place
                .map_or_else(|| "-".to_owned(), |place| place.to_string()),
        }
    }

    /// Returns the remark printed after a row's numbers.
    fn mark(&self, is_worst: bool) -> &'static str {
        match (self.within, is_worst) {
            (true, false) => "",
            (true, true) => "worst",
            (false, false) => "beyond",
            (false, true) => "beyond, worst",
        }
    }
}

impl Verification {
    /// Builds the document from hooks in the order in which they are computed.
    pub fn new(
        model: ModelRecord,
        what_if: Vec<String>,
        engines: Engines,
        prompt: &Prompt,
        floor: Floor,
        found: &[DeviceDifference],
    ) -> Self {
        let differing = found.iter().filter(|hook| hook.difference > 0.0);
        // If shares of a floor of 0 are equal, the larger difference counts; if those are equal, the first.
        let worst = differing.reduce(|worst, hook| {
            let by_floor = hook.tolerance_used.total_cmp(&worst.tolerance_used);
            let order = by_floor.then(hook.relative.total_cmp(&worst.relative));
            if order.is_gt() { hook } else { worst }
        });
        let first_beyond = found.iter().find(|hook| !hook.is_within());
        let name = |hook: &DeviceDifference| hook.name.clone();
        let has_encoder = prompt.source.is_some();
        Self {
            version: VERSION,
            model,
            what_if,
            engines,
            tokens: prompt.given().tokens.clone(),
            decoder_tokens: has_encoder.then(|| prompt.tokens.clone()),
            floor: FloorRecord {
                pattern: Number(floor.pattern),
                relative: Number(floor.relative),
            },
            within: first_beyond.is_none(),
            worst: worst.map(name),
            first_beyond: first_beyond.map(name),
            hooks: found.iter().map(HookRow::of).collect(),
        }
    }

    /// Whether every hook is within the floor.
    pub fn is_within(&self) -> bool {
        self.within
    }

    /// Writes JSON.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        write_pretty(self, to)
    }

    /// Returns the table in the order in which hooks are computed, and a conclusion.
    pub fn text(&self) -> String {
        let titles = [
            "hook",
            "difference",
            "relative",
            "largest value",
            "of floor",
            "where the difference is largest",
            "",
        ];
        let row = |row: &HookRow| {
            let is_worst = self.worst.as_ref() == Some(&row.hook);
            vec![
                row.hook.clone(),
                digits(row.difference.0),
                digits(row.relative.0),
                digits(row.largest_value.0),
                percent(row.of_floor.0),
                row.place_in_words.clone(),
                row.mark(is_worst).to_owned(),
            ]
        };
        let rows: Vec<Vec<String>> = self.hooks.iter().map(row).collect();
        let mut text = text_table(&titles, &rows);
        text.push('\n');
        text += &self.conclusion();
        text
    }

    fn conclusion(&self) -> String {
        let Engines { reference, other } = &self.engines;
        let (n, n_hooks) = (self.tokens.len(), self.hooks.len());
        let n = n + self.decoder_tokens.as_ref().map_or(0, Vec::len);
        let on = format!("{}, {}", counted(n_hooks, "hook"), counted(n, "token"));
        let Some(worst) = self.row(self.worst.as_ref()) else {
            return format!("{reference} and {other} give the same numbers: {on}\n");
        };
        let worst = format!("worst: {}\n", self.in_words(worst));
        let Some(first) = self.row(self.first_beyond.as_ref()) else {
            return format!("{reference} and {other} agree within the noise floor: {on}\n{worst}");
        };
        let n_beyond = self.hooks.iter().filter(|hook| !hook.within).count();
        format!(
            "{reference} and {other} differ beyond the noise floor at {n_beyond} of {on}\nfirst: {}\n{worst}",
            self.in_words(first)
        )
    }

    fn row(&self, name: Option<&String>) -> Option<&HookRow> {
        self.hooks.iter().find(|row| Some(&row.hook) == name)
    }

    /// Formats one hook as a line.
    fn in_words(&self, row: &HookRow) -> String {
        let Engines { reference, other } = &self.engines;
        let value = |value: Option<Number>| value.map_or(f64::NAN, |value| value.0) as f32;
        format!(
            "{}, {}: {reference} {}, {other} {}, {} of the floor",
            row.hook,
            row.place_in_words,
            value(row.reference),
            value(row.other),
            percent(row.of_floor.0)
        )
    }
}

/// Formats a share of the floor in percent.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent == 0.0 || percent >= 1e6 {
        return digits(percent) + " %";
    }
    if percent < 0.1 {
        return "< 0.1 %".to_owned();
    }
    format!("{percent:.1} %")
}
