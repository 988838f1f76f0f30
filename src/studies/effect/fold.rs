//! Folds the gain of a norm into the matrices that read its output.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_forward::norm_on_host;
use attnscope_spec::{Model, NormSource};

/// A norm's gain, and whether it subtracts the mean.
#[derive(Debug, Clone, Default)]
pub(super) struct Fold {
    gain: Option<Vec<f32>>,
    centres: bool,
}

impl Fold {
    pub fn read(model: &Model, norm: &Option<NormSource>) -> Result<Self> {
        let Some(norm) = norm else {
            return Ok(Self::default());
        };
        if norm.kind == NormKind::Tanh {
            let problem = format!(
                "{}: a tanh stands in the place of a norm, so that what is read of the residual is no product of matrices",
                model.spec.family
            );
            return Err(Error::Setting(problem));
        }
        let norm = norm_on_host(&model.checkpoint.tensors, norm)?;
        Ok(Self {
            gain: norm.gain.map(std::borrow::Cow::into_owned),
            centres: norm.kind == NormKind::LayerNorm,
        })
    }

    /// Converts rows that read the norm's output to rows that read the residual.
    pub fn fold_into(&self, rows: &mut [f32], width: usize) {
        for row in rows.chunks_mut(width.max(1)) {
            if let Some(gain) = &self.gain {
                row.iter_mut().zip(gain).for_each(|(w, g)| *w *= g);
            }
            if self.centres {
                let mean = row.iter().sum::<f32>() / width as f32;
                row.iter_mut().for_each(|w| *w -= mean);
            }
        }
    }
}
