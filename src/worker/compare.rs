//! Compares two runs in lockstep: knobs, tensors, and hooks in the order of execution.

use std::sync::{Arc, Mutex};

use attnscope_compare::{CompareOptions, Comparison, ModelAndRecording, Recording, Side};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::on_device;
use attnscope_compute::pace::Pace;
use attnscope_run::{Progress, Recorded, Step};
use attnscope_spec::Model;

use super::context::{Context, ModelRun, RunData};
use super::event::{Event, Sink};
use super::lane::lock;
use super::own_device::OwnDevice;
use super::run_id::{Pair, RunId};

/// Compares two runs: for two models, knobs, tensors, and hooks if both ran the same ids; for a model and a trace, the recorded
/// hooks.
///
/// # Errors
/// When a tensor or a trace cannot be read, the device fails, or the pace stops it.
pub(super) fn compare(
    context: &Mutex<Context>,
    sink: &Sink,
    device: &mut OwnDevice,
    pair: Pair,
    pace: &dyn Pace,
) -> Result<()> {
    let ran = |run: RunId| lock(context).of_run(run).map(|ran| ran.what.clone());
    let tell = |what: &str, n_done: usize, n: usize| {
        let step = Step {
            what: what.to_owned(),
            n_done,
            n,
        };
        sink(Event::Comparing { pair, step });
    };
    let comparison = match (ran(pair.0), ran(pair.1)) {
        (Some(RunData::Model(a)), Some(RunData::Model(b))) => models(&a, &b, device, &tell, pace)?,
        (Some(RunData::Model(a)), Some(RunData::Trace(b))) => {
            model_and_trace(&a, (&b, Side::A), device, &tell, pace)?
        }
        (Some(RunData::Trace(a)), Some(RunData::Model(b))) => {
            model_and_trace(&b, (&a, Side::B), device, &tell, pace)?
        }
        (Some(RunData::Trace(a)), Some(RunData::Trace(b))) => {
            let (a, b) = (recording(&a)?, recording(&b)?);
            Comparison::of_recordings(&a, &b, (ID, None))?
        }
        _ => return Ok(()),
    };
    sink(Event::Compared {
        pair,
        comparison: Arc::new(comparison),
    });
    Ok(())
}

/// Id of the only prompt.
const ID: &str = "prompt";

/// Receives the current activity, the number done and the total.
type Tell<'a> = &'a dyn Fn(&str, usize, usize);

fn models(
    a: &ModelRun,
    b: &ModelRun,
    device: &mut OwnDevice,
    tell: Tell<'_>,
    pace: &dyn Pace,
) -> Result<Comparison> {
    let options = CompareOptions::default();
    let mut comparison = Comparison::of_knobs(&a.model, &b.model, &options);
    if Arc::ptr_eq(&a.model, &b.model) {
        return Ok(comparison);
    }
    let mut told = |n_done: usize, n: usize| tell("comparing tensors", n_done, n);
    comparison.compare_weights(&a.model, &b.model, &options, &mut told, pace)?;
    let ids = |ran: &ModelRun| {
        let source = ran.input.source.as_ref();
        let source = source.map(|source| source.tokens.clone());
        (source, ran.input.sequence.tokens.clone())
    };
    if comparison.prevented_by.is_none() && ids(a) == ids(b) {
        let compute = device.get()?;
        let told = layers(&a.model, tell);
        let inputs = ((*a.input).clone(), (*b.input).clone());
        on_device!(&compute, ops => comparison.run_prompt(
            ops,
            (&a.model, &b.model),
            (ID, inputs),
            &options,
            &told,
            pace,
        ))?;
    }
    Ok(comparison)
}

/// Compares a model with a trace of the same tokens.
fn model_and_trace(
    ran: &ModelRun,
    (trace, model_is): (&Recorded, Side),
    device: &mut OwnDevice,
    tell: Tell<'_>,
    pace: &dyn Pace,
) -> Result<Comparison> {
    let recording = recording(trace)?;
    let given = ran.input.source.as_ref().unwrap_or(&ran.input.sequence);
    if let Some(recorded) = recording.tokens()?.tokens
        && recorded != given.tokens
    {
        let problem = "hooks are compared on the tokens of the trace, and another text ran";
        return Err(Error::Prompt(problem.to_owned()));
    }
    let compute = device.get()?;
    let told = layers(&ran.model, tell);
    let both = ModelAndRecording {
        model: &ran.model,
        input: &ran.input,
        recording: &recording,
        model_is,
    };
    on_device!(&compute, ops => Comparison::of_recording(ops, both, (ID, None), &told, pace))
}

/// Opens the hooks of a trace.
fn recording(trace: &Recorded) -> Result<Recording> {
    Recording::open(&trace.captured.path)
}

/// Reports finished layers.
fn layers<'a>(model: &Model, tell: Tell<'a>) -> impl Fn(Progress) + use<'a> {
    let n_layers = model.spec.n_layers_to_run();
    move |progress| {
        if let Progress::Layer { n_done, .. } = progress {
            tell("comparing layers", n_done, n_layers);
        }
    }
}
