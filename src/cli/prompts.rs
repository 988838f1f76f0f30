//! The prompts of a batch command: one from the flags, or a set from a file.

use std::path::{Path, PathBuf};

use super::PromptArgs;
use super::progress::{WritingMeter, note};
use crate::report::Output;
use attnscope_engine::analysis::{generate, input_of};
use attnscope_engine::error::{Error, Result};
use attnscope_engine::model::{Input, Model};
use attnscope_engine::on_device;
use attnscope_engine::ops::Compute;
use attnscope_engine::prompt::{self, Prompt, Reading, Request, read_inputs};

/// A set of prompts instead of one.
#[derive(Debug, Clone, clap::Args)]
pub struct InputsArgs {
    /// File with a set of prompts, one JSON object a line: id, text or tokens, target, attention_mask
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "text_file", "tokens", "attention_mask"])]
    inputs: Option<PathBuf>,
}

impl InputsArgs {
    /// No set.
    pub fn none() -> Self {
        Self { inputs: None }
    }

    /// Whether there is a set.
    pub fn is_set(&self) -> bool {
        self.inputs.is_some()
    }
}

/// A prompt and what reports call it.
pub struct Named {
    pub id: String,
    pub prompt: Prompt,
}

/// Reads the prompts that the flags ask for, or the built-in one.
///
/// # Errors
/// When one cannot be read, or the model cannot run it: names which.
pub fn prepare(
    args: &PromptArgs,
    inputs: &InputsArgs,
    model: &Model,
    reading: &Reading,
) -> Result<Vec<Named>> {
    args.check_fits(&model.spec)?;
    let Some(path) = &inputs.inputs else {
        let request = request(args, model, reading)?;
        let prompt = prompt::prepare(&request, reading, model.spec.limits())?;
        return Ok(vec![Named {
            id: "prompt".to_owned(),
            prompt,
        }]);
    };
    if args.prompt.is_some() {
        let problem = "expected --inputs FILE or a prompt, found both";
        return Err(Error::Prompt(problem.to_owned()));
    }
    let requests = read_inputs(path, &args.usual())?;
    let prepared = requests.into_iter().map(|(id, request)| {
        let prompt =
            prompt::prepare(&request, reading, model.spec.limits()).map_err(|e| match e {
                Error::Prompt(problem) => Error::file(path, format!("prompt {id}: {problem}")),
                other => other,
            })?;
        Ok(Named { id, prompt })
    });
    prepared.collect()
}

/// Refuses to write over what is read: the checkpoint, a text file, a set of prompts.
///
/// # Errors
/// When the target is one of them.
pub fn check_target(
    target: &Path,
    model: &Model,
    args: &PromptArgs,
    inputs: &InputsArgs,
) -> Result<()> {
    let mut read = model.checkpoint.files();
    read.extend(args.file());
    read.extend(inputs.inputs.as_deref());
    Output::check_not_read(target, &read)
}

fn request(args: &PromptArgs, model: &Model, reading: &Reading) -> Result<Request> {
    Ok(match args.request()? {
        Some(request) => request,
        None => {
            note("no prompt given: running a built-in one");
            args.built_in(
                false,
                reading.tokenizer().is_some(),
                model.spec.limits().d_vocab,
            )
        }
    })
}

/// What prompts will be at most, written targets included.
pub fn longest_inputs(named: &[Named]) -> Vec<Input> {
    let longest = named.iter().map(|named| input_of(&named.prompt.longest()));
    longest.collect()
}

/// Lets a decoder write the targets that nobody gave.
///
/// # Errors
/// When the model has no head to write with, or its tensors are not as they must be.
pub fn write_targets(
    named: &mut [Named],
    model: &Model,
    reading: &Reading,
    compute: &Compute,
) -> Result<()> {
    let reading = reading.of_target(model.spec.limits());
    for Named { id, prompt } in named {
        if prompt.n_to_generate == 0 {
            continue;
        }
        let meter = WritingMeter::of(id, prompt.n_to_generate);
        let mut wrote = |_: &Prompt| meter.wrote_one();
        let label = |id| reading.label(id);
        on_device!(compute, ops => {
            generate(ops, model, prompt, &label, &mut wrote, &|| false)
        })?;
        meter.finish();
    }
    Ok(())
}
