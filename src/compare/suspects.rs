//! Finds the layers that may compute other values from the same input: those whose weights or knobs differ.

use std::borrow::Cow;
use std::collections::BTreeSet;

use attnscope_compute::attention::RelativeTables;
use attnscope_compute::error::Result;
use attnscope_forward::{Input, relative_on_host};
use attnscope_spec::{Model, ModelSpec, Place, Stack};

use super::roles::{is_bias_table, layer_of};
use super::spec_knobs::spec_knobs;
use super::weights::WeightDifferences;
use super::{KnobKind, LayerMap};

/// Formats a layer as in roles: `L3`, `encoder.L3`.
pub(super) fn layer_name(stack: Stack, layer_idx: usize) -> String {
    Place::layer(stack, layer_idx).to_string()
}

/// Renames a role or slot of A to its counterpart layer in B; `None` for a layer without one.
pub(super) fn renamed(spec: &ModelSpec, map: &LayerMap, key: &str) -> Option<String> {
    let layer = layer_of(key);
    if layer.is_empty() || map.is_identity() {
        return Some(key.to_owned());
    }
    let grids = spec.grids();
    let all = grids.into_iter().chain(spec.stacks.iter().map(|s| s.stack));
    for stack in all {
        for layer_idx in 0..spec.n_layers(stack) {
            if layer_name(stack, layer_idx) == layer {
                let other = map.of(stack, layer_idx)?;
                let rest = &key[layer.len()..];
                return Some(layer_name(stack, other) + rest);
            }
        }
    }
    Some(key.to_owned())
}

/// Layers of A, named as in roles, that may compute other values than their counterparts from the same input.
#[derive(Debug, Clone, Default)]
pub(super) struct Suspects {
    /// All of them.
    pub layers: BTreeSet<String>,
    /// Those with other knobs, or another way of counting positions.
    pub by_knobs: BTreeSet<String>,
}

/// Returns the layers of A that may differ from their counterparts on their own.
pub(super) fn suspects(
    (a, b): (&ModelSpec, &ModelSpec),
    map: &LayerMap,
    weights: &WeightDifferences,
    inputs: &[(Input, Input)],
) -> Suspects {
    let mut layers = BTreeSet::new();
    let (of_a, of_b) = (spec_knobs(a), spec_knobs(b));
    let is_shared = |name: &str| matches!(name, "positions" | "shared_bias");
    let mut all = inputs.iter().any(|(a, b)| a != b);
    for knob in of_a.iter().filter(|knob| knob.kind != KnobKind::Label) {
        let Some(slot) = renamed(a, map, &knob.slot) else {
            continue;
        };
        // A norm's name follows its layer.
        let layer = knob.slot.split(' ').next().unwrap_or_default();
        let other = of_b
            .iter()
            .find(|other| (other.name, &other.slot) == (knob.name, &slot));
        if other.is_none_or(|other| other.value != knob.value) {
            layers.insert(layer.to_owned());
            all |= is_shared(knob.name);
        }
    }
    // A bias table is shared by all layers of its stack.
    let mut roles = weights.differ.iter().flat_map(|tensor| &tensor.roles);
    all |= roles.any(|role| is_bias_table(role));
    if all {
        for stack in &a.stacks {
            let names = (0..stack.n_layers()).map(|idx| layer_name(stack.stack, idx));
            layers.extend(names);
        }
    }
    let by_knobs = layers.clone();
    layers.extend(weights.layers.iter().cloned());
    Suspects { layers, by_knobs }
}

/// Learned values used with an attention's queries and keys.
pub(super) struct Tables<'a> {
    /// [head]
    pub sinks: Option<Cow<'a, [f32]>>,
    /// [bucket, head]
    pub buckets: Option<Cow<'a, [f32]>>,
    pub relative: Option<RelativeTables>,
}

/// Reads a layer's sinks, and the learned biases of its heads.
pub(super) fn tables(model: &Model, stack: Stack, layer_idx: usize) -> Result<Tables<'_>> {
    let tensors = &model.checkpoint.tensors;
    let of_stack = model.spec.stack_of(stack);
    let block = of_stack.blocks().get(layer_idx);
    let projections = match stack {
        Stack::Cross => block.and_then(|block| Some(&block.cross.as_ref()?.projections)),
        _ => block.and_then(|block| Some(&block.own()?.projections)),
    };
    let n_heads = model.spec.n_heads(stack, layer_idx);
    let sinks = match projections.and_then(|projections| projections.sinks.as_ref()) {
        Some(name) => Some(tensors.expect(name, &[n_heads])?.widen()?),
        None => None,
    };
    let own = projections.and_then(|projections| projections.bucket_values.as_ref());
    let buckets = match own.or(of_stack.bucket_values.as_ref()) {
        Some(table) => {
            let stored = tensors.expect(&table.tensor, &[table.n_rows, table.width])?;
            Some(stored.widen()?)
        }
        None => None,
    };
    let relative = projections.map(|maps| relative_on_host(tensors, maps, &|| false));
    Ok(Tables {
        sinks,
        buckets,
        relative: relative.transpose()?.flatten(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tensor_difference::TensorDifference;
    use super::*;
    use attnscope_checkpoint::Checkpoint;

    #[test]
    fn a_bias_table_marks_every_layer_and_a_norm_bias_does_not() {
        let path = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
            .join("oracle/gpt2/model");
        let model = attnscope_families::read(Checkpoint::open(&path).expect("opens"))
            .expect("is understood");
        let of = |role: &str| {
            let tensor = TensorDifference {
                name: "it".to_owned(),
                roles: vec![role.to_owned()],
                relative: 0.5,
                max_abs: 1.0,
                relation: None,
                factor: None,
                rows: Vec::new(),
                heads: Vec::new(),
                counts: true,
            };
            let weights = WeightDifferences {
                differ: vec![tensor],
                ..WeightDifferences::default()
            };
            let map = LayerMap::default();
            suspects((&model.spec, &model.spec), &map, &weights, &[])
                .by_knobs
                .len()
        };
        assert_eq!(of("bias"), model.spec.main_stack().n_layers());
        for role in ["final_norm.bias", "embed.norm.bias", "head.dense.bias"] {
            assert_eq!(of(role), 0, "{role}");
        }
    }
}
