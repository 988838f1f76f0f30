//! Runs prompts through the model layer by layer, under an observer that can stop it. Batch commands and the screen use this.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Ops, reuse_buffers};
use attnscope_compute::pace::Pace;
use attnscope_forward::{Input, LayerWeights, Scratch};
use attnscope_spec::{Model, Stack};

use super::ahead::ReadAhead;
use super::edited::Shared;
use super::job::{Job, Options, Outcome};
use super::observer::Observer;
use super::pass::Pass;
use super::resume::Resume;
use super::tap::Tap;
use super::together::predict_all;

/// Default memory for kept layer inputs: 256 MiB.
pub const KEEP_BYTES: usize = 256 << 20;

/// Runs a prompt through the model.
///
/// # Errors
/// When it was stopped, a tensor contradicts the spec, the device fails, or the tap cannot store a value.
pub fn run<'a, O: Ops>(
    ops: &'a O,
    model: &'a Model,
    input: &'a Input,
    options: Options,
    observer: &'a mut dyn Observer,
    tap: Option<&'a mut dyn Tap>,
    pace: &'a dyn Pace,
) -> Result<Outcome> {
    let job = Job {
        input,
        observer,
        tap,
    };
    let mut outcomes = run_all(ops, model, vec![job], options, pace)?;
    Ok(outcomes.pop().unwrap_or_default())
}

/// Runs several prompts together, layer by layer, so that each layer's weights are read only once.
///
/// # Errors
/// As for [`run`]; the first failure ends all runs.
pub fn run_all<'a, O: Ops>(
    ops: &'a O,
    model: &'a Model,
    jobs: Vec<Job<'a>>,
    options: Options,
    pace: &'a dyn Pace,
) -> Result<Vec<Outcome>> {
    run_passes(ops, model, jobs, options, StartFrom::Scratch, pace)
}

/// Runs a prompt through a changed model, from the first changed layer on. Previous results of earlier layers are reported again.
///
/// # Errors
/// As for [`run`].
pub fn run_changed<'a, O: Ops>(
    ops: &'a O,
    model: &'a Model,
    job: Job<'a>,
    options: Options,
    resume: Resume<'a>,
    pace: &'a dyn Pace,
) -> Result<Outcome> {
    let begun = StartFrom::ChangedLayer(resume);
    let mut outcomes = run_passes(ops, model, vec![job], options, begun, pace)?;
    Ok(outcomes.pop().unwrap_or_default())
}

/// Runs a prompt that shares its beginning with an earlier run. For the shared tokens, only attention is recomputed. On the CPU
/// the result is bit-identical to [`run`], except for the rounding of probabilities.
///
/// # Errors
/// As for [`run`].
pub fn run_edited<'a, O: Ops>(
    ops: &'a O,
    model: &'a Model,
    job: Job<'a>,
    options: Options,
    shared: Shared<'a>,
    pace: &'a dyn Pace,
) -> Result<Outcome> {
    let begun = StartFrom::SharedPrefix(shared);
    let mut outcomes = run_passes(ops, model, vec![job], options, begun, pace)?;
    Ok(outcomes.pop().unwrap_or_default())
}

/// Earlier results that a run starts from.
enum StartFrom<'a> {
    Scratch,
    /// The same prompt in a changed model.
    ChangedLayer(Resume<'a>),
    /// Another prompt with the same beginning.
    SharedPrefix(Shared<'a>),
}

fn run_passes<'a, O: Ops>(
    ops: &'a O,
    model: &'a Model,
    jobs: Vec<Job<'a>>,
    options: Options,
    begun: StartFrom<'a>,
    pace: &'a dyn Pace,
) -> Result<Vec<Outcome>> {
    let mut passes = Vec::new();
    for job in jobs {
        passes.push(Pass::begin(ops, model, job, options, pace)?);
    }
    if let StartFrom::SharedPrefix(shared) = begun {
        passes.iter_mut().for_each(|pass| pass.sharing(shared));
    }
    let mut scratch = Scratch::<O>::default();
    let ahead = ReadAhead::of(model);
    for stack in &model.spec.stacks {
        let mut residuals = Vec::new(); // one [position, d_model] each
        let mut first = Some(0);
        for pass in &mut passes {
            match &begun {
                StartFrom::Scratch | StartFrom::SharedPrefix(_) => {
                    residuals.push(pass.embed(stack)?)
                }
                StartFrom::ChangedLayer(resume) => {
                    let begun = pass.resume(stack, resume)?;
                    first = begun.as_ref().map(|(layer_idx, _)| *layer_idx);
                    residuals.extend(begun.map(|(_, resid)| resid));
                }
            }
        }
        // Of an encoder that need not run, the output is there.
        let Some(first) = first else { continue };
        let reuse = reuse_buffers();
        // A single prompt multiplies every map once.
        let read = match passes.len() {
            1 => LayerWeights::read_for_one_run,
            _ => LayerWeights::read,
        };
        for layer_idx in first..stack.n_layers() {
            if pace.stops() {
                return Err(Error::Cancelled);
            }
            let mut weights = None;
            for (pass, resid) in passes.iter_mut().zip(&mut residuals) {
                pass.say(stack.stack, layer_idx)?;
                // Read after the first progress report, because reading a layer may take a while.
                let weights = match &weights {
                    Some(weights) => weights,
                    None => {
                        let tensors = &model.checkpoint.tensors;
                        let read = read(ops, tensors, stack, layer_idx, pace)?;
                        ahead.layer(stack, layer_idx + 1);
                        &*weights.insert(read)
                    }
                };
                pass.block(stack, layer_idx, weights, resid, &mut scratch)?;
            }
        }
        drop(reuse); // Free the weight buffers: the next steps need other sizes.
        match &model.spec.head {
            Some(head) if stack.stack != Stack::Encoder && passes.len() > 1 => {
                let asked = (options.predicts, pace);
                predict_all((ops, model), head, stack, &mut passes, &residuals, asked)?;
            }
            _ => {
                for (pass, resid) in passes.iter_mut().zip(&residuals) {
                    pass.end(stack, resid, options.predicts)?;
                }
            }
        }
    }
    Ok(passes.into_iter().map(|pass| pass.outcome).collect())
}
