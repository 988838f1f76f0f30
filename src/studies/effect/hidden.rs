//! Hidden states that the unembedding reads, computed from residuals of a run.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_forward::final_hidden;
use attnscope_spec::Model;

/// Applies the final norm to chosen rows of the last layer's output. // [row, d_model]
pub fn hidden_of<O: Ops>(
    ops: &O,
    model: &Model,
    residuals: &[&[f32]],
    rows: &[usize],
) -> Result<O::Buffer> {
    let main = model.spec.main_stack();
    let width = model.spec.d_input(main, 0);
    let chosen = residuals.iter().flat_map(|values| {
        rows.iter()
            .map(|row| &values[row * width..(row + 1) * width])
    });
    let chosen: Vec<&[f32]> = chosen.collect();
    let chosen = chosen.concat();
    let (mut resid, mut hidden) = (O::Buffer::default(), O::Buffer::default());
    ops.put(&chosen, width, &mut resid)?;
    final_hidden(ops, model, main, &resid, &mut hidden)?;
    Ok(hidden)
}
