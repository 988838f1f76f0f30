//! Reads norms, with their gains and biases as they are applied.

use std::borrow::Cow;

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;
use attnscope_compute::ops::HostNorm;
use attnscope_spec::NormSource;

use super::gain_growth::grown;
use super::rounded::round_read;

/// Reads a norm, with its gain as it is applied.
pub(super) fn read_norm<'a>(tensors: &'a Tensors, source: &NormSource) -> Result<HostNorm<'a>> {
    let read = |name: &String| -> Result<Cow<'a, [f32]>> {
        let stored = tensors.expect(name, &source.gain_shape)?.widen()?;
        let stored = match stored {
            all if !source.has_conditions => all,
            all => Cow::Owned(all.iter().take(source.width).copied().collect()),
        };
        Ok(round_read(stored, source.rounded))
    };
    let mut parts = source
        .gain
        .iter()
        .map(read)
        .collect::<Result<Vec<Cow<'a, [f32]>>>>()?;
    let mut gain = match parts.len() {
        0 | 1 => parts.pop(),
        _ => Some(Cow::Owned(parts.concat())),
    };
    if source.adds_one {
        gain = gain.map(|gain| gain.iter().map(|g| 1.0 + g).collect());
    }
    let (mut gain, mut bias) = (
        grown(tensors, source.grown.as_deref(), gain)?,
        source.bias.as_ref().map(read).transpose()?,
    );
    if let Some([mean, variance]) = &source.statistics {
        let [mean, variance] = [
            tensors.expect(mean, &[source.width])?.widen()?,
            tensors.expect(variance, &[source.width])?.widen()?,
        ];
        let given = |values: &Option<Cow<'a, [f32]>>, idx: usize, otherwise: f32| {
            values.as_ref().map_or(otherwise, |values| values[idx])
        };
        let by: Vec<f32> = (0..source.width)
            .map(|idx| given(&gain, idx, 1.0) / (variance[idx] + source.eps).sqrt())
            .collect();
        let added = (0..source.width).map(|idx| given(&bias, idx, 0.0) - mean[idx] * by[idx]);
        (bias, gain) = (Some(added.collect()), Some(by.into()));
    }
    if let Some(factors) = &source.factors {
        let shape = factors.stored_shape(source.width);
        let stored = tensors.expect(&factors.tensor, &shape)?.widen()?;
        let factors = factors.of(&stored, source.width);
        let times = |values: Cow<'a, [f32]>| -> Cow<'a, [f32]> {
            values.iter().zip(&factors).map(|(v, by)| v * by).collect()
        };
        bias = bias.map(times);
        gain = Some(gain.map_or(Cow::Owned(factors.clone()), times));
    }
    Ok(HostNorm {
        kind: source.kind,
        eps: source.eps,
        alpha: match &source.alpha {
            Some(alpha) => tensors.expect(alpha, &[])?.widen()?[0],
            None => 1.0,
        },
        gain,
        bias,
    })
}
