//! Traces opened in place of a checkpoint: how to recognize them, and the prompt they were recorded on.

use std::path::Path;

use attnscope_checkpoint::Opening;
use attnscope_compute::error::Result;
use attnscope_prompt::{Request, Source, Target};
use attnscope_run::{Declared, Recorded, is_probe};

/// Returns the trace file, if a trace is opened in place of a checkpoint.
pub(super) fn trace_of(opening: &Opening) -> Option<&Path> {
    let path = opening.path.as_deref();
    path.filter(|path| attnscope_run::is_captured(path))
}

/// Replaces the prompt of a request by the ids that a trace was recorded on; `None` if the file is not a trace or has no ids.
///
/// # Errors
/// When the trace cannot be read.
pub fn recorded_prompt(opening: &Opening, usual: Request) -> Result<Option<Request>> {
    let Some(path) = trace_of(opening).filter(|path| !is_probe(path)) else {
        return Ok(None);
    };
    let captured = attnscope_run::open_trace(path)?;
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
