//! What heads give to the learned tokens before a picture's patches, where it is left out or averaged.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::FirstRows;

use super::context::BlockContext;

/// Changes what heads give to these tokens, before the output map. // z: [copy · position, n_heads · d_value]
pub(super) fn change_firsts<O: Ops>(
    context: &BlockContext<'_, O>,
    firsts: FirstRows,
    z: &mut O::Buffer,
) -> Result<()> {
    match firsts {
        FirstRows::AsOthers => Ok(()),
        FirstRows::LeftOut => leave_out_firsts(context, firsts, z),
        FirstRows::Averaged => of_firsts(context, z, average),
    }
}

/// Leaves out what the output map gives to tokens that pass by: its bias. // out: [copy · position, d_model]
pub(super) fn leave_out_firsts<O: Ops>(
    context: &BlockContext<'_, O>,
    firsts: FirstRows,
    out: &mut O::Buffer,
) -> Result<()> {
    if firsts != FirstRows::LeftOut {
        return Ok(());
    }
    of_firsts(context, out, |rows, _| rows.fill(0.0))
}

/// Changes the rows of these tokens in each copy of a sequence.
fn of_firsts<O: Ops>(
    context: &BlockContext<'_, O>,
    values: &mut O::Buffer,
    change: fn(&mut [f32], usize),
) -> Result<()> {
    let sequence = context.sequence;
    let picture = sequence.picture.as_deref();
    let n_first = picture.map_or(0, |picture| picture.firsts.len());
    let host = context.ops.get(values)?;
    let (width, mut all) = (host.width, host.values.into_owned());
    for copy in all.chunks_mut((sequence.len() * width).max(1)) {
        let n = (n_first * width).min(copy.len());
        change(&mut copy[..n], width);
    }
    context.ops.put_own(all, width, values)
}

/// Puts their mean in the place of all rows. // rows: [token, width]
fn average(rows: &mut [f32], width: usize) {
    let n = rows.len() / width.max(1);
    for column in 0..width {
        let own = || rows.iter().skip(column).step_by(width);
        let sum: f64 = own().map(|value| f64::from(*value)).sum();
        let mean = (sum / n.max(1) as f64) as f32;
        let own = rows.iter_mut().skip(column).step_by(width);
        own.for_each(|value| *value = mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rows_become_their_mean() {
        let mut rows = [1.0, 10.0, 2.0, 20.0, 6.0, 0.0];
        average(&mut rows, 2);
        assert_eq!(rows, [3.0, 10.0, 3.0, 10.0, 3.0, 10.0]);
    }
}
