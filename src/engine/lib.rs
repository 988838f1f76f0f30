//! The engine of attnscope: opens a checkpoint without Python, runs its attention layer by layer, measures and judges it.
//!
//! It prints nothing and names no terminal.

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
