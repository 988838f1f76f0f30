//! Compares a model with itself on two devices: every hook of every layer on one prompt.

mod difference;
mod memory;
mod place;

pub use difference::{DeviceDifference, Floor};
pub use memory::verify_bytes;
pub use place::ValuePlace;

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_run::Progress;
use attnscope_spec::Model;

use super::ROW_BYTES;
use super::engines::TwoDevices;
use super::exchange::Measure;
use super::floors::Floors;
use super::lockstep::{Sides, run};
use super::map::LayerMap;
use super::suspects::Suspects;

/// Options of a verification.
#[derive(Debug, Clone, Copy)]
pub struct VerifyOptions {
    pub floor: Floor,
    /// Bytes of scores and pattern of the reference kept per layer; those of other heads are computed again.
    pub row_bytes: usize,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self {
            floor: Floor::default(),
            row_bytes: ROW_BYTES,
        }
    }
}

/// Runs a prompt on a reference and on another device, and compares every hook in the order of execution.
///
/// # Errors
/// When the pace stops it, a tensor differs from its spec, a device fails, or one gives other values than the other.
pub fn verify<A: Ops, B: Ops>(
    (reference, other): (&A, &B),
    model: &Model,
    input: &Input,
    options: VerifyOptions,
    tell: &dyn Fn(Progress),
    pace: &dyn Pace,
) -> Result<Vec<DeviceDifference>> {
    let sides = Sides {
        a: model,
        b: model,
        map: &LayerMap::default(),
        floors: &Floors::of_models(model, model, None),
        suspects: &Suspects::default(),
        differing: None,
        row_bytes: options.row_bytes,
        keeps_maps: false,
        measure: Measure::Largest,
    };
    let devices = TwoDevices(reference, other);
    let ran = run(&devices, &sides, (input, input), tell, pace)?;
    Ok(difference::all(&ran, model, input, options.floor))
}
