//! Output of the program: reports, traces and tables, one source file per format.

mod align;
mod baseline;
pub mod chart;
mod conclusion;
mod difference;
mod document;
pub mod drawing;
mod effect;
mod finding;
mod github;
mod grouped;
mod guess;
mod head_types;
mod history;
mod html;
mod json;
mod junit;
mod key_statistics;
pub mod lab;
mod logprobs;
mod markdown;
mod merged;
mod named_place;
mod note;
mod number;
mod output;
mod over_prompts;
mod pair;
mod plain;
mod quality;
mod readable;
pub mod record;
mod run_findings;
mod sarif;
mod schema_parts;
mod schemas;
mod settings;
mod story;
mod sweep;
pub mod table;
mod tensors;
mod text_table;
mod time_left;
mod tokens;
mod trace;
mod trace_plan;
mod unit;
mod verdict_markdown;
mod verdict_text;
mod verdicts;
mod verification;

pub use align::{AlignShown, write_arrays};
pub use baseline::read_baseline;
pub use difference::{Difference, Document as DifferenceDocument};
pub use document::{
    CheckpointRecord, LayerRecord, ModelRecord, PromptRecord, Recorder, Report, VERSION,
};
pub use effect::{
    EffectReport, Labels, PromptOf, SheetRows, ablation_sheet, attribution_sheet, circuits_sheet,
    contribution_sheet, lens_sheet, patching_sheet, retrieval_sheet, rollout_sheet,
    sensitivity_sheet,
};
pub use finding::{FindingRecord, PlaceRecord};
pub use github::write_github;
pub use grouped::{AnyFinding, Facts, Group, grouped};
pub use guess::{GuessReport, undecided};
pub use head_types::{HeadRow, HeadTypes, OnPrompt, OnRandom, PromptTypes};
pub use history::{
    HISTORY_VERSION, HistoryBatch, HistoryChange, HistoryFinding, HistoryLayer, HistoryLoss,
    HistoryPoint, HistoryRecord, HistoryStep, HistoryTrend, HistoryWarning, write_history,
};
pub use html::{Slow, Strip, write_batch_page, write_history_page, write_html};
pub use json::{write_json, write_several};
pub use junit::{write_junit, write_junit_by};
pub use logprobs::{
    FullWriter, LogProbDifference, LogProbRow, LogProbTable, is_logprobs, read_logprobs,
    read_logprobs_text,
};
pub use markdown::write_markdown;
pub use merged::{FailedUnit, Merged, MergedCheckpoint, MissingUnit, UnitCounts, named};
pub use note::{Note, Onset};
pub use number::{Number, number};
pub use output::Output;
pub use over_prompts::{
    HeadsOverPrompts, OVER_PROMPTS_PARTS, OverPromptsRow, over_prompts_rows, over_prompts_summary,
};
pub use pair::Pair;
pub use plain::{cell, is_hidden, one_line, printable, text_of_cell};
pub use quality::{AlignedBy, QualityDocument, Scored, Translated};
pub use readable::{Found, LayerMaps, Readable, Shown};
pub use run_findings::judge_run;
pub use sarif::write_sarif;
pub use schemas::{Described, SCHEMAS, schema};
pub use settings::{SettingRow, SettingValue, SettingsDocument};
pub use story::{Map, Page, Passage, Picture, Sheet, Table};
pub use sweep::{NOW, SweepShown, SweepSource, qk_norm_mark, rule_marks};
pub use tensors::{TensorList, TensorRecord};
pub use text_table::{digits, text_table, wrapped};
pub use time_left::time_left;
pub use tokens::TokenList;
pub use trace::TraceWriter;
pub use trace_plan::{Selection, TracePlan};
pub use unit::{UNIT_VERSION, UnitRecord};
pub use verdict_markdown::write_check_markdown;
pub use verdict_text::{Quiet, write_text};
pub use verdicts::{LeftOut, TargetVerdict, write_verdicts};
pub use verification::{Engines, Verification};
