//! Stored tensors that a model never uses, except those that are not weights.

use std::collections::BTreeMap;

use attnscope_checks::{UnreadKind, UnreadTensor};
use attnscope_families::unread::{NameKind, is_computed, is_mask_shape, kind_of, layer_of};
use attnscope_spec::{Model, Place};

use super::values::Seen;

/// Kind of an unread tensor by its name; `None` if it is known not to be a weight of the model.
fn unread_kind(name: &str, n_layers: usize) -> Option<UnreadKind> {
    match kind_of(name) {
        NameKind::Adapter => Some(UnreadKind::Adapter),
        NameKind::Unembedding => Some(UnreadKind::Unembedding),
        NameKind::Buffer | NameKind::OtherPart => None,
        NameKind::Weight => Some(match layer_of(name) {
            Some(layer_idx) if layer_idx >= n_layers => UnreadKind::BeyondLayers,
            Some(_) => UnreadKind::OfLayer,
            None => UnreadKind::Unknown,
        }),
    }
}

/// Unread tensors that matter. `look` measures the values of a stored tensor and is called only if needed; `read` holds every
/// tensor that is used.
///
/// # Errors
/// When a tensor cannot be read.
pub(super) fn unread<E>(
    model: &Model,
    read: &BTreeMap<String, Seen>,
    mut look: impl FnMut(&str) -> Result<Option<Seen>, E>,
) -> Result<Vec<UnreadTensor>, E> {
    let tensors = &model.checkpoint.tensors;
    let stacks = model.spec.stacks.iter();
    let n_layers = stacks.map(|stack| stack.n_layers()).max().unwrap_or(0);
    let mut found = Vec::new();
    for name in model.spec.unused_tensors(tensors) {
        if is_computed(&model.spec, name) {
            continue;
        }
        let info = tensors.info(name).filter(|info| info.dtype.is_float());
        let Some((info, kind)) = info.zip(unread_kind(name, n_layers)) else {
            continue;
        };
        // A model opened without an LM head ignores all heads.
        if kind == UnreadKind::Unembedding && model.spec.head.is_none() {
            continue;
        }
        if is_mask_shape(&info.shape) || info.n_elements() <= 1 {
            continue;
        }
        let Some(seen) = look(name)? else { continue };
        let is_copy = read
            .values()
            .any(|known| (known.n, known.hash) == (seen.n, seen.hash));
        let is_vector = info.shape.iter().filter(|n| **n != 1).count() <= 1;
        // A bias of zeros or a gain of ones has no effect, and neither does an adapter with one side all 0.
        let is_neutral = is_vector && (seen.is_zero() || seen.is_one());
        if is_copy || is_neutral {
            continue;
        }
        let place = match (kind, layer_of(name), model.spec.stacks.as_slice()) {
            (UnreadKind::OfLayer, Some(layer_idx), [stack]) => Place::layer(stack.stack, layer_idx),
            _ => Place::MODEL,
        };
        found.push(UnreadTensor {
            name: name.to_owned(),
            shape: info.shape.clone(),
            kind,
            place,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensors_kind_is_read_from_its_name() {
        use UnreadKind::{Adapter, BeyondLayers, OfLayer, Unembedding, Unknown};
        for (name, kind) in [
            (
                "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                Some(Adapter),
            ),
            ("encoder.layer.3.output.adapter_down.weight", Some(Adapter)),
            ("model.layers.1.self_attn.q_proj.bias", Some(OfLayer)),
            ("model.layers.1.self_attn.q_norm.weight", Some(OfLayer)),
            ("model.layers.7.mlp.up_proj.weight", Some(BeyondLayers)),
            ("lm_head.weight", Some(Unembedding)),
            ("extra.weight", Some(Unknown)),
            ("h.0.attn.bias", None),
            ("h.0.attn.masked_bias", None),
            ("transformer.h.0.attn.attention.bias", None),
            ("model.layers.0.self_attn.rotary_emb.inv_freq", None),
            ("bert.pooler.dense.weight", None),
            ("cls.seq_relationship.weight", None),
            ("score.weight", None),
            ("optimizer.state.0.exp_avg", None),
            ("vision_tower.blocks.0.attn.qkv.weight", None),
        ] {
            assert_eq!(unread_kind(name, 2), kind, "{name}");
        }
    }
}
