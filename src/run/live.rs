//! Runs of a live subject: a process that holds a model records a trace or a probe, which is read as one from a file.

use std::time::{Duration, Instant};

use attnscope_checkpoint::captured::Captured;
use attnscope_checks::{Check, Probed, Probes, Thresholds, Verdict};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::pace::Pace;
use attnscope_live::{LiveSession, Request};
use attnscope_prompt::{Source, Target};
use attnscope_spec::{Grid, Place};
use serde_json::{Value, json};

use super::captured::{
    Declared, DeclaredMask, Recorded, Trace, Unaudited, judge_probed, read_probes, read_trace,
    read_unaudited, renumbered,
};
use super::what_if::WhatIf;

/// A recorded run of a live subject.
pub struct LiveRun<T = Trace> {
    pub recorded: Recorded,
    /// The trace, whole or without its audits.
    pub trace: T,
    /// Time of the forward call, with recording.
    pub took: Duration,
    /// Times until the answer was here, and of reading it.
    pub answered: Duration,
    pub reading: Duration,
    /// The text that ran, if it was one.
    pub text: Option<String>,
}

/// Receives what is done, how many, and of how many; 0 if unknown.
pub type Told<'a> = &'a mut dyn FnMut(&str, usize, usize);

/// Returns the request for a prompt, and for what the user declares of the code.
///
/// # Errors
/// When the prompt is a picture, or the target a text.
pub fn live_request(
    prompt: Option<&attnscope_prompt::Request>,
    declared: &Declared,
) -> Result<Request> {
    let mut request = Request {
        mask: declared.mask.map(|mask| match mask {
            DeclaredMask::Causal => "causal",
            DeclaredMask::Bidirectional => "bidirectional",
        }),
        window: declared.window,
        documents: declared.documents.clone(),
        ..Request::default()
    };
    let Some(prompt) = prompt else {
        return Ok(request);
    };
    match &prompt.source {
        Source::Text(text) => request.text = Some(text.clone()),
        Source::Ids(ids) if ids.is_empty() => {}
        Source::Ids(ids) => request.ids = Some(ids.clone()),
        Source::Picture(_) => {
            let problem = "a live model takes a text or token ids: return (model, tokenizer, inputs) to run it on a picture";
            return Err(Error::Prompt(problem.to_owned()));
        }
        Source::Values(values) => request.values = Some(values.clone()),
    }
    match &prompt.target {
        Target::Ids(ids) => request.target = Some(ids.clone()),
        Target::Text(_) => {
            let problem = "a live model takes its target as token ids: expected --target-tokens, found --target-text";
            return Err(Error::Prompt(problem.to_owned()));
        }
        Target::Generate(_) => {}
    }
    Ok(request)
}

/// Runs a live subject and reads what it recorded.
///
/// # Errors
/// When the person's code fails, nothing of attention was seen, or the pace stops it.
pub fn record_live(
    session: &mut LiveSession,
    request: &Request,
    declared: &Declared,
    told: Told<'_>,
    pace: &dyn Pace,
) -> Result<LiveRun> {
    let read = |captured: &Captured| read_trace(captured, declared);
    ran(session, request, (told, pace), read, |trace| trace)
}

/// Runs a live subject and reads what it recorded, but for the audits that checks need.
///
/// # Errors
/// As for [`record_live`].
pub fn record_unaudited(
    session: &mut LiveSession,
    request: &Request,
    declared: &Declared,
    told: Told<'_>,
    pace: &dyn Pace,
) -> Result<LiveRun<Unaudited>> {
    let read = |captured: &Captured| read_unaudited(captured, declared);
    ran(session, request, (told, pace), read, |read| &read.trace)
}

fn ran<T>(
    session: &mut LiveSession,
    request: &Request,
    (told, pace): (Told<'_>, &dyn Pace),
    read: impl Fn(&Captured) -> Result<T>,
    trace_of: impl Fn(&T) -> &Trace,
) -> Result<LiveRun<T>> {
    let begun = Instant::now();
    let done = session.run(request, told, pace)?;
    let answered = begun.elapsed();
    let mut captured = Captured::open_finished(&done.path)?;
    let about = session.about(pace)?.clone();
    captured.name.clone_from(&about.name);
    let trace = read(&captured)?;
    let recorded = Recorded::new(captured, trace_of(&trace));
    let recorded = recorded.of_live(about, request.values.clone());
    Ok(LiveRun {
        recorded,
        trace,
        took: done.took,
        answered,
        reading: begun.elapsed() - answered,
        text: done.text,
    })
}

/// Runs a live subject on changed inputs: later tokens, padding, order and others.
///
/// # Errors
/// When the person's code fails, or the pace stops it.
pub fn probe_live(
    session: &mut LiveSession,
    recorded: &Recorded,
    declared: &Declared,
    told: Told<'_>,
    pace: &dyn Pace,
) -> Result<Probes> {
    let given = recorded.prompt.given();
    let written = &recorded.prompt;
    let has_ids = recorded.values.is_none() && !written.lacks_ids;
    let has_two = has_ids && written.source.is_some() && !given.lacks_ids;
    let request = Request {
        values: recorded.values.clone(),
        // The probe of an encoder-decoder model changes what is written, be the source a text, a picture or a sound.
        ids: has_ids.then(|| if has_two { given } else { written }.tokens.clone()),
        target: has_two.then(|| written.tokens.clone()),
        mask: Some(mask_of(recorded, declared)),
        documents: declared.documents.clone(),
        probes: true,
        ..Request::default()
    };
    let done = session.run(&request, told, pace)?;
    let captured = Captured::open_finished(&done.path)?;
    read_probes(&captured)
}

/// The direction that is declared, or that most of the recorded layers have.
fn mask_of(recorded: &Recorded, declared: &Declared) -> &'static str {
    let is_causal = match declared.mask {
        Some(mask) => mask == DeclaredMask::Causal,
        None => recorded.layers.iter().any(|layer| layer.spec.mask.causal),
    };
    if is_causal { "causal" } else { "bidirectional" }
}

/// Judges a recorded run, with what probes saw or why they did not run.
pub fn judge_live(
    trace: &Trace,
    probes: &Probes,
    thresholds: &Thresholds,
) -> Vec<(&'static Check, Verdict)> {
    judge_probed(trace, &renumbered(&trace.layers), probes, thresholds)
}

/// Probes of a live subject that were not run; says why.
pub fn unprobed(why: &str) -> Probes {
    let untried = || why.to_owned();
    let weights = "weights are not read from a live model: check a checkpoint of it";
    Probes {
        future: Probed::Untried(untried()),
        padding: Probed::Untried(untried()),
        batch: Probed::Untried(untried()),
        documents: Probed::Not("no documents were declared (--documents)".to_owned()),
        repeat: Probed::Untried(untried()),
        length: Probed::Untried(untried()),
        cache: Probed::Untried(untried()),
        order: Probed::Untried(untried()),
        context: Probed::Untried(untried()),
        labels: Probed::Untried(untried()),
        training: Probed::Not(weights.to_owned()),
        weights: Probed::Not(weights.to_owned()),
        nonfinite: None,
        sampled: None,
    }
}

/// Returns changes of attention as the channel has them.
///
/// # Errors
/// When the recorded model has no such place.
pub fn live_changes(recorded: &Recorded, what_ifs: &[WhatIf]) -> Result<Vec<Value>> {
    let grids = recorded.shape();
    what_ifs
        .iter()
        .map(|what_if| {
            let (key, value) = what_if.key_and_value();
            let mut places = Vec::new();
            for place in what_if.places() {
                place
                    .within(&grids)
                    .map_err(|reason| Error::Setting(format!("--what-if {what_if}: {reason}")))?;
                if place == Place::default() {
                    return Ok(json!({"key": key, "value": value, "places": null}));
                }
                places.extend(layers_of(recorded, place, &grids));
            }
            Ok(json!({"key": key, "value": value, "places": places}))
        })
        .collect()
}

/// Names of the recorded layers that a place holds, with its head.
fn layers_of(recorded: &Recorded, place: Place, grids: &[Grid]) -> Vec<Value> {
    let layers = grids
        .iter()
        .flat_map(|grid| (0..grid.n_heads.len()).map(move |layer_idx| (grid.stack, layer_idx)));
    layers
        .filter(|(stack, layer_idx)| place.holds(*stack, *layer_idx))
        .filter_map(|(stack, layer_idx)| {
            let arrays = recorded.arrays_of(stack, layer_idx);
            let name = arrays.pattern.or(arrays.scores)?;
            let layer = name.rsplit_once('.')?.0;
            Some(json!({"layer": layer, "head": place.head_idx}))
        })
        .collect()
}
