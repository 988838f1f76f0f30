//! Positions of sounds: convolutions over the rows around each row.

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_prompt::MOST_CONVOLUTIONS;
use attnscope_spec::{AroundKernel, AroundRows, NormKind, NormSource};

use super::either;
use super::wave_like::{EPS, WaveLike, WaveShape};

/// Positions from the rows around each.
pub(super) fn positions(
    reader: &mut Reader<'_>,
    tensors: &Tensors,
    (base, like): (&str, WaveLike),
    d_model: usize,
) -> Result<Vec<AroundRows>> {
    let (count, groups) = ("num_conv_pos_embeddings", "num_conv_pos_embedding_groups");
    let default = |key: &str| Origin::Default(key.to_owned());
    if like.shape == WaveShape::Conformer {
        // Its convolution over the rows around each is stored, and does not run.
        for key in [count, groups] {
            reader.value(key);
        }
        return Ok(Vec::new());
    }
    let is_many = like.shape == WaveShape::ManyPositions;
    let (wide, usual) = if is_many {
        ("conv_pos_kernel_size", 19)
    } else {
        (count, 128)
    };
    let n_wide = reader.size_or("position_width", wide, usual, default(wide))?;
    let n = if is_many {
        reader.size_or("position_layers", count, 5, default(count))?
    } else {
        1
    };
    if n > MOST_CONVOLUTIONS {
        let problem = format!("expected at most {MOST_CONVOLUTIONS} convolutions, found {n}");
        return Err(Error::config(reader.path(), count, problem));
    }
    let n_groups = reader.size_or("position_groups", groups, 16, default(groups))?;
    if !d_model.is_multiple_of(n_groups) || n_wide > 1 << 14 {
        let problem = format!("expected a divisor of hidden_size, {d_model}, found {n_groups}");
        return Err(Error::config(reader.path(), groups, problem));
    }
    let layer = |nth: usize| {
        let at = if is_many {
            format!("{base}{}.layers.{nth}.conv", like.names.positions)
        } else {
            format!("{base}{}.conv", like.names.positions)
        };
        let stored = |now: &str, once: &str| {
            let names = [
                format!("{at}.parametrizations.weight.{now}"),
                format!("{at}.{once}"),
            ];
            either(tensors, names)
        };
        let is_whole = is_many || like.shape == WaveShape::Plain;
        AroundRows {
            kernel: if is_whole {
                AroundKernel::Whole(format!("{at}.weight"))
            } else {
                AroundKernel::ByLength {
                    gains: stored("original0", "weight_g"),
                    directions: stored("original1", "weight_v"),
                }
            },
            bias: format!("{at}.bias"),
            norm: is_many.then(|| NormSource::new(NormKind::LayerNorm, EPS, d_model, None)),
            width: d_model,
            n_wide,
            n_groups,
        }
    };
    Ok((0..n).map(layer).collect())
}
