//! Schemas of values that several documents share: enumerated names, and statistics by their ids.

use attnscope_checks::stats::{HeadType, STATISTICS, SeenOn, Statistic};
use attnscope_checks::{Severity, Status};
use attnscope_compare::Relation;
use attnscope_compute::attention::SoftmaxAxis;
use attnscope_compute::sample::Family;
use attnscope_spec::Stack;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use super::number::Number;
use super::over_prompts::SpreadRecord;

/// Schema of a name from a list.
fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> Schema {
    let names: Vec<&str> = names.into_iter().collect();
    json_schema!({ "type": "string", "enum": names })
}

/// Schema of a name from a list, or null.
fn one_of_or_null<'a>(names: impl IntoIterator<Item = &'a str>) -> Schema {
    let names = names.into_iter().map(Value::from);
    let names: Vec<Value> = names.chain([Value::Null]).collect();
    json_schema!({ "type": ["string", "null"], "enum": names })
}

pub(super) fn stack(_: &mut SchemaGenerator) -> Schema {
    let stacks = [Stack::Encoder, Stack::Decoder, Stack::Cross];
    one_of_or_null(stacks.into_iter().filter_map(Stack::label))
}

pub(super) fn relation(_: &mut SchemaGenerator) -> Schema {
    one_of_or_null(Relation::ALL.map(Relation::label))
}

pub(super) fn head_type(_: &mut SchemaGenerator) -> Schema {
    one_of_or_null(HeadType::ALL.map(HeadType::title))
}

pub(super) fn seen_on(_: &mut SchemaGenerator) -> Schema {
    one_of_or_null(SeenOn::ALL.map(SeenOn::label))
}

pub(super) fn severity(_: &mut SchemaGenerator) -> Schema {
    one_of([Severity::Error, Severity::Warning, Severity::Info].map(Severity::label))
}

pub(super) fn status(_: &mut SchemaGenerator) -> Schema {
    one_of(Status::ALL.map(Status::label))
}

pub(super) fn family(_: &mut SchemaGenerator) -> Schema {
    one_of(Family::ALL.map(Family::id))
}

pub(super) fn softmax_axis(_: &mut SchemaGenerator) -> Schema {
    let axes =
        [SoftmaxAxis::Keys, SoftmaxAxis::Queries, SoftmaxAxis::Heads].map(|axis| axis.to_string());
    one_of(axes.iter().map(String::as_str))
}

/// Schema of a layer's statistics by their ids.
pub(super) fn layer_statistics(generator: &mut SchemaGenerator) -> Schema {
    statistics(generator, |_| true)
}

/// Schema of a head's statistics by their ids.
pub(super) fn head_statistics(generator: &mut SchemaGenerator) -> Schema {
    statistics(generator, Statistic::is_per_head)
}

/// Schema of all heads' statistics by their ids, as [layer][head]; each of them is optional.
pub(super) fn values_by_layer(generator: &mut SchemaGenerator) -> Schema {
    let number = generator.subschema_for::<Number>().to_value();
    let heads = STATISTICS
        .iter()
        .filter(|statistic| statistic.is_per_head());
    let property = |statistic: &&Statistic| {
        let value = json_schema!({ "anyOf": [number, { "type": "null" }] });
        let heads = json_schema!({ "type": "array", "items": value.to_value() });
        let layers = json_schema!({
            "description": format!("{} of every head; null where the step does not have it", statistic.title),
            "type": "array",
            "items": heads.to_value(),
        });
        (statistic.id.to_owned(), layers.to_value())
    };
    let properties: Map<String, Value> = heads.map(property).collect();
    json_schema!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

/// Schema of a head's statistics on two sides, by their ids; empty if they were not computed.
pub(super) fn pairs_of_statistics(generator: &mut SchemaGenerator) -> Schema {
    let pair = generator.subschema_for::<[Option<Number>; 2]>().to_value();
    let ids = STATISTICS.iter().filter(|s| s.is_per_head());
    let properties: Map<String, Value> = ids.map(|s| (s.id.to_owned(), pair.clone())).collect();
    json_schema!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// Schema of how a head's statistics spread over prompts, by their ids.
pub(super) fn spreads_of_statistics(generator: &mut SchemaGenerator) -> Schema {
    let heads = || STATISTICS.iter().filter(|s| s.is_per_head());
    let spread = generator.subschema_for::<SpreadRecord>().to_value();
    let properties: Map<String, Value> =
        heads().map(|s| (s.id.to_owned(), spread.clone())).collect();
    let required: Vec<&str> = heads().map(|s| s.id).collect();
    json_schema!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn statistics(generator: &mut SchemaGenerator, has: fn(&Statistic) -> bool) -> Schema {
    let all = || STATISTICS.iter().filter(|statistic| has(statistic));
    let property = |statistic: &&Statistic| {
        let mut schema = generator.subschema_for::<Option<Number>>();
        let said = match statistic.unit {
            "" => format!("{}; null where it has no meaning", statistic.title),
            unit => format!(
                "{}, in {unit}; null where it has no meaning",
                statistic.title
            ),
        };
        schema.insert("description".to_owned(), said.into());
        (statistic.id.to_owned(), schema.to_value())
    };
    let properties: Map<String, Value> = all().map(property).collect();
    let required: Vec<&str> = all().map(|statistic| statistic.id).collect();
    json_schema!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

impl JsonSchema for Number {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number, or a word where the number is not finite.",
            "anyOf": [
                { "type": "number" },
                { "type": "string", "enum": ["NaN", "Infinity", "-Infinity"] },
            ],
        })
    }
}
