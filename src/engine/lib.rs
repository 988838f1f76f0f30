//! The engine of attnscope: opens a checkpoint without Python, runs it layer by layer, and computes statistics and checks.
//!
//! It prints nothing and needs no terminal. There are four steps: open a model, run it, get a head, judge the run.
//!
//! ```
//! # std::env::set_current_dir("../../fixtures").unwrap();
//! use attnscope_engine::Session;
//!
//! let model = Session::new().open("induction")?;
//! let run = model.run("one cold morning the old king gave one cold morning the old")?;
//! let head = run.head(1, 3)?; // layer 1, head 3
//! assert_eq!(head.n_queries, 12);
//! let errors = run.judge()?.findings().filter(|finding| finding.severity == attnscope_engine::Severity::Error).count();
//! assert_eq!(errors, 0);
//! # Ok::<(), attnscope_engine::Error>(())
//! ```
//!
//! A model that behaves badly is never an [`Error`]: NaN, future leaks and collapsed heads are findings of [`Run::judge`].
//! Thresholds belong to a [`Session`]; two sessions in one process may judge differently.
//!
//! Only the items on this page stay stable between versions. The module `unstable` re-exports the crates that the engine uses.

mod error;
mod judgement;
mod model;
mod run;
mod session;

pub use attnscope_checks::{Finding, Severity, Status};
pub use attnscope_compute::ops::Device;
pub use attnscope_prompt::Request;
pub use attnscope_spec::{Place, Stack};

pub use self::error::{Error, ErrorKind};
pub use self::judgement::Judgement;
pub use self::model::Model;
pub use self::run::{Head, Run};
pub use self::session::Session;

/// The crates of the engine, whose interfaces change from version to version.
#[doc(hidden)]
pub mod unstable {
    pub use attnscope_checkpoint as checkpoint;
    pub use attnscope_checks as checks;
    pub use attnscope_compare as compare;
    pub use attnscope_compute as compute;
    pub use attnscope_families as families;
    pub use attnscope_forward as forward;
    pub use attnscope_prompt as prompt;
    pub use attnscope_run as run;
    pub use attnscope_spec as spec;
    pub use attnscope_studies as studies;
}
