//! What leaves the program: reports, traces and tables, one file per format.

mod document;
mod json;
mod number;
mod output;
mod trace;
mod trace_plan;
mod verdict_text;
mod verdicts;

pub use document::{LayerRecord, ModelRecord, PromptRecord, Recorder, Report, VERSION};
pub use json::write_json;
pub use number::Number;
pub use output::Output;
pub use trace::TraceWriter;
pub use trace_plan::{Selection, TracePlan};
pub use verdict_text::write_text;
pub use verdicts::{TargetVerdict, write_verdicts};
