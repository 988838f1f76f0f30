//! Effects of a model's parts as a table that says how it was computed: text, CSV, JSON, Parquet and HTML.

mod columns;
mod page;
mod parquet;
mod rows;
mod sheet;

pub use rows::{
    Labels, ablation_sheet, attribution_sheet, circuits_sheet, contribution_sheet, lens_sheet,
    patching_sheet, retrieval_sheet, rollout_sheet, sensitivity_sheet,
};
pub use sheet::{EffectReport, PromptOf, SheetRows};
