//! JSON Schemas of the documents that commands write, generated from the types that write them.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};

use super::document::{Report, SeveralReport};
use super::effect::EffectReport;
use super::guess::GuessReport;
use super::head_types::HeadTypes;
use super::lab::{MatchReport, RescaleReport, VarianceReport};
use super::over_prompts::HeadsOverPrompts;
use super::tensors::TensorList;
use super::tokens::TokenList;
use super::verification::Verification;
use super::{align, difference, sweep, verdicts};

/// A document: the name of its file in `docs/schemas`, the command that writes it, and its schema without a title.
pub type Described = (&'static str, &'static str, fn() -> Schema);

/// Every document that commands write.
pub const SCHEMAS: &[Described] = &[
    ("report", "attnscope report CHECKPOINT", of::<Report>),
    (
        "report-several",
        "attnscope report CHECKPOINT…",
        of::<SeveralReport>,
    ),
    (
        "batch-unit",
        "parts/ID.json of attnscope batch",
        of::<super::unit::UnitRecord>,
    ),
    ("merge", "attnscope merge DIR", of::<super::merged::Merged>),
    ("check", "attnscope check", of::<verdicts::Document>),
    ("heads", "attnscope heads", of::<HeadTypes>),
    (
        "heads-over-prompts",
        "attnscope heads --over-prompts",
        of::<HeadsOverPrompts>,
    ),
    ("effect", "attnscope effect", of::<EffectReport>),
    (
        "quality",
        "attnscope quality",
        of::<super::quality::QualityDocument>,
    ),
    ("sweep", "attnscope sweep", of::<sweep::Document<'_>>),
    ("lab-rescale", "attnscope lab rescale", of::<RescaleReport>),
    (
        "lab-variance",
        "attnscope lab variance",
        of::<VarianceReport>,
    ),
    (
        "config",
        "attnscope config",
        of::<super::settings::SettingsDocument>,
    ),
    (
        "lab-match",
        "attnscope lab variance --match",
        of::<MatchReport>,
    ),
    ("align", "attnscope align", of::<align::Document<'_>>),
    ("tensors", "attnscope tensors", of::<TensorList>),
    ("tokens", "attnscope tokens", of::<TokenList>),
    ("guess", "attnscope guess", of::<GuessReport>),
    ("verify", "attnscope verify", of::<Verification>),
    ("diff", "attnscope diff", of::<difference::Document>),
    (
        "diff-logprobs",
        "attnscope diff of tables of log-probabilities",
        of::<super::logprobs::Document>,
    ),
    (
        "history",
        "attnscope history TARGET…",
        of::<super::history::HistoryRecord>,
    ),
];

/// Returns the schema of a document, with its title; `None` for an unknown name.
pub fn schema(name: &str) -> Option<Schema> {
    let (_, command, schema) = SCHEMAS.iter().find(|(other, ..)| *other == name)?;
    let mut schema = schema();
    let title = if command.starts_with("attnscope") {
        format!("{command} --format json")
    } else {
        (*command).to_owned()
    };
    schema.insert("title".to_owned(), title.into());
    Some(schema)
}

/// Returns the schema of a type as it is serialised.
fn of<T: JsonSchema>() -> Schema {
    // `format` states sizes of Rust integers, which JSON does not have.
    let without_format = |schema: &mut Schema| {
        schema.remove("format");
    };
    SchemaSettings::draft2020_12()
        .for_serialize()
        .with_transform(RecursiveTransform(without_format))
        .into_generator()
        .into_root_schema_for::<T>()
}
