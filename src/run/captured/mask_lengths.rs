//! In which layers of a trace the attention mask is used: those whose keys are as many as its values.

use attnscope_checkpoint::captured::Captured;
use attnscope_compute::error::Result;

use super::declared::Stated;

/// Whether the attention mask is as long as the keys of the layers.
#[derive(Default)]
pub(super) struct MaskLengths {
    fits_some: bool,
    /// Number of keys of the first self-attention of another length that could have been meant.
    other: Option<usize>,
}

impl MaskLengths {
    pub fn add(&mut self, real: Option<&[bool]>, n_keys: usize, may_be_meant: bool) {
        let fits = real.is_none_or(|real| real.len() == n_keys);
        self.fits_some |= fits;
        if !fits && may_be_meant {
            self.other.get_or_insert(n_keys);
        }
    }

    /// Says so when the mask is used in some layers only: those of a decoder may have keys of their own.
    ///
    /// # Errors
    /// When the mask fits no layer.
    pub fn note(&self, captured: &Captured, stated: &Stated) -> Result<Option<String>> {
        let (Some(n_keys), Some(real)) = (self.other, &stated.real) else {
            return Ok(None);
        };
        let n = real.len();
        if !self.fits_some {
            let problem = format!("the attention mask has {n} values, the pattern {n_keys} keys");
            return Err(captured.at("attention_mask", &problem));
        }
        Ok(Some(format!(
            "the attention mask is used in layers with {n} keys"
        )))
    }
}
