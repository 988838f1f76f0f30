//! A convolution whose kernels depend on a span of tokens, as data.

use super::parts::MixerPart;
use crate::source::LinearSource;

/// Span-based dynamic convolution (Jiang et al. 2020, arXiv 2008.02496): each head mixes the values of the tokens around a token
/// with the softmax of kernel(q · span), where the span is a convolution of the input over the same tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanConvolutionSpec {
    pub n_heads: usize,
    /// Number of tokens that a kernel covers, as many on either side: an odd number.
    pub n_wide: usize,
    pub q: LinearSource,
    /// Kernels by channel of the input. // [channel, 1, token]
    pub depthwise: String,
    /// Maps the channels after that to those of the heads.
    pub pointwise: LinearSource,
    /// Added to the span. // [channel, 1]
    pub span_bias: String,
    /// Maps q · span to one number per head and token of the kernel.
    pub kernel: LinearSource,
    pub values: LinearSource,
    pub o: LinearSource,
}

impl SpanConvolutionSpec {
    /// The shape of the stored kernels by channel.
    pub fn depthwise_shape(&self) -> Vec<usize> {
        vec![self.q.n_in, 1, self.n_wide]
    }

    /// The shape of the stored bias of spans.
    pub fn span_bias_shape(&self) -> Vec<usize> {
        vec![self.q.n_out(), 1]
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let maps = [
            ("q", &self.q),
            ("pointwise", &self.pointwise),
            ("kernel", &self.kernel),
            ("values", &self.values),
            ("o", &self.o),
        ];
        let mut parts = Vec::from(maps.map(|(name, map)| MixerPart::Map(name, map)));
        let shape = self.depthwise_shape();
        parts.push(MixerPart::Tensor("depthwise", &self.depthwise, shape));
        let shape = self.span_bias_shape();
        parts.push(MixerPart::Tensor("span_bias", &self.span_bias, shape));
        parts
    }
}
