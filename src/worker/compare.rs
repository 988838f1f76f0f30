//! Two runs of models in lockstep: what differs in knobs, in tensors, and hook by hook in the order of execution.

use std::sync::{Arc, Mutex};

use super::lane::lock;
use super::own_device::OwnDevice;
use super::{Context, Event, ModelRun, RunId, Sink, What};
use attnscope_engine::analysis::{Progress, Step};
use attnscope_engine::compare::{Comparing, Comparison};
use attnscope_engine::error::Result;
use attnscope_engine::on_device;
use attnscope_engine::pace::Pace;

/// A, and what it is compared with.
pub type Pair = (RunId, RunId);

/// Compares two runs, as far as both are models: hooks only where both ran the same ids.
///
/// # Errors
/// When a tensor cannot be read, the device fails, or the pace stops it.
pub(super) fn compare(
    context: &Mutex<Context>,
    sink: &Sink,
    device: &mut OwnDevice,
    pair: Pair,
    pace: &dyn Pace,
) -> Result<()> {
    let ran = |run: RunId| lock(context).of_run(run).map(|ran| ran.what.clone());
    let (Some(What::Model(a)), Some(What::Model(b))) = (ran(pair.0), ran(pair.1)) else {
        return Ok(());
    };
    let comparing = Comparing::default();
    let mut comparison = Comparison::of_knobs(&a.model, &b.model, &comparing);
    let tell = |what: &str, n_done: usize, n: usize| {
        let step = Step {
            what: what.to_owned(),
            n_done,
            n,
        };
        sink(Event::Comparing { pair, step });
    };
    if !Arc::ptr_eq(&a.model, &b.model) {
        let mut told = |n_done: usize, n: usize| tell("comparing tensors", n_done, n);
        comparison.compare_weights(&a.model, &b.model, &comparing, &mut told, pace)?;
        let ids = |ran: &ModelRun| {
            let source = ran
                .input
                .source
                .as_ref()
                .map(|source| source.tokens.clone());
            (source, ran.input.sequence.tokens.clone())
        };
        let are_same_ids = ids(&a) == ids(&b);
        if comparison.prevented_by.is_none() && are_same_ids {
            let compute = device.get()?;
            let n_layers = a.model.spec.n_layers_to_run();
            let told = |progress: Progress| {
                if let Progress::Layer { n_done, .. } = progress {
                    tell("comparing layers", n_done, n_layers);
                }
            };
            let inputs = ((*a.input).clone(), (*b.input).clone());
            on_device!(&compute, ops => comparison.run_prompt(
                ops,
                (&a.model, &b.model),
                ("prompt", inputs),
                &comparing,
                &told,
                pace,
            ))?;
        }
    }
    sink(Event::Compared {
        pair,
        comparison: Arc::new(comparison),
    });
    Ok(())
}
