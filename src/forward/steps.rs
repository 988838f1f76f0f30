//! Small shared steps of a block: a factor, a norm in place, and zeros for an absent part.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;

/// Multiplies values by a factor; skips a factor of 1.
pub(super) fn scaled<O: Ops>(ops: &O, factor: f32, values: &mut O::Buffer) -> Result<()> {
    if factor == 1.0 {
        return Ok(());
    }
    ops.scale(values, factor)
}

/// Normalizes values in place, if there is a norm.
pub(super) fn normed_in_place<O: Ops>(
    ops: &O,
    norm: Option<&O::Norm<'_>>,
    values: &mut O::Buffer,
    spare: &mut O::Buffer,
) -> Result<()> {
    if let Some(norm) = norm {
        ops.norm(values, norm, spare)?;
        std::mem::swap(values, spare);
    }
    Ok(())
}

/// Norms each head of rows that are on the host. // values: [position, width of all heads]
pub(super) fn norm_heads_of<O: Ops>(
    ops: &O,
    norm: &O::Norm<'_>,
    (width, of_head): (usize, usize),
    values: &mut Vec<f32>,
) -> Result<()> {
    let mut on_device = O::Buffer::default();
    ops.put(values, width, &mut on_device)?;
    ops.norm_heads(&mut on_device, norm, of_head)?;
    *values = ops.get(&on_device)?.values.into_owned();
    Ok(())
}

/// Fills `to` with zeros in the shape of `from`: the output of an absent part.
pub(super) fn nothing<O: Ops>(ops: &O, from: &O::Buffer, to: &mut O::Buffer) -> Result<()> {
    let host = ops.get(from)?;
    let (n, width) = (host.values.len(), host.width);
    ops.put(&vec![0.0; n], width, to)
}
