//! Activation with learned curvatures.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;

/// Applies an activation with learned curvatures, on the host.
pub(super) fn curve<O: Ops>(ops: &O, learned: [f32; 4], values: &mut O::Buffer) -> Result<()> {
    let [above, below, slope, limit] = learned;
    let host = ops.get(values)?;
    let (width, mut curved) = (host.width, host.values.into_owned());
    for x in &mut curved {
        *x = if *x > 0.0 {
            above * *x * *x + slope * *x
        } else {
            (x.min(limit).exp_m1() - *x) * below + slope * *x
        };
    }
    ops.put(&curved, width, values)
}
