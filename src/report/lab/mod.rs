//! Results of simulations without a checkpoint: tables, figures and sentences.

mod matching;
mod rescale;
mod rescale_sweep;
mod rescale_words;
mod variance;
mod variance_words;

pub use matching::{
    MATCH_COLUMNS, MatchReport, match_figure, match_rows, match_table, match_words,
    write_match_json,
};
pub use rescale::{
    COLUMNS, RescaleReport, rescale_figure, rescale_rows, rescale_table, sweep_table,
    write_rescale_json,
};
pub use rescale_sweep::rescale_sweep_figure;
pub use rescale_words::rescale_words;
pub use variance::{
    VARIANCE_COLUMNS, VarianceReport, growth_table, variance_figure, variance_rows, variance_table,
    write_variance_json,
};
pub use variance_words::variance_words;

use attnscope_compute::sample::Distribution;
use schemars::JsonSchema;
use serde::Serialize;

use super::number::Number;

/// Version of the documents in this module.
const VERSION: u32 = 1;

/// The distribution of components, as JSON has it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Components {
    #[schemars(schema_with = "super::schema_parts::family")]
    distribution: &'static str,
    mean: Number,
    std: Number,
}

impl From<&Distribution> for Components {
    fn from(of: &Distribution) -> Self {
        Self {
            distribution: of.family.id(),
            mean: Number(of.mean),
            std: Number(of.std),
        }
    }
}

/// Describes the distribution in words.
pub fn describe(of: &Distribution) -> String {
    format!(
        "{} components with mean {} and deviation {}",
        of.family.id(),
        of.mean,
        of.std
    )
}
