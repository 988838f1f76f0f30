//! Rows of the moments of a video, which are added to those of their patches.

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_prompt::Picture;
use attnscope_spec::MomentRows;

use super::context::BlockContext;

/// Adds the row of its moment to each patch; `n_first` learned tokens stand before the patches. // rows: [place, width]
pub(super) fn add_moment_rows(
    tensors: &Tensors,
    spec: &MomentRows,
    (picture, n_first): (&Picture, usize),
    places: &[usize],
    rows: &mut [f32],
) -> Result<()> {
    let table = tensors.expect(&spec.tensor, &spec.shape())?.widen()?;
    let width = spec.width.max(1);
    for (to, place) in rows.chunks_mut(width).zip(places) {
        let Some(patch_idx) = place.checked_sub(n_first) else {
            continue;
        };
        let moment = picture.moment(patch_idx);
        let from = table.chunks(width).nth(moment).ok_or_else(|| {
            let problem = format!(
                "position {place} is of moment {moment}, {} has {}",
                spec.tensor, spec.n
            );
            Error::Prompt(problem)
        })?;
        to.iter_mut().zip(from).for_each(|(to, value)| *to += value);
    }
    Ok(())
}

/// Adds the rows of moments to the patches of each copy of a video. // [copy · position, width]
pub(super) fn add_moments<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &MomentRows,
    resid: &mut O::Buffer,
) -> Result<()> {
    let sequence = context.sequence;
    let picture = sequence.picture.as_deref().ok_or_else(|| {
        Error::Prompt("this model reads pictures: expected one, found ids alone".to_owned())
    })?;
    let mut values = context.ops.get(resid)?.values.into_owned();
    let n_values = (sequence.len() * spec.width).max(1);
    let of = (picture, picture.firsts.len());
    for copy in values.chunks_mut(n_values) {
        add_moment_rows(context.tensors, spec, of, &sequence.positions, copy)?;
    }
    context.ops.put_own(values, spec.width, resid)
}
