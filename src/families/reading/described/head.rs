//! The head of a described model: a dense layer, the unembedding, and what the outputs mean.

use attnscope_spec::{HeadSpec, LabelKind, Labels, LinearSource, Pooled, TransformSpec};

use super::Arranged;
use super::spec::Reads;
use crate::reading::activation_by_name;

impl Reads<'_> {
    pub(super) fn head(&self) -> HeadSpec {
        let (of, d_model, d_vocab) = (self.of, self.sizes.d_model, self.sizes.d_vocab);
        // A dense layer before the unembedding may have a width of its own.
        let dense = of.head_dense.as_ref();
        let dense = dense.and_then(|dense| self.tensors.info(&dense.weight));
        let d_last = dense.map_or(d_model, |info| info.n_elements() / d_model.max(1));
        let stored = of.unembed.as_ref();
        let stored = stored.and_then(|part| {
            let info = |name: &str| self.tensors.info(name);
            info(&part.weight).or_else(|| info(&part.arranged_name(&part.weight)))
        });
        let n_out = stored.map_or(d_vocab, |info| info.n_elements() / d_last.max(1));
        let unembed = match &of.unembed {
            None => LinearSource::whole(of.tokens.clone(), None, d_model, d_vocab),
            Some(part) => {
                let bias = part.bias.as_ref().map(|bias| self.vector(bias, 0));
                let weight = match part.arranged(false, true) {
                    Arranged::RotationOverride { .. } => part.arranged_name(&part.weight),
                    _ => part.weight.clone(),
                };
                LinearSource::whole(weight, bias, d_last, n_out)
            }
        };
        let reads_values = of.values.is_some();
        let reads_pictures = of.patches.is_some();
        let is_of_labels =
            of.pooled.is_some() || n_out != d_vocab || reads_values || reads_pictures;
        let labels = is_of_labels.then(|| {
            Box::new(Labels {
                names: (0..n_out).map(|idx| idx.to_string()).collect(),
                kind: if n_out == 1 || reads_values && of.pooled.is_none() {
                    LabelKind::Value
                } else {
                    LabelKind::OneOf
                },
                pooled: of.pooled.unwrap_or(Pooled::Every),
            })
        });
        let transform = of.head_dense.as_ref().map(|dense| TransformSpec {
            dense: self.map(dense, 0, (d_model, d_last), false),
            activation: Some(
                of.head_activation
                    .as_deref()
                    .and_then(activation_by_name)
                    .unwrap_or(self.activation),
            ),
            norm: of.head_norm.as_ref().map(|norm| self.norm(norm, 0, d_last)),
            then: None,
        });
        HeadSpec {
            labels,
            transform,
            pooled_norm: of
                .pooled_norm
                .as_ref()
                .filter(|_| of.final_norm.is_some() || of.norm_of_one_row().is_none())
                .map(|norm| self.norm(norm, 0, d_model)),
            scale: of.logit_scale,
            softcap: of.logit_softcap,
            extra_bias: of.logit_bias.as_ref().map(|bias| self.vector(bias, 0)),
            ..HeadSpec::plain(unembed)
        }
    }
}
