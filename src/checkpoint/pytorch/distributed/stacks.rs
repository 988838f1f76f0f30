//! Megatron's stacked layers: one tensor of all layers, `decoder.layers.mlp.linear_fc1.weight`, taken apart into the tensors of each.

use super::Whole;
use crate::made::Piece;

const LAYERS: &str = "layers.";
/// A name that only stacks of Megatron have.
const PROBE: &str = "layers.self_attention.linear_qkv.weight";

/// Replaces every stack of layers by its layers; leaves other models as they are.
///
/// # Errors
/// Names the stack that has another number of layers than the others, or whose layers do not lie one after another.
pub fn taken_apart(
    tensors: Vec<(String, Whole)>,
) -> Result<Vec<(String, Whole)>, (String, String)> {
    let probe = tensors.iter().find(|(name, _)| name.ends_with(PROBE));
    let Some(n_layers) = probe.and_then(|(_, whole)| whole.shape.first().copied()) else {
        return Ok(tensors);
    };
    let mut found = Vec::with_capacity(tensors.len());
    for (name, whole) in tensors {
        let stack = name.split_once(LAYERS);
        let Some((before, after)) =
            stack.filter(|(_, after)| !after.starts_with(|c: char| c.is_ascii_digit()))
        else {
            found.push((name, whole));
            continue;
        };
        if whole.shape.len() < 2 || whole.shape[0] != n_layers {
            let problem = format!(
                "expected a stack of {n_layers} layers, found shape {:?}",
                whole.shape
            );
            return Err((name, problem));
        }
        for layer_idx in 0..n_layers {
            let layer = layer(&whole, layer_idx).ok_or_else(|| {
                let problem = "its layers do not lie one after another in its parts";
                (name.clone(), problem.to_owned())
            })?;
            found.push((format!("{before}{LAYERS}{layer_idx}.{after}"), layer));
        }
    }
    Ok(found)
}

/// Returns one index of the first axis.
fn layer(whole: &Whole, layer_idx: usize) -> Option<Whole> {
    let mut pieces = Vec::new();
    for Piece { offsets, info } in &whole.pieces {
        let Some(own) = layer_idx
            .checked_sub(offsets[0])
            .filter(|own| *own < info.shape[0])
        else {
            continue;
        };
        let mut info = info.rows(own..own + 1)?;
        info.shape.remove(0);
        pieces.push(Piece {
            offsets: offsets[1..].to_vec(),
            info,
        });
    }
    let shape = whole.shape[1..].to_vec();
    (!pieces.is_empty()).then_some(Whole { shape, pieces })
}
