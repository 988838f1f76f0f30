//! A run whose values go to a tap. Its reports are dropped.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_run::{Layers, Options, Tap, run};
use attnscope_spec::Model;

/// Runs the whole model on an input, and gives its values to a tap.
///
/// # Errors
/// When the run fails or is stopped.
pub(super) fn run_watched<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    tap: &mut dyn Tap,
    pace: &dyn Pace,
) -> Result<()> {
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    let mut layers = Layers::default();
    run(ops, model, input, options, &mut layers, Some(tap), pace)?;
    Ok(())
}
