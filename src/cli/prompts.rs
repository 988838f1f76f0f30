//! The prompts of a batch command: one from the flags, or a set from a file.

use std::path::{Path, PathBuf};

use super::PromptArgs;
use super::progress::note;
use crate::analysis::generate;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::ops::Cpu;
use crate::prompt::{self, Prompt, Reading, Request, read_inputs};
use crate::report::Output;

/// A set of prompts instead of one.
#[derive(Debug, Clone, clap::Args)]
pub struct InputsArgs {
    /// File with a set of prompts, one JSON object a line: id, text or tokens, target, attention_mask
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "text", "text_file", "tokens", "attention_mask"])]
    inputs: Option<PathBuf>,
}

impl InputsArgs {
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

/// Reads the prompts that the flags ask for, or the built-in one; lets a decoder without a target write its own.
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
        let prompt = one(&request(args, model, reading)?, model, reading)?;
        return Ok(vec![Named {
            id: "prompt".to_owned(),
            prompt,
        }]);
    };
    let requests = read_inputs(path, &args.usual())?;
    let prepared = requests.into_iter().map(|(id, request)| {
        let prompt = one(&request, model, reading).map_err(|e| match e {
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
            args.built_in(false, reading.tokenizer().is_some(), model.spec.d_vocab)
        }
    })
}

fn one(request: &Request, model: &Model, reading: &Reading) -> Result<Prompt> {
    let mut prompt = prompt::prepare(request, reading, model.spec.limits())?;
    if prompt.n_to_generate > 0 {
        let n = prompt.n_to_generate;
        note(&format!("no target given: writing one of up to {n} tokens"));
    }
    generate(&Cpu, model, &mut prompt, &|id| reading.label(id), &|| false)?;
    Ok(prompt)
}
