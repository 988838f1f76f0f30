//! A memory of values beside attention, as data.

use super::parts::MixerPart;
use crate::source::LinearSource;

/// v plus a convolution of v over positions, each channel by itself, for the values v of the attention beside it, before heads divide
/// them (SAN-M, Gao et al. 2020, arXiv 2006.01713).
#[derive(Debug, Clone, PartialEq)]
pub struct ValueMemorySpec {
    /// The map of values, which is that of the attention.
    pub values: LinearSource,
    /// [channel, 1, n_wide]
    pub kernel: String,
    pub n_wide: usize,
    /// Number of earlier positions that a kernel covers.
    pub n_before: usize,
}

impl ValueMemorySpec {
    /// The shape of the stored kernels.
    pub fn kernel_shape(&self) -> Vec<usize> {
        vec![self.values.n_out(), 1, self.n_wide]
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let shape = self.kernel_shape();
        vec![MixerPart::Tensor("kernel", &self.kernel, shape)]
    }
}
