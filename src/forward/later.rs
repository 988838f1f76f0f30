//! Maps that are read where they are multiplied.

use attnscope_compute::error::Result;
use attnscope_compute::ops::{Later, Ops};
use attnscope_spec::LinearSource;

use super::weights::{Fused, WeightReader, read_linear, read_linear_rows};

impl<'a, O: Ops> WeightReader<'a, O> {
    /// Reads maps at once, also those that are multiplied once.
    pub(super) fn at_once(self) -> Self {
        Self {
            for_one_run: false,
            ..self
        }
    }

    /// A map to be read when it is multiplied; `None` if it is not stored as it is used, or is no reading from a file.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub(super) fn later(self, source: &LinearSource) -> Result<Option<Later<'a>>> {
        let (n_in, n_out) = (source.n_in, source.n_stored_out);
        let whole = LinearSource::whole(source.weight.clone(), source.bias.clone(), n_in, n_out);
        let is_input_major = source.is_input_major;
        let whole = if is_input_major {
            whole.input_major()
        } else {
            whole
        };
        if *source != whole {
            return Ok(None);
        }
        let (tensors, pace) = (self.tensors, self.pace);
        let stored = tensors.expect(&whole.weight, &whole.stored_shape())?;
        if let Some(bias) = &whole.bias {
            tensors.expect(bias, &whole.stored_bias_shape())?;
        }
        let takes_bf16 = self.ops.takes_bf16();
        let stays_whole = self.ops.takes_bf16_whole() && stored.is_plain_bf16();
        if stays_whole || stored.borrowed().is_some() || !stored.is_row_wise() {
            return Ok(None);
        }
        Ok(Some(Later {
            n_out,
            n_in,
            in_parts: !is_input_major,
            read: Box::new(move |outputs| {
                if is_input_major {
                    read_linear(tensors, &whole, takes_bf16, &Fused::default(), pace)
                } else {
                    read_linear_rows(tensors, &whole, outputs, takes_bf16, pace)
                }
            }),
        }))
    }
}
