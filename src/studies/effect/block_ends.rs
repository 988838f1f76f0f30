//! Backward steps of attribution for features of few models: heads that share a norm with a partner, and the end of a block.

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::vectors::dot;
use attnscope_forward::read_difference;
use attnscope_spec::{BlockSpec, ProjectionSpec};

/// Maps weights on the output of head pairs back to the heads. The scale of a norm that partners share is frozen.
///
/// # Errors
/// When a tensor contradicts the spec.
pub fn of_heads(
    tensors: &Tensors,
    attention: &AttentionSpec,
    projections: &ProjectionSpec,
    z: &[f64],
    mut weights: Vec<f64>,
) -> Result<Vec<f64>> {
    let Some(difference) = &projections.difference else {
        return Ok(weights);
    };
    let difference = read_difference(difference, tensors)?;
    let row: Vec<f32> = z.iter().map(|value| *value as f32).collect();
    let factors = difference.factors(&row, attention.n_heads);
    for (head, factor) in weights.chunks_mut(attention.d_value.max(1)).zip(factors) {
        head.iter_mut().for_each(|w| *w *= f64::from(factor));
    }
    Ok(weights)
}

/// Maps weights on the residual after a block's end back to before it. Returns what the block adds for its token id alone.
///
/// # Errors
/// When a tensor contradicts the spec.
pub fn end_of_block(
    tensors: &Tensors,
    block: &BlockSpec,
    weights: &mut [f64],
    [before, after]: [&[f64]; 2],
) -> Result<f64> {
    let of_after = dot(weights, after);
    if let Some(name) = &block.resid_scale {
        let stored = tensors.expect(name, &[1])?.widen()?;
        let scale = f64::from(stored[0]);
        weights.iter_mut().for_each(|w| *w *= scale);
    }
    // The by-token term is the rest of the product after the residual's share.
    Ok(match block.by_token {
        Some(_) => of_after - dot(weights, before),
        None => 0.0,
    })
}
