//! Runs analyses on their own threads: each has one running and one waiting job, and the newest wins. Every event carries its
//! run's id.

mod against;
mod asked;
mod caught;
mod compare;
mod context;
mod effect;
mod effect_shown;
mod event;
mod execute;
mod fed;
mod given;
mod jobs;
mod lane;
mod live;
mod look;
mod over_prompts;
mod own_device;
mod past;
mod progress;
mod query_rows;
mod run_id;
mod runner;
mod second_run;
mod sweep;
mod terms;
mod told;
mod trace;
mod watch;
mod worker;
mod writing;
mod written;

pub use against::Against;
pub use asked::{FirstPrompt, PartQuery, StepOpening, UsualPrompt};
pub use caught::caught;
pub use effect_shown::{EffectQuery, EffectShown, Measure};
pub use event::{Event, PromptOrigin, QuestionKind, Sink};
pub use live::LiveOpening;
pub use over_prompts::{PromptSet, PromptsQuery};
pub use query_rows::{HeadAt, QueryRows, RowsQuery};
pub use run_id::{Pair, RunId};
pub use sweep::{LayerSweepOf, LayerSweepQuery, SweepOf, SweepQuery, Swept};
pub use terms::Terms;
pub use trace::recorded_prompt;
pub use worker::Worker;
pub use written::{StepRows, WrittenToken};
