//! Passes values of a block to hooks, and takes back those that hooks change.

use attnscope_compute::error::Result;
use attnscope_compute::kernels;
use attnscope_compute::ops::Ops;

use super::hook::{Hook, Hooks};

pub(super) fn emit<O: Ops>(
    ops: &O,
    hooks: &mut dyn Hooks,
    hook: Hook,
    values: &O::Buffer,
) -> Result<()> {
    if hooks.wants(hook) || hooks.wants_nonfinite(hook) && !ops.is_finite(values)? {
        let host = ops.get(values)?;
        hooks.values(hook, &host.values, host.width)?;
    } else if hooks.wants_norms(hook) {
        hooks.norms(hook, ops.row_norms(values)?);
    }
    Ok(())
}

/// Passes a value that is on the host.
pub(super) fn emit_host(
    hooks: &mut dyn Hooks,
    hook: Hook,
    values: &[f32],
    width: usize,
) -> Result<()> {
    let is_finite = || kernels::first_nonfinite(values).is_none();
    if hooks.wants(hook) || hooks.wants_nonfinite(hook) && !is_finite() {
        hooks.values(hook, values, width)?;
    } else if hooks.wants_norms(hook) {
        hooks.norms(hook, kernels::norms_of_rows(values, width));
    }
    Ok(())
}

/// Lets hooks change a value, then emits the result.
pub(super) fn offer<O: Ops>(
    ops: &O,
    hooks: &mut dyn Hooks,
    hook: Hook,
    values: &mut O::Buffer,
) -> Result<()> {
    if hooks.changes(hook) {
        let host = ops.get(values)?;
        let width = host.width;
        let mut changed = host.values.into_owned();
        hooks.change(hook, &mut changed, width)?;
        ops.put(&changed, width, values)?;
    }
    emit(ops, hooks, hook, values)
}

/// Emits rows that hold more than the residual.
pub(super) fn rows<O: Ops>(
    ops: &O,
    hooks: &mut dyn Hooks,
    hook: Hook,
    values: &O::Buffer,
) -> Result<()> {
    if hooks.wants_rows() {
        let host = ops.get(values)?;
        hooks.rows(hook, &host.values, host.width)?;
    }
    Ok(())
}

/// Emits a branch's output before its norm.
pub(super) fn raw<O: Ops>(
    ops: &O,
    hooks: &mut dyn Hooks,
    hook: Hook,
    values: &O::Buffer,
) -> Result<()> {
    if hooks.wants_raw() {
        let host = ops.get(values)?;
        hooks.raw(hook, &host.values, host.width)?;
    }
    Ok(())
}
