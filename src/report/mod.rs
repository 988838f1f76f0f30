//! What leaves the program: reports, traces and tables, one file per format.

mod baseline;
mod csv;
mod document;
mod github;
mod html;
mod json;
mod junit;
mod key_statistics;
mod markdown;
mod named_place;
mod number;
mod output;
mod readable;
mod run_findings;
mod sarif;
mod trace;
mod trace_plan;
mod verdict_text;
mod verdicts;

pub use baseline::read_baseline;
pub use csv::write_csv;
pub use document::{LayerRecord, ModelRecord, PromptRecord, Recorder, Report, VERSION};
pub use github::write_github;
pub use html::write_html;
pub use json::write_json;
pub use junit::write_junit;
pub use markdown::write_markdown;
pub use number::Number;
pub use output::Output;
pub use readable::{Found, LayerMaps, Readable, Shown};
pub use sarif::write_sarif;
pub use trace::TraceWriter;
pub use trace_plan::{Selection, TracePlan};
pub use verdict_text::write_text;
pub use verdicts::{TargetVerdict, write_verdicts};
