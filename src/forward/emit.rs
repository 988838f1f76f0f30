//! Hands values of a block to whoever looks at it, and takes back those that are to be changed.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;

use super::hook::{Hook, Hooks};

pub(super) fn emit<O: Ops>(
    ops: &O,
    hooks: &mut dyn Hooks,
    hook: Hook,
    values: &O::Buffer,
) -> Result<()> {
    if hooks.wants(hook) {
        let host = ops.get(values)?;
        hooks.values(hook, &host.values, host.width)?;
    }
    Ok(())
}

/// Hands over a value that may be changed, then as it goes on.
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

/// Hands over rows that hold more than the residual.
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

/// Hands over what a branch gives, before the norm on it.
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
