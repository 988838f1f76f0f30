//! Traces that are opened in place of a checkpoint: which file is one, and the prompt that it was recorded on.

use std::path::Path;

use attnscope_checkpoint::Opening;
use attnscope_checkpoint::captured::Captured;
use attnscope_compute::error::Result;
use attnscope_prompt::{Request, Source, Target};
use attnscope_run::{Declared, Recorded, is_probe};

/// The file of a trace, where one is opened in place of a checkpoint.
pub(super) fn trace_of(opening: &Opening) -> Option<&Path> {
    let path = opening.path.as_deref();
    path.filter(|path| attnscope_run::is_captured(path))
}

/// The ids that a trace was recorded on, in place of the prompt of a request; `None` for what is no trace, or holds no ids.
///
/// # Errors
/// When the trace cannot be read.
pub fn recorded_prompt(opening: &Opening, usual: Request) -> Result<Option<Request>> {
    let Some(path) = trace_of(opening).filter(|path| !is_probe(path)) else {
        return Ok(None);
    };
    let captured = Captured::open(path)?;
    let trace = attnscope_run::read_trace(&captured, &Declared::default())?;
    if trace.tokens.is_empty() {
        return Ok(None);
    }
    let prompt = Recorded::new(captured, &trace).prompt;
    let target = match &prompt.source {
        Some(_) => Target::Ids(prompt.tokens.clone()),
        None => usual.target.clone(),
    };
    Ok(Some(Request {
        source: Source::Ids(prompt.given().tokens.clone()),
        target,
        ..usual
    }))
}
