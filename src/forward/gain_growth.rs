//! What changes the stored gain of a norm: a condition that is the same for all tokens.

use std::borrow::Cow;

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::activate;
use attnscope_spec::{GainGrowth, LinearSource};

use super::weights::{Fused, read_linear};

/// A gain, or 1 where there is none, times 1 plus what two maps make of the condition; without a condition, the gain itself.
pub(super) fn grown<'a>(
    tensors: &Tensors,
    growth: Option<&GainGrowth>,
    gain: Option<Cow<'a, [f32]>>,
) -> Result<Option<Cow<'a, [f32]>>> {
    let Some(growth) = growth else {
        return Ok(gain);
    };
    let mapped = |source: &LinearSource, from: &[f32]| -> Result<Vec<f32>> {
        let map = read_linear(tensors, source, false, &Fused::default(), &|| false)?;
        let weights = map.widened();
        let rows = weights.chunks(map.n_in.max(1));
        let sum = |row: &[f32]| row.iter().zip(from).map(|(w, v)| w * v).sum();
        Ok(rows.map(sum).collect())
    };
    let mut hidden = mapped(&growth.into, &growth.values)?;
    activate(growth.activation, &mut hidden);
    let mut factors = mapped(&growth.out, &hidden)?;
    factors.iter_mut().for_each(|by| *by += 1.0);
    if let Some(gain) = gain {
        let pairs = factors.iter_mut().zip(&*gain);
        pairs.for_each(|(by, gain)| *by *= gain);
    }
    Ok(Some(factors.into()))
}
