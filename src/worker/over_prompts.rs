//! Heads over many prompts: runs a set of prompts some at a time, and sends what is known so far after each part.

use std::sync::Arc;

use attnscope_checkpoint::machine::check_memory;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_prompt::{Prompt, PromptForm, Request, Tokenizer};
use attnscope_run::{MemoryNeed, Options, generate, input_of};
use attnscope_spec::Model;
use attnscope_studies::over_prompts::{AT_ONCE, Labels, OverPrompts};

use super::event::{Event, Sink};

/// Prompts of the first part, so that something shows soon; each further part has twice as many, up to [`AT_ONCE`].
const FIRST: usize = 4;

/// Prompts with their ids.
pub type PromptSet = Arc<Vec<(String, Request)>>;

/// Request to run a set of prompts through the open model.
#[derive(Debug, Clone)]
pub struct PromptsQuery {
    /// Tells requests apart.
    pub nth: u64,
    pub set: PromptSet,
}

/// Compares by number: each request has its own.
impl PartialEq for PromptsQuery {
    fn eq(&self, other: &Self) -> bool {
        self.nth == other.nth
    }
}

/// Runs the prompts and sends what is known after each part.
///
/// # Errors
/// When a prompt cannot be used, the model cannot be run, or the work was stopped.
pub(super) fn over_prompts<O: Ops>(
    ops: &O,
    model: &Model,
    query: &PromptsQuery,
    is_forced: bool,
    sink: &Sink,
    pace: &dyn Pace,
) -> Result<()> {
    let form = Tokenizer::open(&model.checkpoint.tokenizer)?;
    let target = form.of_target(model.spec.limits());
    let labels = Labels {
        source: &|id| form.label(id),
        target: &|id| target.label(id),
    };
    let mut over = OverPrompts::new(model);
    let (mut first, mut n_at_once) = (0, FIRST);
    while first < query.set.len() {
        let part = &query.set[first..(first + n_at_once).min(query.set.len())];
        let inputs = part.iter().map(|(id, request)| {
            let input = prepared(ops, model, &form, request, pace);
            input.map_err(|error| match error {
                Error::Cancelled => error,
                error => Error::Prompt(format!("prompt {id}: {error}")),
            })
        });
        let inputs = inputs.collect::<Result<Vec<Input>>>()?;
        if !is_forced {
            check_memory(need(model, &inputs).total())?;
        }
        over.add(ops, model, &inputs, labels, pace)?;
        first += part.len();
        n_at_once = (n_at_once * 2).min(AT_ONCE);
        sink(Event::OverPrompts {
            of: query.nth,
            over: Arc::new(over.clone()),
            is_last: first == query.set.len(),
        });
    }
    Ok(())
}

/// Tokenizes a prompt, and lets a decoder write its target if none is given.
fn prepared<O: Ops>(
    ops: &O,
    model: &Model,
    form: &PromptForm,
    request: &Request,
    pace: &dyn Pace,
) -> Result<Input> {
    let limits = model.spec.limits();
    let mut prompt = attnscope_prompt::prepare(request, form, limits)?;
    let label = |id| form.of_target(limits).label(id);
    let mut wrote = |_: &Prompt| {};
    generate(ops, model, &mut prompt, &label, &mut wrote, pace)?;
    Ok(input_of(&prompt))
}

fn need(model: &Model, inputs: &[Input]) -> MemoryNeed {
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    MemoryNeed::of(model, inputs, options, rayon::current_num_threads())
}
